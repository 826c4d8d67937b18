"""What a person is told before a run."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from bench.cli.closing import _results
from bench.cli.run_lines import claims_line, forecast_line, left_out_lines
from bench.judge.frame import runs
from bench.runner.comparisons import CaseGroup
from bench.runner.forecast import BUDGET_S, Forecast, Tally, budget_s
from bench.runner.run import Run
from bench.sweep.claims import Claim
from bench.sweep.load import Case
from tests.bench.claims_made import SWEEP, slopes
from tests.plots.synthetic import H100 as H100_MACHINE
from tests.plots.synthetic import ceilings

CEILINGS = Tally(82, 7, 84.0)
SOME = Forecast(Tally(1445, 62, 504.0), Tally(14201, 62, 25000.0), CEILINGS, frozenset(), 12.0)
ALL = Forecast(Tally(20, 1, 30.0), Tally(20, 1, 30.0), CEILINGS, frozenset(), 12.0)


def test_how_many_cases_of_how_many_and_both_times_come_first() -> None:
    planned = "1,445 of 14,201 cases, of 62 of 62 sweeps, and 82 ceilings"
    more = "all of them would take about 6 h 58 min (--bench-budget inf)"
    assert forecast_line(SOME, 600.0) == f"planned: {planned}, in about 10 min 00 s; {more}"
    for budget in (None, 600.0):  # where there is time for all nothing is said of a budget
        line = forecast_line(ALL, budget)
        assert line == "planned: all 20 cases of 1 sweep, and 82 ceilings, in about 2 min 06 s"
    few = replace(ALL, planned=Tally(5, 1, 8.0))  # one sweep is not counted out of one
    assert forecast_line(few, 60.0).startswith("planned: 5 of 20 cases of 1 sweep, and 82 ceilings")


def test_what_there_is_no_time_for_is_said_as_claims_and_lines() -> None:
    claim: dict[str, Any] = {"id": "MM-01", "rules": [3, 7], "says": "s", "expect": "below 1"}
    claim |= {"slope": {"x": "n"}}
    made = [SimpleNamespace(sweep=f"gemm/s{number}", key=str(number)) for number in range(9)]
    cases = [cast(Case, case) for case in made]
    of_claim = CaseGroup(tuple(cases[:2]), Claim.model_validate(claim))
    other = CaseGroup(tuple(cases[:1]), Claim.model_validate({**claim, "id": "MM-02", "rules": []}))
    assert list(left_out_lines([other])) == ["no time for the claims MM-02"]
    first, second = left_out_lines([of_claim, *(CaseGroup((case,)) for case in (cases[0], *cases)), other])
    assert first == "no time for the claims MM-01, MM-02 (rules 3, 7)"
    assert second.startswith("no time for 10 lines of plots: 2 of gemm/s0, 1 of gemm/s1, ")
    assert second.endswith(" and of 4 more sweeps")
    assert list(left_out_lines([])) == []


def test_only_claims_that_the_plan_was_enough_for_are_counted() -> None:
    rows = list(slopes(np.random.default_rng(0)))
    (run,) = runs([*ceilings(H100_MACHINE), *rows])
    cases = tuple(cast(Case, SimpleNamespace(sweep=SWEEP, key=row.case)) for row in rows)
    claim = {"says": "s", "expect": "above 0.2", "slope": {"x": "n"}}
    decided, few, part, unsure = (
        Claim.model_validate(claim | {"id": f"MM-0{number}", "least": least})
        for number, least in enumerate((3, 99, 99, 99), start=1)
    )
    unmeasured = cast(Case, SimpleNamespace(sweep=SWEEP, key="unmeasured"))
    compared = [CaseGroup(cases, decided), CaseGroup(cases, few)]
    compared += [CaseGroup(cases, unsure, enough=lambda: False)]
    compared += [CaseGroup((*cases, unmeasured), part), CaseGroup(cases)]
    chosen = SimpleNamespace(claims={SWEEP: [decided, few, part, unsure]})
    measured = SimpleNamespace(chosen=chosen, comparisons=compared, path=None)
    lines = list(_results(cast(Run, measured), run, 20))
    assert "MM-01" in lines[2] and "SUPPORTED" in lines[2]
    assert lines[3:] == ["... all claims: python -m bench claims RESULT"]
    keys = {row.case for row in rows}
    enough = "the planned cases are enough for verdicts on "
    assert claims_line(compared, keys) == f"{enough}2 claims"
    assert claims_line(compared, keys, named=True) == f"{enough}2 claims: gemm/mine MM-01, MM-02"
    assert claims_line(compared, set(), named=True) == f"{enough}0 claims" and claims_line([], keys) == ""


def test_a_gpu_has_ten_minutes_unless_told_otherwise() -> None:
    assert budget_s(None, "cuda") == BUDGET_S["cuda"] == 600 and budget_s(None, "cpu") == 120
    assert budget_s("inf", "cuda") is None and budget_s("45", "cuda") == 45
