"""One run, seen from the parent: plans it, asks the worker case by case, keeps the journal.

Knows no operator and needs no torch: what a case computes is the worker's business.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.device import Device
from bench.measure.process import Worker, WorkerDied
from bench.model.ceilings import Ceilings, is_ceiling
from bench.model.roofline import calibrated, traffic
from bench.schedule import OVERHEAD_S, Job, Schedule, launch_limit_s, schedule
from bench.spec import Problem, parameters_text
from bench.store import Journal, Measurement, finish, recover, unfinished
from bench.sweep import Case

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
SEED = 20_231_115
CEILING_CASE_S = 0.6
"""Sampling time of a ceiling, before anything is known to share a budget by."""
AGAIN = 0.7
"""Time that measuring the ceilings again takes: their memory has been touched by then."""
START_DEADLINE_S = 120.0
REPLAN = 8
"""Cases measured between two looks at the time that is left."""
GRACE_S = {"cpu": 60.0, "cuda": 600.0}
"""Beyond its sampling time a case may build, compile and tune for this long before it counts as hung."""


def commit() -> str:
    """Commit of the checkout, `+` behind it if files differ; empty if git does not know."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=12"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


@dataclass
class Recovered:
    """What an earlier run left unfinished."""

    path: Path
    rows: int
    resumed: bool


@dataclass
class Session:
    """A run on one device. `open` it, `plan` it, `run` each case, `close` it."""

    device: Device
    results: Path = RESULTS
    budget_s: float | None = None
    """Wall seconds for the whole run; None for as long as every case needs."""
    resume: bool = False
    rows: list[Measurement] = field(default_factory=list)
    recovered: list[Recovered] = field(default_factory=list)
    starting_s: float = 0.0
    """Wall seconds spent starting workers."""
    path: Path | None = None
    """The parquet file, once closed."""

    def __post_init__(self) -> None:
        self._began = time.perf_counter()
        self._commit = commit()
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        self.run_id = f"{stamp}-{self._commit.rstrip('+') or 'unknown'}"
        self._worker: Worker | None = None
        self._hello: dict[str, Any] = {}
        self._journal: Journal | None = None
        self._jobs: dict[str, Case] = {}
        self._schedule: Schedule | None = None
        self._planned_at_s = 0.0
        self._until_replan = 0
        self._ceilings_s = 0.0
        self._overheads_s = [OVERHEAD_S] * 5
        self._done: set[str] = set()

    # ---- before the first case

    @property
    def folder(self) -> Path:
        """Where this device's results lie."""
        return self.results / self.device.slug

    def open(self) -> None:
        """Recover what earlier runs left, open this run's journal. StoreError if it cannot be written."""
        left = list(unfinished(self.folder))
        resumed = left.pop() if left and self.resume else None
        for journal in left:
            count = len(recover(journal))
            if path := finish(journal):
                self.recovered.append(Recovered(path, count, resumed=False))
        path = self.folder / f"{self.run_id}.journal"
        if resumed is not None:
            self.rows = recover(resumed)
            self._done = {row.case for row in self.rows}
            self.run_id = resumed.stem
            path = resumed.with_suffix(".copy")
            path.unlink(missing_ok=True)  # a copy that never took its journal's place
            self.recovered.append(Recovered(resumed, len(self.rows), resumed=True))
        self._journal = Journal(path)
        self._journal.append(*self.rows)
        if resumed is not None:
            self._journal.replace(resumed)

    def plan(self, cases: Iterable[Case]) -> None:
        """The cases that will be asked for, in order."""
        self._jobs = {case.key: case for case in cases if not self.missing(case.implementation, case.problem)}

    def done_before(self, case: Case) -> bool:
        """Whether the resumed run has this case's row already."""
        return case.key in self._done

    # ---- one case

    def run(self, case: Case) -> Measurement:
        """Measure one case and write its row before returning it. Never raises for what a case does."""
        begin = time.perf_counter()
        refused = self._refusal(case)
        row = self._row(case, refused or self._ask(case))
        assert self._journal is not None
        self._journal.append(row, sync=refused is None)  # a refusal costs nothing to find again
        self.rows.append(row)
        self._done.add(case.key)
        self._jobs.pop(case.key, None)
        if refused is None and not is_ceiling(case.sweep):
            launches_s = 4 * (row.median_s or 0.0)
            self._overheads_s.append(time.perf_counter() - begin - (row.measure_s or 0.0) - launches_s)
            self._until_replan -= 1
        return row

    def refuse(self, cases: Iterable[Case]) -> None:
        """Write the rows of cases that this device cannot run, all at once: without a GPU, thousands."""
        rows = [
            self._row(case, {"status": "unsupported", "reason": reason})
            for case in cases
            if not self.done_before(case)
            if (reason := self.missing(case.implementation, case.problem))
        ]
        assert self._journal is not None
        self._journal.append(*rows, sync=False)
        self.rows += rows
        self._done |= {row.case for row in rows}

    def check(self, implementation: str, problem: Problem) -> dict[str, Any]:
        """Columns status, reason and errors of one untimed launch."""
        request = {
            "do": "check",
            "operator": problem.operator,
            "implementation": implementation,
            "parameters": problem.parameters(),
        }
        return self._answer(request, GRACE_S[self.device.kind])

    def examples(self, operator: str) -> list[dict[str, Any]]:
        """Parameters of the operator's examples, from the worker, which has torch."""
        answer = self._answer({"do": "examples", "operator": operator}, GRACE_S[self.device.kind])
        if "examples" not in answer:
            raise RuntimeError(f"{operator}: {answer['reason']}")
        found: list[dict[str, Any]] = answer["examples"]
        return found

    def missing(self, implementation: str, problem: Problem) -> str:
        """Why this implementation cannot solve the problem on this device; empty if it can."""
        return problem.missing(implementation, self.device.kind, self.device.capability)

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since the run began."""
        return time.perf_counter() - self._began

    @property
    def ceilings(self) -> Ceilings:
        """Those measured so far in this run, with a cold cache."""
        return Ceilings.of(row for row in self.rows if row.cache == "cold")

    def predicted_s(self, case: Case, ceilings: Ceilings) -> float | None:
        """Calibrated least seconds of one launch; None where a ceiling is missing."""
        problem, name = case.problem, case.implementation
        moved, again = problem.byte_moved(name), problem.byte_again(name)
        byte, share = traffic(moved, again, problem.moved_written(name), self.device.cache_byte)
        roof = calibrated(
            problem.flop, float(byte), float(share), problem.arithmetic, problem.dtype, ceilings
        )
        return roof.seconds if roof else None

    def left_s(self) -> float | None:
        """About how many seconds the run will go on; None while nothing is known."""
        if self._schedule is not None:
            return max(0.0, self._schedule.total_s - (self.elapsed_s - self._planned_at_s))
        return None if self.budget_s is None else max(0.0, self.budget_s - self.elapsed_s)

    def _refusal(self, case: Case) -> dict[str, Any] | None:
        """Status and reason of a case that is not worth asking the worker for."""
        if reason := self.missing(case.implementation, case.problem):
            return {"status": "unsupported", "reason": reason}
        if case.problem.byte > self.device.memory_byte:
            need, have = case.problem.byte / 1e9, self.device.memory_byte / 1e9
            return {"status": "skipped", "reason": f"needs {need:.0f} GB; {self.device} has {have:.0f} GB"}
        if is_ceiling(case.sweep):
            limit_s = launch_limit_s(self.budget_s)
            predicted_s = self.predicted_s(case, self.ceilings)
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
        if self._schedule is None or self._until_replan <= 0:
            ceilings = self.ceilings
            jobs = [
                Job(key, self.predicted_s(case, ceilings))
                for key, case in self._jobs.items()
                if key not in self._done and not is_ceiling(case.sweep)
            ]
            if self._schedule is None:
                self._ceilings_s = self.elapsed_s - self.starting_s
            again = any(is_ceiling(case.sweep) for case in self._jobs.values())
            reserved_s = self.elapsed_s + (AGAIN * self._ceilings_s if again else 0.0)
            left_s = None if self.budget_s is None else max(0.0, self.budget_s - reserved_s)
            overhead_s = max(0.0, sum(self._overheads_s) / len(self._overheads_s))
            self._schedule = schedule(jobs, left_s, self.budget_s, overhead_s)
            self._planned_at_s = self.elapsed_s
            self._until_replan = REPLAN
        return self._schedule

    def _ask(self, case: Case) -> dict[str, Any]:
        sampling_s = CEILING_CASE_S
        if not is_ceiling(case.sweep):
            sampling_s = self.schedule.sampling_s.get(case.key, CEILING_CASE_S)
        request = {
            "do": "measure",
            "operator": case.problem.operator,
            "implementation": case.implementation,
            "parameters": case.problem.parameters(),
            "cache": case.cache,
            "budget_s": sampling_s,
            "launch_s": 2 * launch_limit_s(self.budget_s),  # predictions are least times
            # a roof is what was kept up at best: a ceiling is watched for all of its time
            "least_timed_s": 0.6 * CEILING_CASE_S if is_ceiling(case.sweep) else 0.0,
        }
        return self._answer(request, 3 * sampling_s + GRACE_S[self.device.kind])

    def _answer(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        """The worker's answer; its death is one too, and the next case gets a new worker."""
        try:
            worker = self._started()
            return worker.ask(request, deadline_s)
        except WorkerDied as death:
            self._stop_worker()
            return {"status": death.status, "reason": str(death)}

    def _started(self) -> Worker:
        if self._worker is None:
            begin = time.perf_counter()
            uuid = self.device.uuid or None
            self._worker = Worker(self.device.kind, self.device.cache_byte, SEED, uuid, self._threads)
            self._hello = self._worker.ask({"do": "hello"}, START_DEADLINE_S)
            self.starting_s += time.perf_counter() - begin
        return self._worker

    @property
    def _threads(self) -> int | None:
        return self.device.sm_count if self.device.kind == "cpu" else None

    @property
    def libraries(self) -> str:
        """What computes, with versions; starts the worker if need be. WorkerDied if it does not start."""
        self._started()
        return f"torch {self._hello['torch']}, {self._hello['libraries']}"

    def _row(self, case: Case, facts: dict[str, Any]) -> Measurement:
        hello = {k: self._hello.get(k, "") for k in ("torch", "triton", "libraries", "protocol")}
        problem = case.problem
        defaults: dict[str, Any] = {"clock": "", "fill": "", "seed": SEED}
        return Measurement(
            run_id=self.run_id,
            utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
            commit=self._commit,
            device=self.device.slug,
            device_name=self.device.name,
            device_kind=self.device.kind,
            device_id=self.device.id,
            sm_count=self.device.sm_count,
            cache_byte=self.device.cache_byte,
            threads=self._hello.get("threads", 0),
            driver=self.device.driver,
            **hello,
            sweep=case.sweep,
            operator=problem.operator,
            implementation=case.implementation,
            arithmetic=problem.arithmetic,
            rate=problem.rate,
            dtype=problem.dtype,
            parameters=parameters_text(problem.parameters()),
            cache=case.cache,
            visit=case.visit,
            flop=problem.flop,
            byte=problem.byte,
            byte_written=problem.byte_written,
            byte_moved=problem.byte_moved(case.implementation),
            byte_again=problem.byte_again(case.implementation),
            moved_written=problem.moved_written(case.implementation),
            **(defaults | facts),
        )

    # ---- after the last case

    def _stop_worker(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def close(self) -> None:
        """Stop the worker and turn the journal into the run's parquet file. Safe to call twice."""
        self._stop_worker()
        if self._journal is not None:
            journal, self._journal = self._journal, None
            journal.close()
            self.path = finish(journal.path)

    def interrupted(self) -> Path | None:
        """Stop the worker and leave the journal for the next run; its path."""
        self._stop_worker()
        if self._journal is None:
            return None
        journal, self._journal = self._journal, None
        journal.close()
        return journal.path


def measured_s(rows: Sequence[Measurement]) -> dict[str, float]:
    """Where the worker's time went over these rows, seconds: set-up, checking, measuring."""
    parts = ("setup_s", "check_s", "measure_s")
    return {part: sum(getattr(row, part) or 0.0 for row in rows) for part in parts}
