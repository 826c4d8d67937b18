"""The same launches timed by our clocks and by independent instruments.

A machine changes speed while it is watched (a processor shared with others by a tenth, for seconds). So the
instruments take short turns, forwards and then backwards, and what is compared is not their medians over the
whole time but pairs of turns taken close together: the median of the ratios, with its 95 % interval.

Warm, one set of tensors, since the others know no ring. On a GPU also cold, our ring against the cache flush
of `triton.testing.do_bench`: there both time launches that find their data in memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

import kernels
from bench.sampling.stopping import collect
from bench.spec import Problem
from bench.worker.cache_ring import Turns, launches_per_sample, plan
from bench.worker.clock import Clock
from bench.worker.measure_case import Bench, Slots

TURN_S = 0.12
"""Seconds of launches in one instrument's turn."""

Given = tuple[str, str, dict[str, Any]]
"""Operator, implementation, parameters."""
Recorder = Callable[[Callable[[], Any], int], Callable[[], float]]
"""Instrument that records kernels: what to call and how often -> a reading, seconds of a launch."""
Reading = tuple[str, dict[str, list[float]]]
"""A case by name, and each instrument's turns in it, seconds."""


@dataclass(frozen=True)
class Instrument:
    """One way to time a launch."""

    name: str
    read: Callable[[], float]
    """Median seconds of a launch, of launches that last about TURN_S; NaN if it saw none."""
    launches: int = 1
    """Launches in each of its samples, where it says so."""


def alternate(instruments: Sequence[Instrument], rounds: int) -> dict[str, list[float]]:
    """Name -> seconds of its turn in each round. Every other round goes backwards: a steady drift cancels."""
    readings: dict[str, list[float]] = {instrument.name: [] for instrument in instruments}
    for number in range(rounds):
        for instrument in instruments if number % 2 == 0 else reversed(instruments):
            readings[instrument.name].append(instrument.read())
    return readings


def turns_of(instruments: Sequence[Instrument], rounds: int) -> dict[str, list[float]]:
    """Name -> seconds of its turns, of instruments that share a process."""
    for instrument in instruments:
        instrument.read()  # the first turn includes one-off costs
    return alternate(instruments, rounds)


# ---- the instruments


def ours(
    name: str, bench: Bench, clock: Clock, calls: Sequence[Callable[[], Any]], flushed: bool
) -> Instrument:
    """This clock, with the batching, settling and stopping of a run."""
    turns = Turns(clock, calls, launches_per_sample(clock, calls, bench.protocol), flushed)
    step_s = clock.resolution_s / turns.per_sample

    def read() -> float:
        return median(collect(turns, bench.protocol, TURN_S, bench.now, step_s).samples_s)

    return Instrument(name, read, turns.per_sample)


def timer(call: Callable[[], Any], threads: int, launches: int | None = None) -> Instrument:
    """torch.utils.benchmark. It uses one thread unless `threads` says otherwise.

    With `launches` its blocks hold so many, as our samples do, or else what it chooses. A median of
    blocks of ten lies 4 % above one of single launches where those scatter to one side, as on a CPU.
    """
    from torch.utils import benchmark

    tool = benchmark.Timer("call()", globals={"call": call}, num_threads=threads)
    if launches is None:
        return Instrument("Timer", lambda: float(tool.blocked_autorange(min_run_time=TURN_S).median))

    def read() -> float:
        blocks: list[float] = []
        begin = time.perf_counter()
        while not blocks or time.perf_counter() - begin < TURN_S:
            blocks.append(float(tool.timeit(number=launches).median))
        return median(blocks)

    return Instrument("Timer", read, launches)


def plain_loop(call: Callable[[], Any], now: Callable[[], float] = time.perf_counter) -> Instrument:
    """A loop that reads the clock after each call."""

    def read() -> float:
        begin, count = now(), 0
        while (spent := now() - begin) < TURN_S:
            call()
            count += 1
        return spent / count

    return Instrument("loop", read)


def triton_instrument(name: str, call: Callable[[], Any]) -> Instrument:
    """`do_bench` or `do_bench_cudagraph`, asked for the median: its own answer would be the mean."""
    import triton.testing

    bench = getattr(triton.testing, name)
    # `rep` is milliseconds: of all launches (do_bench), of each of ten replays (do_bench_cudagraph).
    rep = 1e3 * TURN_S / (10 if name == "do_bench_cudagraph" else 1)
    return Instrument(name, lambda: 1e-3 * float(bench(call, rep=rep, return_mode="median")))


def profiler(call: Callable[[], Any], count: int) -> Callable[[], float]:
    """The kernels' own time as torch.profiler records it: seconds of a launch, over `count` of them."""
    from torch.profiler import ProfilerActivity, profile

    def read() -> float:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(count):
                call()
            torch.cuda.synchronize()
        return kernel_s(seen.events() or [], count)

    return read


def kernel_s(events: Iterable[Any], launches: int) -> float:
    """Seconds that the recorded kernels (copies, fills) ran, per launch; NaN if none was recorded."""
    on_device = [event for event in events if event.device_type.name == "CUDA"]
    total_us = sum(float(event.time_range.elapsed_us()) for event in on_device)
    return 1e-6 * total_us / launches if total_us > 0 else math.nan


# ---- the cases


def problem_of(given: Given) -> Problem:
    """The problem of a case of CASES."""
    operator, _, parameters = given
    return kernels.problem(operator)(**parameters)


def cpu_reading(bench: Bench, given: Given, threads: int, rounds: int) -> Reading:
    """Warm: our clock, torch.utils.benchmark and a plain loop."""
    operator, implementation, _ = given
    (call,) = Slots(bench, kernels.operator(operator), implementation, problem_of(given), 1).calls
    host = ours("host", bench, bench.clock, [call], flushed=False)
    return case_name(given), turns_of([host, timer(call, threads, host.launches), plain_loop(call)], rounds)


def cuda_readings(bench: Bench, given: Given, rounds: int) -> Iterator[Reading]:
    """Warm, on the ring's first slot, then cold."""
    operator, implementation, _ = given
    problem = problem_of(given)
    assert bench.spare_clock is not None
    clocks = (bench.clock, bench.spare_clock)
    ring = plan(problem.byte, bench.cache_byte, True, bench.usable_byte, bench.protocol)
    calls = Slots(bench, kernels.operator(operator), implementation, problem, ring.slots).calls
    for call in calls:
        call()  # what a first call sets up must not be captured
    bench.synchronize()
    warm = [ours(clock.name, bench, clock, calls[:1], flushed=False) for clock in clocks]
    warm += [timer(calls[0], 1, warm[0].launches), triton_instrument("do_bench_cudagraph", calls[0])]
    yield f"{case_name(given)} warm", turns_of(warm, rounds)
    cold = [ours(f"{clock.name}, ring", bench, clock, calls, ring.flushed) for clock in clocks]
    yield f"{case_name(given)} cold", turns_of([*cold, triton_instrument("do_bench", calls[0])], rounds)


def kernel_reading(name: str, record: Recorder, bench: Bench, given: Given, rounds: int) -> Reading:
    """Warm, the kernels alone, as the instrument of this name records them."""
    operator, implementation, _ = given
    slots = Slots(bench, kernels.operator(operator), implementation, problem_of(given), 1)
    count = max(1, min(1000, round(TURN_S / slots.warm_launch_s())))
    read = record(slots.calls[0], count)
    return f"{case_name(given)} warm", turns_of([Instrument(name, read)], rounds)


def case_name(given: Given) -> str:
    """`gemm onednn float32 ...`, as tables show a case."""
    return f"{given[0]} {given[1]} {problem_of(given)}"
