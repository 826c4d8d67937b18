"""Session: one run on one device; and the visits of several sessions as one stream.

A session holds the device, asks the worker for the visits that the planner chooses, and keeps the journal. It
knows no operator and needs no torch: computing is the worker's part.

Sessions on several devices are walked one after the other, for numbers that can be compared with others: GPUs
in one box share its power, its cooling and its host. Or they are walked concurrently, which shows how they
perform under each other's load: a thread walks each session, whose worker is a process of its own, and
nothing is pinned to processors or memory nodes. Whatever ends the stream early (enough failures, Ctrl-C, a
full disk) ends all sessions: visits in progress are abandoned, earlier ones are safe in the journals.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from bench.device.detect import Device
from bench.device.lock import device_lock
from bench.runner.comparisons import CaseGroup
from bench.runner.forecast import Forecast
from bench.runner.planner import Planner
from bench.runner.resume import RunFacts, UnfinishedRun, begin, earlier_runs, go_on
from bench.runner.rows import UNIT, commit, joined, origin, visit_row
from bench.runner.shard import Shard
from bench.runner.supervisor import GRACE_S, Stopped, WorkerSupervisor, check_request, measure_request
from bench.sampling.protocol import Protocol, Regime, protocol
from bench.spec import DeviceKind, Problem
from bench.store.journal import Journal, finish
from bench.store.schema import FIELDS, Measurement, RunKey
from bench.sweep.claims import Claim
from bench.sweep.load import Case

RESULTS = Path(__file__).parents[2] / "results"
PARTS = ("setup_s", "check_s", "measure_s")
"""Columns that hold wall seconds of the worker: of set-up, checking, measuring."""
LEAST_GRACE_S: Mapping[DeviceKind, float] = {"cpu": 30.0, "cuda": 120.0}
"""Least seconds that a visit may compile and tune before it counts as hung."""


@dataclass
class Session:
    """A run on one device. `open` it, give its planner the cases, go through `walk`, `close` it."""

    device: Device
    results: Path = RESULTS
    budget_s: float | None = None
    """Wall seconds for the whole run; None for as long as every case needs."""
    resume: bool = False
    visits: int = 1
    """How often each case is visited; more if its visits disagree."""
    regime: Regime = "sustained"
    grace_s: float | None = None
    """Seconds that a visit may take beyond its sampling before it counts as hung; None: see supervisor.py."""
    shard: Shard | None = None
    """The part of the cases that this run is for; None for all of them."""
    concurrent_gpus: int = 1
    """GPUs that are timed at the same time, this one among them."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """The user's tags for this run."""
    anonymous: bool = False
    """Whether what names the machine and its device is hashed in the rows."""
    sweeps: Mapping[str, Any] = field(default_factory=dict)
    """Sweep -> what it declares (`Sweep.declared`), for the result file; known before `open`."""
    claims: Mapping[str, Sequence[Claim]] = field(default_factory=dict)
    """Sweep -> its claims, from which comparisons follow."""
    comparisons: Sequence[CaseGroup] | None = None
    """What is measured whole or not at all; None: each case by itself."""
    added: Collection[str] = ()
    """Keys of the ceilings that nobody requested, but the cases need."""
    suffix: str = ""
    """Ending of this run's id that sets it apart from other devices' runs of the same second."""
    left: list[UnfinishedRun] = field(default_factory=list)
    path: Path | None = None
    """The parquet file, once closed."""

    def __post_init__(self) -> None:
        self.protocol: Protocol = protocol(self.device.kind, self.visits, self.regime)
        self.planner = Planner(self.device, self.protocol, self.budget_s)
        self._concurrent = None if self.device.index is None else self.concurrent_gpus
        self._commit = commit()
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        self.run_id = f"{stamp}-{self._commit.rstrip('+') or 'unknown'}{self.suffix}"
        if self.grace_s is None and self.budget_s is not None:
            # One kernel that hangs must not take the whole budget, nor one compilation several times that.
            kind = self.device.kind
            share_s = self.budget_s / 10 if kind == "cuda" else self.budget_s
            self.grace_s = min(GRACE_S[kind], max(LEAST_GRACE_S[kind], share_s))
        self._origin = origin(self.device, self.tags, self.anonymous)
        self.worker = WorkerSupervisor(self.device, grace_s=self.grace_s)
        self.without_column: set[str] = set()
        """Names of the worker's facts that are no column, so that no row holds them."""
        self.unlocked = ""
        """Why the device is not locked against a second run; empty if it is, or needs no lock."""
        self._joined: tuple[int, list[Measurement]] = (0, [])
        """The number of visits that were joined last, and their rows."""
        self.parts_s = dict.fromkeys(PARTS, 0.0)
        """The worker's wall seconds over the visits made so far, earlier parts of a resumed run left out."""
        self._journal: Journal | None = None
        self._lock = ExitStack()
        self.begin()

    # ---- before the first case

    @property
    def folder(self) -> Path:
        """Folder of this device's results."""
        return self.results / self.device.slug

    @property
    def key(self) -> RunKey:
        """The run of its rows."""
        return RunKey(self.device.slug, self.device.id, self.run_id)

    def begin(self) -> None:
        """Start the clock of the budget, again if another device was measured first."""
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
        name = self.run_id + (self.shard.suffix if self.shard else "")
        if self.resume:
            kind = RunFacts(self.device.id, self.shard, self.protocol.hash, self._concurrent)
            begun = go_on(self.folder, name, kind, self.sweeps)
        else:
            begun = begin(self.folder, name, self.sweeps)
        self._journal, self.run_id, self.left = begun.journal, begun.run_id, begun.left
        self.planner.resume(begun.rows)
        if begun.rows:
            # All rows must agree on the unit's names and the tags: this part's own and anonymity come first.
            kept = [*(() if self.anonymous else UNIT), *(() if self.tags else ("tags",))]
            earlier = {name: getattr(begun.rows[0], name) for name in kept}
            self._origin |= {name: value for name, value in earlier.items() if value is not None}

    def plan(self, cases: Iterable[Case]) -> None:
        """Set the cases that may be visited; `comparisons` are known by now."""
        self.planner.plan(cases, self.comparisons)

    def forecast(self) -> Forecast:
        """The forecast of the run, or of the rest of it."""
        return self.planner.forecast(self.elapsed_s, self.worker.starting_s > 0)

    def refuse(self, cases: Iterable[Case]) -> None:
        """Write the rows of cases that this device cannot run, all at once: without a GPU, thousands."""
        there = {row.case for row in self.planner.rows}
        rows = [
            self._row(case, {"status": "unsupported", "reason": reason}, 0)
            for case in cases
            if case.key not in there and (reason := self.planner.missing(case))
        ]
        self._append(*rows, sync=False)
        self.planner.resume(rows)

    def prepare(self) -> None:
        """Compile, tune and check the planned cases, untimed; a case that fails gets its row and no visit."""
        for case in self.planner.unchecked(self.elapsed_s):
            facts = self.check(case.implementation, case.problem)
            if facts["status"] != "ok":
                row = self._row(case, facts, 0)
                self._append(row)
                self.planner.visited(case, row)
        self.worker.close()  # it would die with the thread that started it, which may be about to end

    # ---- the visits

    def walk(self) -> Iterator[tuple[Case, Measurement]]:
        """Visit every case as often as the planner says; each visit's row is safe before it is yielded."""
        while (case := self.planner.next(self.elapsed_s, self.worker.restart_s)) is not None:
            yield case, self.visit(case)

    def visit(self, case: Case) -> Measurement:
        """Visit a case once and write the row before returning it. Never raises for what a case does.

        UserError if the row cannot be written.
        """
        begin, starting_s = time.perf_counter(), self.worker.starting_s
        step = self.planner.step(case, self.elapsed_s)
        if step.refusal is None:
            threads = self.worker.threads(case.threads)
            words = (case, self.protocol, self.budget_s, step.sampling_s, threads, step.is_first)
            facts: Mapping[str, Any] = self.worker.answer(measure_request(*words), step.sampling_s)
        else:
            facts = step.refusal
        row = self._row(case, facts, step.number)
        self.parts_s = {part: so_far + (getattr(row, part) or 0.0) for part, so_far in self.parts_s.items()}
        self._append(row, sync=step.refusal is None)  # a lost refusal costs nothing to repeat
        # A worker that had to be started is no part of what such a visit costs.
        taken_s = time.perf_counter() - begin - (self.worker.starting_s - starting_s)
        self.planner.visited(case, row, taken_s if step.refusal is None else None)
        return row

    def _row(self, case: Case, facts: Mapping[str, Any], visit: int) -> Measurement:
        defaults: dict[str, Any] = {"visit": visit, "threads": self.worker.threads(case.threads) or 1}
        if facts["status"] == "ok":
            defaults["visit_at_s"] = [self.elapsed_s]
        run = {"run_id": self.run_id, "commit": self._commit, "concurrent_gpus": self._concurrent}
        answered = {**self.worker.hello, **defaults, **facts}
        self.without_column |= answered.keys() - FIELDS.keys() - {"python"}  # which the doctor asks for
        known = {name: value for name, value in answered.items() if name in FIELDS}
        return visit_row(case, self.device, self.protocol, {**self._origin, **run, **known})

    def _append(self, *rows: Measurement, sync: bool = True) -> None:
        assert self._journal is not None
        self._journal.append(*rows, sync=sync)

    def check(self, implementation: str, problem: Problem, quick: bool = False) -> dict[str, Any]:
        """Columns status, reason and errors of one untimed launch; `quick`: nothing is tuned for it."""
        return self.worker.answer(check_request(implementation, problem, quick))

    # ---- after the last case

    def rows(self) -> list[Measurement]:
        """One row for each case visited so far."""
        visits = self.planner.rows
        if len(visits) != self._joined[0]:
            self._joined = len(visits), joined(visits, self._earlier)
        return self._joined[1]

    @cached_property
    def _earlier(self) -> Sequence[Sequence[Measurement]]:
        return earlier_runs(self.folder)

    def close(self) -> None:
        """Release the device and turn the journal into the run's parquet file. Safe to call twice.

        UserError if the file cannot be written; the journal is then kept.
        """
        if (journal := self._released()) is not None:
            try:
                self.path = finish(journal.path, self.rows())
            finally:
                journal.close()  # held until now, or another run would recover it

    def interrupted(self) -> Path | None:
        """Release the device and keep the journal for the next run; returns its path."""
        if (journal := self._released()) is None:
            return None
        journal.close()
        return journal.path

    def _released(self) -> Journal | None:
        """End the worker and release the device; returns the journal, None if that was done before."""
        self.worker.close()
        self._lock.close()
        journal, self._journal = self._journal, None
        return journal


# ---- the visits of several sessions


class Visited(NamedTuple):
    """One visit, with its session's state at that time: the session may be going on in another thread."""

    session: Session
    case: Case
    row: Measurement
    visits_left: int
    """About how many visits of this session are to come."""
    left_s: float | None
    """About how many seconds they will take; None while that is unknown."""
    forecast: Forecast | None = None
    """The forecast, at the first visit after which it rests on this run's ceilings; else None."""
    notes: Sequence[str] = ()
    """Sentences that follow from this visit: on an implementation that is given up."""


Messages = SimpleQueue[Visited | BaseException | None]
"""The visits of a session, last of all the error that ended it, None if all were made."""


def in_turn(sessions: Sequence[Session]) -> Iterator[Visited]:
    """The visits of one session after the other; each has a budget of its own."""
    for session in sessions:
        if len(sessions) > 1:
            session.begin()
        yield from _walk(session)


@contextmanager
def at_once(sessions: Sequence[Session]) -> Iterator[Iterator[Visited]]:
    """The visits of all sessions as they come, for as long as the block runs.

    What is raised in a session's thread (UserError) is raised where the stream is read.
    """
    messages: Messages = SimpleQueue()
    threads: list[threading.Thread] = []
    try:
        for session in sessions:
            thread = threading.Thread(target=_send, args=(session, messages), name=str(session.device))
            thread.start()
            threads.append(thread)
        yield _received(messages, len(threads))
    finally:
        _until_ended(sessions, threads)


def prepare_all(sessions: Sequence[Session]) -> None:
    """Compile, tune and check on all devices at once; only timing must be done alone.

    If one fails, or this is interrupted, all end.
    """
    with ThreadPoolExecutor(len(sessions)) as pool:
        try:
            for done in as_completed([pool.submit(session.prepare) for session in sessions]):
                done.result()
        except BaseException:
            _stop(sessions)
            raise


def _walk(session: Session) -> Iterator[Visited]:
    planner, shown, refined = session.planner, 0, False
    for case, row in session.walk():
        new, shown = planner.giving_up.lines[shown:], len(planner.giving_up.lines)
        forecast = None
        if not refined and planner.has_ceilings and case.role == "measurement":
            refined, forecast = True, session.forecast()
        left_s = planner.left_s(session.elapsed_s)
        yield Visited(session, case, row, planner.visits_left(), left_s, forecast, new)


def _send(session: Session, messages: Messages) -> None:
    """Walk a session and send its visits, then that it has ended, whatever happens."""
    error: BaseException | None = None
    try:
        session.begin()
        for visited in _walk(session):
            messages.put(visited)
    except Stopped:
        pass
    except BaseException as raised:
        error = raised
    finally:
        with suppress(Exception):  # an end that fails must not keep the others waiting
            session.worker.close()  # it would die with this thread
        messages.put(error)


def _received(messages: Messages, going: int) -> Iterator[Visited]:
    while going:
        message = messages.get()
        if isinstance(message, BaseException):
            raise message
        if message is not None:
            yield message
        going -= message is None


def _until_ended(sessions: Sequence[Session], threads: Sequence[threading.Thread]) -> None:
    """Stop all sessions and join their threads, even if interrupted meanwhile."""
    try:
        _stop(sessions)
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        _until_ended(sessions, threads)
        raise


def _stop(sessions: Sequence[Session]) -> None:
    for session in sessions:
        session.worker.stop()
