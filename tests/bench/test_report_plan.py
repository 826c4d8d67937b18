"""What a person is told before a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from bench.cli.run_lines import asked_text, left_out_line
from bench.errors import UserError
from bench.runner.comparisons import CaseGroup
from bench.runner.limits import PRECISION
from bench.runner.options import BUDGET_S, budget_s, precision
from bench.sweep.load import Case


def test_what_is_asked_for_is_counted_with_ceilings_apart() -> None:
    made = [("gemm/a", "measurement"), ("gemm/b", "measurement"), ("gemm/b", "measurement"), ("c", "roof")]
    cases = [cast(Case, SimpleNamespace(sweep=sweep, role=role)) for sweep, role in made]
    assert asked_text(cases) == "3 cases of 2 sweeps, and 1 ceiling"
    assert asked_text(cases[:1]) == "1 case of 1 sweep, and no ceilings"


def test_what_there_is_no_time_for_is_said_by_sweeps() -> None:
    made = [SimpleNamespace(sweep=f"gemm/s{number}", key=str(number)) for number in range(9)]
    (line,) = left_out_line([CaseGroup((cast(Case, case),)) for case in made])
    assert line.endswith("gemm/s3, gemm/s4 and 4 more sweeps: give --bench-budget more")
    assert list(left_out_line([])) == []


def test_a_gpu_has_ten_minutes_unless_told_otherwise() -> None:
    assert budget_s(None, "cuda") == BUDGET_S["cuda"] == 600 and budget_s(None, "cpu") == 120
    assert budget_s("inf", "cuda") is None and budget_s("45", "cuda") == 45


def test_how_narrow_an_interval_is_to_be_is_a_share() -> None:
    assert precision(None) == PRECISION == precision("1%") == precision("0.01") and precision("2.5%") == 0.025
    for given in ("0", "1", "-1%", "100%", "nan", "inf", "much", ""):
        with pytest.raises(UserError, match=r"^--bench-precision .*: give a share of the time"):
            precision(given)
