"""One run on the devices asked for: options in, visits and result files out. Prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.device.detect import Device, DeviceError, chosen, unusable_gpu
from bench.device.lock import DeviceBusy
from bench.errors import UserError
from bench.model.ceilings import Ceilings, by_run, is_ceiling
from bench.runner.forecast import budget_s
from bench.runner.session import RESULTS, Session
from bench.runner.shard import Shard
from bench.runner.visits import MOST_ASKED
from bench.runner.walking import Visited, at_once, in_turn, prepare_all
from bench.runner.worker_process import WorkerDied
from bench.sampling.protocol import Regime
from bench.spec import Problem
from bench.store.schema import Measurement, StoreError
from bench.sweep import load as sweep
from bench.sweep.load import Case, SweepError


@dataclass(frozen=True)
class Options:
    """What a person asks of a run, as it is written on the command line (--bench-...)."""

    device: str = "auto"
    sweeps: Sequence[str] = ()
    budget: str | None = None
    visits: str = "1"
    regime: Regime = "sustained"
    results: Path = RESULTS
    shard: str | None = None
    concurrent: bool = False
    resume: bool = False


class Asked(NamedTuple):
    """One case on a device."""

    session: Session
    case: Case


@dataclass(frozen=True)
class RunResult:
    """What became of a run on one device."""

    device: Device
    rows: list[Measurement]
    """One for each case visited, those of earlier parts of a resumed run among them."""
    path: Path | None = None
    """The result file; None if there is none."""
    journal: Path | None = None
    """Where the rows are safe if there is no result file."""
    reason: str = ""
    """Why there is no result file, or why the run ended early; empty if it came to its end."""


class Run:
    """A session on each device, and the cases that they are to visit."""

    def __init__(
        self,
        options: Options,
        find: Callable[[str], type[Problem]],
        *,
        timing: bool = True,
        opens: bool = True,
    ) -> None:
        """`find` gives an operator's problem class. UserError if it cannot be done.

        Without `timing` no case is read; without `opens` no journal begins and no device is taken.
        """
        self.cases: dict[str, Asked] = {}
        """By the name of its test."""
        self.sessions: list[Session] = []
        self.asked: list[Asked] = []
        """What is to be visited, once that is planned."""
        self.elsewhere: list[Asked] = []
        """Cases that their device cannot run."""
        self.other_shards = 0
        """Cases that are other shards' to measure."""
        self.stopped = ""
        """Why the measuring ended early; empty if it did not."""
        self.roofs: dict[tuple[str, str], Ceilings] = {}
        """(run id, condition) -> the ceilings measured under it, once collected."""
        self._rows: dict[tuple[str, str], Measurement] = {}
        self.results: list[RunResult] = []
        """One for each device, once finished."""
        self.shard = None if options.shard is None else Shard.of(options.shard)
        self.concurrent = options.concurrent and timing
        try:
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
                for case in load_cases(options.sweeps, session.device, find):
                    self.cases[self.name(session, case.id)] = Asked(session, case)
            for session in self.sessions if timing and opens else ():
                session.open()
        except (DeviceError, DeviceBusy, SweepError, StoreError) as error:
            self.release()
            raise UserError(str(error)) from error

    def _session(self, options: Options, device: Device, count: int) -> Session:
        return Session(
            device,
            options.results,
            budget_s(options.budget, device.kind),
            options.resume,
            _visits(options.visits),
            options.regime,
            shard=self.shard,
            concurrent_gpus=count if self.concurrent else 1,
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
        """Of these cases, as indices, those that run, in order.

        Left out is what another shard runs, and what its device cannot run; of the latter there will be rows.
        Device by device; ceilings first, then an even spread first. If none can run, all count as running:
        each is then shown with its reason.
        """
        asked = [self.cases[name] for name in names]
        ours = [index for index, (_, case) in enumerate(asked) if self._is_in_shard(case)]
        here = [i for i in ours if not asked[i].session.planner.missing(asked[i].case)] or ours
        running: list[int] = []
        for session in self.sessions:
            indices = [index for index in here if asked[index].session is session]
            between = [index for index in indices if not is_ceiling(asked[index].case.sweep)]
            spread = session.planner.prices.ordered([asked[index].case for index in between])
            running += [index for index in indices if is_ceiling(asked[index].case.sweep)]
            running += [between[place] for place in spread]
        self.elsewhere = [asked[index] for index in sorted(set(ours) - set(here))]
        self.other_shards = len(asked) - len(ours)
        return running

    def _is_in_shard(self, case: Case) -> bool:
        """Whether this run is to measure it: nothing is read without its roof, so ceilings always."""
        return self.shard is None or is_ceiling(case.sweep) or case.key in self.shard

    def plan(self, names: Iterable[str]) -> None:
        """The cases that are to be visited, by name, in the order of their first visits."""
        self.asked = [self.cases[name] for name in names if name in self.cases]
        for session in self.sessions:
            session.planner.plan(asked.case for asked in self.asked if asked.session is session)

    def libraries(self, session: Session) -> str:
        """What computes on a device, with versions; starts its worker. UserError if it does not start."""
        try:
            session.worker.started()
        except WorkerDied as death:
            raise UserError(f"{session.device} cannot be measured: {death}") from death
        return "torch {torch}, {libraries}".format_map(session.worker.hello)

    @contextmanager
    def visits(self, most_failures: int | None = None) -> Iterator[Iterator[Visited]]:
        """Every visit of every device, one device after the other, or all at once if so asked.

        Once `most_failures` cases have failed (None or 0: no limit) no more are visited. StoreError, saying
        what is safe, if results can no longer be written.
        """
        for session in self.sessions:
            session.refuse(asked.case for asked in self.elsewhere if asked.session is session)
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
        self._rows = {(row.run_id, row.case): row for row in rows}
        self.roofs = {(run_id, how): ceilings for (_, run_id, how), ceilings in by_run(rows).items()}

    def row(self, name: str) -> Measurement | None:
        """The row of a test's case; None if it was not measured."""
        session, case = self.cases[name]
        return self._rows.get((session.run_id, case.key))

    def finish(self, interrupted: bool = False, reason: str = "") -> list[RunResult]:
        """Close the run; an interrupted one keeps its journal for the next to recover or resume.

        `reason` is why it ended early. What cannot be written stands in the result: its journal is kept, too.
        """
        if not self.results:
            self.results = [_finished(session, interrupted, reason) for session in self.sessions]
        return self.results

    def release(self) -> None:
        """Let go of what was opened before a refusal; a resumed journal stays what it was."""
        for session in self.sessions:
            session.interrupted()


def load_cases(names: Iterable[str], device: Device, find: Callable[[str], type[Problem]]) -> list[Case]:
    """The cases of these sweeps (none: of all) and their ceilings: nothing is read without its roof."""
    paths = [path for name in names for path in sweep.select(name)] if names else sweep.SWEEPS
    if isinstance(paths, list):
        ceilings = [path for path in sweep.select("ceilings") if path not in paths]
        paths = [*ceilings, *dict.fromkeys(paths)]
    cases = [case for loaded in sweep.load_all(paths, find, device.sm_count) for case in loaded.cases]
    # A roof of one thread costs time, and only cases of one thread need it.
    few = any(case.threads == "one" and not is_ceiling(case.sweep) for case in cases)
    return [case for case in cases if few or case.threads == "all" or not is_ceiling(case.sweep)]


def _finished(session: Session, interrupted: bool, reason: str) -> RunResult:
    journal = None
    if interrupted:
        journal = session.interrupted()
    else:
        try:
            session.close()
        except StoreError as error:
            reason = str(error)
    return RunResult(session.device, session.rows(), session.path, journal, reason)


def short_name(device: Device) -> str:
    """`cpu` or `cuda:0`."""
    return "cpu" if device.index is None else f"cuda:{device.index}"


def _visits(given: str) -> int:
    visits = int(given) if given.isdecimal() else 0
    if not 1 <= visits <= MOST_ASKED:
        raise UserError(f"--bench-visits {given}: give a number from 1 to {MOST_ASKED}")
    return visits
