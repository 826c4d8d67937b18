"""Experiments on the device for the open facts, which need torch. On a CPU its libraries stand in."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

import kernels
from bench.device.detect import Device
from bench.device.nvml import NvmlGpu
from bench.first_minutes import facts
from bench.first_minutes.facts import Fact
from bench.first_minutes.trials import Found, Trial, tried
from bench.spec import Dtype, Launch, Problem, Unsupported, cause
from bench.worker.check import judged, outputs_of
from bench.worker.measure_case import stored_dtype
from bench.worker.telemetry_cuda import HELD_BY_POLICY, POWER_INSTANT
from kernels.gemm.operands import operands
from kernels.gemm.problem import Gemm
from kernels.layernorm.problem import LONGEST_IN_CLUSTER, LayerNorm
from kernels.softmax.problem import Softmax

SEED = 20_261_122
SHAPES, SEEDS = 20, 50
_MOST_HELD = 3
"""Most configurations of a row held in shared memory (kernels/layernorm/held.py)."""
READING_S = 3.0
"""Counters are read for this long at most, under load."""
ENERGY_S = 0.1
"""The interval at which docs/ and telemetry_cuda.py assume NVML's energy to be refreshed, seconds."""

Build = Callable[[Gemm, Sequence[torch.Tensor]], Launch]


def tf32(device: Device, seconds: float) -> Fact:
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


def specialized(device: Device, seconds: float) -> Fact:
    """Products of random shapes by specialized warps, compared with float64 for one seed after the other.

    Every shape runs with the first seed before any runs with the second, as `seconds` may end this early.
    """
    chosen, why_not = random.Random(SEED), ""
    made: list[tuple[str, Gemm, list[torch.Tensor], Launch]] = []
    for number in range(SHAPES):
        problem = _random_problem(chosen, number, "float16" if device.kind == "cuda" else "float32")
        inputs = _inputs(problem, device)
        name, build = next(iter(_builders(device, ("specialized",), number, libraries=False).items()))
        try:
            made.append((name, problem, inputs, build(problem, inputs)))
        except Unsupported as reason:
            why_not = str(reason)

    def filled(inputs: list[torch.Tensor], launch: Launch) -> tuple[tuple[torch.Tensor, ...], Launch]:
        for operand in inputs:
            operand.uniform_(-1.0, 1.0)
        return tuple(inputs), launch

    until_s = time.monotonic() + seconds
    trials = (
        Trial(problem, name, f"seed {seed}", partial(filled, inputs, launch))
        for seed in range(SEEDS)
        for name, problem, inputs, launch in made
    )
    question = "Are products by specialized warps right?"
    return facts.confirmed(question, "products", _counted(tried(trials, until_s)), why_not)


def _counted(found: Found) -> facts.Trials:
    return facts.Trials(found.right, found.wrong, len(found.shapes), found.refused, found.broken)


def _random_problem(chosen: random.Random, number: int, dtype: str) -> Gemm:
    """A problem of random sizes; rows of operands begin at multiples of 16 bytes, as bulk copies need."""
    sizes = {name: 8 * chosen.randint(1, most // 8) for name, most in (("m", 2048), ("n", 2048), ("k", 4096))}
    return Gemm.model_validate({"dtype": dtype, "layout": ("NN", "TN")[number % 2], **sizes})


def gluon(device: Device, seconds: float) -> Fact:
    """Products of random shapes by our kernels in Gluon, each launched twice, in all configurations in turn.

    Every shape runs in one configuration, with the first seed, before any runs in its next.
    """
    until_s = time.monotonic() + seconds
    chosen, why_not = random.Random(SEED), ""
    types = _types(device)
    listed: list[tuple[Gemm, list[Any]]] = []
    for number in range(SHAPES):
        problem = _ragged_problem(chosen, number, types[number % len(types)])
        try:
            listed.append((problem, _configurations(problem, device)))
        except Unsupported as reason:
            why_not = str(reason)
    found = tried(_in_turn(listed, device), until_s, repeats=True)
    question = "Are products of our kernels in Gluon right, and the same when repeated?"
    return facts.confirmed(question, "products", _counted(found), why_not, "float64 and by their repetition")


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


def _configurations(problem: Gemm, device: Device) -> list[Any]:
    """All configurations of the kernel in Gluon for this device; None, for the library, on a CPU."""
    if device.kind == "cpu":
        return [None]
    from kernels.gemm import gluon

    assert device.capability is not None
    return sorted(gluon.candidates(problem, device.capability, device.sm_count), key=str)


def _in_turn(listed: Sequence[tuple[Gemm, list[Any]]], device: Device) -> Iterator[Trial]:
    """Every problem in one of its configurations, then every one in its next, with other numbers."""
    for turn in range(max((len(there) for _, there in listed), default=0)):
        now = [
            (problem, _inputs(problem, device, SEED + turn), there[(number + turn) % len(there)])
            for number, (problem, there) in enumerate(listed)
            if turn < len(there)
        ]
        if device.kind == "cpu":
            library = kernels.operator("gemm").implementations["onednn"]
            for problem, inputs, _ in now:
                launch = partial(library, problem, *inputs)
                yield Trial(problem, "onednn", f"seed {turn}", partial(_with, inputs, launch))
            continue
        from bench.launching.tuning import compile_side_by_side
        from kernels.gemm import gluon

        made = [(operands(problem, *inputs), inputs, chosen) for problem, inputs, chosen in now]
        compile_side_by_side(made, lambda one: gluon.compile(one[0], one[2], device.sm_count))
        for of, inputs, chosen in made:
            launch = partial(gluon.launch, of, chosen, device.sm_count)
            yield Trial(of.problem, "triton-gluon", str(chosen), partial(_with, inputs, launch))


def _with(
    inputs: Sequence[torch.Tensor], build: Callable[[], Launch]
) -> tuple[tuple[torch.Tensor, ...], Launch]:
    return tuple(inputs), build()


def held(device: Device, seconds: float) -> Fact:
    """Softmax and layer normalization of long rows in shared memory, each launched twice."""
    until_s = time.monotonic() + seconds
    chosen = random.Random(SEED)
    problems = [_long_rows(chosen, number) for number in range(SHAPES)]
    found = tried(_of_rows(problems, device), until_s, repeats=True)
    question = "Are results of rows held in shared memory right, and the same when repeated?"
    return facts.confirmed(question, "results", _counted(found), "", "float64 and by their repetition")


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


def _of_rows(problems: Sequence[Softmax | LayerNorm], device: Device) -> Iterator[Trial]:
    """Every problem in one of its configurations, then every one in its next; on a CPU torch's own."""
    for turn in range(_MOST_HELD if device.kind == "cuda" else 1):
        for number, problem in enumerate(problems):
            inputs = _inputs(problem, device, SEED + turn)
            if device.kind == "cpu":
                library = kernels.operator(problem.operator).implementations["aten"]
                build = partial(library, problem, *inputs)
                yield Trial(problem, "aten", f"seed {turn}", partial(_with, inputs, build))
                continue
            there, launch = _shares(problem, device)
            if turn < len(there):
                share = there[(number + turn) % len(there)]
                yield Trial(
                    problem, "triton", str(share), partial(_with, inputs, partial(launch, inputs, share))
                )


def _shares(problem: Softmax | LayerNorm, device: Device) -> tuple[list[Any], Callable[..., Launch]]:
    """(the configurations that hold rows in shared memory, what launches inputs in one of them)."""
    if isinstance(problem, Softmax):
        from kernels.softmax import launch as softmax

        there: Sequence[Any] = softmax.candidates(problem)
        launch: Callable[..., Launch] = partial(softmax.with_tile, problem)
    else:
        from kernels.layernorm import launch as layernorm

        there = layernorm.candidates(problem)
        launch = partial(layernorm.with_tile, problem, multiprocessors=device.sm_count)
    from kernels.layernorm.held import Held

    return [one for one in there if isinstance(one, Held)], launch


def narrow(device: Device, seconds: float) -> Fact:
    """8-bit products by every kernel, with a long K, where imprecise sums show."""
    numbers: dict[str, dict[str, Any]] = {}
    for dtype in ("float8_e4m3", "int8"):
        problem = Gemm.model_validate({"dtype": dtype, "m": 1024, "n": 1024, "k": 16384, "layout": "TN"})
        inputs = _inputs(problem, device)
        for name, build in _builders(device, ("pointer", "tma", "persistent")).items():
            if missing := problem.missing(name, device.kind, device.capability):
                numbers[f"{dtype} {name}"] = {"reason": missing}
                continue
            try:
                outputs = outputs_of(build(problem, inputs).call())
            except Unsupported as reason:
                numbers[f"{dtype} {name}"] = {"reason": str(reason)}
                continue
            error, allowed = judged(kernels.operator("gemm"), name, problem, tuple(inputs), outputs)
            numbers[f"{dtype} {name}"] = {"error": error, "tolerance": allowed}
    return facts.narrow(numbers)


def nvml(device: Device, seconds: float) -> Fact:
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


def _builders(
    device: Device, modules: Sequence[str], first: int = 0, libraries: bool = True
) -> Mapping[str, Build]:
    """Name -> builder of a launch: of the library, and of these kernels of ours (first_launch).

    Nothing is tuned: an answer is about one configuration, which is printed.
    """
    library_name = "cublas" if device.kind == "cuda" else "onednn"
    library = kernels.operator("gemm").implementations[library_name]
    builders: dict[str, Build] = {}
    if libraries or device.kind == "cpu":
        builders[library_name] = lambda problem, inputs: library(problem, *inputs)
    if device.kind == "cuda":
        from importlib import import_module

        for name in modules:
            module = import_module(f"kernels.gemm.{name}")
            builders[f"triton-{name}"] = partial(first_launch, module, device=device, first=first)
    return builders


def first_launch(
    module: Any, problem: Gemm, inputs: Sequence[torch.Tensor], device: Device, first: int = 0
) -> Launch:
    """A launch of the first candidate that compiles, beginning with number `first`.

    Unsupported, with the last reason, if none does. `module` is one of kernels/gemm with `candidates`.
    """
    assert device.capability is not None
    of = operands(problem, *inputs)
    there = list(module.candidates(problem, device.capability, device.sm_count))
    if not there:
        raise Unsupported("no candidate for this device")
    reason = ""
    for candidate in there[first % len(there) :] + there[: first % len(there)]:
        try:
            module.compile(of, candidate, device.sm_count)
        except Exception as error:  # whatever a compiler raises: the next candidate may do
            reason = f"{candidate}: {cause(error)}"
            continue
        print(f"{module.__name__}, {problem}: {candidate}")
        launch: Launch = module.launch(of, candidate, device.sm_count)
        return launch
    raise Unsupported(f"no candidate compiles; the last, {reason}")
