"""The same launches timed by our clocks and by independent instruments: a process of clock_agreement.py.

A machine changes speed while it is watched (a processor shared with others by a tenth, for seconds). So the
instruments take short turns, forwards and then backwards, and what is compared is not their medians over the
whole time but pairs of turns taken close together: the median of the ratios, with its 95 % interval.

Warm, one set of tensors, since the others know no ring. On a GPU also cold, our ring against the cache flush
of `triton.testing.do_bench`: there both time launches that find their data in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

import kernels
from bench.device.detect import Device
from bench.sampling.stopping import collect
from bench.selfcheck import separate_instruments
from bench.selfcheck.finding import Finding, passed
from bench.spec import DeviceKind, Problem, first_line
from bench.worker.__main__ import make_bench
from bench.worker.cache_ring import Turns, launches_per_sample, plan
from bench.worker.clock import Clock
from bench.worker.measure_case import Bench, Slots

TURN_S = 0.12
"""Seconds of launches in one instrument's turn."""
ROUNDS = {"cpu": 12, "cuda": 6}
"""Turns of each instrument; an even number, as every other round goes backwards."""
SEED = 5

Given = tuple[str, str, dict[str, Any]]
"""Operator, implementation, parameters."""
Reading = tuple[str, dict[str, list[float]]]
"""A case by name, and each instrument's turns in it, seconds."""

_ACTIVATION = {"n": 64, "c": 64, "h": 32, "w": 32}
_IMAGES = {"n": 4, "c": 64, "h": 56, "w": 56}
_WINDOW = {"direction": "forward", "window": 3, "stride": 2, "padding": 1, "layout": "NCHW"}

CASES: Mapping[str, Sequence[Given]] = {
    "cpu": (
        ("gemm", "onednn", {"dtype": "float32", "m": 512, "n": 512, "k": 512}),
        ("gemm", "onednn", {"dtype": "float32", "m": 1024, "n": 1024, "k": 1024, "layout": "TN"}),
        ("gemm", "onednn", {"dtype": "float64", "m": 512, "n": 512, "k": 512, "layout": "NT"}),
        ("gemm", "onednn", {"dtype": "bfloat16", "m": 1024, "n": 1024, "k": 1024}),
        ("gemm", "onednn", {"dtype": "bfloat16", "m": 2048, "n": 2048, "k": 1024, "layout": "TN"}),
        ("stream", "aten", {"dtype": "float32", "kind": "copy", "length": 1 << 22}),
        ("stream", "aten", {"dtype": "float32", "kind": "triad", "length": 1 << 24}),
        ("stream", "aten", {"dtype": "float32", "kind": "read", "length": 1 << 24}),
        ("activations", "aten", {"dtype": "float32", "function": "sigmoid", **_ACTIVATION}),
        ("activations", "aten", {"dtype": "bfloat16", "function": "gelu", **_ACTIVATION}),
        ("pooling", "aten", {"dtype": "float32", "kind": "max", **_IMAGES, **_WINDOW}),
        ("pooling", "aten", {"dtype": "float32", "kind": "average", **_IMAGES, **_WINDOW}),
        ("batchnorm", "aten", {"dtype": "float32", **_IMAGES}),
        ("softmax", "aten", {"dtype": "float32", "direction": "forward", "rows": 4096, "length": 1024}),
    ),
    "cuda": (
        ("gemm", "cublas", {"dtype": "float16", "m": 512, "n": 512, "k": 512}),
        ("gemm", "cublas", {"dtype": "float16", "m": 2048, "n": 2048, "k": 2048}),
        ("gemm", "cublas", {"dtype": "float16", "m": 8192, "n": 8192, "k": 8192, "layout": "TN"}),
        ("gemm", "cublas", {"dtype": "float32", "m": 4096, "n": 4096, "k": 4096}),
        ("activations", "aten", {"dtype": "float16", "function": "relu", "n": 1 << 18}),
        ("activations", "aten", {"dtype": "float16", "function": "relu", "n": 1 << 26}),
        ("activations", "aten", {"dtype": "float32", "function": "gelu", "n": 1 << 26}),
        ("stream", "aten", {"dtype": "float32", "kind": "copy", "length": 1 << 26}),
        ("stream", "aten", {"dtype": "float32", "kind": "read", "length": 1 << 26}),
        ("softmax", "aten", {"dtype": "float16", "direction": "forward", "rows": 16384, "length": 4096}),
        ("batchnorm", "aten", {"dtype": "float16", "n": 64, "c": 256, "h": 56, "w": 56}),
    ),
}
"""Real operators of several kinds. On a CPU from 0.2 to 10 ms, on a GPU from microseconds to milliseconds."""


@dataclass(frozen=True)
class Instrument:
    """One way to time a launch."""

    name: str
    read: Callable[[], float]
    """Median seconds of a launch, of launches that last about TURN_S; NaN if it saw none."""
    launches: int = 1
    """In each of its samples, where it says so."""


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
    """torch.utils.benchmark. It sets one thread unless it is told.

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
    return _name(given), turns_of([host, timer(call, threads, host.launches), plain_loop(call)], rounds)


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
    yield f"{_name(given)} warm", turns_of(warm, rounds)
    cold = [ours(f"{clock.name}, ring", bench, clock, calls, ring.flushed) for clock in clocks]
    yield f"{_name(given)} cold", turns_of([*cold, triton_instrument("do_bench", calls[0])], rounds)


def cupti_reading(part: str, bench: Bench, given: Given, rounds: int) -> Reading:
    """Warm, the kernels alone, as `part` records them: the profiler or cupti-python."""
    operator, implementation, _ = given
    slots = Slots(bench, kernels.operator(operator), implementation, problem_of(given), 1)
    count = max(1, min(1000, round(TURN_S / slots.warm_launch_s())))
    read = separate_instruments.KERNELS[part](slots.calls[0], count)
    return f"{_name(given)} warm", turns_of([Instrument(part, read)], rounds)


def nvbench_readings(bench: Bench, given: Sequence[Given], rounds: int) -> Iterator[Reading]:
    """Cold, one launch after a flush: all cases at once, since nvbench runs what is registered."""

    def building(case: Given) -> Callable[[], Callable[[], Any]]:
        operator, implementation, _ = case
        return lambda: Slots(bench, kernels.operator(operator), implementation, problem_of(case), 1).calls[0]

    names = [_name(case) for case in given]
    for name, turns_s in separate_instruments.nvbench_s(
        dict(zip(names, map(building, given), strict=True)), rounds, TURN_S
    ):
        yield f"{name} cold", {"cuda-bench": turns_s}


def _name(given: Given) -> str:
    return f"{given[0]} {given[1]} {problem_of(given)}"


def read_part(
    settings: Mapping[str, Any], bench: Bench, kind: DeviceKind, threads: int, cases: Sequence[Given]
) -> Iterator[Finding]:
    """One part's instruments in every case from the `begin`-th on: a line for the person, or `turns_s`.

    The last may have `again_from`: the case that another process must begin with, as this one can no longer
    be trusted (after a failed capture, say).
    """
    part, rounds = settings["part"], ROUNDS[kind]
    for number, given in enumerate(cases[settings["begin"] :], settings["begin"] + 1):
        yield passed(part, f"[{number}/{len(cases)}] {_name(given)}")
        try:
            if part != "together":
                readings: Iterable[Reading] = [cupti_reading(part, bench, given, rounds)]
            elif kind == "cpu":
                readings = [cpu_reading(bench, given, threads, rounds)]
            else:
                readings = cuda_readings(bench, given, rounds)
            for case, turns_s in readings:
                yield passed(case, "", turns_s=turns_s)
        except (RuntimeError, MemoryError) as error:  # torch's for a lack of memory is a RuntimeError
            yield passed(part, f"  left out: {first_line(error)}")
        if bench.distrust():
            if number < len(cases):
                yield passed(part, "", again_from=number)
            return


def instruments(device: Device, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """One part, as `read_part`. `settings`: the device's `name`, `part`, and the first case, `begin`."""
    kind, part = device.kind, settings["part"]
    if lacking := separate_instruments.lacking(part):
        yield passed(part, lacking)
        return
    threads = device.sm_count if kind == "cpu" else 1
    torch.set_num_threads(threads)
    bench = make_bench(kind, device.cache_byte, SEED, device.uuid or None)
    what = settings["name"] if part == "together" else f"{part}, in a process of its own"
    yield passed(part, f"{what}, torch {torch.__version__}; {ROUNDS[kind]} rounds of {TURN_S} s turns")
    begin = time.perf_counter()
    with torch.no_grad():
        if part == "cuda-bench":
            for case, turns_s in nvbench_readings(bench, CASES[kind], ROUNDS[kind]):
                yield passed(case, "", turns_s=turns_s)
        else:
            yield from read_part(settings, bench, kind, threads, CASES[kind])
    yield passed(part, f"{time.perf_counter() - begin:.0f} s")
