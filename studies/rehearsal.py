"""A rehearsal of suites on GPUs that are not there: the real parent and worker, in virtual time.

Rounds, supervisor, journal, claims, closing screen; probe, ring, settling, sampling, checking: all of it is
the code that runs on a GPU. Simulated are the device (studies/rehearsed_gpu.py), behind `Bench`, and `time`;
the worker answers in this process. A case that is refused though the device can run it, or a run that takes
10 % more than its budget, is a bug.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

import bench.worker.__main__ as worker
import kernels
from bench.cli.closing import closing_lines
from bench.cli.list_cases import of_datasheet
from bench.cli.run_lines import opening_lines
from bench.cli.table import table_lines
from bench.cli.whole_run import show_visits
from bench.device.datasheet import datasheets
from bench.device.detect import Device
from bench.errors import UserError, unknown
from bench.judge.claims import VERDICTS, Declared, judge
from bench.judge.flags import SUSPECT
from bench.judge.read_runs import runs
from bench.runner.limits import launch_limit_s
from bench.runner.options import TAGS, Options, run_for
from bench.runner.run import Run, RunResult
from bench.runner.worker_process import WorkerDied
from bench.worker.clock import HostClock
from bench.worker.measure_case import Bench
from bench.worker.memory import Memory
from studies import rehearsed_gpu as simulated
from studies.rehearsed_gpu import SimulatedGpu
from tests.bench.simulated import simulated_bench

GPUS = ("h100_sxm5", "b200", "a100_sxm4_80gb", "l4", "t4")
START_S, PROFILE_S, PARENT_S = 10.0, 2.0, 7e-3
"""Starting a worker and profiling in one, both assumed; what the parent takes a visit (docs/measuring.md)."""
OVERRUN, SHOWN = 1.1, 8
"""Times its budget that a run may take; bugs of a run that are shown."""
FAILED = ("error", "crashed", "timeout", "wrong", "escaped", "out_of_memory")


@dataclass(frozen=True)
class Rehearsal:
    """What became of a run on a simulated GPU."""

    counts: dict[str, str]
    """Of the table: column -> cell."""
    bugs: Counter[str]
    """What should not have happened -> how often."""
    screen: str
    """What the run printed."""


class InProcess:
    """The worker of the supervisor, which answers at once, in virtual time."""

    pid = os.getpid()

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu, self._bench, gpu.loaded, gpu.allocated = gpu, None, set(), 0

    def ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        """The answer; WorkerDied if it comes too late."""
        gpu, until_s = self._gpu, self._gpu.time.now_s + deadline_s
        gpu.time.spend(PARENT_S)
        if self._bench is None:
            gpu.time.spend(START_S)
            self._bench = made_bench(gpu)
        gpu.cache, gpu.level = (
            request.get("cache", "cold"),
            1 + simulated.LEVEL_NOISE * gpu.chance.gauss(0, 1),
        )
        with torch.no_grad():
            answer: dict[str, Any] = json.loads(json.dumps(worker.respond(self._bench, request)))
        if gpu.time.now_s > until_s:
            raise WorkerDied("timeout", f"no answer within {deadline_s:.0f} s")
        return answer

    def close(self) -> None:
        """Nothing to end."""

    kill = close


def made_bench(gpu: SimulatedGpu) -> Bench:
    """The device made ready to measure, as bench/worker makes a real one."""

    host = HostClock(lambda: (gpu.flush(), gpu.synchronize())[1])
    facts: dict[str, Any] = {"telemetry": simulated.SimulatedTelemetry(gpu), "free_byte": gpu.free_byte}
    facts |= {"device": torch.device("cuda", 0), "host_clock": host, "memory": Memory(gpu)}
    return replace(simulated_bench(gpu), alive=lambda: None, **facts)


@contextmanager
def in_virtual_time(gpu: SimulatedGpu) -> Iterator[None]:
    """Within it there is this GPU alone, and runs are made on it in this process."""
    replaced = {
        "runner.options.detect": lambda wanted: gpu.device,
        "runner.supervisor.Worker": lambda *_, **__: InProcess(gpu),
        "worker.__main__.kernels": SimpleNamespace(operator=lambda name: simulated.stand_in(name, gpu)),
        "worker.measure_case.Arena": simulated.arenas(gpu),
        "worker.time_by_class.seconds": lambda calls, on_gpu: gpu.time.spend(PROFILE_S) or {},
        **dict.fromkeys(
            ("worker.measure_case.torch", "worker.buffer_ring.torch", "worker.cache_ring.torch"),
            simulated.HostTorch(),
        ),
        **dict.fromkeys(("runner.run.time", "runner.supervisor.time"), gpu.time),
        **dict.fromkeys(("worker.measure_case.time", "worker.clock.time"), gpu.time),
    }
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {TAGS: "simulated=yes"}))
        for name, instead in replaced.items():
            stack.enter_context(patch(f"bench.{name}", instead))
        yield


def gpu_named(name: str) -> Device:
    """A whole GPU as its datasheet describes it. UserError if there is none of this name."""
    sheets = {sheet.slug: sheet for sheet in datasheets()}
    if name not in sheets:
        raise UserError(f"rehearsal: {unknown('GPU', name, 'bench/device/datasheets', sheets)}")
    identity = f"GPU-rehearsal-{os.getpid()}"  # two at the same time must not lock each other out
    return replace(of_datasheet(sheets[name]), index=0, id="simulated", uuid=identity, driver="simulated")


def rehearsed(device: Device, options: Options, seed: int = 1) -> Rehearsal:
    """Make a run on a simulated GPU."""
    gpu = SimulatedGpu(device, simulated.VirtualTime(seed), seed)
    gc.freeze()  # each visit collects: what is imported need not be looked at
    with in_virtual_time(gpu):
        run = run_for(options, kernels.problem)
        run.plan(run.order(run.cases))
        lines = opening_lines(run)
        show_visits(run, lines.append, lines.append)
        result = run.finish()
        lines += closing_lines(run)
        return _judged(gpu, run, result, "\n".join(lines))


def _judged(gpu: SimulatedGpu, run: Run, result: RunResult, screen: str) -> Rehearsal:
    """What the rows of a finished run say, beside what the device could have done."""
    budget_s, elapsed_s = run.budget_s, run.elapsed_s
    rows = {row.case: row for row in result.rows}
    visited = [(case, row) for case in run.requested if (row := rows.get(case.key)) is not None]
    skipped = [(case, row) for case, row in visited if row.status == "skipped"]
    refused = [(case, row) for case, row in skipped if not row.reason.startswith("left out")]
    bugs = Counter(f"{row.status}: {row.case}: {row.reason}" for row in rows.values() if row.status in FAILED)
    for case, row in refused:
        work = gpu.model.work(case.problem, case.implementation, case.cache)
        if case.problem.byte < 0.8 * gpu.device.memory_byte and work.seconds <= launch_limit_s(budget_s):
            bugs[f"refused, though it takes {work.seconds:.2g} s: {case.name}: {row.reason}"] += 1
    wrongly = sum(count for bug, count in bugs.items() if bug.startswith("refused"))
    (judged_run,) = runs(result.rows, without_mixed=True)
    timed = [row for row in judged_run.rows if row.is_timed]
    there = {row.sweep for row in timed if row.role == "measurement"}
    declared = [
        Declared(name, (name,), claims) for name, claims in run.chosen.claims.items() if name in there
    ]
    verdicts = Counter(each.verdict for each in judge([judged_run], declared))
    if budget_s is not None and elapsed_s > OVERRUN * budget_s:
        bugs[f"took {elapsed_s:.0f} s of {budget_s:.0f} s"] += 1
    counts = {
        "GPU": gpu.device.slug,
        ">asked": len(run.requested),
        ">timed": len(timed),
        ">refused": len(refused),
        ">wrongly": wrongly,
        ">left out": len(run.requested) - len(visited),
        ">ceilings": len(skipped) - len(refused),
        ">unsettled": sum(row.settled is False for row in timed),
        ">suspect": sum(not SUSPECT.isdisjoint(judged_run.flags_of(row)) for row in timed),
        ">failed": sum(row.status in FAILED for row in rows.values()),
        ">seconds": f"{elapsed_s:.0f}",
        ">of": "inf" if budget_s is None else f"{budget_s:.0f}",
        **{f">{word}": verdicts[word] for word in VERDICTS[:5]},
    }
    return Rehearsal({name: str(count) for name, count in counts.items()}, bugs, screen)


def rehearse(names: Sequence[str], suite: str, results: Path | None) -> Iterator[Rehearsal]:
    """Run the suite on each of these GPUs; rows and screens stay in the folder, if one is given."""
    for device in [gpu_named(name) for name in names]:
        with tempfile.TemporaryDirectory() as folder:
            made = rehearsed(device, Options(suite=suite, results=results or Path(folder)))
        if results is not None:
            (results / f"{device.slug}-{suite}.txt").write_text(made.screen + "\n")
        yield made


def rehearsal_lines(rehearsals: Sequence[Rehearsal]) -> Iterator[str]:
    """A table with a line for each run, and below it what should not have happened."""
    yield from table_lines([*rehearsals[0].counts], [[*each.counts.values()] for each in rehearsals])
    for each in rehearsals:
        for bug, count in each.bugs.most_common(SHOWN):
            yield f"{each.counts['GPU']}: {count} x {bug}"
