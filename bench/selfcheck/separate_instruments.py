"""Instruments of a GPU that need a process of their own: two that attach CUPTI to it, and nvbench.

Names and calls are those of torch 2.11 and 2.13, of cupti-python 13.4.0 (its sample cupti_common.py) and of
cuda-bench 0.3.0 (its stubs). The last two are used if they are installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import torch

PACKAGES = {"cupti-python": ("cupti", "cupti-python"), "cuda-bench": ("cuda.bench", "cuda-bench[cu{major}]")}
"""Instrument -> the module it needs, and what pip knows it by."""


def lacking(part: str) -> str:
    """That an instrument is not installed, and the command that changes it; empty if it is."""
    module, package = PACKAGES.get(part, ("torch", ""))
    try:
        there = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package `cuda` that holds cuda.bench
        there = False
    major = (torch.version.cuda or "13").split(".")[0]
    command = f"{sys.executable} -m pip install '{package.format(major=major)}'"
    return "" if there else f"{part} is not installed and left out: {command}"


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


@cache
def _cupti_records() -> tuple[Any, list[int]]:
    """CUPTI's interface, and the nanoseconds of all it has recorded; attached once, it stays attached."""
    cupti: Any = importlib.import_module("cupti.cupti")
    kind = cupti.ActivityKind
    kinds = (kind.CONCURRENT_KERNEL, kind.MEMCPY, kind.MEMSET)
    recorded: list[int] = []

    def completed(activities: list[Any]) -> None:
        wanted = (activity for activity in activities if activity.kind in (*kinds, kind.KERNEL))
        recorded.extend(activity.end - activity.start for activity in wanted)

    for activity in kinds:
        cupti.activity_enable(activity)
    cupti.activity_register_callbacks(lambda: (8 * 1024 * 1024, 0), completed)
    return cupti, recorded


def cupti_python(call: Callable[[], Any], count: int) -> Callable[[], float]:
    """The same as CUPTI's activity records tell it, without torch.profiler in between."""
    cupti, recorded_ns = _cupti_records()

    def read() -> float:
        torch.cuda.synchronize()
        cupti.activity_flush_all(1)
        recorded_ns.clear()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        cupti.activity_flush_all(1)
        return 1e-9 * sum(recorded_ns) / count if recorded_ns else math.nan

    return read


KERNELS: Mapping[str, Callable[[Callable[[], Any], int], Callable[[], float]]] = {
    "profiler": profiler,
    "cupti-python": cupti_python,
}
"""Instruments that record kernels: what to call and how often -> seconds of a launch."""


def nvbench_s(
    builds: Mapping[str, Callable[[], Callable[[], Any]]], turns: int, turn_s: float
) -> Iterator[tuple[str, list[float]]]:
    """Each case's name and the medians of so many measurements by nvbench, seconds; NaN if it saw nothing.

    `builds` says how to make each case's call. nvbench owns the process while it runs: it parses a command
    line, measures whatever is registered, and leaves its results in a file.
    """
    bench: Any = importlib.import_module("cuda.bench")
    results: Any = importlib.import_module("cuda.bench.results")
    cuda: Any = torch.cuda

    def registered(build: Callable[[], Callable[[], Any]], name: str) -> None:
        def measured(state: Any) -> None:
            call = build()
            stream = cuda.ExternalStream(state.get_stream().addressof())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    call()  # what a first call sets up would wait for ever for the blocking kernel
                torch.cuda.synchronize()

            def launch(launching: Any) -> None:
                with torch.cuda.stream(stream):
                    call()

            state.exec(launch, batched=False)

        made = bench.register(measured)
        made.set_name(name)
        made.set_timeout(10 * turn_s)

    for number, build in enumerate(builds.values()):
        for turn in range(turns):
            registered(build, f"case-{number}-{turn}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nvbench.json"
        bench.run_all_benchmarks([sys.argv[0], "--quiet", "--jsonbin", str(file)])
        measured = results.BenchmarkResult.from_json(file)
        for number, name in enumerate(builds):
            states = [measured[f"case-{number}-{turn}"].states[0] for turn in range(turns)]
            yield name, [float(state.center(median) or math.nan) for state in states]
