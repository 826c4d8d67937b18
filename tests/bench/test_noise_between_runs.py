"""The noise between runs: what earlier runs of a device say of it, what is none, and what rows make of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.cli.findings import noise_lines
from bench.judge.comparison_side import side
from bench.judge.history.load import histories
from bench.judge.noise import RESTLESS, USUAL, history, is_published, published
from bench.judge.read_runs import read, runs
from bench.judge.work_class import WorkClass
from bench.runner.merge_visits import joined
from bench.runner.resume import begin
from bench.store import parquet
from bench.store.schema import Measurement
from tests.bench.comparable import compared, quiet, run, timed
from tests.bench.rows import NOT_YET, Chance, again, lasting, row, written

LIBRARY = {"device_kind": "cpu", "implementation": "onednn", "sm_clock_hz": None}
GPU_LIBRARY = {"implementation": "cublas"}
MATRIX = USUAL["cpu"][WorkClass.COMPUTE]


def night(chance: Chance, level: float, cases: Iterable[int], **columns: Any) -> list[Measurement]:
    """A run of these cases, each once, all at this level."""
    columns = LIBRARY | columns
    return [timed(chance, level, visits=1, case=case, **columns) for case in cases]


def nights(
    chance: Chance, apart: float, count: int = 8, cases: int = 12, **columns: Any
) -> list[list[Measurement]]:
    """Runs of the same cases whose times differ, from run to run, by this standard deviation."""
    return [
        [
            one
            for case in range(cases)
            for one in night(chance, math.exp(apart * chance.standard_normal()), [case], **columns)
        ]
        for _ in range(count)
    ]


def halves(rows: Iterable[Measurement]) -> float:
    return float(np.median([math.log((row.high_s or 0) / (row.median_s or 1)) for row in rows]))


# --- what earlier runs say --------------------------------------------------------------------------


def test_what_runs_differ_by_is_what_their_cases_say(chance: Chance) -> None:
    """It is what 5 % of 7 x 48 steps exceed; as neighbours share a run, they are worth some 275.

    Each exceeds 1.45 in 0.45 % of cases, so 14 of 275 do in 2e-11 of runs. That fewer exceed 0.55 is rarer.
    """
    usual = MATRIX.runs / 1.96
    as_usual, varying, calm = (
        history(nights(chance, by * usual, cases=48))[WorkClass.COMPUTE] / MATRIX.runs
        for by in (1.0, 4.0, 0.01)
    )
    assert as_usual == pytest.approx(1.0, rel=0.45) and varying == pytest.approx(4.0, rel=0.45)
    assert calm < 0.5


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        *((GPU_LIBRARY, {name: value}) for name, value in (("mig", "on"), ("ecc", "off"))),
        *((GPU_LIBRARY, {name: value}) for name, value in (("concurrent_gpus", 8), ("power_limit_w", 350.0))),
        *((LIBRARY, {name: value}) for name, value in (("governor", "powersave"), ("fill", "zeros"))),
        *((LIBRARY, {name: value}) for name, value in (("threads", 1), ("torch", "9"), ("driver", "9"))),
        *((LIBRARY, {name: "other"}) for name in ("device_id", "protocol")),
        *((LIBRARY, changed) for changed in ({"visit": 1}, {"implementation": "triton"})),
    ],
    ids=str,
)
def test_what_was_changed_between_runs_is_no_noise(
    chance: Chance, kind: dict[str, Any], changed: dict[str, Any]
) -> None:
    """What keeps two rows from being compared keeps their difference out of the noise, too."""
    before, after = ([timed(chance, s, visits=1, case=c, **kind) for c in range(5)] for s in (1.0, 1.3))
    assert history([before, after]).keys() & {*WorkClass} == {WorkClass.COMPUTE}
    assert not history([before, [replace(row, **changed) for row in after]])
    assert not history([before]) and not history([])


def test_runs_of_other_cases_between_two_of_the_same_do_not_hide_their_difference(chance: Chance) -> None:
    """Shards of one run follow one another in a folder, as do runs of other sweeps."""
    mine, others = range(8), range(100, 108)
    together = history([night(chance, level, mine) for level in (1.0, 1.3, 1.0)])
    assert together[WorkClass.COMPUTE] > 2 * MATRIX.runs
    apart = history(night(chance, level, cases) for level in (1.0, 1.3, 1.0) for cases in (mine, others))
    assert apart[WorkClass.COMPUTE] == pytest.approx(together[WorkClass.COMPUTE], rel=0.05)


@pytest.mark.parametrize(("count", "least"), [(2, 0.5), (4, 0.25), (10, 0.1)])
def test_a_gpu_s_own_runs_replace_what_is_published_of_others(
    chance: Chance, count: int, least: float
) -> None:
    """The more of them the more; two runs may agree by chance, however many cases they have."""
    gpu = {"device_kind": "cuda", "sm_clock_hz": 1.9e9} | GPU_LIBRARY
    *earlier, today = nights(chance, 1e-4, count + 1, 60, **gpu)
    usual = USUAL["cuda"][WorkClass.COMPUTE].runs
    first, later = joined(today), joined(today, earlier)
    assert {row.noise_runs for row in first} == {usual} and all(map(is_published, first))
    (runs,) = {row.noise_runs or 0.0 for row in later}
    assert least * usual <= runs < 1.1 * least * usual and not any(map(is_published, later))
    # What a run published before them is read with what the device's runs say since.
    assert {each.verdict for each in compared(first, later).cases} == {"UNDECIDED"}
    slower = [lasting(row, 1.08) for row in later]
    assert {each.verdict for each in compared(first, slower).cases} == {"SLOWER"}


def test_a_row_publishes_what_earlier_runs_say(chance: Chance) -> None:
    (today,) = nights(chance, 0.0, count=1)
    alone = joined(today)
    assert {row.noise_runs for row in alone} == {MATRIX.runs}
    earlier = nights(chance, 0.2)
    differ = history(earlier)[WorkClass.COMPUTE]
    informed = joined(today, earlier)
    assert differ > 3 * MATRIX.runs
    assert min(row.noise_runs or 0.0 for row in informed) == differ
    assert {row.noise_by for row in informed} == {"history"} != {row.noise_by for row in alone}
    assert {row.noise_visits for row in informed} == {row.noise_visits for row in alone}
    assert halves(informed) > halves(alone)


def test_a_restless_run_of_a_calm_device_is_not_taken_for_a_calm_one(chance: Chance) -> None:
    """However calm its earlier runs were: visits that differ by 10 % say that this one is not."""
    once = [
        replace(timed(chance, visits=2, case=case, **LIBRARY), visit_samples=[9, 9]) for case in range(12)
    ]
    today = [replace(one, samples_s=[1.0] * 9 + [math.exp(0.1)] * 9, **NOT_YET) for one in once]
    (run_of,) = runs(today)
    tell = history(nights(chance, 0.001))
    for one, within in zip(today, run_of.within, strict=True):
        assert tell[WorkClass.COMPUTE] < 0.01 and within is not None
        assert within.scatter > 0.05
        assert published(one, within, tell).noise_runs == pytest.approx(RESTLESS * within.scatter)


def test_a_case_that_jumps_is_not_taken_for_a_calm_one(chance: Chance) -> None:
    """One of twenty has two states, 30 % apart; the others, and the kind of work, are calm."""
    earlier = [
        [*night(chance, 1.0, range(19)), *night(chance, level, [99])] for level in (1.0, 1.3, 1.0, 1.3, 1.0)
    ]
    *calm, jumping = joined([*night(chance, 1.0, range(19)), *night(chance, 1.3, [99])], earlier)
    assert (jumping.noise_runs or 0.0) > math.log(1.3) / 2 > 3 * max(row.noise_runs or 0.0 for row in calm)


def test_a_run_says_by_how_much_visits_differed(chance: Chance) -> None:
    """Each case 10 % off from one visit to the next: two visits' standard deviation, 1.96 sqrt 2 times."""
    row = replace(timed(chance, visits=2, **LIBRARY), visit_samples=[9, 9])
    samples_s = [1.0] * 9 + [math.exp(0.1)] * 9
    rows = [replace(row, parameters=f'{{"m":{case}}}', samples_s=samples_s) for case in range(20)]
    (run,) = runs(rows)
    (line,) = noise_lines(run)
    assert line.startswith("from visit to visit, 95 of 100 times changed by at most: matrix multiplications ")
    (once,) = runs([replace(row, samples_s=[1.0] * 9, visit_samples=[9])])
    assert noise_lines(once) == []


def test_a_neighbour_during_an_earlier_run_is_no_noise_history(chance: Chance) -> None:
    """Its own rows are widened by what it took; later ones of the quiet machine are not."""
    quiet_nights = [night(chance, 1.0, range(8)) for _ in range(3)]
    busy = night(chance, 1.6, range(8), pressure=0.4)
    today = night(chance, 1.0, range(8))

    def runs_half(*earlier: list[Measurement]) -> float:
        return float(np.median([row.noise_runs or 0.0 for row in joined(today, earlier)]))

    calm = runs_half(*quiet_nights)
    assert runs_half(quiet_nights[0], busy, *quiet_nights[1:]) == pytest.approx(calm, rel=0.3)
    # A neighbour who is always there is how this machine is.
    assert runs_half(night(chance, 1.0, range(8), pressure=0.4), busy) > 2 * MATRIX.runs


def test_a_row_that_was_taken_from_an_earlier_run_counts_in_that_run_alone(
    chance: Chance, tmp_path: Path
) -> None:
    """Runs up to November 2026 took ceilings of an earlier one (`measured_in`)."""
    first, *others = nights(chance, 0.2)
    assert history([first, *others])
    assert not history([first, *(again(run, measured_in="the first") for run in others)])
    named = [row(run_id=f"2026110{day}T000000Z-x", utc=f"2026-11-0{day}T00:00:00+00:00") for day in (1, 2)]
    taken, own = replace(named[1], measured_in=named[0].run_id), replace(named[1], sweep="another")
    for name, rows in (("a", named[:1]), ("b", [taken, own])):
        parquet.write(tmp_path / f"{name}.parquet", rows)
    _, later = read([tmp_path])
    assert len(side([later], "B").looks) == 1
    (device,) = histories([tmp_path])
    assert [night.timed for night in device.nights] == [1, 1]


def test_a_run_that_is_recovered_knows_what_earlier_runs_say(chance: Chance, tmp_path: Path) -> None:
    """As it would have, had it ended by itself; a damaged file and one of other cases are no hindrance."""
    for number, level in enumerate((1.0, 1.3, 1.0, 1.3)):
        parquet.write(tmp_path / f"20261101T00000{number}Z-a.parquet", night(chance, level, range(8)))
    parquet.write(tmp_path / "20261102T000000Z-a.parquet", night(chance, 1.0, range(50, 54)))
    (tmp_path / "20261103T000000Z-a.parquet").write_bytes(b"PAR1 was here")
    written(tmp_path / "20261104T000000Z-a.journal", again(night(chance, 1.0, range(8)), **NOT_YET))
    journal, _, (left,) = begin(tmp_path, "b")
    journal.close()
    assert min(row.noise_runs or 0.0 for row in parquet.read_rows(left.path)) > 2 * MATRIX.runs


# --- comparing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed", [{"concurrent_gpus": 8}, {"power_limit_w": 350.0}, {"device_id": "other"}], ids=str
)
def test_ceilings_under_another_condition_say_nothing_of_the_machine(
    chance: Chance, changed: dict[str, Any]
) -> None:
    """Where no case is comparable no machine became slower; and a condition waved through is the effect."""
    columns = {"device_kind": "cuda", "device": "h100", "clock": "graph", "concurrent_gpus": 1}
    columns |= {"power_limit_w": 700.0, "governor": None}
    before, after = (run(chance, quiet, 8, 3, **columns) for _ in "ab")
    found = compared(before, [lasting(replace(row, **changed), 1.2) for row in after])
    assert {case.verdict for case in found.cases} == {"NOT COMPARABLE"}
    assert not found.shifts and found.exit_code == 3
