"""Result files into histories: whose night is which, what makes a segment, and what nights may be odd."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.errors import UserError
from bench.judge.history.load import histories
from bench.judge.history.series import SEGMENT, History
from bench.store.parquet import write
from bench.store.schema import Measurement
from tests.bench.rows import row

BEGAN = datetime(2026, 11, 1, 2, 0, 0, tzinfo=UTC)
GPU = {"device": "h100", "device_name": "H100", "device_kind": "cuda", "device_id": "aa", "clock": "graph"}


def run_id(night: int, suffix: str = "") -> str:
    return f"{BEGAN + timedelta(days=night):%Y%m%dT%H%M%SZ}-{night:012x}{suffix}"


def case(number: int, median_s: float | None = 1e-3, **facts: Any) -> Measurement:
    """A row of the case of this number."""
    told = {
        **GPU, "sweep": "gemm/all", "implementation": "triton", "dtype": "float16", "cache": "cold",
        "parameters": f'{{"dtype":"float16","m":{number}}}', "threads": 1, "byte": 100, "byte_moved": 100,
        "flop": 10, "driver": "550", "median_s": median_s, "low_s": median_s and median_s * 0.99,
        "high_s": median_s and median_s * 1.01,
    }  # fmt: skip
    return row(**(told | facts))


class Nights:
    """Writes files as runs do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, night: int, rows: list[Measurement], suffix: str = "", folder: str = "h100") -> Path:
        name = run_id(night, suffix)
        return write(self.folder / folder / f"{name}.parquet", [replace(one, run_id=name) for one in rows])

    def history(self, said: list[str] | None = None) -> History:
        (found,) = histories([self.folder], (said if said is not None else []).append)
        return found


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def test_the_noise_that_rows_publish_is_not_a_nights_own(nights: Nights) -> None:
    """What nights differ by they tell themselves: published in each interval, it would hide every step."""

    def widened(number: int, own: float, visits: float, runs: float) -> Measurement:
        half = math.hypot(max(own, visits), runs)
        ends = {"low_s": 1e-3 * math.exp(-half), "high_s": 1e-3 * math.exp(half)}
        return case(number, noise_visits=visits, noise_runs=runs, **ends)

    nights.add(0, [widened(0, 0.05, 0.01, 0.1), widened(1, 0.005, 0.01, 0.1), case(2)])
    history = nights.history()
    halves = dict(zip(history.series["parameters"], history.half[:, 0], strict=True))
    by_number = [halves[case(number).parameters] for number in range(3)]
    # Of its own more than visits differ by; no more than that; an older file's row, which publishes none.
    assert by_number == pytest.approx([0.05, 0.0, math.log(1.01 / 0.99) / 2], abs=1e-9)


def test_every_time_stands_where_it_belongs(nights: Nights, chance: np.random.Generator) -> None:
    took_s = {(n, c): math.exp(chance.normal()) for n in range(5) for c in range(7) if chance.random() < 0.7}
    took_s[4, 0] = 1.0
    for night in chance.permutation(5).tolist():
        some = [case(c, took_s[night, c]) for c in range(7) if (night, c) in took_s]
        nights.add(night, some or [case(0, None, status="crashed")])
    history = nights.history()
    assert [one.run_id for one in history.nights] == [run_id(night) for night in range(5)]
    for at, parameters in enumerate(history.series["parameters"]):
        number = int(parameters.split(":")[-1].rstrip("}"))
        for night in range(5):
            expected = took_s.get((night, number))
            assert history.log_s[at, night] == pytest.approx(math.log(expected)) if expected else True
            assert np.isnan(history.log_s[at, night]) == (expected is None)
            if expected:
                assert history.half[at, night] == pytest.approx(math.log(1.01 / 0.99) / 2)
    assert [one.timed for one in history.nights] == [sum(n == at for n, _ in took_s) for at in range(5)]


def told_by_nights(
    column: str, name: str, one: Any, other: Any
) -> tuple[str, list[Any], list[int], list[Any]]:
    return column, [one, one, other, other, one], [0, 0, 1, 1, 2], ["", "", name, "", name]


@pytest.mark.parametrize(
    ("column", "values", "segments", "changed"),
    [
        *(
            told_by_nights(
                fact.column, fact.name, *((300.0, 350.0) if "limit" in fact.column else ("1", "2"))
            )
            for fact in SEGMENT
            if "cuda" in fact.kinds
        ),
        # A fact that a night does not know is held against the last night that does.
        ("power_limit_w", [300.0, None, 300.0, None, 350.0], [0, 0, 0, 0, 1], [""] * 4 + ["power-limit"]),
        ("commit", ["c0", "c1"], [0, 0], ["", "commit"]),
        ("commit", ["aa", "", "aa"], [0, 0, 0], ["", "", ""]),
    ],
)
def test_what_belongs_to_the_machine_makes_a_segment_and_a_commit_does_not(
    nights: Nights, column: str, values: list[Any], segments: list[int], changed: list[str]
) -> None:
    for night, value in enumerate(values):
        nights.add(night, [case(0, **{column: value})])
    history = nights.history()
    assert [one.segment for one in history.nights] == segments and len(history.series) == 1
    assert [" ".join(each.fact for each in one.changed) for one in history.nights] == changed


@pytest.mark.parametrize(
    "change",
    [{"protocol": "p9"}, {"clock": "stream"}, {"cache": "warm"}, {"regime": "boost"}, {"fill": "normal"},
     {"concurrent_gpus": 2}, {"threads_asked": "one"}],
    ids=str,
)  # fmt: skip
def test_what_changes_a_time_by_itself_is_another_series(nights: Nights, change: dict[str, Any]) -> None:
    nights.add(0, [case(0)])
    nights.add(1, [case(0, **change)])
    history = nights.history()
    assert len(history.series) == 2 and np.isnan(history.log_s).tolist() == [[False, True], [True, False]]
    assert {one.segment for one in history.nights} == {0}


def test_gpus_of_one_kind_have_histories_of_their_own_and_hosts_of_a_cpu_one(nights: Nights) -> None:
    for night, unit in enumerate("aba"):
        nights.add(night, [case(0, device_id=unit)])
        nights.add(night, [case(0, device="cpu", device_kind="cpu", device_id=unit)], folder="cpu")
    found = {(one.device, one.unit): len(one.nights) for one in histories([nights.folder])}
    assert found == {("cpu", ""): 3, ("h100", "a"): 2, ("h100", "b"): 1}


def test_two_runs_of_one_second_are_two_nights_and_a_copy_is_none(nights: Nights) -> None:
    first = nights.add(0, [case(0)])
    nights.add(0, [case(0)], suffix="-2")
    (nights.folder / "baseline").mkdir()
    (nights.folder / "baseline" / first.name).write_bytes(first.read_bytes())
    history = nights.history(said := [])
    assert [one.run_id for one in history.nights] == [run_id(0), run_id(0, "-2")] and not said
    nights.add(0, [case(1)], folder="other")
    assert len(nights.history(said).nights) == 2
    assert len(said) == 1 and "holds the run" in said[0], "another run of the same name"


def test_a_corrupted_file_is_told_and_hides_no_other(nights: Nights, chance: np.random.Generator) -> None:
    said = list[str]()
    paths = [nights.add(night, [case(c) for c in range(3)]) for night in range(3)]
    data = bytearray(paths[1].read_bytes())
    data[chance.integers(len(data))] ^= 0xFF
    paths[1].write_bytes(bytes(data))
    assert [one.run_id for one in nights.history(said).nights] == [run_id(0), run_id(2)]
    assert len(said) == 1 and said[0].startswith(f"{paths[1]}: ")
    for path in paths:
        path.write_bytes(b"")
    with pytest.raises(UserError):
        histories([nights.folder], said.append)


def test_imported_timings_and_runs_that_do_not_say_when_they_began_are_no_nights(nights: Nights) -> None:
    nights.add(0, [case(0)])
    nights.add(1, [case(0, source="somebody")])
    write(nights.folder / "h100" / "odd.parquet", [case(0, run_id="odd", utc="")])
    history = nights.history(said := [])
    assert [one.run_id for one in history.nights] == [run_id(0)]
    assert len(said) == 2 and said[0].endswith("imported timings have no nights") and "odd began" in said[1]


def test_what_is_no_time_is_none_and_of_two_visits_the_first_counts(nights: Nights) -> None:
    nothing = [case(0, 0.0), case(2, math.inf), case(3, status="wrong"), case(4, None, status="skipped")]
    nights.add(0, [*nothing, case(1, 2.0), case(1, 3.0, visit=1)])
    history = nights.history()
    assert history.log_s.tolist() == [[math.log(2.0)]] and history.nights[0].timed == 1


@pytest.mark.parametrize(
    ("facts", "doubted"),
    [({"steal": 0.03}, True), ({"held_thermal": 0.06}, True), ({"settled": False}, False)],
)
def test_times_that_the_machine_disturbed_are_in_doubt(
    nights: Nights, facts: dict[str, Any], doubted: bool
) -> None:
    nights.add(0, [case(0, **facts), case(1)])
    assert nights.history().doubted.tolist() == [[doubted], [False]]


def test_series_say_whose_speed_they_follow(nights: Nights) -> None:
    """Ceilings by what they are; others by whether memory's roof is what holds them."""
    nothing = {"flop": 0, "byte": 0, "byte_moved": 0, "byte_written": 0}
    floor = case(
        0, 1e-6, sweep="ceilings/launch", role="roof", operator="launch", samples_s=[1e-6] * 9, **nothing
    )
    stream = {"operator": "stream", "flop": 0, "byte": 10**9, "byte_moved": 10**9, "byte_written": 5 * 10**8}
    memory = case(1, 1e-3, sweep="ceilings/stream", role="roof", samples_s=[1e-3] * 9, **stream)
    product = {"arithmetic": "matrix", "flop": 10**12, "byte": 10**6, "byte_moved": 10**6}
    core = case(2, 1e-3, sweep="ceilings/gemm", role="roof", samples_s=[1e-3] * 9, **product)
    bound_by_memory = case(3, 1.05e-3, **(stream | {"arithmetic": "vector"}))
    bound_by_core = case(4, 1.05e-3, **product)
    # By the roof memory's, but far from it: something else takes the time.
    near, far = (case(n, s, **(stream | {"arithmetic": "vector"})) for n, s in ((5, 1.2e-3), (6, 1.3e-3)))
    # The arithmetic takes so much of its time that its speed shows.
    hidden, shows = (
        case(n, 1.2e-3, **stream | {"arithmetic": "matrix", "flop": int(share * 10**12)})
        for n, share in ((7, 0.5), (8, 0.7))
    )
    nights.add(0, [floor, memory, core, bound_by_memory, bound_by_core, near, far, hidden, shows])
    series = nights.history().series
    assert list(series["bound"][:5]) == ["core", "memory", "core", "memory", "core"]
    assert list(series["bound"][5:]) == ["memory", "core", "memory", "core"]
    assert list(series["ceiling"]) == [True] * 3 + [False] * 6


def test_a_run_of_two_drivers_has_no_roofs_and_still_a_history(nights: Nights) -> None:
    ceilings = [
        case(c, sweep="ceilings/gemm", role="roof", driver=str(c), arithmetic="matrix", samples_s=[1e-3] * 9)
        for c in (1, 2)
    ]
    nights.add(0, [*ceilings, case(3)])
    history = nights.history()
    assert history.nights[0].facts["driver"] == "1, 2, 550" and len(history.series) == 3


def test_no_folder_and_an_empty_one_are_told(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "no"):
        with pytest.raises(UserError):
            histories([folder])
