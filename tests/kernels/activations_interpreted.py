"""The activation kernels, run by the repaired interpreter under the sanitizer."""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import pytest
import torch
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from bench.spec import Dtype, Launch
from kernels.activations.elementwise import CANDIDATES, Tile, launch_with
from kernels.activations.operator import OPERATOR, aten, reference
from kernels.activations.problem import Activation, Direction, Function
from tests.drawing import covering
from tests.kernels.interpreted import Beyond32Bits, Case, Far, Ran, Tensors, ran
from tests.kernels.problems import inputs_of
from tests.kernels.tensors import TORCH_TYPE, used

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
FUNCTIONS: tuple[Function, ...] = get_args(Function)
TYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
OURS = [
    p for p in OPERATOR.examples if not Activation.implementation("triton").missing(p.dtype, "cuda", None)
]

SMALL = Tile(64, 1)
# Of SMALL: one short of a block, a block, one past, several even and ragged.
STRADDLING = [
    Activation(function=function, direction=direction, n=n, dtype=dtype)
    for n, (function, dtype) in zip(
        (63, 64, 65, 128, 191, 257), zip(FUNCTIONS, itertools.cycle(TYPES), strict=False), strict=True
    )
    for direction in DIRECTIONS
]


def cases() -> list[Case]:
    """Every function in both directions and every data type at some example, every number of elements.

    With tiny blocks and with real ones; and every candidate for two full blocks and a ragged one.
    """
    examples = covering(
        OURS, "interpreted activations", lambda p: (p.function, p.direction), lambda p: (p.elements, p.dtype)
    )
    straddling = covering(STRADDLING, "straddling activations", lambda p: p.n, lambda p: p.direction)
    candidates = [
        (Activation(function="gelu", direction=way, n=2 * tile.block + 9, dtype="float16"), tile)
        for way, tile in itertools.product(DIRECTIONS, CANDIDATES)
    ]
    return [*itertools.product((*examples, *straddling), (SMALL, Tile(2048, 4))), *candidates]


def far(direction: Direction) -> Far:
    """A ragged block, and a full one whose offset, 2^31 - 64, is the largest that fits in 32 bits."""
    problem = Activation(function="relu", direction=direction, n=2**31 + 5, dtype="float16")
    return Far(problem, SMALL, problem.model_copy(update={"n": 69}), programs=2)


class TestActivations(Beyond32Bits):
    operator = OPERATOR
    cases = cases()
    far = tuple(map(far, DIRECTIONS))

    def launch(self, problem: Activation, inputs: Tensors, configuration: Tile) -> Launch:
        return launch_with(configuration, problem, *inputs)

    def counted(self, problem: Activation, configuration: Tile, inputs: Tensors, done: Ran) -> None:
        assert done.outputs[0].dtype == inputs[0].dtype
        assert done.byte == (problem.byte_read, problem.byte_written, 0)
        assert sum(done.byte) == problem.byte_moved("triton") and done.watch.loads.repeated == 0


def result(problem: Activation, tensors: Tensors, tile: Tile) -> torch.Tensor:
    """What the kernel writes."""
    return ran(launch_with(tile, problem, *tensors)).outputs[0]


SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 88.0, -88.0, 1000.0, -1000.0, 1.0, -1.0)


def special(dtype: Dtype) -> torch.Tensor:
    """NaN, infinities, zeros, the largest and the smallest number of the type, and where exp overflows."""
    kind = torch.finfo(TORCH_TYPE[dtype])
    smallest = kind.smallest_normal * kind.eps
    numbers = [*SPECIAL, kind.max, kind.min, smallest, -smallest]
    return torch.tensor(numbers, dtype=torch.float64).to(TORCH_TYPE[dtype])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_special_values_as_torch_has_them(function: Function, direction: Direction, dtype: Dtype) -> None:
    """NaN, infinities, extremes and subnormal numbers, against torch in float32, rounded once.

    Two differences are deliberate. gelu(inf) is inf: torch's vectorized CPU kernel returns NaN. And where
    gelu's derivative multiplies 0 by a square that overflows, torch returns NaN or not depending on the order
    of its factors; ours is right or NaN.
    """
    numbers = special(dtype)
    problem = Activation(function=function, direction=direction, n=numbers.numel(), dtype=dtype)
    tensors = (numbers,) if direction == "forward" else (numbers, torch.full_like(numbers, 0.5))
    wide = problem.model_copy(update={"dtype": "float32"})
    want = aten(wide, *(tensor.float() for tensor in tensors)).call()
    assert isinstance(want, torch.Tensor)
    want = want.to(numbers.dtype)
    if function == "gelu" and direction == "forward":
        want[numbers == math.inf] = math.inf
    with np.errstate(all="ignore"):
        got = result(problem, tensors, SMALL)
    agree = (got == want) | (got.isnan() & want.isnan())
    apart = (got.double() - want.double()).abs()
    close = apart <= 1e-6 * want.double().abs() + 1e-35
    if dtype != "float32":  # both are rounded, and may lie on two sides of a half
        kind = torch.finfo(numbers.dtype)
        close |= apart <= kind.eps * want.double().abs() + kind.smallest_normal * kind.eps
    if function.startswith("gelu") and direction == "backward":
        agree |= want.isnan() & ((got == 0.5) | (got == 0.0) | got.isnan())
    wrong = ~(agree | close)
    assert not wrong.any(), list(zip(numbers[wrong], got[wrong], want[wrong], strict=True))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_all_magnitudes(function: Function, direction: Direction) -> None:
    """Beyond [-1, 1], against float64: each value right by itself to 1e-4 or, of 1, by a few float32 ulp."""
    magnitudes = torch.logspace(-6, 4, 2500, dtype=torch.float64).float()
    x = torch.cat([magnitudes, -magnitudes, torch.linspace(-12, 12, 5000)])
    problem = Activation(function=function, direction=direction, n=x.numel(), dtype="float32")
    tensors = (x,) if direction == "forward" else (x, torch.ones_like(x))
    got = result(problem, tensors, Tile(2048, 4))
    want = reference(problem, *tensors)
    wrong = (got.double() - want).abs()
    largest = want.abs().clamp(min=1)
    assert float((wrong / largest).max()) < 16 * 2.0**-24
    if function == "tanh" and direction == "forward":  # PyTorch's is right to the last bits near 0, too
        assert float((wrong / want.abs()).max()) < 4e-6
    if direction == "forward" and function != "relu":
        tail = (x < -1) & (x > -5.5) & (want != 0)
        assert float((wrong / want.abs())[tail].max()) < 3e-4
        assert bool((got[x < 0] <= 0).all()) or function == "sigmoid"  # the tail never turns


@contextmanager
def as_inexact_as_allowed(seed: int) -> Iterator[None]:
    """While entered, 2^x and 1/sqrt(x) are off by what PTX allows: at its bound, up or down at random."""
    random = np.random.default_rng(seed)

    def inexact(exact: Callable[[Any], Any], bound: float) -> Callable[[Any, Any], Any]:
        def unary(self: Any, argument: Any) -> Any:
            signs = random.choice((-1.0, 1.0), size=argument.data.shape)
            # The result is a float32, so its own rounding is part of the bound.
            off = exact(argument.data.astype(np.float64)) * (1 + signs * (bound - 2.0**-24))
            return TensorHandle(off.astype(np.float32), argument.dtype.scalar)

        return unary

    with patch.multiple(
        InterpreterBuilder,
        create_exp2=inexact(np.exp2, 2.0**-22.5),
        create_rsqrt=inexact(lambda x: 1 / np.sqrt(x), 2.0**-22.9),
    ):
        yield


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_tolerance_covers_what_the_gpu_may_do(function: Function, direction: Direction, seed: int) -> None:
    """At the bounds of PTX ISA (ex2.approx, rsqrt.approx), and it is not ten times too wide."""
    problem = Activation(function=function, direction=direction, n=1 << 16, dtype="float32")
    tensors = inputs_of(problem, seed)
    with as_inexact_as_allowed(seed):
        got = result(problem, tensors, Tile(4096, 8))
    share = used(OPERATOR, "triton", problem, tensors, (got,))
    assert share <= 1 and (share >= 0.1 or function == "relu")


@pytest.mark.parametrize("function", ["silu", "gelu-tanh", "gelu"])
def test_slopes_of_large_numbers_do_not_multiply_rounding(function: Function, seed: int) -> None:
    """However inexact the hardware, the derivative at +-10^4 is 1 or 0."""
    x = torch.tensor([30.0, 1e2, 1e4, -30.0, -1e2, -1e4])
    problem = Activation(function=function, direction="backward", n=6, dtype="float32")
    with as_inexact_as_allowed(seed):
        got = result(problem, (x, torch.ones(6)), SMALL)
    assert torch.allclose(got, torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]), rtol=1e-6, atol=1e-6)
