"""The gradient of a convolution's input, NHWC, in Triton: dx from dy and w.

**Why this algorithm.** A pixel of dx sums over the windows that cover it: tap (r, s) of the window at

    p = (row + padding - r dilation) / stride,    q = (column + padding - s dilation) / stride

adds w[:, r, s] dy[p, q], if both are whole numbers within dy. With a stride most taps of a pixel meet no
window, and which ones do depends on the pixel's row and column modulo the stride alone. So the pixels are
sorted by these residues, and a program computes a tile of pixels of one residue, which share their taps: no
time goes to products with zeros. With g = gcd(stride, dilation), the taps of a residue are every
(stride / g)-th, from the first that solves r dilation = row + padding (mod stride), and from one such tap to
the next p goes back by dilation / g: the pixels of a residue are a convolution of dy with a stride of 1.
Where g does not divide row + padding, no tap meets the pixel, and dx is written as 0.

Within a residue this is forward.py's implicit product, of pixels x c' by taps k'. Each element of dx is
written once, by one program: no atomics, and the same bits every time. Residues take turns in the order of
programs, so those which run together share rows of dy in L2.

**Bytes moved.** c' = c / groups, k' = k / groups. The tiles of a residue of m pixels and t taps read

    ceil(m / BLOCK_M) ceil(c' / BLOCK_N) groups (BLOCK_N t k' + sum over the tile of taps within dy k')

elements of w and dy, mostly from L2, and store m c. Pixels and channels past the end wrap around to ones that
exist. Some residues have fewer pixels than others: their programs past the last tile load and store nothing.
What must come from memory is dy and w, each once.

**Alignment.** Along the sum dy is contiguous, and w along c': w is a matrix of k' rows that are read across.
Loads of dy are 16 bytes wide if k' is a multiple of 16 bytes; loads of w and stores of dx if c' is.

**Arithmetic.** As in forward.py, without a bias.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import itertools
import math

import torch
import triton
import triton.language as tl

from kernels.convolution import tiles
from kernels.convolution.problem import Axis, Convolution
from kernels.convolution.tiles import read
from kernels.gemm.blocks import grouped, known_multiple
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared
from kernels.tensors import empty


@triton.jit
def taps_that_meet(
    residue, SIZE: tl.constexpr, WINDOW: tl.constexpr, COMMON: tl.constexpr, INVERSE: tl.constexpr
):
    """The first of SIZE taps, and the number of taps, that meet points of this residue modulo the stride."""
    beyond = (residue + WINDOW.padding) % WINDOW.stride
    first = beyond // COMMON * INVERSE % (WINDOW.stride // COMMON)
    return first, tl.where(beyond % COMMON == 0, tl.cdiv(SIZE - first, WINDOW.stride // COMMON), 0)


@triton.jit(do_not_specialize=["n", "h", "w", "p", "q", "c", "k"])
def gather_gradient(
    dy_pointer,  # [n, p, q, groups, k]
    w_pointer,  # [groups, k, WINDOW_H, WINDOW_W, c]
    dx_pointer,  # [n, h, w, groups, c]: every element is written once
    n,
    h,
    w,
    p,
    q,
    c,  # channels of dx in a group
    k,  # channels of dy in a group
    WINDOW: tl.constexpr,
    COMMON: tl.constexpr,  # the greatest common divisor of STRIDE and DILATION
    INVERSE: tl.constexpr,  # of DILATION / COMMON modulo STRIDE / COMMON
    WITHIN: tl.constexpr,  # whatever a tap meets lies within dy: no mask for that
    EVEN: tl.constexpr,  # BLOCK_K divides the length of every residue's sums: no mask along them
    TILE: tl.constexpr,
):
    """A tile of one residue's pixels and one group's channels of dx; grid (tiles x residues, groups)."""
    STEP: tl.constexpr = WINDOW.stride // COMMON
    REACH: tl.constexpr = WINDOW.dilation // COMMON
    c = known_multiple(c, TILE.align_c)
    k = known_multiple(k, TILE.align_k)
    across = tl.minimum(w, WINDOW.stride)
    residues = tl.minimum(h, WINDOW.stride) * across
    residue_h = tl.program_id(0) % residues // across
    residue_w = tl.program_id(0) % residues % across
    most_pixels = n * tl.cdiv(h, WINDOW.stride) * tl.cdiv(w, WINDOW.stride)
    tile = tl.program_id(0) // residues
    tile_n, tile_m = grouped(tile, tl.cdiv(c, TILE.n), tl.cdiv(most_pixels, TILE.m), TILE.group)
    group = tl.program_id(1)
    along_m = tile_m * TILE.m + tl.arange(0, TILE.m)
    along_n = tile_n * TILE.n + tl.arange(0, TILE.n)
    along_k = tl.arange(0, TILE.k)

    first_r, taps_h = taps_that_meet(residue_h, WINDOW.h, WINDOW, COMMON, INVERSE)
    first_s, taps_w = taps_that_meet(residue_w, WINDOW.w, WINDOW, COMMON, INVERSE)
    rows = tl.cdiv(h - residue_h, WINDOW.stride)
    columns = tl.cdiv(w - residue_w, WINDOW.stride)
    pixels = n * rows * columns
    terms = tl.where(tile_m * TILE.m < pixels, taps_h * taps_w, 0) * k

    pixel = along_m % pixels
    row = residue_h + pixel // columns % rows * WINDOW.stride
    column = residue_w + pixel % columns * WINDOW.stride
    image = (pixel // columns // rows).to(tl.int64)
    # The windows whose first taps of this residue meet the pixel, perhaps beyond dy. The stride divides both.
    top = (row + WINDOW.padding - first_r * WINDOW.dilation) // WINDOW.stride
    left = (column + WINDOW.padding - first_s * WINDOW.dilation) // WINDOW.stride
    # Images can lie 2^31 elements apart; within one image, and within w, 32 bits suffice.
    dy = dy_pointer + ((image * p + top) * q + left) * (k * WINDOW.groups) + group * k
    weights = w_pointer + group.to(tl.int64) * k * (WINDOW.h * WINDOW.w * c) + along_n % c

    total = tl.full((TILE.m, TILE.n), 0.0, tl.float32)
    for start in range(0, terms, TILE.k):
        tap = (along_k + start) // k
        channel = (along_k + start) % k
        down = tap // taps_w
        aside = tap % taps_w
        back = channel - (down * q + aside) * REACH * (k * WINDOW.groups)
        r = first_r + down * STEP
        s = first_s + aside * STEP
        at = (channel * (WINDOW.h * WINDOW.w) + r * WINDOW.w + s) * c
        exists = along_k < terms - start
        in_p = top[:, None] - down[None, :] * REACH
        in_q = left[:, None] - aside[None, :] * REACH
        meets = (in_p >= 0) & (in_p < p) & (in_q >= 0) & (in_q < q)
        gradient = read(dy[:, None] + back[None, :], meets, exists[None, :], not WITHIN, EVEN)
        kernel = read(weights[None, :] + at[:, None], None, exists[:, None], False, EVEN)
        total = tl.dot(gradient, kernel, total, input_precision=TILE.precision)

    dx = dx_pointer + ((image * h + row) * w + column) * (c * WINDOW.groups)
    inside = (along_m < pixels)[:, None] & (along_n < c)[None, :]
    tl.store(dx[:, None] + (group * c + along_n)[None, :], total.to(dx_pointer.dtype.element_ty), mask=inside)


def taps(axis: Axis) -> list[int]:
    """Along one axis, the number of taps that meet the points of each residue of which there are any."""
    beyond = [
        [(residue + axis.padding - tap * axis.dilation) % axis.stride for tap in range(axis.window)]
        for residue in range(min(axis.stride, axis.size))
    ]
    return [remainders.count(0) for remainders in beyond]


def prepare(problem: Convolution, tile: Tile, *tensors: torch.Tensor) -> Prepared:
    """The launch that writes dx of dy and w, as operator.py has them, NHWC; dx is allocated.

    Programs for the tiles of the residue with the most pixels, for each residue and each group.
    """
    dy, w = tensors
    (dx,) = empty(problem, dy)
    stride, common = problem.stride, math.gcd(problem.stride, problem.dilation)
    counts = itertools.product(taps(problem.rows), taps(problem.columns))
    pointers = {"dy_pointer": dy, "w_pointer": w, "dx_pointer": dx}
    more = {
        "n": problem.n,
        "COMMON": common,
        "INVERSE": pow(problem.dilation // common, -1, stride // common),
        "WITHIN": problem.window_h * problem.window_w == 1 and problem.padding == 0,
        "EVEN": all(high * wide * (problem.k // problem.groups) % tile.k == 0 for high, wide in counts),
    }
    most_pixels = problem.n * -(-problem.h // stride) * -(-problem.w // stride)
    of_residue = -(-most_pixels // tile.m) * -(-(problem.c // problem.groups) // tile.n)
    count = of_residue * min(problem.h, stride) * min(problem.w, stride)
    arguments = pointers | more | tiles.arguments(problem, tile)
    return Prepared(gather_gradient, (count, problem.groups), arguments, dx)
