"""Experiments on the device for the open facts, which need torch. On a CPU its libraries stand in."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from kernels.layernorm.shared_memory import Share

import kernels
from bench.device.detect import Device
from bench.device.nvml import NvmlGpu
from bench.launching.stored import stored_dtype
from bench.launching.tuning import compile_side_by_side
from bench.spec import Dtype, Launch, Problem, Unsupported, cause
from bench.worker.check import outputs_of
from bench.worker.telemetry_cuda import HELD_BY_POLICY, POWER_INSTANT
from kernels.gemm.operands import operands
from kernels.gemm.problem import Gemm
from kernels.layernorm.problem import LONGEST_IN_CLUSTER, LayerNorm
from kernels.softmax.problem import Softmax
from studies.gpu import facts
from studies.gpu.facts import GpuFact
from studies.gpu.trials import Trial, tried

SEED = 20_261_122
SHAPES = 20
LONG_K: dict[str, Any] = {"m": 1024, "n": 1024, "k": 16384, "layout": "TN"}
"""A product whose sums are long enough for imprecise ones to show."""
READING_S = 3.0
"""Counters are read for this long at most, under load."""
ENERGY_S = 0.1
"""The interval at which docs/ and telemetry_cuda.py assume NVML's energy to be refreshed, seconds."""

Build = Callable[[Gemm, Sequence[torch.Tensor]], Launch]


def tf32(device: Device, seconds: float) -> GpuFact:
    """Relative error and bias of tf32 products, by implementation and layout."""
    numbers = {}
    for layout in ("TN", "NN"):
        problem = Gemm(
            dtype="tf32" if device.kind == "cuda" else "float32", m=512, n=512, k=4096, layout=layout
        )
        inputs = _inputs(problem, device)
        for name, build in _builders(device, ("pointer", "tma", "persistent")).items():
            if device.kind == "cpu":  # operands rounded, and cut off, before a product in float32
                for how, convert in (("rounded", _rounded), ("cut", _cut)):
                    product = build(problem, [convert(operand) for operand in inputs]).call()
                    numbers[f"{name} {layout}, {how}"] = _error(problem, inputs, product)
                continue
            try:
                numbers[f"{name} {layout}"] = _error(problem, inputs, build(problem, inputs).call())
            except Unsupported as reason:
                print(f"{name} {layout} does not run: {reason}")
    return facts.tf32(numbers)


def _error(problem: Gemm, inputs: Sequence[torch.Tensor], written: Any) -> dict[str, float]:
    (product,) = outputs_of(written)
    right, actual = kernels.operator("gemm").reference(problem, *inputs), product.double()
    assert isinstance(right, torch.Tensor)
    size = float(right.norm())
    return {
        "error": float((actual - right).norm()) / size,
        "bias": float((actual * right).sum()) / size**2 - 1.0,
    }


def _cut(values: torch.Tensor) -> torch.Tensor:
    """float32 values without the 13 bits that tf32 lacks."""
    return (values.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def _rounded(values: torch.Tensor) -> torch.Tensor:
    """float32 values rounded to the 10 bits of tf32, ties away from zero, as `cvt.rna` does."""
    return _cut((values.contiguous().view(torch.int32) + 0x1000).view(torch.float32))


# ---- trials at random shapes


@dataclass(frozen=True)
class Configurable:
    """An implementation whose configurations can be launched by name."""

    implementation: str
    configurations: Callable[[Any], Sequence[Any]]
    """Those for a problem. Raises Unsupported where the device has none."""
    launch: Callable[[Any, Sequence[torch.Tensor], Any], Launch]
    compile: Callable[[Any, Sequence[torch.Tensor], Any], None] | None = None


def _library(name: str) -> Configurable:
    """A CPU's stand-in: it chooses its configuration itself."""

    def launch(problem: Problem, inputs: Sequence[torch.Tensor], _: str) -> Launch:
        return kernels.operator(problem.operator).implementations[name](problem, *inputs)

    return Configurable(name, lambda problem: [""], launch)


def _products(module_name: str, device: Device) -> Configurable:
    """A module of kernels/gemm in every configuration; on a CPU the library."""
    if device.kind == "cpu":
        return _library("onednn")
    module, sm_count = import_module(f"kernels.gemm.{module_name}"), device.sm_count
    failed: dict[tuple[Gemm, Any], str] = {}
    """What did not compile, and why: Triton 3.6 would repeat the failure, for seconds."""

    def configurations(problem: Gemm) -> Sequence[Any]:
        return sorted(module.candidates(problem, device.capability, sm_count), key=str)

    def compile_one(problem: Gemm, inputs: Sequence[torch.Tensor], chosen: Any) -> None:
        if (problem, chosen) not in failed:
            module.prepare(operands(problem, *inputs), chosen, sm_count).compile()

    def launch(problem: Gemm, inputs: Sequence[torch.Tensor], chosen: Any) -> Launch:
        try:
            compile_one(problem, inputs, chosen)
        except Exception as error:  # whatever a compiler raises: nothing wrong was computed
            failed[problem, chosen] = f"does not compile: {cause(error)}"
        if reason := failed.get((problem, chosen)):
            raise Unsupported(reason)
        made: Launch = module.prepare(operands(problem, *inputs), chosen, sm_count).launch()
        return made

    return Configurable(f"triton-{module_name}", configurations, launch, compile_one)


def _rows(device: Device) -> Configurable:
    """Softmax and layer normalization in the configurations that hold rows in shared memory."""
    if device.kind == "cpu":
        return _library("aten")

    def module(problem: Problem) -> Any:
        return import_module(f"kernels.{problem.operator}.launch")

    def configurations(problem: Problem) -> Sequence[Any]:
        return [share for share in module(problem).candidates(problem) if isinstance(share, Share)]

    def launch(problem: Problem, inputs: Sequence[torch.Tensor], share: Share) -> Launch:
        more = {"multiprocessors": device.sm_count} if problem.operator == "layernorm" else {}
        made: Launch = module(problem).with_tile(problem, inputs, share, **more)
        return made

    return Configurable("triton", configurations, launch)


def _in_turn(problems: Sequence[Problem], implementation: Configurable, device: Device) -> Iterator[Trial]:
    """Every problem in one of its configurations, then every one in its next, with other numbers."""

    def made(problem: Problem, chosen: Any, turn: int) -> tuple[tuple[torch.Tensor, ...], Launch]:
        inputs = _inputs(problem, device, SEED + turn)
        return tuple(inputs), implementation.launch(problem, inputs, chosen)

    def refused(reason: Unsupported) -> Any:
        raise reason

    listed: list[tuple[Problem, Sequence[Any]]] = []
    for problem in problems:
        try:
            listed.append((problem, implementation.configurations(problem)))
        except Unsupported as reason:
            yield Trial(problem, implementation.implementation, "", partial(refused, reason))
    for turn in range(max((len(there) for _, there in listed), default=0)):
        now = [
            (problem, there[(number + turn) % len(there)])
            for number, (problem, there) in enumerate(listed)
            if turn < len(there)
        ]
        if compile_one := implementation.compile:
            compile_side_by_side(now, lambda each: compile_one(each[0], _inputs(each[0], device), each[1]))
        for problem, chosen in now:
            what = f"{chosen} seed {turn}".strip()
            yield Trial(problem, implementation.implementation, what, partial(made, problem, chosen, turn))


def gluon(device: Device, seconds: float) -> GpuFact:
    """Products of random shapes by our kernels in Gluon, each launched twice, in all configurations."""
    until_s, chosen = time.monotonic() + seconds, random.Random(SEED)
    types = _types(device)
    problems = [_ragged_problem(chosen, number, types[number % len(types)]) for number in range(SHAPES)]
    trials = tried(_in_turn(problems, _products("gluon", device), device), until_s, repeats=True)
    question = "Are products of our kernels in Gluon right, and the same when repeated?"
    return facts.confirmed(question, "products", trials, "float64 and by their repetition")


def held(device: Device, seconds: float) -> GpuFact:
    """Softmax and layer normalization of long rows in shared memory, each launched twice."""
    until_s, chosen = time.monotonic() + seconds, random.Random(SEED)
    problems = [_long_rows(chosen, number) for number in range(SHAPES)]
    trials = tried(_in_turn(problems, _rows(device), device), until_s, repeats=True)
    question = "Are results of rows held in shared memory right, and the same when repeated?"
    return facts.confirmed(question, "results", trials, "float64 and by their repetition")


def narrow(device: Device, seconds: float) -> GpuFact:
    """8-bit products by every kernel."""

    def made(problem: Gemm, name: str, build: Build) -> tuple[tuple[torch.Tensor, ...], Launch]:
        if missing := problem.missing(name, device.kind, device.capability):
            raise Unsupported(missing)
        inputs = _inputs(problem, device)
        return tuple(inputs), build(problem, inputs)

    dtypes: tuple[Dtype, ...] = ("float8_e4m3", "int8")
    trials = [
        Trial(problem, name, name, partial(made, problem, name, build))
        for problem in (Gemm(dtype=dtype, **LONG_K) for dtype in dtypes)
        for name, build in _builders(device, ("pointer", "tma", "persistent")).items()
    ]
    return facts.confirmed("Do the 8-bit types run, and are they right?", "products", tried(trials, math.inf))


def _types(device: Device) -> list[Dtype]:
    """The types of the kernels in Gluon on this device; float32, for the library, on a CPU."""
    if device.capability is None:
        return ["float32"]
    dtypes = Gemm.implementation("triton-gluon").dtypes
    # Where there is none, one that the kernels refuse in a sentence.
    return [dtype for dtype, lowest in dtypes.items() if device.capability >= lowest] or ["float16"]


def _ragged_problem(chosen: random.Random, number: int, dtype: Dtype) -> Gemm:
    """A problem of random sizes with aligned rows: small, with K shorter than a step, of many tiles, narrow.

    A step is 128 bytes of a row, a tile at least 64 wide, and one of these has hundreds of tiles.
    """
    step = {"float8_e4m3": 128, "mxfp8": 128, "nvfp4": 256}.get(dtype, 64)
    unit = {"float8_e4m3": 16, "mxfp8": 32, "nvfp4": 32}.get(dtype, 8)
    sides, deep = ((8, 2048), (8, 2048)), (unit, 4096)
    kind = number % 4
    if kind == 1:
        deep = (unit, step - unit)
    elif kind == 2:
        sides, deep = ((4096, 6144), (4096, 6144)), (unit, 512)
    elif kind == 3:
        sides = chosen.choice((((8, 56), (8, 4096)), ((8, 4096), (8, 56))))
    m, n = (8 * chosen.randint(low // 8, high // 8) for low, high in sides)
    k = unit * chosen.randint(deep[0] // unit, deep[1] // unit)
    layout = chosen.choice(("NN", "NT", "TN", "TT")) if unit == 8 else "TN"
    return Gemm.model_validate({"dtype": dtype, "layout": layout, "m": m, "n": n, "k": k})


def _long_rows(chosen: random.Random, number: int) -> Softmax | LayerNorm:
    """One of four kernels in turn: up to 300 rows beyond what registers hold, of a multiple of 16 bytes."""
    kind: type[Softmax] | type[LayerNorm] = (Softmax, LayerNorm)[number % 2]
    return kind.model_validate(
        {
            "direction": ("forward", "backward")[number // 2 % 2],
            "rows": chosen.randint(1, 300),
            "length": 8 * chosen.randint(16392 // 8, LONGEST_IN_CLUSTER // 8),
            "dtype": ("float16", "bfloat16", "float32")[number % 3],
        }
    )


def nvml(device: Device, seconds: float) -> GpuFact:
    """How often NVML's counters are refreshed while the device computes."""
    if device.kind == "cpu":
        times_s = [0.002 * step for step in range(1000)]
        steps: dict[str, list[float | None]] = {"energy": [at // 0.02 for at in times_s]}
        steps["power"] = [None for _ in times_s]
        return facts.nvml(times_s, steps, ENERGY_S)
    gpu = NvmlGpu(device.uuid)
    a = torch.rand(8192, 8192, device="cuda", dtype=torch.float16)
    out = torch.empty_like(a)
    times_s, readings = [], []
    begin_s = time.perf_counter()
    while (now_s := time.perf_counter() - begin_s) < min(READING_S, seconds):
        if len(times_s) % 20 == 0:
            torch.cuda.synchronize()
            for _ in range(20):  # some 30 ms of work, queued ahead of the readings
                torch.mm(a, a, out=out)
        times_s.append(now_s)
        readings.append(_reading(gpu))
    torch.cuda.synchronize()
    names = dict.fromkeys(name for reading in readings for name in reading)
    return facts.nvml(
        times_s, {name: [reading.get(name) for reading in readings] for name in names}, ENERGY_S
    )


def _reading(gpu: NvmlGpu) -> dict[str, float | None]:
    fields = gpu.fields({POWER_INSTANT: "power", **HELD_BY_POLICY})
    return {
        "energy": gpu.scaled("nvmlDeviceGetTotalEnergyConsumption", 1e-3),
        "power": fields.get(POWER_INSTANT),
        "average power": gpu.scaled("nvmlDeviceGetPowerUsage", 1e-3),
        "clock": gpu.scaled("nvmlDeviceGetClockInfo", 1e6, gpu.nvml.NVML_CLOCK_SM),
        **{column: fields.get(field) for field, column in HELD_BY_POLICY.items()},
    }


# ---- inputs and launches of matrix products


def _inputs(problem: Problem, device: Device, seed: int = SEED) -> list[torch.Tensor]:
    """The operator's inputs, uniform in [-1, 1] (int8: -127 to 127)."""
    where = torch.device(device.kind)
    generator = torch.Generator(where).manual_seed(seed)

    def uniform(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        wanted = dtype or stored_dtype(problem.dtype)
        if wanted == torch.int8:
            return torch.randint(-127, 128, shape, dtype=wanted, device=where, generator=generator)
        values = torch.empty(shape, dtype=torch.float32, device=where)
        return values.uniform_(-1.0, 1.0, generator=generator).to(wanted)

    return list(kernels.operator(problem.operator).inputs(problem, uniform))


def _builders(device: Device, modules: Sequence[str]) -> Mapping[str, Build]:
    """Name -> builder of a launch: of the library, and of these kernels of ours (first_launch).

    Nothing is tuned: an answer is about one configuration, which is printed.
    """
    library_name = "cublas" if device.kind == "cuda" else "onednn"
    library = kernels.operator("gemm").implementations[library_name]
    builders: dict[str, Build] = {library_name: lambda problem, inputs: library(problem, *inputs)}
    for name in modules if device.kind == "cuda" else ():
        module = import_module(f"kernels.gemm.{name}")
        builders[f"triton-{name}"] = partial(first_launch, module, device=device)
    return builders


def first_launch(module: Any, problem: Gemm, inputs: Sequence[torch.Tensor], device: Device) -> Launch:
    """A launch of the first candidate that compiles.

    Unsupported, with the last reason, if none does. `module` is one of kernels/gemm with `candidates`.
    """
    assert device.capability is not None
    of = operands(problem, *inputs)
    reason = "no candidate for this device"
    for candidate in module.candidates(problem, device.capability, device.sm_count):
        try:
            prepared = module.prepare(of, candidate, device.sm_count)
            prepared.compile()
        except Exception as error:  # whatever a compiler raises: the next candidate may do
            reason = f"no candidate compiles; the last, {candidate}: {cause(error)}"
            continue
        print(f"{module.__name__}, {problem}: {candidate}")
        launch: Launch = prepared.launch()
        return launch
    raise Unsupported(reason)
