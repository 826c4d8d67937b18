"""Do the clocks agree? The same launches timed by ours and by independent instruments in one process.

`python -m bench instruments` starts this in a process of its own, with the environment that a worker has.

A machine changes speed while it is watched (a processor shared with others by a tenth, for seconds). So the
instruments take short turns, forwards and then backwards, and what is compared is not their medians over the
whole time but pairs of turns taken close together: the median of the ratios, with its 95 % interval.

Warm, one set of tensors, since the others know no ring. On a GPU also cold, our ring against the cache flush
of `triton.testing.do_bench`: there both time launches that find their data in memory.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.dependencies import refuse_if_missing

if __name__ == "__main__":
    refuse_if_missing()

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from scipy import stats

import kernels
from bench.measure.clock import CaptureError, Clock
from bench.measure.ring import Turns, launches_per_sample, plan
from bench.measure.run import Bench, Slots
from bench.measure.sampling import collect
from bench.measure.worker import make_bench
from bench.spec import Problem

TURN_S = 0.12
"""Seconds of launches in one instrument's turn."""
ROUNDS = {"cpu": 12, "cuda": 6}
"""Turns of each instrument; an even number, as every other round goes backwards."""
SHORT_S = 100e-6
"""Launches that take less time are shown, but the last line leaves them out: fixed costs differ there."""
SEED = 5
WIDTH = 200

Given = tuple[str, str, dict[str, Any]]
"""Operator, implementation, parameters."""

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

INCLUDES = {
    "host": "ours: perf_counter_ns around batches of calls",
    "Timer": "torch.utils.benchmark, wall time of blocks of calls; on a GPU with launching and a synchronize",
    "loop": "perf_counter around one plain loop",
    "graph": "ours: kernels of a CUDA graph and the gaps between them, no host",
    "stream": "ours: kernels queued behind a spin and the gaps between them, no host",
    "do_bench_cudagraph": "Triton's: kernels of a CUDA graph and the gaps between them, no host",
    "profiler": "torch.profiler (CUPTI): the kernels alone, no gaps",
    "graph, ring": "ours, each launch on data that is in memory",
    "stream, ring": "ours, each launch on data that is in memory",
    "do_bench": "Triton's: one launch between two events after a flush that hides the host",
}


@dataclass(frozen=True)
class Instrument:
    """One way to time a launch."""

    name: str
    read: Callable[[], float]
    """Median seconds of a launch, of launches that last about TURN_S; NaN if it saw none."""
    launches: int = 1
    """In each of its samples, where it says so."""


@dataclass(frozen=True)
class Ratio:
    """Median of ours / other over pairs of turns, with its 95 % interval by order statistics."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """One case: what each instrument read, ours first."""

    case: str
    median_s: dict[str, float]
    """Instrument -> median of its turns, seconds; NaN if it saw no launch."""
    ours_over: dict[str, Ratio | None]
    """Other instrument -> the ratio; None where it cannot be known."""


def alternate(instruments: Sequence[Instrument], rounds: int) -> dict[str, list[float]]:
    """Name -> seconds of its turn in each round. Every other round goes backwards: a steady drift cancels."""
    readings: dict[str, list[float]] = {instrument.name: [] for instrument in instruments}
    for number in range(rounds):
        for instrument in instruments if number % 2 == 0 else reversed(instruments):
            readings[instrument.name].append(instrument.read())
    return readings


def ratio(ours: Sequence[float], other: Sequence[float]) -> Ratio | None:
    """Of turns in the same round. None with fewer than 6 rounds, or if a turn saw nothing."""
    found = sorted(a / b if b > 0 else math.nan for a, b in zip(ours, other, strict=True))
    rank = int(stats.binom.ppf(0.025, len(found), 0.5))
    if rank < 1 or not all(math.isfinite(one) for one in found):
        return None
    return Ratio(median(found), found[rank - 1], found[-rank])


def compare(case: str, instruments: Sequence[Instrument], rounds: int) -> Comparison:
    """Time one case with all of them; the first is ours."""
    for instrument in instruments:
        instrument.read()  # the first turn pays for what later ones find ready
    readings = alternate(instruments, rounds)
    ours = readings[instruments[0].name]
    return Comparison(
        case,
        {name: median(turns) for name, turns in readings.items()},
        {name: ratio(ours, turns) for name, turns in readings.items() if turns is not ours},
    )


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
    """A loop that looks at the clock after each call."""

    def read() -> float:
        begin, count = now(), 0
        while (spent := now() - begin) < TURN_S:
            call()
            count += 1
        return spent / count

    return Instrument("loop", read)


def cuda_profiler(call: Callable[[], Any], launch_s: float) -> Instrument:
    """The kernels' own time as CUPTI records it. `launch_s`: about how long a launch takes."""
    from torch.profiler import ProfilerActivity, profile

    count = max(1, min(1000, round(TURN_S / launch_s)))

    def read() -> float:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(count):
                call()
            torch.cuda.synchronize()
        return kernel_s(seen.events() or [], count)

    return Instrument("profiler", read)


def kernel_s(events: Iterable[Any], launches: int) -> float:
    """Seconds that the recorded kernels (copies, fills) ran, per launch; NaN if none was recorded."""
    on_device = [e for e in events if e.device_type.name == "CUDA"]
    total_us = sum(float(e.time_range.elapsed_us()) for e in on_device)
    return 1e-6 * total_us / launches if total_us > 0 else math.nan


def triton_instrument(name: str, call: Callable[[], Any]) -> Instrument:
    """`do_bench` or `do_bench_cudagraph`, asked for the median: its own answer would be the mean."""
    import triton.testing

    bench = getattr(triton.testing, name)
    return Instrument(name, lambda: 1e-3 * float(bench(call, rep=1e3 * TURN_S, return_mode="median")))


# ---- the cases


def problem_of(given: Given) -> Problem:
    """The problem of a case of CASES."""
    operator, _, parameters = given
    return kernels.problem(operator)(**parameters)


def cpu_comparison(bench: Bench, given: Given, threads: int, rounds: int) -> Comparison:
    """Warm: our clock, torch.utils.benchmark and a plain loop."""
    operator, implementation, _ = given
    (call,) = Slots(bench, kernels.operator(operator), implementation, problem_of(given), 1).calls
    host = ours("host", bench, bench.clock, [call], flushed=False)
    return compare(_name(given), [host, timer(call, threads, host.launches), plain_loop(call)], rounds)


def cuda_comparisons(bench: Bench, given: Given, rounds: int) -> Iterable[Comparison]:
    """Warm, on the ring's first slot, then cold."""
    operator, implementation, _ = given
    problem = problem_of(given)
    assert bench.spare_clock is not None
    ring = plan(problem.byte, bench.cache_byte, True, bench.usable_byte, bench.protocol)
    calls = Slots(bench, kernels.operator(operator), implementation, problem, ring.slots).calls
    for call in calls:
        call()  # what a first call sets up must not be captured
    bench.synchronize()
    warm = [
        ours(clock.name, bench, clock, calls[:1], flushed=False) for clock in (bench.clock, bench.spare_clock)
    ]
    launch_s = warm[0].read()
    warm += [timer(calls[0], 1), triton_instrument("do_bench_cudagraph", calls[0])]
    yield compare(f"{_name(given)} warm", [*warm, cuda_profiler(calls[0], launch_s)], rounds)
    cold = [
        ours(f"{clock.name}, ring", bench, clock, calls, ring.flushed)
        for clock in (bench.clock, bench.spare_clock)
    ]
    yield compare(f"{_name(given)} cold", [*cold, triton_instrument("do_bench", calls[0])], rounds)


def _name(given: Given) -> str:
    return f"{given[0]} {given[1]} {problem_of(given)}"


# ---- what is printed


def table(comparisons: Sequence[Comparison]) -> Table:
    """A row a case: our median, then of each other instrument its median, and ours as a multiple of it."""
    first, *others = comparisons[0].median_s
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("case", no_wrap=True)
    shown.add_column(f"{first}, us", justify="right", no_wrap=True)
    for name in others:
        shown.add_column(f"{name}, us", justify="right", no_wrap=True)
        shown.add_column(f"{first} / it", justify="right", no_wrap=True)
    for one in comparisons:
        cells = [one.case, _microseconds(one.median_s[first])]
        for name in others:
            cells += [_microseconds(one.median_s[name]), _ratio_text(one.ours_over[name])]
        shown.add_row(*cells)
    return shown


def _microseconds(seconds: float) -> str:
    return "none seen" if math.isnan(seconds) else f"{1e6 * seconds:.1f}"


def _ratio_text(found: Ratio | None) -> str:
    return "unknown" if found is None else f"{found.middle:.3f} ({found.low:.3f} to {found.high:.3f})"


def worst(comparisons: Sequence[Comparison], other: str) -> str:
    """`ours / Timer: worst 0.8 % over 12 cases above 100 us`; short launches and unknown ratios left out."""
    off = [
        abs(found.middle - 1.0)
        for one in comparisons
        if next(iter(one.median_s.values())) > SHORT_S and (found := one.ours_over[other]) is not None
    ]
    above = f"above {1e6 * SHORT_S:.0f} us"
    if not off:
        return f"ours / {other}: no case {above} has a ratio"
    return f"ours / {other}: worst {100 * max(off):.1f} % over {len(off)} cases {above}"


def main(settings: Mapping[str, Any]) -> None:
    """Print the tables. `settings`: kind, cache_byte, uuid, threads, and the device's name."""
    kind, threads, console = settings["kind"], settings["threads"], Console(width=WIDTH)
    if kind == "cpu":
        torch.set_num_threads(threads)
    bench, rounds = make_bench(kind, settings["cache_byte"], SEED, settings["uuid"]), ROUNDS[kind]
    console.print(f"{settings['name']}, torch {torch.__version__}; {rounds} rounds of {TURN_S} s turns")
    found: list[Comparison] = []
    begin = time.perf_counter()
    with torch.no_grad():
        for number, given in enumerate(CASES[kind], 1):
            console.print(f"[{number}/{len(CASES[kind])}] {_name(given)}", highlight=False, markup=False)
            try:
                if kind == "cpu":
                    found.append(cpu_comparison(bench, given, threads, rounds))
                else:
                    found += cuda_comparisons(bench, given, rounds)
            except (CaptureError, MemoryError, torch.OutOfMemoryError) as error:
                console.print(f"  left out: {str(error).splitlines()[0]}", markup=False)
    console.print(f"{time.perf_counter() - begin:.0f} s", highlight=False)
    print_report(console, found)


def print_report(console: Console, found: Sequence[Comparison]) -> None:
    """What each instrument's time includes, a table for each set of instruments, a line for each pair."""
    sets = dict.fromkeys(tuple(one.median_s) for one in found)
    for name in dict.fromkeys(name for names in sets for name in names):
        console.print(f"{name:>20}  {INCLUDES[name]}", highlight=False)
    lines = []
    for names in sets:
        some = [one for one in found if tuple(one.median_s) == names]
        console.print(table(some))
        lines += [(other == "Timer", worst(some, other)) for other in names[1:]]
    for _, line in sorted(lines, key=lambda pair: pair[0]):  # Timer's last: it is there on every device
        console.print(line, highlight=False)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
