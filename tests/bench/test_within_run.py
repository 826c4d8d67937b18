"""The within-run interval: what it covers, what is one moment to it, and what it is without visits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench.case_name import row_name
from bench.cli.explain import explanation
from bench.cli.result_tables import case_table
from bench.format import half_text
from bench.judge.noise import USUAL
from bench.judge.read_runs import read, runs
from bench.judge.within_run import WithinRun, within_run
from bench.judge.work_class import WorkClass
from bench.store.schema import Measurement
from tests.bench.comparable import GPU, timed
from tests.bench.rows import Chance, row

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
RUN_S = 100.0
"""Length of the runs made here."""


def visited(number: int, levels_s: Sequence[float], at_s: Sequence[float]) -> Measurement:
    """The row of a case with a visit of these seconds at each of these seconds of a run."""
    samples_s = [level_s for level_s in levels_s for _ in range(20)]
    return row(
        parameters=f'{{"k":3,"layout":"NN","m":{number},"n":2}}',
        **{"device_kind": "cpu", "flop": 10**9, "byte": 10**6, "arithmetic": "matrix", "cache": "cold"},
        **{"median_s": float(np.median(levels_s)), "samples_s": samples_s, "visits": len(levels_s)},
        **{"visit_samples": [20] * len(levels_s), "visit_at_s": list(at_s), "step_s": 0.0, "run_id": "r"},
    )


def spread(count: int) -> list[float]:
    """As many moments as can be, over the whole run."""
    return np.linspace(RUN_S / count, RUN_S, count).tolist()


def intervals(rows: Sequence[Measurement]) -> list[WithinRun]:
    return [each for each in within_run(rows) if each is not None]


@pytest.mark.parametrize("visits", [2, 3, 4])
def test_it_holds_95_of_100_further_visits(visits: int, chance: Chance) -> None:
    """Cases of one kind scatter by 0.3 to 3 %, each by its own; the machine repeats none of them alike."""
    held = []
    for _ in range(30):
        deviations = np.exp(chance.normal(math.log(0.01), 0.5, 20))
        logs = chance.normal(0, 1, (20, visits + 1)) * deviations[:, None]
        rows = [visited(m, np.exp(case[:-1]).tolist(), spread(visits)) for m, case in enumerate(logs, 1)]
        for one, within, case in zip(rows, intervals(rows), logs, strict=True):
            held.append(abs(case[-1] - math.log(one.median_s or 1)) <= within.visit)
    assert 0.92 <= np.mean(held) <= 0.98


def test_the_median_is_known_the_better_the_more_visits(chance: Chance) -> None:
    """A further visit scatters as it did; that of the median shrinks with the root of their number."""
    for visits in (2, 3, 5):
        logs = chance.normal(0, 0.01, (40, visits))
        within = intervals([visited(m, np.exp(c).tolist(), spread(visits)) for m, c in enumerate(logs, 1)])
        assert within[0].visit == pytest.approx(within[0].half * math.sqrt(visits + 1))
        assert 0.005 < np.median([each.half for each in within]) * math.sqrt(visits) / 2 < 0.03


def test_a_case_between_two_speeds_makes_no_other_wider() -> None:
    steady = [visited(m, [1.0, 1.01, 0.99], spread(3)) for m in range(1, 9)]
    alone = intervals(steady)[0].half
    with_one = intervals([*steady, visited(9, [1.0, 1.8, 1.0], spread(3))])
    assert with_one[0].half < 2 * alone and with_one[-1].half > 10 * with_one[0].half


def test_visits_within_a_fifth_of_the_run_are_one_moment() -> None:
    """Three visits in a row agree, and say no more of another moment than one of them would."""
    others = [visited(m, [1.0, 1.05], spread(2)) for m in range(1, 9)]
    together = visited(9, [2.0, 2.0, 2.0], [80, 85, 90])
    apart = visited(9, [2.0, 2.0, 2.0], spread(3))
    once = visited(9, [2.0], [85])
    half, half_apart, half_once = (intervals([*others, case])[-1].half for case in (together, apart, once))
    assert half == pytest.approx(half_once, rel=0.1) and half_apart < half / 2


def test_without_a_second_visit_the_usual_spread_is_assumed_and_named(chance: Chance) -> None:
    """Of imported rows, and wherever a run never came back to a case."""
    (once,) = intervals([visited(1, [1.0], [50.0])])
    assert once.by == "assumed" and once.visit == pytest.approx(
        USUAL["cpu"][WorkClass.COMPUTE].visits, rel=1e-3
    )
    gpu = timed(chance, **GPU, samples_s=None, visit_samples=None, source="Vidur")
    assert intervals([gpu])[0].by == "assumed"


def test_an_older_file_has_it_in_its_columns() -> None:
    rows = [visited(m, [1.0, 1.02], spread(2)) for m in range(1, 6)]
    (run,) = runs([*rows, row(status="error", median_s=None, run_id="r")])
    columns = run.columns
    assert columns["run_by"].dropna().tolist() == ["visits"] * 5
    assert (columns["run_low_s"] < columns["median_s"])[:5].all()
    ends = np.log(columns["run_high_s"] / columns["median_s"]).tolist()
    assert ends[:5] == pytest.approx([each.visit for each in intervals(rows)]) and math.isnan(ends[5])


def test_the_table_shows_the_first_interval_and_explain_says_both() -> None:
    """Each in words, with what tells it."""
    night = sorted((REFERENCE / "nights").glob("*/*.parquet"))[0]
    (run,) = read([night])
    row = next(row for row in run.rows if row.role == "measurement" and row.is_timed)
    shown = half_text(row.median_s, *run.run_ends_s(row))
    (line,) = (line for line in case_table(run) if line.startswith(f" {row_name(row)} "))
    assert f" {shown} " in line
    told = "\n".join(explanation(row_name(row), night))
    assert f"95 of 100 visits within {shown} (its visits)" in told
    assert "by the usual spread of such work, assumed" in told
