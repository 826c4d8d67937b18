"""Checks of our clocks: step, costs, on a GPU the spin's calibration; and agreement with independent ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from bench.device.detect import Device
from bench.format import ratio_text
from bench.runner.rows import SEED
from bench.selfcheck.clock_agreement import ClockReadings, Ratio, comparison
from bench.selfcheck.finding import Finding, checked, failed, passed
from bench.selfcheck.instruments import Given, cpu_reading, cuda_readings, kernel_reading, profiler
from bench.selfcheck.rows import Anchor, anchors
from bench.spec import DeviceKind
from bench.worker.__main__ import make_bench
from bench.worker.clock import EVENT_STEP_S, GraphClock, HostClock

FINE_S = 1e-6
"""A host clock with longer steps needs batches of many launches."""
SPIN_CYCLES = 1_000_000
WARM_S = 0.3
"""Seconds of load after which a GPU has raised its clock."""
OFF = 0.1
"""Share by which the spin's calibration may be off: the spin is meant to last 1.5 times as long as needed."""
NODES = (1, 100, 4096)
LONG_PAIR_S = 20e-6
LONG_NODE_S = 5e-6
REPEATS = 7
SPIN_REMEDY = (
    "Do not trust times below 20 us: the spin ends before the launches are queued. Report the JSON file."
)
STEP_REMEDY = (
    "Batches must last 400 of these steps: report the JSON file, so that the clock's resolution is mended."
)
HOST_REMEDY = "Let the kernel use the processor's counter: clocksource tsc, if the machine's is steady."
SLOW_REMEDY = (
    "Look for a tool that watches every launch (a profiler, a debugger, compute-sanitizer) and leave it out."
)


def clocks(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on a CPU's host clock, or on a GPU's events, spins and graphs."""
    if device.kind == "cpu":
        yield from host(HostClock(lambda: None))
        return
    x = torch.ones(1, device="cuda")
    y = torch.empty_like(x)
    yield from gpu(torch.cuda, lambda: torch.neg(x, out=y))


def gpu(
    cuda: Any, empty: Callable[[], Any], now: Callable[[], float] = time.perf_counter
) -> Iterator[Finding]:
    """Spins, events and graphs of `cuda`, which is torch.cuda or a simulation of it.

    `empty` queues a kernel that does next to nothing; `now` is the host's clock.
    """
    cold = spin_rate(cuda)
    clock = GraphClock(cuda, lambda: None, now)  # as a worker makes it, on a device that has just woken up
    until = now() + WARM_S
    while now() < until:
        spin_rate(cuda)
    yield spin(cold, median(spin_rate(cuda) for _ in range(REPEATS)), clock.cycles_per_s)
    yield event_step(step_s(cuda))
    pair_s = median(elapsed_s(cuda, 0) for _ in range(REPEATS))
    sentence = f"Two events with nothing in between are {1e6 * pair_s:.1f} us apart."
    yield checked("empty pair", pair_s <= LONG_PAIR_S, sentence, SLOW_REMEDY, pair_s=pair_s)
    for _ in range(3):
        empty()  # what a first call sets up must not be captured
    seconds = {}
    for nodes in NODES:
        batch = clock.batch([empty] * nodes, False)
        seconds[nodes] = median(batch() for _ in range(REPEATS))
    yield graphs(seconds)


def elapsed_s(cuda: Any, cycles: int) -> float:
    """Seconds between two events around a spin of `cycles`; 0: around nothing, queued behind another spin."""
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    if not cycles:
        cuda._sleep(SPIN_CYCLES)  # the device must not wait for the host between the events
    start.record()
    if cycles:
        cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


def spin_rate(cuda: Any) -> float:
    """Cycles a second of the spinning kernel, at this moment."""
    return SPIN_CYCLES / elapsed_s(cuda, SPIN_CYCLES)


def step_s(cuda: Any) -> float:
    """The smallest difference between spins of many lengths, seconds."""
    times = sorted({elapsed_s(cuda, 20_000 + 97 * number) for number in range(200)})
    return min((b - a for a, b in pairwise(times) if b - a > 1e-10), default=0.0)


def spin(cold: float, warm: float, calibrated: float) -> Finding:
    """Whether the spin is as long as it is meant to be once the device is warm. Rates are cycles a second."""
    numbers: dict[str, Any] = {"cold_per_s": cold, "warm_per_s": warm, "calibrated_per_s": calibrated}
    rates = f"{1e-6 * cold:.0f} MHz cold, {1e-6 * warm:.0f} MHz warm"
    sentence = f"The spin that hides the host is calibrated at {1e-6 * calibrated:.0f} MHz ({rates})."
    if calibrated < (1 - OFF) * warm:
        return failed("spin", sentence, SPIN_REMEDY, **numbers)
    return passed("spin", sentence, **numbers)


def event_step(step: float) -> Finding:
    """Whether events are as fine as the clock takes them to be."""
    sentence = (
        f"Events have steps of {1e6 * step:.2f} us; the clock reckons with {1e6 * EVENT_STEP_S:.2f} us."
    )
    return checked("event step", step <= 1.05 * EVENT_STEP_S, sentence, STEP_REMEDY, step_s=step)


def graphs(seconds: Mapping[int, float]) -> Finding:
    """The cost of a graph's start and of each empty kernel in it; `seconds` by the number of kernels."""
    least, more, most = NODES
    each_s = (seconds[most] - seconds[more]) / (most - more)
    start_s = seconds[least] - each_s
    numbers: dict[str, Any] = {"seconds": {str(nodes): time_s for nodes, time_s in seconds.items()}}
    shown = ", ".join(f"{nodes}: {1e6 * time_s:.1f} us" for nodes, time_s in seconds.items())
    sentence = (
        f"Graphs of empty kernels take {shown}; "
        f"{1e6 * each_s:.2f} us a kernel, {1e6 * start_s:.1f} us to start."
    )
    numbers |= {"each_s": each_s, "start_s": start_s}
    return checked("empty graphs", 0 < each_s <= LONG_NODE_S, sentence, SLOW_REMEDY, **numbers)


def host(clock: HostClock) -> Iterator[Finding]:
    """The host clock's step, and the cost of a loop of empty calls."""
    step_s = clock.resolution_s
    text = f"{1e9 * step_s:.0f} ns" if step_s <= FINE_S else f"{1e6 * step_s:.1f} us"
    sentence = f"The host's clock has steps of {text}."
    yield checked("clock step", step_s <= FINE_S, sentence, HOST_REMEDY, step_s=step_s)
    count = 10_000
    empty_s = min(clock.batch([lambda: None] * count, False)() for _ in range(REPEATS)) / count
    text = f"{1e9 * empty_s:.0f} ns" if empty_s <= FINE_S else f"{1e6 * empty_s:.1f} us"
    sentence = f"An empty call is timed as {text}, which every time includes."
    yield checked("empty call", empty_s <= FINE_S, sentence, SLOW_REMEDY, empty_s=empty_s)


# ---- two anchors by every clock, in one process

ROUNDS = 6
AGREE = 0.02
APART = 0.10
"""Share beyond which no disturbance explains the difference."""
AGREE_REMEDY = {
    "cpu": "Stop what else runs here and look again; python -m studies instruments asks at length.",
    "cuda": "Look again on an idle GPU; python -m studies instruments asks at length, on more cases.",
}
APART_REMEDY = (
    "Do not measure: one of the clocks lies. Run python -m studies instruments and report both outputs."
)


def agreement(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """One finding for each anchor, warm, timed by our clocks and by independent ones, in turns."""
    threads = device.sm_count if device.kind == "cpu" else 1
    torch.set_num_threads(threads)
    bench = make_bench(device.kind, device.cache_byte, SEED, device.uuid or None)
    with torch.no_grad():
        readings = {}
        for anchor in anchors(device.kind):
            if device.kind == "cpu":
                reading = cpu_reading(bench, given_of(anchor), threads, ROUNDS)
            else:
                reading = next(iter(cuda_readings(bench, given_of(anchor), ROUNDS)))  # warm: the first
            readings[anchor] = reading
            yield agreed(f"clocks, {anchor.short}", comparison(*reading), device.kind)
        # The profiler comes last, since CUPTI stays attached; by then the clock may be another.
        for anchor, (case, turns_s) in readings.items() if device.kind == "cuda" else ():
            first = next(iter(turns_s))
            seen = kernel_reading("profiler", profiler, bench, given_of(anchor), ROUNDS)[1]
            yield profiled(anchor.short, comparison(case, {first: turns_s[first]} | seen))


def given_of(anchor: Anchor) -> Given:
    """An anchor as the instruments take it."""
    return anchor.problem.operator, anchor.implementation, anchor.problem.parameters()


def profiled(short: str, compared: ClockReadings) -> Finding:
    """Our clock and the profiler, which measured later: a difference is never a failure."""
    finding = agreed(f"profiler, {short}", compared, "cuda")
    return finding if finding.level != "FAIL" else replace(finding, level="WARN", remedy=AGREE_REMEDY["cuda"])


def agreed(name: str, compared: ClockReadings, kind: DeviceKind) -> Finding:
    """How far the clocks are apart at one anchor.

    A CPU's clocks all read one counter, so only its neighbours can drive them apart: a difference there is no
    failure, and an interval that is too wide to decide gives no warning.
    """
    ours, *_ = compared.median_s
    known = {other: ratio for other, ratio in compared.ours_over.items() if ratio is not None}
    unknown = [other for other, ratio in compared.ours_over.items() if ratio is None]
    ratios = {other: asdict(ratio) for other, ratio in known.items()}
    numbers: dict[str, Any] = {"median_s": compared.median_s, "ours_over": ratios}
    listed = ", ".join(f"{_text(ratio)} of {other}" for other, ratio in known.items())
    sentence = f"{compared.case}: {1e6 * compared.median_s[ours]:.1f} us by {ours}, {listed or 'alone'}."
    if unknown:
        sentence += f" No ratio to {', '.join(unknown)}."
    if kind == "cuda" and any(_least_off(ratio) > APART for ratio in known.values()):
        return failed(name, sentence, APART_REMEDY, **numbers)
    off = _least_off if kind == "cpu" else _off
    agree = not unknown and all(off(ratio) <= AGREE for ratio in known.values())
    return checked(name, agree, sentence, AGREE_REMEDY[kind], **numbers)


def _text(ratio: Ratio) -> str:
    """The ratio, with its interval where it is far from 1."""
    if _off(ratio) > AGREE:
        return ratio_text(ratio.middle, ratio.low, ratio.high)
    return f"{ratio.middle:.3f}"


def _off(ratio: Ratio) -> float:
    return abs(ratio.middle - 1)


def _least_off(ratio: Ratio) -> float:
    """The smallest share by which two clocks may differ, by the interval of their ratio."""
    return max(0.0, ratio.low - 1, 1 - ratio.high)
