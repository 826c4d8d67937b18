"""Activations as one pass over memory: the Triton kernels, forward and backward.

**Why this algorithm.** One program computes one block of consecutive elements and ends. There is nothing
to keep and nothing to share, so a 1-D grid with several 16-byte loads in flight a thread is all that memory
asks for. All blocks but the last are full and take a path without a mask: a mask that the compiler cannot
see through would make every access two bytes wide.

**Bytes moved.** Forward reads x and writes y: 2 n e bytes for n elements of e bytes. Backward reads what was
saved and dy and writes dx: 3 n e. Each byte once; that is also the least possible.

**Instructions are the second limit.** Of 16-bit data an H200 moves about 1.1e12 elements/s of a forward
pass, and it issues 3.0e13 instructions/s for single elements: 27 each; a B200 has fewer than 20. A division
costs five, the library's erf thirty. So the functions are built from the two that the special function unit
computes at once: 2^x, within 2^-22.5 of the result (PTX ISA, ex2.approx), and 1/sqrt(x), within 2^-22.9
(rsqrt.approx):

* 1/x = rsqrt(x)^2 for x in [1, inf], two instructions. rsqrt(inf) = 0, and NaN stays NaN.
* sigmoid(x) = 1/(1 + 2^(-x log2 e)). 2^x overflows to inf, and 1/inf = 0 is right.
* tanh x = 1 - 2/(1 + e^2x), which cancels near 0: below 1/16 it is x (1 - x^2/3). Where the two meet, each
  is right to 1e-5 of tanh x, far finer than 16 bits.
* gelu needs Phi, the normal distribution. With a = |x|, log2 Phi(-a) is so smooth that a polynomial of
  degree 8 in a serves: Phi(-a) = 2^-P(a), one 2^x and eight multiply-adds. Its coefficients are a weighted
  minimax fit of ours on [0, 5.5]: Phi is right to 1e-7, and the tail to 1e-4 of itself; beyond 5.5
  (Phi < 2e-8) it falls to 0 somewhat too fast, but never turns.
* gelu-tanh: (1 + tanh u)/2 = sigmoid(2u), and no tanh remains.
* Derivatives of silu and gelu-tanh hold x s (1 - s), where x is large and 1 - s is nothing but rounding.
  With e = 2^(-|z| log2 e) and r = 1/(1 + e) the product s (1 - s) is e r^2, exactly 0 where z is large.

Everything is float32 between load and store, but for relu, which rounds nothing and stays in its type.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from bench.autotune.tuning import tuned
from bench.spec import Launch
from kernels.activations.problem import Activation

LOG2_E = tl.constexpr(1.4426950408889634)

PHI_0 = tl.constexpr(-0.9999998211860657)
PHI_1 = tl.constexpr(-1.151114583015442)
PHI_2 = tl.constexpr(-0.4591268301010132)
PHI_3 = tl.constexpr(-0.052752602845430374)
PHI_4 = tl.constexpr(0.00744145130738616)
PHI_5 = tl.constexpr(-0.00042641477193683386)
PHI_6 = tl.constexpr(-6.824135925853625e-05)
PHI_7 = tl.constexpr(1.5263778550433926e-05)
PHI_8 = tl.constexpr(-8.982046324490511e-07)
"""Coefficients of -P(a) = log2 Phi(-a), lowest first."""

LOG2_ROOT_2_PI = tl.constexpr(1.3257480647361593)
"""log2 sqrt(2 pi): phi(x) = 2^(-x^2/2 log2 e - this)."""

TANH_2U_1 = tl.constexpr(1.5957691216057308)
TANH_2U_3 = tl.constexpr(0.07135481627159877)
"""2u of gelu-tanh: 2 sqrt(2/pi) x + 2 sqrt(2/pi) 0.044715 x^3."""


@triton.jit
def inverse(x):
    """1/x for x in [1, inf]; a float32 division would also care for arguments that cannot occur."""
    root = tl.rsqrt(x)
    return root * root


@triton.jit
def sigmoid(x):
    """1 / (1 + e^-x)."""
    return inverse(1.0 + tl.exp2(x * -LOG2_E))


@triton.jit
def tanh(x):
    """1 - 2 / (1 + e^2x), and near 0, where that cancels, two terms of the series."""
    root = tl.rsqrt(1.0 + tl.exp2(x * (2 * LOG2_E)))
    near_0 = x * (1.0 - x * x * 0.3333333333333333)
    return tl.where(tl.abs(x) < 0.0625, near_0, 1.0 - 2.0 * root * root)


@triton.jit
def normal_distribution(x):
    """Phi(x): the share of a standard normal variable that is below x."""
    a = tl.abs(x)
    power = a * PHI_8 + PHI_7
    power = a * power + PHI_6
    power = a * power + PHI_5
    power = a * power + PHI_4
    power = a * power + PHI_3
    power = a * power + PHI_2
    power = a * power + PHI_1
    power = a * power + PHI_0
    tail = tl.exp2(power)
    return tl.where(x > 0, 1.0 - tail, tail)


@triton.jit
def sigmoid_and_slope(z):
    """s = sigmoid(z) and s (1 - s), which is exactly 0 where z is large, so that z may multiply it."""
    small = tl.exp2(tl.abs(z) * -LOG2_E)
    large_share = inverse(1.0 + small)
    small_share = small * large_share
    return tl.where(z > 0, large_share, small_share), small_share * large_share


@triton.jit
def value(stored, FUNCTION: tl.constexpr):
    """f(x), in float32 but for relu."""
    x = stored.to(tl.float32)
    if FUNCTION == "relu":
        return tl.where(stored <= 0, tl.zeros_like(stored), stored)  # a maximum might drop NaN
    elif FUNCTION == "sigmoid":
        return sigmoid(x)
    elif FUNCTION == "tanh":
        return tanh(x)
    elif FUNCTION == "silu":
        return x * sigmoid(x)
    elif FUNCTION == "gelu":
        return x * normal_distribution(x)
    else:
        tl.static_assert(FUNCTION == "gelu-tanh")
        return x * sigmoid(x * (TANH_2U_1 + TANH_2U_3 * (x * x)))


@triton.jit
def gradient(stored, stored_dy, FUNCTION: tl.constexpr):
    """f' dy, in float32 but for relu. `stored` is y for relu, sigmoid and tanh, x for the others."""
    saved = stored.to(tl.float32)
    dy = stored_dy.to(tl.float32)
    if FUNCTION == "relu":
        return tl.where(stored <= 0, tl.zeros_like(stored_dy), stored_dy)
    elif FUNCTION == "sigmoid":
        return dy * (1.0 - saved) * saved
    elif FUNCTION == "tanh":
        return dy * (1.0 - saved * saved)
    elif FUNCTION == "silu":
        s, slope = sigmoid_and_slope(saved)
        return dy * (s + saved * slope)
    elif FUNCTION == "gelu":
        density = tl.exp2(saved * saved * (-0.5 * LOG2_E) - LOG2_ROOT_2_PI)
        return dy * (normal_distribution(saved) + saved * density)
    else:
        tl.static_assert(FUNCTION == "gelu-tanh")
        square = saved * saved
        s, slope = sigmoid_and_slope(saved * (TANH_2U_1 + TANH_2U_3 * square))
        return dy * (s + saved * (TANH_2U_1 + 3 * TANH_2U_3 * square) * slope)


@triton.jit
def block(saved_pointer, dy_pointer, result_pointer, start, i, mask, FUNCTION: tl.constexpr):
    """One block of the line, from `start`: f(x), or f' dy if there is a dy, of the elements `i` in `mask`."""
    stored = tl.load(saved_pointer + start + i, mask=mask)
    if dy_pointer is None:
        result = value(stored, FUNCTION)
    else:
        result = gradient(stored, tl.load(dy_pointer + start + i, mask=mask), FUNCTION)
    tl.store(result_pointer + start + i, result.to(result_pointer.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count"])
def elementwise(
    saved_pointer,  # forward x; backward y of relu, sigmoid and tanh, x of the others: [count], contiguous
    dy_pointer,  # [count], contiguous; None forward
    result_pointer,  # y or dx: [count], contiguous, in the type of x; every element is written once
    count,
    FUNCTION: tl.constexpr,
    EVEN: tl.constexpr,  # BLOCK divides count: no block is masked
    BLOCK: tl.constexpr,
):
    """y = f(x) or dx = f' dy, one block of BLOCK elements for each program."""
    # A tensor may have more than 2^31 elements: where a block starts is 64-bit, and that alone.
    start = tl.program_id(0).to(tl.int64) * BLOCK
    i = tl.arange(0, BLOCK)
    if EVEN:
        block(saved_pointer, dy_pointer, result_pointer, start, i, None, FUNCTION)
    elif count - start >= BLOCK:
        block(saved_pointer, dy_pointer, result_pointer, start, i, None, FUNCTION)
    else:
        inside = i < (count - start).to(tl.int32)
        block(saved_pointer, dy_pointer, result_pointer, start, i, inside, FUNCTION)


class Tile(NamedTuple):
    """How much one program computes, and with how many warps."""

    block: int
    warps: int

    def __str__(self) -> str:
        """`2048 w4`."""
        return f"{self.block} w{self.warps}"


CANDIDATES = (Tile(512, 2), Tile(1024, 4), Tile(2048, 4), Tile(4096, 4), Tile(4096, 8))
"""8 to 32 elements a thread: one to four 16-byte loads of 16-bit data, two to eight of float32."""


def candidates(problem: Activation) -> list[Tile]:
    """Tiles of CANDIDATES to try: the largest only where no block is masked, or some function would spill."""
    return [tile for tile in CANDIDATES if tile.block <= 2048 or problem.elements % tile.block == 0]


def launch(problem: Activation, *inputs: torch.Tensor) -> Launch:
    """y (dx), as large as x (dy), with the tile that was fastest for this problem on the current device.

    Inputs as `kernels.activations.operator.inputs` gives them. The first launch of a problem in a process
    compiles and times the candidates (a second); later ones remember.
    """
    return tuned(
        ("activations", problem), candidates(problem), lambda tile: launch_with(tile, problem, *inputs)
    )


def launch_with(tile: Tile, problem: Activation, *inputs: torch.Tensor) -> Launch:
    """The same with this tile; on CPU tensors if Triton interprets."""
    result = torch.empty_like(inputs[0])
    run = elementwise[(-(-problem.elements // tile.block),)]
    options = {"EVEN": problem.elements % tile.block == 0, "BLOCK": tile.block, "num_warps": tile.warps}
    saved, dy = (*inputs, None)[:2]
    return Launch.of(
        run, (result,), saved, dy, result, problem.elements, FUNCTION=problem.function, **options
    )
