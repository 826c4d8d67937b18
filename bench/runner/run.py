"""A run on one device: its cases are planned, visited, joined into rows and written. It prints nothing.

It holds the device, asks the worker for the visits that its rounds choose, and keeps the journal. It knows
no operator and needs no torch: computing is the worker's part.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.device.detect import Device
from bench.device.lock import device_lock
from bench.device.other_processes import OtherProcesses
from bench.errors import UserError
from bench.format import count_text, duration_text
from bench.judge.read_runs import runs
from bench.runner.cases import ChosenCases
from bench.runner.comparisons import CaseGroup, comparisons
from bench.runner.limits import PRECISION, impossible, launch_limit_s, share_of_few_s
from bench.runner.merge_visits import joined, visit_row
from bench.runner.provenance import UNIT, commit, origin
from bench.runner.resume import RunFacts, UnfinishedRun, begin, earlier_runs
from bench.runner.rounds import NextVisit, Rounds
from bench.runner.supervisor import GRACE_S, WorkerSupervisor, visit_to
from bench.runner.worker_process import WorkerDied
from bench.sampling.protocol import SEVERAL, Protocol, protocol
from bench.spec import DeviceKind
from bench.store.journal import Journal, finish
from bench.store.schema import FIELDS, Measurement
from bench.sweep.load import Case
from bench.worker.visit import VisitResult

RESULTS = Path(__file__).parents[2] / "results"
LEAST_GRACE_S: Mapping[DeviceKind, float] = {"cpu": 30.0, "cuda": 120.0}
"""Least seconds that a visit may compile and tune before it counts as hung."""


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run."""

    device: Device
    rows: list[Measurement]
    """One row for each case visited, those of earlier parts of a resumed run among them."""
    path: Path | None = None
    """The result file; None if there is none."""
    journal: Path | None = None
    """The journal, which holds the rows if there is no result file."""
    reason: str = ""
    """Why there is no result file, or why the run ended early; empty if it came to its end."""


@dataclass
class Run:
    """A run on one device. `open` it, `plan` its cases, go through `walk`, `finish` it."""

    device: Device
    results: Path = RESULTS
    budget_s: float | None = None
    """Wall seconds for the whole run; None for as long as every case needs."""
    precision: float = PRECISION
    """Half-width of the interval within the run with which a case has visits enough, as a share."""
    data: str = "uniform"
    """Of what the inputs of measurements are."""
    resume: bool = False
    concurrent_gpus: int = 1
    """GPUs that are timed at the same time, this one among them."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """The user's tags for this run."""
    suffix: str = ""
    """Ending of this run's id that sets it apart from other devices' runs of the same second."""
    suite: str = ""
    """Name and title of what chooses the cases; empty if sweeps or cases are named."""
    unusable: str = ""
    """Why an installed driver offers no GPU, where the CPU stands in for one; empty otherwise."""
    others: OtherProcesses = field(default_factory=OtherProcesses)
    """What they take of the processors while this run begins."""

    def __post_init__(self) -> None:
        self.protocol: Protocol = protocol(self.device.kind, SEVERAL)
        self.rounds = Rounds(self.device, self.protocol, self.budget_s, self.precision)
        self.choose(ChosenCases())
        self.requested: list[Case] = []
        """The cases to visit, once planned."""
        self.elsewhere: list[Case] = []
        """Cases that this device cannot run."""
        self.left: list[UnfinishedRun] = []
        """Earlier runs that had not been finished when this one opened."""
        self.stopped = ""
        """Why measuring ended early; empty if it did not."""
        self.path: Path | None = None
        """The result file, once closed."""
        self.result: RunResult | None = None
        """The outcome, once finished."""
        self.unlocked = ""
        """Why the device is not locked against a second run; empty if it is, or needs no lock."""
        self._concurrent = None if self.device.index is None else self.concurrent_gpus
        self._commit, self.no_commit = commit()
        """`no_commit`: why the commit of its rows is unknown; empty if it is known."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        self.run_id = f"{stamp}-{self._commit.rstrip('+') or 'unknown'}{self.suffix}"
        self._origin = origin(self.device, self.tags)
        self.worker = WorkerSupervisor(self.device, grace_s=self._grace_s())
        self._launch_s = launch_limit_s(self.budget_s)
        """Seconds that one launch may take."""
        self._joined: tuple[int, list[Measurement]] = (0, [])
        """The number of visits that were joined last, and their rows."""
        self._compared: Sequence[CaseGroup] = ()
        """What is measured whole or not at all, in the order in which it is begun."""
        self._journal: Journal | None = None
        self._lock = ExitStack()
        self.begin()

    def _grace_s(self) -> float | None:
        """One kernel that hangs must not take the whole budget, nor one compilation several times that."""
        if self.budget_s is None:
            return None
        kind = self.device.kind
        share_s = self.budget_s / 10 if kind == "cuda" else self.budget_s
        return min(GRACE_S[kind], max(LEAST_GRACE_S[kind], share_s))

    # ---- plan

    @property
    def folder(self) -> Path:
        """Folder of this device's results."""
        return self.results / self.device.slug

    def begin(self) -> None:
        """Start the clock of the budget, again after waiting for other programs."""
        self._began = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since the run began."""
        return time.perf_counter() - self._began

    def open(self) -> None:
        """Lock the device, recover or resume unfinished runs, open this run's journal.

        UserError if another run holds the device or the journal cannot be written.
        """
        lock = device_lock(self.device.uuid, str(self.device), f"results in {self.folder.absolute()}")
        self.unlocked = self._lock.enter_context(lock)
        kind = RunFacts(self.device.id, self.protocol.hash, self._concurrent or 1) if self.resume else None
        self._journal, rows, self.left = begin(self.folder, self.run_id, self.chosen.sweeps, kind)
        self.run_id = self._journal.path.stem
        if self.device.kind == "cpu":  # while it imports torch; a GPU is first looked at without our worker
            self.worker.begin()
        self.rounds.resume(rows)
        if rows:
            # All rows must agree on the unit's names and the tags: this part's own tags come first.
            kept = UNIT if self.tags else (*UNIT, "tags")
            earlier = {name: getattr(rows[0], name) for name in kept}
            self._origin |= {name: value for name, value in earlier.items() if value is not None}

    def choose(self, chosen: ChosenCases) -> None:
        """Set the cases that may be planned, with what their sweeps declare; before `open`."""
        self.chosen = chosen
        self.cases = {case.name: case for case in chosen.cases}
        """Every case by its name, which is that of its test."""

    def order(self, names: Iterable[str]) -> list[str]:
        """Those of these cases that this run measures, in order: ceilings, then comparison by comparison.

        Left out are cases that the device cannot run, which get rows.
        """
        asked = [self.cases[name] for name in names]
        here = {case.key: case for case in asked if not self._missing(case)}
        self.elsewhere = [case for case in asked if case.key not in here]
        between = [case for case in here.values() if case.role == "measurement"]
        self._compared = comparisons(between, self.chosen.claims, self.device)
        ceilings = [case for case in here.values() if case.role != "measurement"]
        compared = {case.key: case for each in self._compared for case in each.cases}
        return [case.name for case in (*ceilings, *compared.values())]

    def plan(self, names: Iterable[str]) -> None:
        """Set the cases to visit, by name: those that `order` gave. UserError if the device can run none."""
        self.requested = [self.cases[name] for name in names if name in self.cases]
        measurements = [c for c in (*self.requested, *self.elsewhere) if c.role == "measurement"]
        refusals = [impossible(case, self.device) for case in measurements]
        if measurements and all(refusals):
            reasons = Counter(refusal["reason"] for refusal in refusals if refusal)
            (reason, count), *_ = reasons.most_common(1)
            of = f"{count} of {count_text(len(measurements), 'case')}"
            raise UserError(f"nothing that is asked for can run on {self.device}: {reason} ({of})")
        count = sum(case.role == "measurement" for case in self.requested)
        self._launch_s = launch_limit_s(self.budget_s, self.device.kind, count)
        # What is slow is not hung: a few cases may take their shares of the budget each.
        self.worker.grace_s = max(self.worker.grace_s, share_of_few_s(self.budget_s, count))
        self.rounds.plan((case for case in self.requested if case.role != "measurement"), self._compared)

    def _missing(self, case: Case) -> str:
        """Why this device cannot run the case; empty if it can."""
        return case.missing(self.device.kind, self.device.capability)

    def libraries(self) -> str:
        """The libraries of the device, with versions; starts its worker. UserError if it does not start."""
        try:
            self.worker.started()
        except WorkerDied as death:
            raise UserError(f"{self.device} cannot be measured: {death}") from death
        return "torch {torch}, {libraries}".format_map(self.worker.hello)

    def refuse_if_over(self) -> None:
        """UserError if the budget was over before any case was timed."""
        if sentence := self.nothing_fitted:
            raise UserError(sentence)

    # ---- visit

    def walk(self, most_failures: int | None = None) -> Iterator[Measurement]:
        """Make the visits that the rounds choose (rounds.py); each row is safe before it is yielded.

        Once `most_failures` cases have failed (None or 0: no limit) no more are visited. UserError if results
        can no longer be written.
        """
        self._refuse_elsewhere()
        failures = 0
        while (due := self.rounds.next(self.elapsed_s, self.worker.restart_s)) is not None:
            row = self._visit(due)
            yield row
            failures += row.status not in ("ok", "unsupported", "skipped")
            if 0 < (most_failures or 0) <= failures:
                self.stopped = f"stopped after {failures} failures"
                return

    def _visit(self, due: NextVisit) -> Measurement:
        """Visit a case once and write the row before returning it. Never raises for what a case does."""
        began_s, starting_s, case = self.elapsed_s, self.worker.starting_s, due.case
        if due.refusal is None:
            threads = self.worker.threads(case.threads)
            words = (case, self.protocol, due.sampling_s, threads, due.is_first, self._launch_s, self.data)
            result = self.worker.visit(visit_to(*words))
        else:
            result = VisitResult(**due.refusal)
        row = self._row(case, result, due.number)
        self._append(row, sync=due.refusal is None)  # a lost refusal costs nothing to repeat
        # A worker that had to be started is no part of what such a visit costs.
        taken_s = self.elapsed_s - began_s - (self.worker.starting_s - starting_s)
        self.rounds.visited(case, row, taken_s if due.refusal is None else None)
        return row

    def _refuse_elsewhere(self) -> None:
        """Write the rows of cases that this device cannot run, all at once: without a GPU, thousands."""
        there = {row.case for row in self.rounds.rows}
        rows = [
            self._row(case, VisitResult("unsupported", self._missing(case)), 0)
            for case in self.elsewhere
            if case.key not in there
        ]
        self._append(*rows, sync=False)
        self.rounds.resume(rows)

    def _row(self, case: Case, result: VisitResult, number: int) -> Measurement:
        """The row of a visit, before which so many were made."""
        run: dict[str, Any] = {"run_id": self.run_id, "commit": self._commit, "visit": number}
        run |= {name: value for name, value in self.worker.hello.items() if name in FIELDS}
        run |= {"concurrent_gpus": self._concurrent, "threads": self.worker.threads(case.threads) or 1}
        if result.status == "ok":
            run["visit_at_s"] = [self.elapsed_s]
        return visit_row(case, self.device, self.protocol, self._origin | run | result.columns())

    def _append(self, *rows: Measurement, sync: bool = True) -> None:
        assert self._journal is not None
        self._journal.append(*rows, sync=sync)

    # ---- join

    def rows(self) -> list[Measurement]:
        """One row for each case visited so far."""
        visits = self.rounds.rows
        if len(visits) != self._joined[0]:
            self._joined = len(visits), joined(visits, earlier_runs(self.folder))
        return self._joined[1]

    @cached_property
    def flagged(self) -> Mapping[str, tuple[Measurement, list[str]]]:
        """Key of a case that was visited -> its row and flags; to be read once everything is measured."""
        return {row.case: (row, run.flags_of(row)) for run in runs(self.rows()) for row in run.rows}

    @property
    def has_a_time(self) -> bool:
        """Whether a requested case has one, ceilings apart unless nothing else was requested."""
        measured = {case.key for case in self.requested if case.role == "measurement"}
        return any(row.is_timed and (row.case in measured or not measured) for row in self.rows())

    @property
    def nothing_fitted(self) -> str:
        """Why the budget was over before any case was timed; empty if one was, or there is time left."""
        timed = any(row.role == "measurement" and row.measure_s for row in self.rounds.rows)
        if timed or self.budget_s is None or self.elapsed_s < self.budget_s:
            return ""
        spent = f"starting, compiling and checking took {duration_text(self.elapsed_s)}"
        return (
            f"the budget of {self.budget_s:g} s was over before any case was timed: {spent}; "
            "give --bench-budget several times that"
        )

    # ---- write

    def finish(self, interrupted: bool = False, reason: str = "") -> RunResult:
        """Close the run; an interrupted one keeps its journal for the next to recover or resume.

        `reason` is why it ended early. If the result file cannot be written, the result says so, and the
        journal is kept, too.
        """
        if self.result is None:
            journal = None
            if interrupted:
                journal = self.interrupted()
            else:
                try:
                    self.close()
                except UserError as error:
                    reason = str(error)
            self.result = RunResult(self.device, self.rows(), self.path, journal, reason)
        return self.result

    def close(self) -> None:
        """Turn the journal into the run's parquet file and release the device. Safe to call twice.

        UserError if the file cannot be written; the journal is then kept.
        """
        self.worker.close()
        try:
            if self._journal is not None:
                self.path = finish(self._journal.path, self.rows(), self._journal.sweeps)
        finally:
            self.interrupted()  # not before: another run would recover a journal that nobody holds

    def interrupted(self) -> Path | None:
        """End the worker, release the device, leave the journal as it is; its path, None if there is none."""
        self.worker.close()
        self._lock.close()
        journal, self._journal = self._journal, None
        if journal is None:
            return None
        journal.close()
        return journal.path
