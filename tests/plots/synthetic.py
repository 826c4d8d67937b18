"""Rows of made-up but realistic machines: a roofline, a ramp for small problems, 2 % noise, some skipped."""

import dataclasses
import itertools
import math
import random
from collections.abc import Collection, Iterator
from typing import Any

import pandas as pd

from bench.judge.frame import DeviceRun
from bench.model.quantization import forced_tile, tiles, waves
from bench.spec import Problem, parameters_text
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from kernels.launch.problem import LaunchFloor
from kernels.stream.problem import Stream
from tests.our_sweeps import role


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a made-up device reaches."""

    facts: dict[str, Any]
    flop_per_s: dict[str, float]
    byte_per_s: dict[str, float]
    launch_s: float
    libraries: tuple[str, ...]


COMMON = {
    "commit": "4f2a91c",
    "torch": "2.13.0",
    "fill": "uniform",
    "seed": 0,
    "protocol": "p1",
    "threads": 1,
}
CPU = Machine(
    {
        **COMMON,
        **{"device": "amd-epyc-9r14", "device_name": "AMD EPYC 9R14", "device_kind": "cpu", "device_id": "a"},
        **{"sm_count": 2, "cache_byte": 2**25, "driver": "6.8.0", "triton": "", "libraries": "MKL"},
        "clock": "host",
    },
    {"float32": 390e9, "float64": 190e9, "bfloat16": 2000e9},
    {"copy": 27e9, "triad": 28e9, "read": 32e9, "write": 17e9},
    1.5e-6,
    ("onednn",),
)
H100 = Machine(
    {
        **COMMON,
        **{"device": "h100-sxm", "device_name": "NVIDIA H100 80GB HBM3", "device_kind": "cuda"},
        **{"device_id": "b", "sm_count": 132, "cache_byte": 5 * 10**7, "driver": "570.86"},
        **{"triton": "3.7.1", "libraries": "CUDA 13", "clock": "graph"},
    },
    {"float32": 52e12, "float16": 760e12, "bfloat16": 780e12, "tf32": 400e12, "float64": 60e12},
    {"copy": 2.97e12, "triad": 3.0e12, "read": 3.15e12, "write": 2.8e12},
    1.3e-6,
    ("cublas", "triton"),
)
H200 = dataclasses.replace(
    H100,
    facts=H100.facts | {"device": "nvidia-h200", "device_name": "NVIDIA H200", "device_id": "c"},
    byte_per_s={kind: rate * 4.8 / 3.352 for kind, rate in H100.byte_per_s.items()},
)
"""An H100 with the memory of an H200: the peak stays, the bandwidth does not."""


def seeding(problem: Problem) -> str:
    """The problem as a text from which its noise is drawn: what figures show must not hang on its name."""
    usual = {("beta", 0), ("pitch", "tight"), ("bias", False)}
    pairs = [pair for pair in problem.parameters().items() if pair[0] != "dtype" and pair not in usual]
    return " ".join([problem.dtype, *(f"{name}={value}" for name, value in pairs)])


def row(machine: Machine, where: str, problem: Problem, implementation: str, **facts: Any) -> Measurement:
    """A row as the roofline would have it, 2 % noise and a ramp for small problems."""
    chance = random.Random(f"{where} {seeding(problem)} {implementation}")
    peak = machine.flop_per_s.get(problem.dtype, 1e9) if problem.flop else math.inf
    stream = machine.byte_per_s.get(getattr(problem, "kind", "copy"), machine.byte_per_s["copy"])
    sizes = [getattr(problem, s) for s in ("m", "n", "k") if hasattr(problem, s)]
    ramp = min(sizes) / (min(sizes) + 300) if sizes else 1.0
    ramp *= 0.93 if any(s % 8 for s in sizes) else 1.0
    ramp *= 0.8 if implementation.startswith("triton") else 1.0
    ideal_s = machine.launch_s + max(problem.flop / (peak * ramp), problem.byte / stream)
    median_s = ideal_s * chance.gauss(1, 0.01)
    half = abs(chance.gauss(0.008, 0.006)) * median_s
    base: dict[str, Any] = {"run_id": "2026-11-21T10-00-00Z-4f2a91c", "utc": "2026-11-21T10:00:00Z"}
    base |= {"sweep": where, "role": role(where)}
    base |= {"operator": problem.operator, "implementation": implementation, "cache": "cold"}
    base |= {"arithmetic": problem.arithmetic, "rate": problem.rate, "dtype": problem.dtype, "status": "ok"}
    base |= {"parameters": parameters_text(problem.parameters()), "flop": problem.flop, "byte": problem.byte}
    base |= {"byte_written": problem.byte_written, "byte_moved": problem.byte_moved(implementation)}
    base |= {"byte_again": problem.byte_again(implementation)}
    base |= {"moved_written": problem.moved_written(implementation)}
    base |= {"median_s": median_s, "low_s": median_s - half, "high_s": median_s + half, "stop": "converged"}
    if machine.facts["device_kind"] == "cuda":  # its earlier runs told its noise, which is small
        base |= {"run_half": 0.002, "noise_visits": 0.002, "noise_runs": 0.001}
    return Measurement(**(machine.facts | base | {"settled": True} | facts))


NO_TIME: dict[str, Any] = {"status": "skipped", "stop": None, "settled": None}
NO_TIME |= dict.fromkeys(("median_s", "low_s", "high_s"))


def ceilings(machine: Machine) -> Iterator[Measurement]:
    """Launch floor, the four passes over memory, and square GEMMs of every dtype."""
    for name in ("aten", "triton") if "triton" in machine.libraries else ("aten",):
        yield row(machine, "ceilings/launch", LaunchFloor(dtype="float32"), name)
    for kind, length in itertools.product(("copy", "triad", "read", "write"), (2**26, 2**28)):
        yield row(machine, "ceilings/stream", Stream(kind=kind, length=length, dtype="float32"), "aten")
    for dtype, s in itertools.product(machine.flop_per_s, (1024, 2048, 4096, 8192)):
        problem = Gemm(m=s, n=s, k=s, dtype=dtype)
        yield row(machine, "ceilings/gemm", problem, machine.libraries[0])


def every(machine: Machine, where: str, problems: Iterator[Gemm], skip: float = 0.2) -> Iterator[Measurement]:
    """A row for each problem and library; that share of the problems skipped, as other dtypes are."""
    for problem in problems:
        for name in sorted({"cublas", "triton"} - {*machine.libraries}):
            yield row(machine, where, problem, name, **(NO_TIME | {"status": "unsupported"}))
        for name in machine.libraries:
            if problem.dtype not in machine.flop_per_s or random.Random(seeding(problem)).random() < skip:
                yield row(machine, where, problem, name, **NO_TIME, reason="outside the budget")
            else:
                yield row(machine, where, problem, name)


def gemms(machine: Machine) -> Iterator[Measurement]:
    """Four sweeps as the checkout has them: square, aligned K, growing K, and a narrowing N."""
    dtypes = [*machine.flop_per_s]
    square = (
        Gemm(m=s, n=s, k=s, dtype=d) for d in dtypes for s in (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    )
    yield from every(machine, "gemm/square", square)
    sizes = ((1024, range(1008, 1025)), (4096, range(4088, 4105)), (8192, range(4088, 4105)))
    aligned = (Gemm(m=m, n=m, k=k, dtype=d) for d in dtypes for m, ks in sizes for k in ks)
    yield from every(machine, "gemm/aligned_k", aligned)
    growing = (
        Gemm(m=m, n=m, k=k, dtype=d) for d in dtypes for m in (1024, 4096) for k in range(64, 8192, 448)
    )
    yield from every(machine, "gemm/growing_k", growing)
    narrow = (Gemm(m=4096, n=2**i, k=4096, dtype=d) for d in dtypes for i in range(14))
    yield from every(machine, "gemm/intensity_n", narrow)


def small(machine: Machine = CPU) -> list[Measurement]:
    """Ten rows: the ceilings that a float32 GEMM needs, and three of those."""
    some = [r for r in ceilings(machine) if r.dtype == "float32"]
    keep = [r for r in some if r.operator != "gemm"][:5] + [r for r in some if r.operator == "gemm"][-1:]
    sizes = (Gemm(m=s, n=s, k=s, dtype="float32") for s in (256, 512, 1024, 4096))
    return keep + [row(machine, "gemm/some", problem, machine.libraries[0]) for problem in sizes]


STEP_S = 95e-6
"""Seconds that one 256 x 128 tile takes on the machine of `quantized`, at K = 4096."""


def quantized(
    machine: Machine, where: str, problems: Iterator[Gemm], noise: float = 0.01
) -> Iterator[Measurement]:
    """Forced tiles that go up the staircase, a little less than predicted for partly filled tiles, and a
    library that softens it."""
    for problem in problems:
        for name in ("cublas", "cublaslt-256x128", "triton", "triton-128x128", "triton-256x128"):
            chance = random.Random(f"{where} {seeding(problem)} {name}")
            tile_m, tile_n = forced_tile(name) or (128, 64)
            step_s = STEP_S * (tile_m * tile_n / 256 / 128) * (1.15 if name.startswith("triton") else 1.0)
            steps = waves(tiles(problem.m, problem.n, tile_m, tile_n), machine.facts["sm_count"])
            last = 0.97 + 0.03 * (problem.n % tile_n or tile_n) / tile_n
            median_s = machine.launch_s + step_s * steps * last * chance.gauss(1, 0.01)
            half = abs(chance.gauss(0.008, 0.006)) * median_s
            ends = {"low_s": median_s - half, "high_s": median_s + half}
            yield row(machine, where, problem, name, median_s=median_s, **ends)


def only(run: DeviceRun, sweeps: Collection[str]) -> DeviceRun:
    """The run as figures see it that has no other sweeps; its ceilings still predict."""
    return with_frame(run, run.frame[run.frame["sweep"].isin(sweeps)])


def with_frame(run: DeviceRun, frame: pd.DataFrame) -> DeviceRun:
    """The run as figures see it with this frame, however its rows came by that."""
    changed = dataclasses.replace(run)
    vars(changed)["frame"] = frame
    return changed
