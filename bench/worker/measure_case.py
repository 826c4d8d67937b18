"""Measures one visit to a case: probe, build, check, time, check again."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from bench.causes import cause
from bench.sampling.protocol import Protocol as SamplingProtocol
from bench.sampling.publish import VisitSamples, interval
from bench.sampling.stopping import collect
from bench.spec import Launch, Operator, Problem
from bench.worker import time_by_class
from bench.worker.audit import unpaid
from bench.worker.buffer_ring import BufferRing
from bench.worker.cache_ring import DATA, Arena, RingSampler, fill, launches_per_sample, least_sample_s, plan
from bench.worker.check import of_tolerance, outputs_of, within
from bench.worker.clock import Calls, CaptureError, Clock, no_collector
from bench.worker.failure import failure
from bench.worker.memory import HostMemory, Memory
from bench.worker.ranges import wider
from bench.worker.too_slow import TooSlow, first_launch_s, probe
from bench.worker.visit import Visit, VisitResult
from kernels.tensors import stored_dtype

if TYPE_CHECKING:
    from bench.worker.telemetry_cpu import CpuTelemetry
    from bench.worker.telemetry_cuda import CudaTelemetry

WARM = 3
"""Pairs of launches before one that a profiler sees: the first ones compile, tune and allocate."""


@dataclass
class Prepared:
    """What the first visit to a case in this process finds out for those after it."""

    clock: Clock
    """The clock that can time its launch."""
    launch_s: float
    """Wall seconds of a launch."""
    peak_byte: int | None
    per_sample: int | None = None
    """Launches of a sample."""
    enqueue_s: float | None = None
    kernels: str | None = None
    """What `Clock.enqueue_s` and `Clock.kernels` say; None before they were asked."""

    def learn(self, median_s: float, protocol: SamplingProtocol) -> None:
        """Take in what a visit measured: a launch timed once may have been disturbed."""
        self.launch_s = min(self.launch_s, median_s)
        needed = math.ceil(least_sample_s(self.clock, protocol) / median_s)
        self.per_sample = max(self.per_sample or 1, min(self.clock.most_launches, needed))


@dataclass
class Bench:
    """A device made ready to measure, with everything that its cases share."""

    device: torch.device
    cache_byte: int
    protocol: SamplingProtocol
    clock: Clock
    telemetry: CpuTelemetry | CudaTelemetry
    """State of the device over the window in which a case is timed."""
    free_byte: Callable[[], int]
    seed: int
    spare_clock: Clock | None = None
    """Clock for launches that cannot be captured, used if a request names it."""
    synchronize: Callable[[], None] = lambda: None
    host_clock: Clock | None = None
    """Clock for launches that block the host (`Launch.blocks`); None on a CPU, whose usual clock it is."""
    memory: Memory | HostMemory | None = None
    """Counts what a launch allocates; None on a CPU, where only `Operator.counted_on_cpu` is counted."""
    alive: Callable[[], None] = lambda: None
    """Raises if this process can no longer compute, as after an illegal address."""
    now: Callable[[], float] = time.perf_counter
    """The wall clock for budgets."""
    probed_flop_per_s: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """(operator, implementation, dtype) -> best rate of its probes; infinite: one was too quick to tell."""
    prepared: dict[Hashable, Prepared] = field(default_factory=dict)
    """A case that this process has visited -> what another visit need not find out."""

    def __post_init__(self) -> None:
        self._arenas: dict[tuple[torch.dtype, str], Arena] = {}
        self._profiled = False

    def by_class(self, calls: Calls) -> dict[str, Any]:
        """Columns of a launch's time by class of work. On a GPU the process measures no more after this."""
        on_gpu = self.device.type == "cuda"
        self._profiled |= on_gpu
        return time_by_class.seconds(calls, on_gpu)

    @property
    def usable_byte(self) -> int:
        """Bytes of memory that are free, or would be without the arenas."""
        return self.free_byte() + sum(arena.byte for arena in self._arenas.values())

    def clock_named(self, name: str | None) -> Clock:
        """The clock of this name; None: the usual one."""
        if self.spare_clock is not None and name == self.spare_clock.name:
            return self.spare_clock
        assert name in (None, self.clock.name), name
        return self.clock

    def clock_for(self, launch: Launch, asked: Clock) -> Clock:
        """The clock that can time this launch: the requested one, or the host's if it blocks the host."""
        return self.host_clock if launch.blocks and self.host_clock is not None else asked

    def distrust(self) -> str:
        """Why this process must not measure any more; empty if it may."""
        if self.clock.distrust or self._profiled:
            return self.clock.distrust or "a profiler was loaded, which slows what is launched later"
        try:
            self.alive()
        except Exception as error:
            return f"the device no longer answers: {cause(error)}"
        return ""

    def arena(self, dtype: torch.dtype, byte: int, data: str = "uniform") -> Arena:
        """Memory of such numbers with room for `byte` bytes; other arenas are freed if space is short."""
        ring_byte, key = int(self.protocol.ring_factor * self.cache_byte), (dtype, data)
        if key not in self._arenas:
            first_byte = ring_byte + ring_byte // 2 if data == "uniform" else 0
            self._arenas[key] = Arena(self.device, dtype, self.seed, first_byte, data)
        arena = self._arenas[key]
        if byte > arena.byte and self.free_byte() < 3 * max(byte, arena.first_byte):
            self._arenas = {key: arena}
        arena.reserve(byte)
        return arena


Watch = Callable[[str], AbstractContextManager[None]]
"""Charges the wall time of a block to a part of the visit: setup_s, check_s or measure_s."""


@contextmanager
def _charged(spent_s: dict[str, float], part: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        spent_s[part] += time.perf_counter() - begin


def measure(bench: Bench, operator: Operator, problem: Problem, visit: Visit) -> VisitResult:
    """What came of one visit. Never raises for what a kernel does.

    A first visit is probed and checked before it is timed; every visit is checked afterwards.
    """
    spent_s = {"setup_s": 0.0, "check_s": 0.0, "measure_s": 0.0}
    watch = partial(_charged, spent_s)
    clock = bench.clock_named(visit.clock).name
    result = VisitResult(seed=bench.seed, fill=fill(stored_dtype(problem.dtype), visit.data), clock=clock)
    try:
        measured = replace(result, more={})
        _measure(bench, operator, problem, visit, watch, measured)
        result = measured
        if visit.divided and result.status == "ok" and (visit.first or bench.device.type == "cpu"):
            with watch("setup_s"):
                result.more |= _divided(bench, operator, visit.implementation, problem)
    except TooSlow as reason:
        result.status, result.reason = "skipped", str(reason)
    except Exception as error:
        result = replace(result, **failure(error), uncaptured=isinstance(error, CaptureError))
    for part, seconds in spent_s.items():
        setattr(result, part, seconds)
    return result


def _measure(
    bench: Bench, operator: Operator, problem: Problem, visit: Visit, watch: Watch, result: VisitResult
) -> None:
    """Build, check, time and check again; `result` is filled in as far as it goes."""
    slots = partial(BufferRing, bench, operator, visit.implementation, data=visit.data)
    clock = bench.clock_named(visit.clock)
    case = (problem, visit.implementation, visit.cache, visit.threads, clock.name, visit.data)
    known = None if visit.first else bench.prepared.get(case)
    with watch("setup_s"):
        cold = visit.cache == "cold"
        ring = plan(problem.byte, bench.cache_byte, cold, bench.usable_byte, bench.protocol)
        if visit.first:
            probe(bench, clock, slots, problem, visit)
        if known is None:
            single = slots(problem, 1)
            clock = bench.clock_for(single.launches[0], clock)
            _describe(single.launches[0], clock, result)
            known = Prepared(clock, first_launch_s(single, visit.launch_s), single.peak_byte())
    if visit.first:
        with watch("check_s"):
            _judge(result, single.judged_when_poisoned(), "before timing")
        if result.status != "ok":
            return
    with watch("setup_s"):
        clock, again = known.clock, known.per_sample is not None
        if not clock.whole_turns:  # slots that no launch will use need not be built
            ring = ring.within(math.ceil(4 * visit.budget_s / known.launch_s) + 2)
        several = slots(problem, ring.slots)
        if again:
            _describe(several.launches[0], clock, result)
            if clock.whole_turns or "torch._dynamo" in sys.modules:
                several.launch_s()  # what was built anew may compile or load: no capture allows it, no time
        known.per_sample = known.per_sample or launches_per_sample(clock, several.calls, bench.protocol)
        turns = RingSampler(clock, several.calls, known.per_sample, ring.flushed)
        several.poison(turns)
        if cold:
            clock.flush()  # the poison must not leave outputs in the cache
        bench.synchronize()
    bench.prepared[case] = known
    result.peak_byte = known.peak_byte
    result.ring_slots, result.flushed = ring.slots, ring.flushed
    result.ring_byte = ring.slots * problem.byte
    with watch("measure_s"), no_collector():
        samples = _timed(bench, clock, turns, visit, result)
    with watch("check_s"):
        if left := several.escaped(turns):
            result.status = "escaped"
            result.reason = f"{left} timed launches wrote nothing: they escaped the {clock.name} clock"
            return
        slot, written = turns.last
        _judge(result, several.judged(slot, outputs_of(written)), "after timing")
        audited = result.status == "ok" and visit.kernel
        if audited and (why := unpaid(several, clock, turns, visit, known.launch_s)):
            result.status, result.reason = "escaped", f"no time for no work: {why}"
        if result.status != "ok":
            return
    with watch("setup_s"):
        if known.kernels is None:
            known.enqueue_s = clock.enqueue_s(several.calls[0])
            known.kernels = clock.kernels(several.calls[0])
        result.enqueue_s, result.kernels = known.enqueue_s, known.kernels
        result.launches = turns.per_sample
        _tell(samples, bench.protocol, result)
        known.learn(result.median_s or math.inf, bench.protocol)
        del turns, several  # freeing thousands of slots takes a while, which counts as set-up


def _describe(launch: Launch, clock: Clock, result: VisitResult) -> None:
    """What was built, and by which clock it will be timed."""
    result.clock, result.configuration = clock.name, launch.configuration
    result.tuning_s, result.passed_over = launch.tuning_s, "; ".join(launch.passed_over) or None


def _judge(result: VisitResult, found: tuple[float, float], when: str) -> None:
    """Keep the worse of this (relative error, tolerance) and an earlier one, by which it may be wrong."""
    error, tolerance = found
    if result.relative_error is not None and result.tolerance is not None:
        error, tolerance = max((result.relative_error, result.tolerance), found, key=of_tolerance)
    result.relative_error, result.tolerance = error, tolerance
    if not within(error, tolerance):
        holds = ", as the result holds NaN or infinity or was not written" if error == math.inf else ""
        result.status = "wrong"
        result.reason = f"relative error {error:.2e} {when}{holds}; the arithmetic explains {tolerance:.2e}"


def _divided(bench: Bench, operator: Operator, implementation: str, problem: Problem) -> dict[str, Any]:
    """`Bench.by_class` of a launch built anew: what was timed is gone, and its memory with it.

    A failure, as of a profiler that is not permitted, leaves the time as it is: `parts_by` says why there is
    no division of it.
    """
    try:
        slots = BufferRing(bench, operator, implementation, problem, 1)
        slots.warm_launch_s()  # compiles, searches
        return bench.by_class([slots.calls[0]] * time_by_class.CALLS)
    except Exception as error:
        return {"parts_by": f"not divided: {failure(error)['reason']}"}


def _timed(bench: Bench, clock: Clock, turns: RingSampler, visit: Visit, result: VisitResult) -> VisitSamples:
    """Settle and sample, with the state of device and clock meanwhile."""
    state, late, step_s = bench.telemetry, clock.late, clock.resolution_s / turns.per_sample
    state.start()
    how = (bench.protocol, visit.budget_s, bench.now, step_s, visit.least_timed_s)
    samples = collect(turns, *how, light=state.light, clock_hz=state.clock_hz)
    result.more |= state.stop()
    if clock.start_s is not None:
        result.clock_start_s, result.late_samples = clock.start_s, clock.late - late
    return samples


def _tell(samples: VisitSamples, protocol: SamplingProtocol, result: VisitResult) -> None:
    """The timing columns of one visit by itself: the parent joins those of several."""
    median_s, low_s, high_s = interval(samples.samples_s, protocol, samples.step_s)
    result.median_s = median_s
    if math.isfinite(high_s):
        result.low_s, result.high_s = low_s, high_s
    result.samples_s, result.stop = list(samples.samples_s), samples.stop
    result.settled, result.settle_s, result.step_s = samples.settled, samples.settle_s, samples.step_s


def check(
    bench: Bench, operator: Operator, implementation: str, problem: Problem, ranges: bool = False
) -> VisitResult:
    """Status, reason, relative error and tolerance of one untimed, poisoned launch; `fill`: with which data.

    With `ranges` it is also compared beyond [-1, 1] (ranges.py).
    """
    result = VisitResult()
    try:
        slots = BufferRing(bench, operator, implementation, problem, 1)
        _judge(result, slots.judged_when_poisoned(), "of an untimed launch")
        result.fill = fill(stored_dtype(problem.dtype))
        for data, found in wider(slots) if ranges and result.status == "ok" else ():
            _judge(result, found, f"with inputs {fill(stored_dtype(problem.dtype), data)}")
            if result.status != "ok":
                break
            result.fill = f"{result.fill}, {DATA[data][0]}"
    except Exception as raised:
        return replace(result, **failure(raised))
    return result


def one_launch(bench: Bench, operator: Operator, name: str, problem: Problem, cold: bool) -> dict[str, Any]:
    """Columns status, reason and wall_s (seconds) of one launch in steady state, marked for a profiler.

    Nsight records from cudaProfilerStart to cudaProfilerStop if its options say so.
    """
    try:
        slots = BufferRing(bench, operator, name, problem, 1)
        for _ in range(WARM):
            slots.warm_launch_s()
        if cold:
            bench.clock.flush()
        bench.synchronize()
        with torch.cuda.profiler.profile() if bench.device.type == "cuda" else nullcontext():
            begin = bench.now()
            slots.calls[0]()
            bench.synchronize()
            return {"status": "ok", "reason": "", "wall_s": bench.now() - begin}
    except Exception as error:
        return failure(error)
