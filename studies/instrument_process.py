"""A process of instruments.py: real operators timed by one part of the instruments, findings one by one.

Two instruments of a GPU are defined here, as each needs a process of its own: CUPTI's own records, and
nvbench. Names and calls are those of torch 2.11 and 2.13, of cupti-python 13.4.0 (its sample cupti_common.py)
and of cuda-bench 0.3.0 (its stubs). The last two are used if they are installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import torch

import kernels
from bench.device.detect import Device
from bench.selfcheck.finding import Finding, passed
from bench.selfcheck.instruments import (
    TURN_S,
    Given,
    Reading,
    Recorder,
    case_name,
    cpu_reading,
    cuda_readings,
    kernel_reading,
    problem_of,
    profiler,
)
from bench.spec import DeviceKind, first_line
from bench.worker.__main__ import make_bench
from bench.worker.measure_case import Bench, Slots

ROUNDS = {"cpu": 12, "cuda": 6}
"""Turns of each instrument; an even number, as every other round goes backwards."""
SEED = 5
PACKAGES = {"cupti-python": ("cupti", "cupti-python"), "cuda-bench": ("cuda.bench", "cuda-bench[cu{major}]")}
"""Instrument -> the module it needs, and what pip knows it by."""

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


KERNELS: Mapping[str, Recorder] = {"profiler": profiler, "cupti-python": cupti_python}


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


def nvbench_readings(bench: Bench, given: Sequence[Given], rounds: int) -> Iterator[Reading]:
    """Cold, one launch after a flush: all cases at once, since nvbench runs what is registered."""

    def building(case: Given) -> Callable[[], Callable[[], Any]]:
        operator, implementation, _ = case
        return lambda: Slots(bench, kernels.operator(operator), implementation, problem_of(case), 1).calls[0]

    names = [case_name(case) for case in given]
    for name, turns_s in nvbench_s(dict(zip(names, map(building, given), strict=True)), rounds, TURN_S):
        yield f"{name} cold", {"cuda-bench": turns_s}


def read_part(
    settings: Mapping[str, Any], bench: Bench, kind: DeviceKind, threads: int, cases: Sequence[Given]
) -> Iterator[Finding]:
    """One part's instruments in every case from the `begin`-th on: a line for the person, or `turns_s`.

    The last may have `again_from`: the case that another process must begin with, as this one can no longer
    be trusted (after a failed capture, say).
    """
    part, rounds = settings["part"], ROUNDS[kind]
    for number, given in enumerate(cases[settings["begin"] :], settings["begin"] + 1):
        yield passed(part, f"[{number}/{len(cases)}] {case_name(given)}")
        try:
            if part != "together":
                readings: Iterable[Reading] = [kernel_reading(part, KERNELS[part], bench, given, rounds)]
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
    if sentence := lacking(part):
        yield passed(part, sentence)
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
