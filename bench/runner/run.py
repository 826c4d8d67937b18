"""One run on the requested devices: options in, visits and result files out. Prints nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast, get_args

from bench.device.detect import Device, chosen, unusable_gpu
from bench.device.other_processes import OtherProcesses
from bench.errors import UserError, unknown
from bench.judge.frame import DeviceRun, runs
from bench.runner.ceilings import needed_ceilings
from bench.runner.comparisons import cases_of_suite, comparisons
from bench.runner.forecast import budget_s, impossible
from bench.runner.rows import MAX_VISITS, tags_of
from bench.runner.session import RESULTS, Session, Visited, at_once, in_turn, prepare_all
from bench.runner.shard import Shard
from bench.runner.worker_process import WorkerDied
from bench.sampling.protocol import Regime
from bench.spec import DeviceKind, Problem
from bench.store.schema import Measurement, RunKey
from bench.sweep import load as sweep
from bench.sweep.load import Case
from bench.sweep.suites import Suite, load_suite, suites


@dataclass(frozen=True)
class Options:
    """Options of a run as texts of the command line (--bench-...)."""

    device: str = "auto"
    sweeps: Sequence[str] = ()
    cases: Sequence[str] = ()
    """Names of the only cases to measure, in addition to the ceilings that they need; empty for all."""
    suite: str | None = None
    """Name of the suite; None for whatever `sweeps` and `cases` say."""
    budget: str | None = None
    visits: str | None = None
    """Visits to each case; None for the suite's number, without a suite 1."""
    regime: str = "sustained"
    results: Path = RESULTS
    shard: str | None = None
    concurrent: bool = False
    resume: bool = False
    tags: Sequence[str] = ()
    """Each `key=value`."""
    anonymous: bool = False


class DeviceCase(NamedTuple):
    """One case on a device."""

    session: Session
    case: Case


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run on one device."""

    device: Device
    rows: list[Measurement]
    """One row for each case visited, those of earlier parts of a resumed run among them."""
    path: Path | None = None
    """The result file; None if there is none."""
    journal: Path | None = None
    """The journal, which holds the rows if there is no result file."""
    reason: str = ""
    """Why there is no result file, or why the run ended early; empty if it came to its end."""
    parts_s: Mapping[str, float] = field(default_factory=dict)
    """The parts of the wall time: `Session.parts_s`."""


class Run:
    """The sessions of a run, one for each device, and the cases that they visit."""

    def __init__(
        self,
        options: Options,
        find: Callable[[str], type[Problem]],
        *,
        timing: bool = True,
        opens: bool = True,
    ) -> None:
        """`find` gives an operator's problem class. UserError if the options cannot work.

        Without `timing` no case is read; without `opens` no journal begins and no device is locked.
        """
        self.options = options
        self.others = OtherProcesses()
        """What they take of the processors while this run begins."""
        self.cases: dict[str, DeviceCase] = {}
        """Every case by the name of its test."""
        self.sessions: list[Session] = []
        self.requested: list[DeviceCase] = []
        """The cases to visit, once planned."""
        self.elsewhere: list[DeviceCase] = []
        """Cases that their device cannot run."""
        self.other_shards = 0
        """Number of cases that other shards measure."""
        self.stopped = ""
        """Why measuring ended early; empty if it did not."""
        self._judged: dict[RunKey, DeviceRun] = {}
        """The rows of each run with their ceilings, once collected."""
        self._rows: dict[tuple[RunKey, str], Measurement] = {}
        self.results: list[RunResult] = []
        """One for each device, once finished."""
        self.shard = Shard.of(options.shard) if options.shard is not None else None
        self.concurrent = options.concurrent and timing
        try:
            if options.suite is not None and (options.sweeps or options.cases):
                given = "--bench-sweep" if options.sweeps else "--bench-case"
                raise UserError(f"--bench-suite chooses among all sweeps: leave it out, or {given}")
            # One that there is not is refused when its sweeps are loaded.
            self.suite = None if options.suite is None else suites().get(options.suite)
            devices = chosen(options.device)
            choosing = devices[0].kind == "cpu" and options.device in ("auto", "all")
            self.unusable = unusable_gpu() if choosing else ""
            if self.concurrent and len(devices) == 1:
                raise UserError(
                    f"--bench-concurrent times several GPUs at the same time, but {devices[0]} would be "
                    "the only device: leave it out, or give --bench-device all where there are several GPUs"
                )
            self.sessions = [self._session(options, device, len(devices)) for device in devices]
            for session in self.sessions if timing else ():
                for case in load_cases(options, session, find):
                    self.cases[self.name(session, case.name)] = DeviceCase(session, case)
            for session in self.sessions if timing and opens else ():
                session.open()
        except UserError:
            self.release()
            raise

    def _session(self, options: Options, device: Device, count: int) -> Session:
        if options.regime not in get_args(Regime):
            raise UserError(f"--bench-regime: {unknown('regime', options.regime, 'a run', get_args(Regime))}")
        return Session(
            device,
            options.results,
            budget_s(options.budget, device.kind, self.suite),
            options.resume,
            _visits(options.visits, self.suite, device.kind),
            cast(Regime, options.regime),
            shard=self.shard,
            concurrent_gpus=count if self.concurrent else 1,
            tags=tags_of(options.tags),
            anonymous=options.anonymous,
            suffix=f"-gpu{device.index}" if count > 1 else "",  # GPUs of one kind share a folder
        )

    def name(self, session: Session, name: str) -> str:
        """Name of the test of a case or example; with several devices it begins with the device."""
        return name if len(self.sessions) == 1 else f"{short_name(session.device)}/{name}"

    @property
    def device(self) -> Device:
        """The first device."""
        return self.sessions[0].device

    def order(self, names: Sequence[str]) -> list[int]:
        """Indices of those of these cases that run, in order.

        Cases of other shards are left out, and cases that their device cannot run, which get rows. The order
        is device by device, with ceilings first, then comparison by comparison.
        """
        requested = [self.cases[name] for name in names]
        ours = [index for index, (_, case) in enumerate(requested) if self._is_in_shard(case)]
        here = [i for i in ours if not requested[i].session.planner.missing(requested[i].case)]
        running: list[int] = []
        for session in self.sessions:
            places = {
                requested[index].case.key: index for index in here if requested[index].session is session
            }
            cases = [requested[index].case for index in places.values()]
            running += [places[case.key] for case in cases if case.role != "measurement"]
            between = [case for case in cases if case.role == "measurement"]
            session.comparisons = comparisons(between, session.claims, session.planner.prices)
            first = {case.key: case for each in session.comparisons for case in each.cases}
            running += [places[key] for key in first]
        self.elsewhere = [requested[index] for index in sorted(set(ours) - set(here))]
        self.other_shards = len(requested) - len(ours)
        return running

    def _is_in_shard(self, case: Case) -> bool:
        """Whether this run measures the case. Ceilings always: no row can be judged without its roof.

        Sweeps stay whole: their cases are compared with each other.
        """
        return self.shard is None or case.role != "measurement" or case.sweep in self.shard

    def plan(self, names: Iterable[str]) -> None:
        """Set the cases to visit, by name: those that `order` gave. UserError if no device can run one."""
        self.requested = [self.cases[name] for name in names if name in self.cases]
        every = (*self.requested, *self.elsewhere)
        measurements = [each for each in every if each.case.role == "measurement"]
        refusals = [impossible(case, session.device) for session, case in measurements]
        if measurements and all(refusals):
            reasons = Counter(refusal["reason"] for refusal in refusals if refusal)
            (reason, count), *_ = reasons.most_common(1)
            where = " or ".join(str(session.device) for session in self.sessions)
            if len(measurements) == 1:
                raise UserError(f"the case that is asked for cannot run on {where}: {reason}")
            raise UserError(
                f"none of the {len(measurements)} cases that are asked for can run on {where}: "
                f"{reason} ({count} of them)"
            )
        for session in self.sessions:
            session.plan(each.case for each in self.requested if each.session is session)

    def libraries(self, session: Session) -> str:
        """The libraries of a device, with versions; starts its worker. UserError if it does not start."""
        try:
            session.worker.started()
        except WorkerDied as death:
            raise UserError(f"{session.device} cannot be measured: {death}") from death
        return "torch {torch}, {libraries}".format_map(session.worker.hello)

    @contextmanager
    def visits(self, most_failures: int | None = None) -> Iterator[Iterator[Visited]]:
        """Every visit of every device, one device after the other, or concurrently on request.

        Once `most_failures` cases have failed (None or 0: no limit) no more are visited. UserError, saying
        which rows are safe, if results can no longer be written.
        """
        for session in self.sessions:
            session.refuse(requested.case for requested in self.elsewhere if requested.session is session)
        if len(self.sessions) > 1:
            prepare_all(self.sessions)
        with at_once(self.sessions) if self.concurrent else nullcontext(in_turn(self.sessions)) as visits:
            yield self._until_failures(visits, most_failures or 0)

    def _until_failures(self, visits: Iterator[Visited], most: int) -> Iterator[Visited]:
        failures = 0
        for visited in visits:
            yield visited
            failures += visited.row.status not in ("ok", "unsupported", "skipped")
            if 0 < most <= failures:
                self.stopped = f"stopped after {failures} failures"
                return

    # ---- the end

    def collect(self) -> None:
        """Join the visits into rows, for the tests to show."""
        rows = [row for session in self.sessions for row in session.rows()]
        self._rows = {(RunKey.of(row), row.case): row for row in rows}
        self._judged = {run.key: run for run in runs(rows)}

    def flags(self, row: Measurement) -> list[str]:
        """The flags of a row that was collected."""
        return self._judged[RunKey.of(row)].flags_of(row)

    def row(self, name: str) -> Measurement | None:
        """The row of a test's case; None if it was not measured."""
        session, case = self.cases[name]
        return self._rows.get((session.key, case.key))

    @property
    def has_a_time(self) -> bool:
        """Whether a requested case has one, ceilings apart unless nothing else was requested."""
        measured = {each.case.key for each in self.requested if each.case.role == "measurement"}
        return any(
            row.is_timed and (row.case in measured or not measured)
            for session in self.sessions
            for row in session.rows()
        )

    def finish(self, interrupted: bool = False, reason: str = "") -> list[RunResult]:
        """Close the run; an interrupted one keeps its journal for the next to recover or resume.

        `reason` is why it ended early. If a result file cannot be written, the result says so, and its
        journal is kept, too.
        """
        if not self.results:
            self.results = [_finished(session, interrupted, reason) for session in self.sessions]
        return self.results

    def release(self) -> None:
        """Close what was opened before a refusal; a resumed journal stays as it was."""
        for session in self.sessions:
            session.interrupted()


def load_cases(options: Options, session: Session, find: Callable[[str], type[Problem]]) -> list[Case]:
    """The requested cases and their ceilings, since no row can be judged without its roof.

    All ceilings, or those of the suite; of named sweeps and cases those that these need. The session keeps
    which ones nobody requested, and what the sweeps declare.
    """
    if options.suite is not None:
        suite = load_suite(options.suite, find, session.device.sm_count)
        paths, loaded, cases = [], suite.loaded, cases_of_suite(suite, session.planner.prices)
    else:
        paths = [path for name in options.sweeps for path in sweep.select(name)]
        every = dict.fromkeys([*(paths or sweep.every_sweep()), *sweep.select("ceilings")])
        loaded = sweep.load_all(every, find, session.device.sm_count)
        cases = [case for each in loaded for case in each.cases]
    session.sweeps = {each.name: each.sweep.declared for each in loaded}
    session.claims = {each.name: each.sweep.claims for each in loaded}
    if options.suite is not None or not (options.sweeps or options.cases):
        return without_idle_roofs(cases)
    names = {sweep.sweep_name(path) for path in paths}
    requested = sweep.pick(cases, options.cases) or [case for case in cases if case.sweep in names]
    measured = with_ceilings(requested, cases, session.device)
    session.added = {case.key for case in measured} - {case.key for case in requested}
    return measured


def with_ceilings(requested: Sequence[Case], every: Sequence[Case], device: Device) -> list[Case]:
    """The requested cases, ceilings first, among them those of `every` that the others need."""
    measured = [case for case in requested if case.role == "measurement"]
    own = [case for case in requested if case.role != "measurement"]
    there = {case.key for case in own}
    ceilings = (case for case in every if case.role != "measurement" and case.key not in there)
    return [*own, *needed_ceilings(measured, ceilings, device), *measured]


def without_idle_roofs(cases: list[Case]) -> list[Case]:
    """These cases but for roofs of one thread, which cost time, unless a case is of one thread."""
    few = any(case.threads == "one" and case.role == "measurement" for case in cases)
    return [case for case in cases if few or case.threads == "all" or case.role == "measurement"]


def _finished(session: Session, interrupted: bool, reason: str) -> RunResult:
    journal = None
    if interrupted:
        journal = session.interrupted()
    else:
        try:
            session.close()
        except UserError as error:
            reason = str(error)
    return RunResult(session.device, session.rows(), session.path, journal, reason, session.parts_s)


def short_name(device: Device) -> str:
    """`cpu` or `cuda:0`."""
    return "cpu" if device.index is None else f"cuda:{device.index}"


def _visits(given: str | None, suite: Suite | None, kind: DeviceKind) -> int:
    if given is None:
        return suite.visits.of(kind) if suite else 1
    visits = int(given) if given.isdecimal() else 0
    if not 1 <= visits <= MAX_VISITS:
        raise UserError(f"--bench-visits {given}: give a number from 1 to {MAX_VISITS}")
    return visits
