"""Rows at the edges of the noise model: conditions that changed, neighbours, shards, runs of other cases."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.errors import UserError
from bench.judge.compare import compare
from bench.judge.noise import USUAL, between_runs
from bench.runner.resume import settle
from bench.runner.rows import joined
from bench.store import parquet
from bench.store.journal import Journal
from bench.store.schema import Measurement
from studies.repeated_runs import repeated_lines
from tests.bench.comparable import both, judged, older, quiet, run, runs_of, still, timed

LIBRARY = {"device_kind": "cpu", "implementation": "onednn", "sm_clock_hz": None}
GPU_LIBRARY = {"implementation": "cublas"}


def night(chance: np.random.Generator, level: float, cases: range, **columns: Any) -> list[Measurement]:
    """A run of these cases, each once, all at this level."""
    columns = LIBRARY | columns
    return [timed(chance, level, visits=1, case=case, **columns) for case in cases]


# ---- between runs


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        (GPU_LIBRARY, {"concurrent_gpus": 8}),
        (GPU_LIBRARY, {"power_limit_w": 350.0}),
        (GPU_LIBRARY, {"mig": "on"}),
        (GPU_LIBRARY, {"ecc": "off"}),
        (LIBRARY, {"threads": 1}),
        (LIBRARY, {"governor": "powersave"}),
        (LIBRARY, {"fill": "zeros"}),
    ],
    ids=str,
)
def test_a_changed_condition_is_no_noise_between_runs(
    chance: np.random.Generator, kind: dict[str, Any], changed: dict[str, Any]
) -> None:
    """What keeps two rows from being compared keeps their difference out of the noise, too."""
    before = [timed(chance, visits=1, case=case, **kind) for case in range(5)]
    after = [timed(chance, 1.3, visits=1, case=case, **kind) for case in range(5)]
    assert between_runs([before, after])
    assert not between_runs([before, [replace(row, **changed) for row in after]])


def test_runs_of_other_cases_between_two_of_the_same_do_not_hide_their_difference(
    chance: np.random.Generator,
) -> None:
    """Shards of one run follow one another in a folder, as do runs of other sweeps."""
    mine, others = range(8), range(100, 108)
    together = between_runs([night(chance, level, mine) for level in (1.0, 1.3, 1.0)])
    assert together["matrix"] > 2
    apart = between_runs(night(chance, level, cases) for level in (1.0, 1.3, 1.0) for cases in (mine, others))
    assert apart == pytest.approx(together, rel=0.05)


def test_a_neighbour_during_an_earlier_run_is_no_noise_between_runs(chance: np.random.Generator) -> None:
    """Its own rows are widened by what it took; later ones of the quiet machine are not."""
    quiet_nights = [night(chance, 1.0, range(8)) for _ in range(3)]
    busy = [replace(row, pressure=0.4) for row in night(chance, 1.6, range(8))]
    today = night(chance, 1.0, range(8))

    def runs_half(*earlier: list[Measurement]) -> float:
        (half,) = {row.noise_runs for row in joined(today, earlier)}
        assert half is not None
        return half

    calm = runs_half(*quiet_nights)
    assert runs_half(quiet_nights[0], busy, *quiet_nights[1:]) == pytest.approx(calm, rel=0.3)
    # A neighbour who is always there is how this machine is.
    always = [[replace(row, pressure=0.4) for row in night(chance, level, range(8))] for level in (1.0, 1.6)]
    assert runs_half(*always) > 2 * USUAL["cpu"]["matrix"].runs


def test_a_run_that_is_recovered_knows_what_earlier_runs_say(
    chance: np.random.Generator, tmp_path: Path
) -> None:
    """As it would have, had it ended by itself; a damaged file and one of other cases are no hindrance."""
    for number, level in enumerate((1.0, 1.3, 1.0, 1.3)):
        parquet.write(tmp_path / f"20261101T00000{number}Z-a.parquet", night(chance, level, range(8)))
    parquet.write(tmp_path / "20261102T000000Z-a.parquet", night(chance, 1.0, range(50, 54)))
    (tmp_path / "20261103T000000Z-a.parquet").write_bytes(b"PAR1 was here")
    journal = Journal(tmp_path / "20261104T000000Z-a.journal")
    journal.append(
        *(replace(row, noise_visits=None, noise_runs=None) for row in night(chance, 1.0, range(8)))
    )
    journal.close()
    (left,) = settle(tmp_path)
    spreads = {row.noise_runs for row in parquet.read_rows(left.path)}
    assert len(spreads) == 1 and min(spread or 0 for spread in spreads) > 2 * USUAL["cpu"]["matrix"].runs


@pytest.mark.parametrize("work", [{}, {"cache": "warm"}, {"arithmetic": "vector"}], ids=str)
@pytest.mark.parametrize("apart", [0.1, 0.3])
def test_intervals_hold_what_earlier_runs_differ_by(
    chance: np.random.Generator, work: dict[str, Any], apart: float
) -> None:
    """All of it, not only the share that is usually between runs: a calm run may be one of many levels."""
    earlier = [
        [
            timed(chance, math.exp(apart * chance.standard_normal()), visits=1, case=case, **LIBRARY | work)
            for case in range(30)
        ]
        for _ in range(10)
    ]
    halves = [
        math.log((row.high_s or 0) / (row.median_s or 1))
        for row in joined(night(chance, 1.0, range(10), **work), earlier)
    ]
    assert np.median(halves) == pytest.approx(1.96 * apart, rel=0.3)


# ---- comparing


def test_a_neighbour_on_every_case_is_not_averaged_away(chance: np.random.Generator) -> None:
    """A neighbour stays for a run: what it may have done to one case it may have done to all."""
    before = run(chance, still, 40, 3, **LIBRARY)
    after = [
        replace(row, run_id="b", pressure=0.3) if row.role == "measurement" else replace(row, run_id="b")
        for row in run(chance, still, 40, 3, effect=1.3, **LIBRARY)
    ]
    comparison = compare(runs_of(before), runs_of(after))
    cases = [case.verdict for case in comparison.cases if case.role == "measurement"]
    assert set(cases) == {"UNSURE"}
    assert {mean.verdict for mean in comparison.means if not mean.operator.startswith("ceil")} == {"UNSURE"}
    assert comparison.exit_code != 1


@pytest.mark.parametrize(
    "changed", [{"concurrent_gpus": 8}, {"power_limit_w": 350.0}, {"device_id": "other"}], ids=str
)
def test_ceilings_under_another_condition_say_nothing_of_the_machine(
    chance: np.random.Generator, changed: dict[str, Any]
) -> None:
    """Where no case is comparable no machine became slower; and a condition waved through is the effect."""
    columns = {"device_kind": "cuda", "device": "h100", "clock": "graph", "concurrent_gpus": 1}
    columns |= {"power_limit_w": 700.0, "governor": None}
    before = run(chance, quiet, 8, 3, **columns)
    after = both(*(replace(row, **changed) for row in run(chance, quiet, 8, 3, **columns)))
    after = [
        replace(
            row,
            **{name: 1.2 * getattr(row, name) for name in ("median_s", "low_s", "high_s")},
            samples_s=[1.2 * sample_s for sample_s in row.samples_s or ()],
        )
        for row in after
    ]
    comparison = compare(runs_of(before), runs_of(after))
    assert {case.verdict for case in comparison.cases} == {"NOT COMPARABLE"}
    assert not comparison.shifts and comparison.exit_code == 3


def test_a_device_of_another_kind_is_compared(chance: np.random.Generator) -> None:
    """A file may hold what no version could measure yet; its noise is taken to be a CPU's, the largest."""
    cpu = [older(row) for row in run(chance, still, 4, 3, **LIBRARY)]
    other = [replace(row, device_kind="xpu", device="xpu-simulated") for row in cpu]
    effects = [
        {case.case: case.effect for case in compare(runs_of(rows), runs_of(both(*rows))).cases}
        for rows in (cpu, other)
    ]
    assert effects[0] == effects[1] and None not in effects[0].values()
    assert between_runs([other, other]) == between_runs([cpu, cpu])


def test_neighbours_on_a_partitioned_gpu_are_not_seen_but_there(chance: np.random.Generator) -> None:
    """Other slices share its power, and no count of processes shows who uses them: one at least."""
    before, slower, far_slower = (
        timed(chance, scale, mig="on", sm_clock_hz=None) for scale in (1.0, 1.2, 5.0)
    )
    assert judged(before, slower).verdict == "UNSURE"
    assert judged(before, far_slower).verdict == "SLOWER"


def test_runs_of_two_cards_are_no_repeated_runs(chance: np.random.Generator) -> None:
    """What two cards differ by is no noise of one: coverage would be that of another question."""
    rows = [
        replace(row, run_id=str(number), device_id=f"GPU-{number % 2}")
        for number in range(4)
        for row in run(chance, quiet, 4, 3, device_kind="cuda", device="h100", clock="graph")
    ]
    with pytest.raises(UserError, match="4 runs of several devices "):
        list(repeated_lines(runs_of(rows)))
    assert list(repeated_lines(runs_of([replace(row, device_id="GPU-0") for row in rows])))
