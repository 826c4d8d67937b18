"""An implementation that fails alike three times is asked no more, and everybody is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import kernels
from bench.causes import without_function
from bench.cli.closing import closing_lines
from bench.cli.whole_run import show_visits
from bench.runner.failure_limit import FailureLimit
from bench.runner.run import Run
from bench.store.parquet import read_frame
from bench.sweep.load import Case, load
from bench.worker.visit import Visit, VisitResult
from tests.bench import several
from tests.bench.rows import row
from tests.bench.several import begun, opened

SWEEP = """\
title: Small things
source: {document: none, range: ours}
operator: gemm
implementations: [cublas, triton]
cases:
  - {m: [16, 32, 64, 128, 256], n=k: 16, dtype: [float16, bfloat16]}
"""
BROKEN = {"status": "error", "reason": "RuntimeError: no tile fits"}


def cases(folder: Path, name: str = "small", role: str = "measurement") -> list[Case]:
    root = folder / "sweeps"
    root.mkdir(exist_ok=True)
    (root / f"{name}.yaml").write_text(f"role: {role}\n{SWEEP}")
    return load(root / f"{name}.yaml", kernels.problem, 2, root).cases


def only(made: list[Case], implementation: str) -> list[Case]:
    return [case for case in made if case.implementation == implementation]


def told(limit: FailureLimit, made: list[Case], *answers: tuple[str, str]) -> None:
    for case, (status, reason) in zip(made, answers, strict=False):
        parameters = case.key.split("|")[3]
        limit.saw(case, row(sweep=case.sweep, parameters=parameters, status=status, reason=reason))


ERROR, OTHER, CRASH = ("error", "no tile fits"), ("error", "no layout fits"), ("crashed", "SIGSEGV")
OK, WRONG, MEMORY = ("ok", ""), ("wrong", "relative error 1"), ("out_of_memory", "2 GiB")
HANG, LONGER = ("timeout", "no answer within 600 s"), ("timeout", "no answer within 603 s")


@pytest.mark.parametrize(
    ("answers", "given_up"),
    [
        ([ERROR] * 2, False),
        ([ERROR] * 3, True),
        ([CRASH] * 3, True),
        ([ERROR, OTHER, ERROR, OTHER], False),
        ([ERROR, OTHER, CRASH, HANG], False),
        ([ERROR, OTHER, ERROR, OTHER, ERROR], True),
        ([ERROR, ERROR, OK, ERROR, ERROR], False),
        ([ERROR, ERROR, OK, ERROR, ERROR, ERROR], True),
        ([HANG, LONGER, HANG], True),
        ([HANG, OK, LONGER, OK, HANG], True),
        ([WRONG] * 6, False),
        ([MEMORY] * 6, False),
        ([OK] * 6, False),
    ],
)
def test_three_alike_are_enough(tmp_path: Path, answers: list[tuple[str, str]], given_up: bool) -> None:
    limit, made = FailureLimit(), cases(tmp_path)
    ours = only(made, "triton")
    told(limit, ours, *answers)
    assert bool(limit.reason(ours[-1])) == given_up == bool(limit.lines)
    assert all(not limit.reason(case) for case in only(made, "cublas"))


def test_one_case_that_crashes_on_each_of_its_visits_counts_once(tmp_path: Path) -> None:
    limit, ours = FailureLimit(), only(cases(tmp_path), "triton")
    for _ in range(5):
        told(limit, ours[:1], CRASH)
    assert not limit.lines


def test_ceilings_and_others_are_counted_apart(tmp_path: Path) -> None:
    limit = FailureLimit()
    others, ceilings = only(cases(tmp_path), "triton"), only(cases(tmp_path, "roofs", role="roof"), "triton")
    told(limit, others, ERROR, ERROR, ERROR)
    assert limit.reason(others[-1]) and not limit.reason(ceilings[-1])
    told(limit, ceilings, OTHER, OTHER, OTHER)
    assert "no layout fits" in limit.reason(ceilings[-1]) and "no tile" in limit.reason(others[-1])


# ---- in a run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    several.once(monkeypatch)
    return several.stand_in(tmp_path, monkeypatch)


def answering(run: Run, broken: str, asked: list[str]) -> None:
    """Instead of a worker: the implementation `broken` raises, the others have a time."""

    def result(visit: Visit) -> VisitResult:
        asked.append(visit.implementation)
        if visit.implementation == broken:
            return VisitResult(**BROKEN)
        times: dict[str, Any] = {"median_s": 1e-3, "low_s": 1e-3, "high_s": 1e-3, "samples_s": [1e-3] * 20}
        return VisitResult(clock="graph", stop="converged", settled=True, **times)

    run.worker.visit = result  # type: ignore[method-assign]


def shown(run: Run) -> tuple[list[str], str, pd.DataFrame]:
    """The lines of a run while it goes on, those at its end as one, and its rows."""
    lines: list[str] = []
    show_visits(run, lines.append, lines.append)
    result = run.finish()
    assert result.path is not None
    return lines, " ".join(line.strip() for line in closing_lines(run)), read_frame([result.path])


def test_a_run_that_is_resumed_counts_anew(folder: Path) -> None:
    made = cases(folder)
    run = opened(folder, made)
    answering(run, "triton", [])
    walk = run.walk()
    while not run.rounds.failure_limit.lines:
        next(walk)
    run.interrupted()
    again = opened(folder, made, resume=True)
    answering(again, "nothing", asked := [])
    rows = list(again.walk())
    assert not again.rounds.failure_limit.lines and {found.status for found in rows} == {"ok"}
    assert asked.count("triton") == len(only(made, "triton")) - 3
    again.close()


def test_it_is_said_when_it_happens_and_at_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(folder, monkeypatch, cases(folder))
    answering(run, "triton", asked := [])
    run.worker.renewed["the device no longer answers"] = 2
    lines, closing, frame = shown(run)
    assert asked.count("triton") == 3 and asked.count("cublas") == len(only(cases(folder), "cublas"))
    (at,) = [index for index, line in enumerate(lines) if line.startswith("gemm triton is given up")]
    assert sum("RuntimeError: no tile fits" in line for line in lines[:at]) == 3
    assert not any("triton" in line for line in lines[at + 1 :])
    assert lines[at] in closing and "worker replaced (2 times): the device no longer answers" in closing
    skipped = frame[frame["status"] == "skipped"]
    assert len(skipped) == len(only(cases(folder), "triton")) - 3
    assert skipped["reason"].str.startswith("not tried, since 3 cases ended alike").all()


def test_an_implementation_without_its_function_is_named_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = without_function("gemm", "triton")
    monkeypatch.setitem(BROKEN, "reason", lacking)
    run = begun(folder, monkeypatch, cases(folder))
    answering(run, "triton", asked := [])
    lines, closing, rows = shown(run)
    assert asked.count("triton") == sum(lacking in line for line in lines) == closing.count(lacking) == 1
    assert "gemm triton is given up" not in closing
    assert set(rows.loc[rows["implementation"] == "cublas", "status"]) == {"ok"}
