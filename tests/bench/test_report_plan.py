"""What a person is told before a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.cli.run_lines import asked_text, claims_line, left_out_line
from bench.errors import UserError
from bench.runner.comparisons import CaseGroup
from bench.runner.limits import PRECISION
from bench.runner.options import BUDGET_S, budget_s, precision
from bench.sweep.claims import Claim
from bench.sweep.load import Case


def test_what_is_asked_for_is_counted_with_ceilings_apart() -> None:
    made = [("gemm/a", "measurement"), ("gemm/b", "measurement"), ("gemm/b", "measurement"), ("c", "roof")]
    cases = [cast(Case, SimpleNamespace(sweep=sweep, role=role)) for sweep, role in made]
    assert asked_text(cases) == "3 cases of 2 sweeps, and 1 ceiling"
    assert asked_text(cases[:1]) == "1 case of 1 sweep, and no ceilings"


def test_what_there_is_no_time_for_is_said_by_sweeps_and_rules() -> None:
    claim: dict[str, Any] = {"id": "MM-01", "rules": [3, 7], "says": "s", "expect": "below 1"}
    claim |= {"slope": {"x": "n"}}
    made = [SimpleNamespace(sweep=f"gemm/s{number}", key=str(number)) for number in range(9)]
    cases = [cast(Case, case) for case in made]
    of_claim = CaseGroup(tuple(cases[:2]), Claim.model_validate(claim))
    other = CaseGroup(tuple(cases[:1]), Claim.model_validate({**claim, "id": "MM-02", "rules": []}))
    said = "no time for all cases of gemm/s0{}: give --bench-budget more"
    assert list(left_out_line([other])) == [said.format("")]
    assert list(left_out_line([of_claim, other])) == [said.format(", which rules 3, 7 need")]
    (line,) = left_out_line([CaseGroup((case,)) for case in cases])
    assert "gemm/s3, gemm/s4 and 4 more sweeps: give" in line
    assert list(left_out_line([])) == []
    enough = "these cases are enough for verdicts on "
    assert claims_line([of_claim, other]) == f"{enough}2 claims, on rules 3, 7" and claims_line([]) == ""


def test_a_gpu_has_ten_minutes_unless_told_otherwise() -> None:
    assert budget_s(None, "cuda") == BUDGET_S["cuda"] == 600 and budget_s(None, "cpu") == 120
    assert budget_s("inf", "cuda") is None and budget_s("45", "cuda") == 45


def test_how_narrow_an_interval_is_to_be_is_a_share() -> None:
    assert precision(None) == PRECISION == precision("1%") == precision("0.01") and precision("2.5%") == 0.025
    for given in ("0", "1", "-1%", "100%", "nan", "inf", "much", ""):
        with pytest.raises(UserError, match=r"^--bench-precision .*: give a share of the time"):
            precision(given)
