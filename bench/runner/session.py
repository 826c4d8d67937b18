"""One run on one device, seen from the parent: plans it, asks the worker visit by visit, keeps the journal.

Knows no operator and needs no torch: what a case computes is the worker's business.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.device.detect import Device
from bench.device.lock import device_lock
from bench.model.ceilings import Ceilings, manner
from bench.runner import requests
from bench.runner.giving_up import GivingUp
from bench.runner.itinerary import itinerary
from bench.runner.pace import Pace
from bench.runner.planner import Forecast, Planner
from bench.runner.resume import Kind, Left, begin, go_on
from bench.runner.row import SEED, commit, origin, visit_row
from bench.runner.schedule import Job, Schedule, launch_limit_s
from bench.runner.shard import Shard
from bench.runner.supervisor import GRACE_S, Attended
from bench.runner.visits import joined, wants_another
from bench.sampling.protocol import Protocol, Regime, protocol
from bench.spec import Problem
from bench.store.journal import Journal, finish
from bench.store.schema import Measurement
from bench.sweep.load import Case

RESULTS = Path(__file__).parents[2] / "results"
LEAST_GRACE_S = 120.0
"""A GPU's visit may compile and tune for this long at least before it counts as hung."""


@dataclass
class Session:
    """A run on one device. `open` it, `plan` it, go through `walk`, `close` it."""

    device: Device
    results: Path = RESULTS
    budget_s: float | None = None
    """Wall seconds for the whole run; None for as long as every case needs."""
    resume: bool = False
    visits: int = 1
    """How often each case is visited; more if its visits disagree."""
    regime: Regime = "sustained"
    grace_s: float | None = None
    """How long a visit may take beyond its sampling before it counts as hung; None: as attended.py says."""
    shard: Shard | None = None
    """The part of the cases that this run is for; None for all of them."""
    concurrent_gpus: int = 1
    """GPUs that are timed at the same time, this one among them."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """What the person says of this run."""
    anonymous: bool = False
    """Whether what names the machine and its device is hashed in the rows."""
    sweeps: Mapping[str, Any] = field(default_factory=dict)
    """Sweep -> what it declares (`Sweep.declared`), for the result file; known before `open`."""
    left: list[Left] = field(default_factory=list)
    path: Path | None = None
    """The parquet file, once closed."""

    def __post_init__(self) -> None:
        self.protocol: Protocol = protocol(self.device.kind, self.visits, self.regime)
        self.planner = Planner(self.device, self.protocol, self.budget_s)
        self._pace = Pace(self.budget_s, self.planner.sampling)
        self._commit = commit()
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        self.run_id = f"{stamp}-{self._commit.rstrip('+') or 'unknown'}"
        if self.grace_s is None and self.device.kind == "cuda" and self.budget_s is not None:
            # One kernel that hangs must not take the whole budget.
            self.grace_s = min(GRACE_S["cuda"], max(LEAST_GRACE_S, self.budget_s / 10))
        self._origin = origin(self.device, self.tags, self.anonymous)
        self._worker = Attended(self.device, SEED, self.grace_s)
        self._giving_up = GivingUp()
        self._journal: Journal | None = None
        self._held = ExitStack()
        self.unlocked = ""
        """Why nothing keeps a second run off the device; empty if something does, or nothing need."""
        self._made: dict[str, list[Measurement]] = {}
        self._checked: set[tuple[str, Problem]] = set()
        self._jobs: dict[str, Case] = {}
        self._able: set[str] = set()
        self._ceilings: list[Case] = []
        self._others = 0
        """Cases that the device can run, beside the ceilings."""
        self._launch_s: dict[str, float | None] = {}
        """Predictions, as long as no ceiling is measured anew."""

    # ---- before the first case

    @property
    def _concurrent(self) -> int | None:
        """For the rows; a CPU has no count of GPUs."""
        return None if self.device.index is None else self.concurrent_gpus

    @property
    def folder(self) -> Path:
        """Where this device's results lie."""
        return self.results / self.device.slug

    def open(self) -> None:
        """Take the device, recover or resume what earlier runs left, open this run's journal.

        DeviceBusy if another run has the device, StoreError if the journal cannot be written.
        """
        lock = device_lock(self.device.uuid, str(self.device), f"results in {self.folder.absolute()}")
        self.unlocked = self._held.enter_context(lock)
        name = self.run_id + (self.shard.suffix if self.shard else "")
        if self.resume:
            kind = Kind(self.device.id, self.shard, self.protocol.hash, self._concurrent)
            begun = go_on(self.folder, name, kind, self.sweeps)
        else:
            begun = begin(self.folder, name, self.sweeps)
        self._journal, self.run_id, self.left = begun.journal, begun.run_id, begun.left
        for row in begun.rows:
            self._made.setdefault(row.case, []).append(row)

    def plan(self, cases: Iterable[Case]) -> None:
        """The cases that will be visited, ceilings first, the others in the order of their first visits."""
        self._jobs = {case.key: case for case in cases}
        self._able = {key for key, case in self._jobs.items() if not self.missing(case)}
        self.planner.limit_ceilings(self._jobs.values())
        able = self._able - self.planner.left_out
        self._ceilings = [self._jobs[key] for key in able if self._jobs[key].role != "measurement"]
        self._others = len(able) - len(self._ceilings)

    def forecast(self) -> Forecast:
        """What is expected of this run: of all of it before the first visit, then of what is left."""
        left_s = self._pace.spare_s() if self._launch_s else None
        return self.planner.forecast(list(self._jobs.values()), self._launch_s, left_s)

    def prepare(self) -> None:
        """Compile, tune and check, untimed, what is planned: what fails has its row and no visit."""
        planned = self.forecast().keys
        for case in self._jobs.values():
            what = (case.implementation, case.problem)
            if case.role == "measurement" and case.key not in planned:
                continue
            if what in self._checked or case.key in self._made:
                continue
            if self.missing(case) or self._giving_up.reason(case):
                continue
            self._checked.add(what)
            facts = self.check(*what)
            if facts["status"] != "ok":
                row = self._row(case, facts, 0)
                self._keep(row)
                self._giving_up.saw(case, row)
        self.dismiss()  # it would die with the thread that started it, which may be about to end

    @property
    def expected(self) -> int:
        """About how many visits are to come: the ceilings' twice over, and those there is room for."""
        looks = sum(max(0, 1 + (case.role == "roof") - self._count(case)) for case in self._ceilings)
        planned = self._pace.visits_left
        return looks + (self.protocol.visits * self._others if planned is None else planned)

    # ---- the visits

    def begin(self) -> None:
        """The budget's time runs from now on: another device was measured before."""
        self._pace.begin()

    def walk(self) -> Iterator[tuple[Case, Measurement]]:
        """Visit every case as often as the itinerary says; each visit's row is safe before it is yielded."""
        ceilings = [case for case in self._jobs.values() if case.role != "measurement"]
        others = [case for case in self._jobs.values() if case.role == "measurement"]
        visits = self.protocol.visits
        looks = (lambda: self._sentinels(ceilings), lambda: self._pace.done)
        going = itinerary(ceilings, others, visits, SEED, self._count, self._wants, *looks)
        for case in going:
            made = self._made.get(case.key)
            if made is None or (
                made[-1].status in ("ok", "crashed") and case.role in ("measurement", "roof")
            ):
                yield case, self.visit(case)

    def visit(self, case: Case) -> Measurement:
        """Visit a case once and write the row before returning it. Never raises for what a case does.

        StoreError if the row cannot be written.
        """
        begin, starting_s = time.perf_counter(), self.starting_s
        made = self._made.get(case.key, [])
        refused = None if made else self._refusal(case)
        row = self._row(case, refused or self._ask(case), len(made))
        self._keep(row, sync=refused is None)  # a refusal costs nothing to find again
        self._giving_up.saw(case, row)
        if refused is None:
            # A worker that had to be started is no part of what such a visit costs.
            self._learn(case, row, time.perf_counter() - begin - (self.starting_s - starting_s))
        return row

    def _learn(self, case: Case, row: Measurement, taken_s: float) -> None:
        """What the visit that this row is of tells of those to come."""
        if case.role == "measurement":
            beside_s = taken_s - (row.measure_s or 0.0) - 4 * (row.median_s or 0.0)
            sampling_s = row.measure_s if row.status == "ok" else None
            if row.status not in ("crashed", "timeout"):  # what hangs says nothing of what the others take
                self.planner.visited(case, row.visit == 0, beside_s, sampling_s)
            self._pace.visited()
        elif row.visit == 0 and case.role == "roof":
            self._pace.roof_measured(taken_s, row.measure_s or 0.0)

    def _keep(self, *rows: Measurement, sync: bool = True) -> None:
        assert self._journal is not None
        self._journal.append(*rows, sync=sync)
        for row in rows:
            self._made.setdefault(row.case, []).append(row)
            if row.role != "measurement":
                self._launch_s = {}

    def refuse(self, cases: Iterable[Case]) -> None:
        """Write the rows of cases that this device cannot run, all at once: without a GPU, thousands."""
        rows = [
            self._row(case, {"status": "unsupported", "reason": reason}, 0)
            for case in cases
            if case.key not in self._made
            if (reason := self.missing(case))
        ]
        self._keep(*rows, sync=False)

    def _count(self, case: Case) -> int:
        return len(self._made.get(case.key, ()))

    def _wants(self, case: Case) -> bool:
        """Whether another visit would tell more, and there is time for it."""
        made = self._made.get(case.key, [])
        if not made:
            return True
        if not wants_another(made, self.protocol):
            return False
        if len(made) < self.protocol.visits:
            return case.key not in self.schedule.skipped
        (job,) = self.planner.jobs([(case, self._launch_s.get(case.key), len(made))])
        return self._pace.has_room(replace(job, visits=1))

    def _sentinels(self, ceilings: Iterable[Case]) -> list[Case]:
        """The first ceiling of arithmetic that has a time, and the first of memory."""
        found: dict[bool, Case] = {}
        for case in ceilings:
            made = self._made.get(case.key)
            if made and made[-1].status == "ok" and case.problem.byte and case.threads == "all":
                found.setdefault(case.problem.flop > 0, case)
        return list(found.values())

    def check(self, implementation: str, problem: Problem, quick: bool = False) -> dict[str, Any]:
        """Columns status, reason and errors of one untimed launch; `quick`: nothing is tuned for it."""
        return self._worker.answer(requests.check(implementation, problem, quick))

    def examples(self, operator: str) -> list[dict[str, Any]]:
        """Parameters of the operator's examples, from the worker, which has torch."""
        answer = self._worker.answer({"do": "examples", "operator": operator})
        if "examples" not in answer:
            raise RuntimeError(f"{operator}: {answer['reason']}")
        found: list[dict[str, Any]] = answer["examples"]
        return found

    def missing(self, case: Case) -> str:
        """Why this device cannot run the case; empty if it can."""
        return case.missing(self.device.kind, self.device.capability)

    def cannot(self, implementation: str, problem: Problem) -> str:
        """Why this implementation cannot solve the problem on this device; empty if it can."""
        return problem.missing(implementation, self.device.kind, self.device.capability)

    # ---- what is known so far

    @property
    def made(self) -> list[Measurement]:
        """The row of every visit so far."""
        return [row for rows in self._made.values() for row in rows]

    def visits_of(self, case: Case) -> list[Measurement]:
        """The rows of the case's visits so far."""
        return self._made.get(case.key, [])

    @property
    def starting_s(self) -> float:
        """Wall seconds spent starting workers."""
        return self._worker.starting_s

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since the run began."""
        return self._pace.elapsed_s

    def ceilings(self, cache: str = "cold", threads: str = "all") -> Ceilings:
        """Those measured so far in this run."""
        wanted = manner(cache, threads)
        return Ceilings.of(row for row in self.made if manner(row.cache, row.threads_asked) == wanted)

    def predicted_s(self, case: Case, ceilings: Ceilings) -> float | None:
        """Calibrated least seconds of one launch; None where a ceiling is missing."""
        return requests.predicted_s(case, self.device, ceilings)

    @property
    def has_ceilings(self) -> bool:
        """Whether predictions rest on ceilings of this run."""
        return any(seconds is not None for seconds in self._launch_s.values())

    def left_s(self) -> float | None:
        """About how many seconds the run will go on; None while nothing is known."""
        return self._pace.left_s()

    def _refusal(self, case: Case) -> dict[str, Any] | None:
        """Status and reason of a case that is not worth asking the worker for."""
        if found := requests.impossible(case, self.device):
            return found
        if reason := self._giving_up.reason(case):
            return {"status": "skipped", "reason": reason}
        if case.key in self.planner.left_out:
            reason = f"left out: the budget of {self.budget_s:g} s has no room for it"
            return {"status": "skipped", "reason": reason}
        if case.role != "measurement":
            limit_s = launch_limit_s(self.budget_s)
            predicted_s = self.predicted_s(case, self.ceilings(threads=case.threads))
            if predicted_s is not None and predicted_s > 1.5 * limit_s:
                reason = (
                    f"one launch is predicted to take {predicted_s:.2g} s; the budget allows {limit_s:.2g} s"
                )
                return {"status": "skipped", "reason": reason}
            return None
        if reason := self.schedule.skipped.get(case.key, ""):
            return {"status": "skipped", "reason": reason}
        return None

    @property
    def schedule(self) -> Schedule:
        """Who may run for how long; looked at again as the run goes, from when the ceilings are known."""
        return self._pace.plan(self._due)

    def _due(self) -> list[Job]:
        """The visits that are still asked for, those of cases that were visited before first."""
        if not self._launch_s:
            roofs = {threads: self.ceilings(threads=threads) for threads in ("all", "one")}
            self._launch_s = {
                key: self.predicted_s(case, roofs[case.threads])
                for key, case in self._jobs.items()
                if key in self._able and case.role == "measurement"
            }
        begun, fresh = [], []
        for key, launch_s in self._launch_s.items():
            made = self._made.get(key)
            if self._giving_up.reason(self._jobs[key]):  # skipped when its turn comes, which takes no time
                continue
            if made is None:
                fresh.append((self._jobs[key], launch_s, 0))
            elif made[-1].status == "ok" and len(made) < self.protocol.visits:
                begun.append((self._jobs[key], launch_s, len(made)))
        return self.planner.jobs([*begun, *fresh])

    def _ask(self, case: Case) -> dict[str, Any]:
        if case.role != "measurement":
            sampling_s = self.planner.ceiling_s(case)
        else:
            sampling_s = self.schedule.sampling_s.get(case.key, self._pace.sampling.least_s)
        checked = (case.implementation, case.problem) in self._checked
        checked |= any(row.status == "ok" for row in self._made.get(case.key, ()))
        threads = self._worker.threads(case.threads)
        request = requests.measure(case, self.protocol, self.budget_s, sampling_s, threads, not checked)
        return self._worker.answer(request, sampling_s)

    @property
    def given_up(self) -> list[str]:
        """A sentence for each implementation that is asked no more in this run."""
        return self._giving_up.lines

    @property
    def renewed(self) -> list[str]:
        """Why workers that were alive were replaced, a sentence for each cause."""
        causes = self._worker.renewed.most_common()
        return [f"worker replaced {'once' if n == 1 else f'{n} times'}: {cause}" for cause, n in causes]

    @property
    def libraries(self) -> str:
        """What computes, with versions; starts the worker if need be. WorkerDied if it does not start."""
        self._worker.started()
        return "torch {torch}, {libraries}".format_map(self._worker.hello)

    def _row(self, case: Case, facts: dict[str, Any], visit: int) -> Measurement:
        defaults: dict[str, Any] = {"visit": visit, "threads": self._worker.threads(case.threads) or 1}
        if facts["status"] == "ok":
            defaults["visit_at_s"] = [self.elapsed_s]
        run = {"run_id": self.run_id, "commit": self._commit, "concurrent_gpus": self._concurrent}
        return visit_row(
            case, self.device, self.protocol, self._origin | run | self._worker.hello | defaults | facts
        )

    # ---- after the last case

    def dismiss(self) -> None:
        """End the worker. Whatever is asked next starts another, in the thread that asks."""
        self._worker.close()

    def stop(self) -> None:
        """End the visits, from another thread: that which is going on is given up, and leaves no row.

        Who walks or prepares then gets Stopped. The session can still be closed, or left for later.
        """
        self._worker.stop()

    def rows(self) -> list[Measurement]:
        """One row for each case visited so far."""
        return joined(self.made)

    def close(self) -> None:
        """Let go of the device and turn the journal into the run's parquet file. Safe to call twice.

        StoreError if the file cannot be written; the journal is then still there.
        """
        self._worker.close()
        self._held.close()
        if self._journal is not None:
            journal, self._journal = self._journal, None
            try:
                self.path = finish(journal.path, self.rows())
            finally:
                journal.close()  # held until then: another run would take it for one that was cut short

    def interrupted(self) -> Path | None:
        """Let go of the device and leave the journal for the next run; its path."""
        self._worker.close()
        self._held.close()
        if self._journal is None:
            return None
        journal, self._journal = self._journal, None
        journal.close()
        return journal.path


def measured_s(rows: Sequence[Measurement]) -> dict[str, float]:
    """Where the worker's time went over these rows, seconds: set-up, checking, measuring."""
    parts = ("setup_s", "check_s", "measure_s")
    return {part: sum(getattr(row, part) or 0.0 for row in rows) for part in parts}
