"""Activation functions on tensors: inputs, the float64 reference, and who computes them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, get_args

import torch

from bench.autotune import inductor as torch_compile
from bench.spec import Dtype, Implementations, Launch, Operator, Tensors
from kernels.activations.problem import Activation, Direction, Function
from kernels.excerpts import one_of_each_block
from kernels.optional import launched_by
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY
from kernels.tensors import inputs

_aten = torch.ops.aten
_TANH = {"approximate": "tanh"}
_TORCH: Mapping[Function, tuple[tuple[Any, dict[str, Any]], tuple[Any, dict[str, Any]]]] = {
    # What torch.relu calls.
    "relu": ((_aten.clamp_min, {"min": 0}), (_aten.threshold_backward, {"threshold": 0})),
    "sigmoid": ((_aten.sigmoid, {}), (_aten.sigmoid_backward, {})),
    "tanh": ((_aten.tanh, {}), (_aten.tanh_backward, {})),
    "gelu": ((_aten.gelu, {}), (_aten.gelu_backward, {})),
    "gelu-tanh": ((_aten.gelu, _TANH), (_aten.gelu_backward, _TANH)),
    "silu": ((_aten.silu, {}), (_aten.silu_backward, {})),
}
"""torch's operators and their options: of x; of dy and what was saved."""

_ROUNDINGS: Mapping[Function, tuple[int, int]] = {
    "relu": (0, 0), "sigmoid": (8, 3), "tanh": (18, 3), "gelu": (8, 9), "gelu-tanh": (10, 15), "silu": (9, 12)
}  # fmt: skip
"""Largest error of a result computed in float32, in units of 2^-24 of the largest result (`tolerance`)."""

_EXCERPT = 1 << 18
"""Elements that are checked of a larger problem."""


def reference(problem: Activation, *tensors: torch.Tensor) -> torch.Tensor:
    """y or dx `[n, c, h, w]`, by the formulas of `kernels.activations.problem` in float64.

    What is saved of relu and sigmoid is random here, none that f can return: their derivatives' formulas hold
    for any number, and take as long.
    """
    wide = [tensor.double() for tensor in tensors]
    forward = problem.direction == "forward"
    return _VALUE[problem.function](*wide) if forward else _derivative(problem, *wide)


_VALUE: Mapping[Function, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": lambda x: x * torch.special.ndtr(x),
    "gelu-tanh": lambda x: x / 2 * (1 + _inner(x).tanh()),
    "silu": lambda x: x * x.sigmoid(),
}


def _derivative(problem: Activation, saved: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    match problem.function:
        case "relu":
            return torch.where(saved <= 0, torch.zeros_like(dy), dy)
        case "sigmoid":
            return dy * saved * (1 - saved)
        case "tanh":
            return dy * (1 - saved * saved)
        case "gelu":
            density = torch.exp(-saved * saved / 2) / math.sqrt(2 * math.pi)
            below: torch.Tensor = torch.special.ndtr(saved)
            return dy * (below + saved * density)
        case "gelu-tanh":
            t = _inner(saved).tanh()
            slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * saved * saved)
            return dy * ((1 + t) / 2 + saved / 2 * (1 - t * t) * slope)
        case "silu":
            s = saved.sigmoid()
            return dy * s * (1 + saved * (1 - s))


def _inner(x: torch.Tensor) -> torch.Tensor:
    """u of gelu-tanh = x/2 (1 + tanh u)."""
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def aten(problem: Activation, *tensors: torch.Tensor) -> Launch:
    """torch's kernel, writing y (dx) allocated here."""
    result = torch.empty_like(tensors[0])
    run, options = _TORCH[problem.function][problem.direction == "backward"]
    if problem.direction == "forward":
        return Launch.of(run.out, (result,), *tensors, out=result, **options)
    return Launch.of(run.grad_input, (result,), *reversed(tensors), grad_input=result, **options)


def functional_form(problem: Activation, *tensors: torch.Tensor) -> torch.Tensor:
    """y or dx, as a model calls it: what Inductor compiles."""
    run, options = _TORCH[problem.function][problem.direction == "backward"]
    result: torch.Tensor = run(*reversed(tensors), **options)
    return result


def tolerance(problem: Activation, implementation: str) -> float:
    """The largest |error| that rounding explains, as a fraction of the largest |result|.

    * Rounding the result to its type: at most u 2^e, where the largest has exponent e and u is the unit
      roundoff, and in float16 at most 2^-25 where a result is subnormal. relu rounds nothing: 0.
    * Computing it in float32 (float64), u' = 2^-24 (2^-53), for inputs in [-1, 1]: `_ROUNDINGS`, worst over
      all x and all rounding the same way. Its terms, by PTX ISA's bounds: 2^x 2.8 u' and |x| ln 2 u' for
      each rounding of x; 1/x as rsqrt(x)^2 4.3 u'; every sum and product u'. So sigmoid(1) is off by
      0.27 x 4.8 u' from the exponential, and 1 + 4.3 + 1: 7.6 u'. tanh(-1) = 1 - 2 x 0.88 is off by
      6.1 u' of 1.76, of 0.76 that is 16. gelu has Phi's polynomial with 1.6 u' of 1, the power of two,
      and two roundings. Division, erf and tanh of the libraries are right to 1 or 2 ulp and stay below.
      In float64 the reference errs as much: twice.
    * aten computes the backward pass of sigmoid and tanh in a 16-bit type itself on a GPU, and some of it on
      a CPU: three operations, each rounded, 3 u in all. Everything else is computed in float32.

    The largest of few random results may be small while errors are not: `_likely_largest`, of an excerpt
    where that is what is checked. And 16-bit inputs are multiples of 2 u, so the largest is 1 - 2 u, of which
    f, or f' and dy, fall short of their largest by up to 2.5 times as much.
    """
    roundings = _ROUNDINGS[problem.function][problem.direction == "backward"]
    if not roundings:
        return 0.0
    unit = UNIT_ROUNDOFF[problem.dtype]
    top = _likely_largest(problem.function, problem.direction, None)
    largest = _likely_largest(problem.function, problem.direction, min(problem.elements, _EXCERPT))
    if problem.item_byte == 2:
        largest *= 1 - 5 * unit
    few = top / largest
    if problem.dtype == "float64":
        return 2 * (roundings + 1) * unit * few
    if problem.dtype == "float32":
        return roundings * unit * few
    in_steps = (
        implementation == "aten"
        and problem.direction == "backward"
        and problem.function in ("sigmoid", "tanh")
    )
    error = 3 * unit * few if in_steps else min(unit, unit * 2.0 ** math.floor(math.log2(top)) / largest)
    if problem.dtype == "float16":
        error += (3 if in_steps else 1) * 2.0**-25 / largest
    return error + roundings * FLOAT32 * few


@functools.lru_cache(maxsize=1024)
def _likely_largest(function: Function, direction: Direction, elements: int | None) -> float:
    """What the largest |result| of so many elements exceeds but once in 10,000 runs; None: the bound of all.

    Inputs are uniform in [-1, 1]. The chance that one |f(x)| is below t is the share of x where it is, and
    that one |f'(x) dy| is below t the mean over x of t / |f'(x)|, 1 at most; of so many, its power.
    """
    problem = Activation(function=function, direction=direction, n=1, dtype="float64")
    grid = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 10_000 - 1
    ones = () if direction == "forward" else (torch.ones_like(grid),)
    slopes = reference(problem, grid, *ones).abs()
    largest = float(slopes.max())
    if elements is None:
        return largest
    chance = UNLIKELY ** (1 / elements)
    if direction == "forward":
        return float(slopes.sort().values[int(chance * len(grid))])
    low, high = 0.0, largest
    for _ in range(40):
        middle = (low + high) / 2
        below = float((middle / slopes).clamp(max=1).mean())
        low, high = (middle, high) if below < chance else (low, middle)
    return low


def excerpt(problem: Activation, tensors: Tensors, outputs: Tensors) -> tuple[Activation, Tensors, Tensors]:
    """The first element, the last, and a random one of every stretch: some 260,000 of a large problem."""
    width = math.ceil(problem.elements / _EXCERPT)
    if width == 1:
        return problem, tensors, outputs
    chosen = one_of_each_block(problem.elements, width).to(outputs[0].device)
    smaller = problem.model_copy(update={"n": chosen.numel(), "c": 1, "h": 1, "w": 1})

    def some(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.flatten().index_select(0, chosen).view(-1, 1, 1, 1)

    return smaller, tuple(some(one) for one in tensors), tuple(some(one) for one in outputs)


def _examples() -> list[Activation]:
    types: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
    # One, an odd few, one short of and one past a block, full blocks; and who computes float64.
    awkward: tuple[tuple[tuple[int, int, int, int], Function, Dtype], ...] = (
        ((1, 1, 1, 1), "tanh", "float16"),
        ((1, 1, 1, 1), "relu", "bfloat16"),
        ((7, 1, 1, 1), "gelu", "bfloat16"),
        ((1, 1, 1, 31), "silu", "float16"),
        ((4095, 1, 1, 1), "gelu", "float16"),
        ((1, 1, 17, 241), "sigmoid", "float32"),
        ((2, 64, 8, 8), "gelu-tanh", "bfloat16"),
        ((3, 5, 7, 7), "silu", "float64"),
        ((3, 5, 7, 7), "gelu", "float64"),
    )
    every = (((3, 5, 7, 7), f, dtype) for f in get_args(Function) for dtype in types)
    return [
        Activation(function=function, direction=direction, n=n, c=c, h=h, w=w, dtype=dtype)
        for (n, c, h, w), function, dtype in (*every, *awkward)
        for direction in get_args(Direction)
    ]


IMPLEMENTATIONS: Implementations = {
    "aten": aten,
    "inductor": functools.partial(torch_compile.launch, functional_form),
    "triton": launched_by("activations.elementwise"),
}
OPERATOR = Operator(Activation, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
