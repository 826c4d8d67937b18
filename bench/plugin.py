"""Between pytest and the session: options in, cases out, progress and the closing report.

The root conftest.py hands pytest's hooks on to here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import report, sweep
from bench.device import DeviceError, detect, unusable_gpu
from bench.judge.flags import flags
from bench.measure.process import WorkerDied
from bench.model.ceilings import is_ceiling
from bench.schedule import Place, order
from bench.session import RESULTS, Session, measured_s
from bench.spec import Problem
from bench.store import Measurement, StoreError
from bench.sweep import Case, SweepError

CPU_BUDGET_S = 120.0
"""A CPU is measured for this long unless told otherwise; a GPU for as long as the sweeps need."""


class Refusal(ValueError):
    """One sentence saying what was given and what is possible; the command ends with exit code 2."""


class Run:
    """One invocation of pytest on bench/."""

    KEY = pytest.StashKey["Run"]()

    def __init__(
        self,
        option: Any,
        find: Callable[[str], type[Problem]],
        names: Callable[[], list[str]],
    ) -> None:
        """Options as pytest parsed them; `find` and `names` are those of kernels/. Raises Refusal."""
        self._names, self._find = names, find
        try:
            self.device = detect(option.bench_device)
            chosen = self.device.kind == "cpu" and option.bench_device == "auto"
            self._unusable = unusable_gpu() if chosen else ""
            budget_s = _budget_s(option.bench_budget, self.device.kind)
            results = Path(option.bench_results) if option.bench_results else RESULTS
            self.session = Session(self.device, results, budget_s, option.bench_resume)
            self.cases: dict[str, Case] = {}
            if option.bench_run:
                self.cases = {case.id: case for case in self._load(option.bench_sweep)}
                self.session.open()
        except (DeviceError, SweepError, StoreError) as error:
            raise Refusal(str(error)) from error
        self.timing = bool(option.bench_run)
        self.interrupted = False
        self._examples: dict[str, tuple[str, Problem]] = {}
        self._broken: dict[str, str] = {}
        self._elsewhere: list[Case] = []
        self._number = 0
        self._total = 0
        self.news = ""
        """A line about the case that has just ended, to be shown once pytest no longer captures output."""

    def _load(self, names: Iterable[str]) -> Iterable[Case]:
        paths = [path for name in names for path in sweep.select(name)] if names else sweep.SWEEPS
        if isinstance(paths, list):
            ceilings = [path for path in sweep.select("ceilings") if path not in paths]
            paths = [*ceilings, *dict.fromkeys(paths)]  # nothing is read without its roof
        cases = [c for one in sweep.load_all(paths, self._find, self.device.sm_count) for c in one.cases]
        yield from cases
        # Clocks move while a run lasts: its roof is what was reached at either end.
        yield from (replace(case, visit=1) for case in cases if is_ceiling(case.sweep))

    def order(self, identifiers: list[str]) -> tuple[list[int], list[int]]:
        """Of these cases, as indices, those that run, in order, and those that this device cannot run.

        Ceilings first, then in rounds if there is a budget. If it can run none, all count as running: each
        is then shown with its reason.
        """
        cases = [self.cases[identifier] for identifier in identifiers]
        missing = [self.session.missing(case.implementation, case.problem) for case in cases]
        here = [i for i, reason in enumerate(missing) if not reason] or list(range(len(cases)))
        first = [i for i in here if is_ceiling(cases[i].sweep) and not cases[i].visit]
        last = [i for i in here if cases[i].visit]
        between = [i for i in here if not is_ceiling(cases[i].sweep)]
        if self.session.budget_s is not None:
            between = [between[i] for i in order([_place(cases[j]) for j in between])]
        elsewhere = sorted(set(range(len(cases))) - set(here))
        self._elsewhere = [cases[i] for i in elsewhere]
        return [*first, *between, *last], elsewhere

    def plan(self, identifiers: Iterable[str]) -> None:
        """The cases that pytest has left after -k and the like, in the order they will run."""
        chosen = [self.cases[i] for i in identifiers if i in self.cases]
        self._total = len(chosen)
        self.session.plan(chosen)

    # ---- tests

    def measure(self, identifier: str) -> Measurement | None:
        """Measure one case and report it; None if the resumed run has it already."""
        case = self.cases[identifier]
        self._number += 1
        if self.session.done_before(case):
            return None
        row = self.session.run(case)
        if row.status not in ("unsupported", "skipped"):
            left_s = self.session.left_s()
            self.news = report.progress_line(self._number, self._total, row, case.problem, left_s)
        return row

    def extra_info(self, row: Measurement) -> dict[str, Any]:
        """What pytest-benchmark's JSON says beside the times: plain values, nothing infinite."""
        names = ["device", "run_id", "clock", "cache", "protocol", "status", "stop", "settled", "threads"]
        names += ["flop", "byte", "low_s", "high_s", "relative_error", "configuration"]
        info = {name: getattr(row, name) for name in names}
        info["flags"] = flags(row, self.session.ceilings)
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in info.items()}

    def examples(self) -> Iterable[str]:
        """Identifiers of every (implementation, example) that this device can run."""
        if not self._examples:
            for name in self._names():
                try:
                    problem, found = self._find(name), self.session.examples(name)
                except RuntimeError as error:  # one broken operator must not hide what the others show
                    self._broken[f"{name}-cannot-be-tested"] = str(error)
                    continue
                for parameters in found:
                    example = problem(**parameters)
                    for one in problem.implementations:
                        if not self.session.missing(one.name, example):
                            identifier = f"{name}-{one.name}-{example}".replace(" ", "-")
                            self._examples[identifier] = (one.name, example)
        return [*self._examples, *self._broken]

    def check(self, identifier: str) -> dict[str, Any]:
        """Whether an implementation is right at an example."""
        if identifier in self._broken:
            return {"status": "error", "reason": self._broken[identifier]}
        return self.session.check(*self._examples[identifier])

    # ---- the end

    def finish(self, interrupted: bool) -> None:
        """Close the run; an interrupted one keeps its journal for the next to recover or resume."""
        self.interrupted = interrupted
        if interrupted and self.timing:
            self.journal = self.session.interrupted()
        else:
            self.session.close()

    def opening(self) -> list[str]:
        """What is said before the first case. Refusal if the worker does not start."""
        session = self.session
        try:
            libraries = session.libraries
        except WorkerDied as death:
            raise Refusal(f"{self.device} cannot be measured: {death}") from death
        session.refuse(self._elsewhere)
        where = (
            f"{self.device.name}, {self.device.sm_count} {'SMs' if self.device.kind == 'cuda' else 'cores'}"
        )
        lines = [f"roofbench: {where}; {libraries}"]
        if self._unusable:
            lines.append(f"no GPU is measured: {self._unusable}")
        if self.timing:
            limit = "no limit" if session.budget_s is None else report.duration_text(session.budget_s)
            lines.append(f"budget: {limit}; results: {session.folder}")
        for left in session.recovered:
            done = "going on with" if left.resumed else "recovered"
            lines.append(f"{done} an unfinished run: {left.rows} rows, {left.path}")
        return lines

    def closing(self) -> list[str]:
        """The table, the account, and where everything is."""
        session = self.session
        place = {case.key: place for place, case in enumerate(self.cases.values())}
        rows = sorted(session.rows, key=lambda row: place.get(row.case, len(place)))
        if not rows:
            return ["no case was measured"]
        problems = [self._find(row.operator).model_validate_json(row.parameters) for row in rows]
        lines = []
        if drawn := report.table(rows, problems):
            lines += [drawn, ""]
        lines += report.account(rows, session.elapsed_s, measured_s(rows), session.starting_s)
        if not any(is_ceiling(row.sweep) for row in rows):
            lines.append('no ceilings among these cases, so no roof: give -k "ceilings or (...)"')
        if self.interrupted:
            lines.append(f"interrupted: these rows are safe in {self.journal}")
            lines.append("the next run turns them into a result file; --bench-resume goes on from there")
        elif session.path is not None:
            lines.append(f"results: {session.path}")
            lines.append(f"figures: python -m plots {session.path}")
        return lines


def _place(case: Case) -> Place:
    words = {k: v for k, v in case.problem.parameters().items() if isinstance(v, str | bool)}
    kind = (case.problem.operator, case.implementation, case.cache, tuple(words.items()))
    return Place(case.sweep, kind, case.series)


def _budget_s(given: str | None, kind: str) -> float | None:
    if given is None:
        return CPU_BUDGET_S if kind == "cpu" else None
    try:
        budget_s = float(given)
    except ValueError:
        budget_s = math.nan
    if not budget_s > 0:
        raise Refusal(f"--bench-budget {given}: give seconds, more than 0, or inf for no limit")
    return None if math.isinf(budget_s) else budget_s
