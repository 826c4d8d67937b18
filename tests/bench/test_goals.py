"""Goals held against rows: each figure by hand, each verdict at its bars, and what the file may say."""

import dataclasses
import json
import re
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import kernels
from bench.__main__ import app
from bench.device.datasheet import datasheets
from bench.judge.claim_rows import case_rows
from bench.judge.frame import runs
from bench.judge.goals import Goal, GoalOutcome, cases, goal_of, goals, outcome, outcomes
from bench.judge.standings import REGIONS, gemm_region, latest, median_ends, timed
from bench.store import parquet
from bench.store.schema import Measurement
from bench.sweep.claims import UNITS
from bench.sweep.load import every_sweep, load_all
from kernels.attention.problem import Attention
from kernels.pooling.problem import Pooling
from kernels.softmax.problem import Softmax
from tests.bench.test_standings import SQUARE, measured, run_of
from tests.plots.synthetic import CPU, H100, row

SOFTMAX = Softmax(dtype="float16", direction="forward", rows=4096, length=8192)


def made(**changes: Any) -> Goal:
    given: dict[str, Any] = {"operator": "softmax", "region": "any", "devices": ("H100",), "median": 1.0}
    return Goal(**given | {"rests_on": "x", "refuted_by": "y"} | changes)


def judged(goal: Goal, *rows: Measurement) -> GoalOutcome:
    run = run_of(*rows)
    return outcome(goal, latest(timed(run)), run)


def median(found: GoalOutcome) -> float:
    return statistics.median(each.value for each in found.figures)


def ratios(*values: float, half: float = 0.01) -> list[Measurement]:
    """Rows of problems where the opponent takes so many times our time."""
    rows = []
    for place, value in enumerate(values):
        problem = SOFTMAX.model_copy(update={"rows": 4096 + place})
        rows += [measured(problem, "triton", 1e-3, half), measured(problem, "aten", value * 1e-3, half)]
    return rows


def test_shares_of_the_datasheet_by_hand() -> None:
    lengths = {"q_length": 4096, "kv_length": 4096, "head_width": 128}
    heads = {"batch": 2, "heads": 32, "kv_heads": 32}
    attention = Attention(dtype="float16", direction="forward", causal=False, **heads, **lengths)
    sheet = next(sheet for sheet in datasheets() if "H100 SXM" in sheet.name)
    peak = sheet.peak_flop_per_s("matrix", "float16")
    assert peak is not None
    goal = made(operator="attention", measure="peak")
    run = run_of(measured(attention, "triton", attention.flop / (0.4 * peak)))
    assert outcome(goal, latest(timed(run)), run).verdict == "NO CASE", "a card without a datasheet"
    run = dataclasses.replace(run, datasheet=sheet)
    assert median(outcome(goal, latest(timed(run)), run)) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("values", "half", "verdict"),
    [
        ((1.1, 1.2, 1.3), 0.01, "REACHED"),
        ((0.95, 1.2, 1.3), 0.01, "REACHED"),
        ((0.85, 1.2, 1.3), 0.01, "MISSED"),  # a case below the least
        ((0.95, 0.96, 1.3), 0.01, "MISSED"),  # the median below the goal
        ((0.7, 0.8, 1.3), 0.01, "REFUTED"),  # the median below the least
        ((1.0, 1.001, 1.002), 0.01, "UNDECIDED"),
        ((0.9, 1.2, 1.3), 0.01, "UNDECIDED"),
        ((0.8, 0.89, 1.3), 0.015, "MISSED"),
    ],
)
def test_verdicts(values: tuple[float, ...], half: float, verdict: str) -> None:
    found = judged(made(least=0.9), *ratios(*values, half=half))
    assert (found.verdict, len(found.figures)) == (verdict, 3)
    low, high = median_ends(found.figures)
    assert median(found) == pytest.approx(values[1]) and low < median(found) < high
    lowest = found.figures[0]
    assert lowest.value == pytest.approx(values[0]) and '"rows":4096' in lowest.parameters


def test_a_time_without_an_interval_decides_nothing() -> None:
    rows = [measured(SOFTMAX, "triton", 1e-3, low_s=None, high_s=None), measured(SOFTMAX, "aten", 9e-3)]
    assert judged(made(), *rows).verdict == "UNDECIDED"


def test_a_selection_and_a_region_of_gemm() -> None:
    rows = [measured(SQUARE, "triton", 1e-3), measured(SQUARE, "cublas", 2e-3)]
    small = SQUARE.model_copy(update={"m": 512, "n": 512})
    rows += [measured(small, "triton", 1e-3), measured(small, "cublas", 0.5e-3)]
    assert median(judged(made(operator="gemm", region="16-bit large"), *rows)) == pytest.approx(2)
    assert judged(made(operator="gemm", region="16-bit other"), *rows).verdict == "NO CASE"
    assert median(judged(made(where={"rows": ">4096"}), *ratios(3, 5))) == pytest.approx(5)


def test_the_goals_of_a_run_are_judged_by_its_latest_sound_cold_rows() -> None:
    name = H100.facts["device_name"]
    goal = goal_of("16-bit large", name)
    assert goal is not None and goal == goal_of("16-bit large", "NVIDIA H200")
    assert not any(goal_of(*of) for of in (("16-bit other", name), ("16-bit large", "NVIDIA L4")))
    rows = [measured(SQUARE, who, s) for who, s in (("triton", 9e-3), ("triton", 1e-3), ("cublas", 2e-3))]
    for changes, ratios in (({}, [2]), ({"cache": "warm"}, [2 / 9]), ({"settled": False}, [2 / 9])):
        run = run_of(rows[0], dataclasses.replace(rows[1], sweep="gemm/again", **changes), rows[2])
        found = next(each for each in outcomes(run) if each.goal == goal)
        assert [each.value for each in found.figures] == pytest.approx(ratios)


def test_no_goal_is_about_another_device() -> None:
    (run,) = runs([row(CPU, "softmax/mine", SOFTMAX, "aten")])
    assert list(outcomes(run)) == []


# --- the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("goal", goals(), ids=lambda goal: f"{goal.operator} {goal.region}")
def test_a_goal_names_what_exists(goal: Goal) -> None:
    kind = kernels.problem(goal.operator)
    names = {each.name for each in kind.implementations}
    assert {goal.ours, *goal.to} <= names
    assert set(goal.where) <= {*kind.model_fields, "byte", "flop", "sweep"}
    assert not any(unit in str(goal.where) for unit in UNITS), "rows here have no roofs"
    known = [name for sheet in datasheets() for name in (sheet.name, *sheet.match)]
    assert all(any(part in name for name in known) for part in goal.devices)
    assert goal.operator != "gemm" or goal.region in REGIONS or goal.where
    assert goal.measure != "peak" or kind.rate == "flop"


def test_goals_are_told_apart() -> None:
    keys = [(g.operator, g.region, device, g.measure, g.ours, g.to) for g in goals() for device in g.devices]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"least": 1.0}, "least 1.0 is not below median 1.0"),
        ({"measure": "copy", "to": ("aten",)}, "copy has no opponent"),
        ({"where": {"rows": ">>3"}}, "no condition"),
        ({"median": -1.0}, "greater than 0"),
        ({"mean": 1.0}, "Extra inputs"),
    ],
)
def test_a_goal_that_means_nothing_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        made(**changes)


# --- the command ------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", sorted({goal.operator for goal in goals()}))
def test_a_markdown_table_has_a_line_for_each_goal_of_an_operator(operator: str) -> None:
    shown = CliRunner().invoke(app, ["goals", "--markdown", "--operator", operator])
    heading, _, *lines = shown.stdout.splitlines()
    about = [goal for goal in goals() if goal.operator == operator]
    assert shown.exit_code == 0 and len(lines) == len(about)
    for goal, line in zip(about, lines, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        assert len(cells) == heading.count(" | ") + 1
        assert (cells[0], cells[3], cells[-1]) == (goal.region, goal.bars, goal.refuted_by)


def test_a_result_is_held_against_the_goals(tmp_path: Path) -> None:
    rows = [measured(SQUARE, "triton", 2e-3), measured(SQUARE, "cublas", 1e-3)]
    parquet.write(tmp_path / "run.parquet", list(run_of(*rows).rows))
    shown = CliRunner().invoke(app, ["goals", str(tmp_path), "--operator", "gemm"])
    assert shown.exit_code == 0
    (line,) = (line for line in shown.stdout.splitlines() if "  REFUTED  " in line)
    assert "16-bit large " in line and "0.50" in line
    goal = next(each for each in goals() if each.operator == "gemm" and each.region == "16-bit large")
    assert goal.refuted_by in " ".join(shown.stdout.split())
    assert "float16-NN-m4096-n4096-k4096" in shown.stdout


def test_all_goals_without_a_result() -> None:
    short, shown = (CliRunner().invoke(app, ["goals", *more]) for more in ([], ["--all"]))
    assert short.exit_code == shown.exit_code == 0 and len(short.stdout.splitlines()) < 40
    assert {goal.operator for goal in goals()} <= {*short.stdout.split()}
    operators = {goal.operator for goal in goals()}
    named = [line for line in shown.stdout.splitlines() if any(name in line for name in operators)]
    assert len(named) >= len(goals())


def test_nothing_to_judge_is_said(tmp_path: Path) -> None:
    mine, theirs = (
        parquet.write(tmp_path / f"{who}.parquet", [row(CPU, "softmax/mine", SOFTMAX, "aten", source=who)])
        for who in (None, "somebody")
    )
    for words, said in (
        (["goals", str(mine)], "no run here is on a device with goals"),
        (["goals", str(theirs)], "imported, and goals are about our own kernels (triton)"),
        (["goals", "--operator", "gemn"], "gemm"),
    ):
        shown = CliRunner().invoke(app, words)
        assert shown.exit_code == 2 and said in shown.stderr and "Traceback" not in shown.stderr


def test_pooling_has_goals_for_both_layouts() -> None:
    layouts = {goal.where.get("layout") for goal in goals() if goal.operator == Pooling.operator}
    assert {"NCHW", "NHWC"} <= layouts


# --- what can be checked ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned() -> dict[str, Any]:
    """Operator -> every case of our sweeps, on 132 SMs."""
    rows: dict[str, list[Any]] = {}
    for entry in load_all(every_sweep(), kernels.problem, sm_count=132):
        operator = entry.cases[0].problem.operator
        found = case_rows(entry.cases, 132).assign(sweep=entry.name)
        if operator == "gemm":
            found["region"] = [gemm_region(json.loads(text)) for text in found["parameters"]]
        rows.setdefault(operator, []).append(found.assign(operator=operator))
    return {operator: pd.concat(found, ignore_index=True) for operator, found in rows.items()}


@pytest.mark.parametrize("goal", goals(), ids=lambda goal: f"{goal.operator} {goal.region} {goal.ours}")
def test_some_sweep_has_cases_that_can_refute_a_goal(goal: Goal, planned: dict[str, Any]) -> None:
    rows = cases(goal, planned[goal.operator])
    ours = rows[rows["implementation"] == goal.ours]
    if goal.measure == "ratio":
        names = rows["implementation"]
        others = rows[names.isin(goal.to) if goal.to else ~names.str.startswith("triton")]
        ours = ours[ours["parameters"].isin(others["parameters"])]
    assert len(set(ours["parameters"])) > (0 if "1024 x 1024" in goal.region else 1)
