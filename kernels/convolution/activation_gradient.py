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

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.convolution import tiles
from kernels.convolution.problem import Axis, Convolution
from kernels.gemm.blocks import grouped, known_multiple
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared


@triton.jit  # type: ignore[untyped-decorator]
def taps_that_meet(  # type: ignore[no-untyped-def]
    residue,
    WINDOW: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    COMMON: tl.constexpr,
    INVERSE: tl.constexpr,
):
    """The first tap, and the number of taps, that meet points of this residue modulo STRIDE."""
    beyond = (residue + PADDING) % STRIDE
    first = beyond // COMMON * INVERSE % (STRIDE // COMMON)
    return first, tl.where(beyond % COMMON == 0, tl.cdiv(WINDOW - first, STRIDE // COMMON), 0)


@triton.jit(do_not_specialize=["n", "h", "w", "p", "q", "c", "k"])  # type: ignore[untyped-decorator]
def gather_gradient(  # type: ignore[no-untyped-def]
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
    GROUPS: tl.constexpr,
    WINDOW_H: tl.constexpr,
    WINDOW_W: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    COMMON: tl.constexpr,  # the greatest common divisor of STRIDE and DILATION
    INVERSE: tl.constexpr,  # of DILATION / COMMON modulo STRIDE / COMMON
    WITHIN: tl.constexpr,  # whatever a tap meets lies within dy: no mask for that
    ALIGN_C: tl.constexpr,  # powers of two that divide c and k; at most 16 bytes' worth of elements
    ALIGN_K: tl.constexpr,
    EVEN: tl.constexpr,  # BLOCK_K divides the length of every residue's sums: no mask along them
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """A tile of one residue's pixels and one group's channels of dx; grid (tiles x residues, groups)."""
    STEP: tl.constexpr = STRIDE // COMMON
    REACH: tl.constexpr = DILATION // COMMON
    c = known_multiple(c, ALIGN_C)
    k = known_multiple(k, ALIGN_K)
    across = tl.minimum(w, STRIDE)
    residues = tl.minimum(h, STRIDE) * across
    residue_h = tl.program_id(0) % residues // across
    residue_w = tl.program_id(0) % residues % across
    most_pixels = n * tl.cdiv(h, STRIDE) * tl.cdiv(w, STRIDE)
    tile = tl.program_id(0) // residues
    tile_n, tile_m = grouped(tile, tl.cdiv(c, BLOCK_N), tl.cdiv(most_pixels, BLOCK_M), GROUP)
    group = tl.program_id(1)
    along_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    along_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    along_k = tl.arange(0, BLOCK_K)

    first_r, taps_h = taps_that_meet(residue_h, WINDOW_H, STRIDE, PADDING, COMMON, INVERSE)
    first_s, taps_w = taps_that_meet(residue_w, WINDOW_W, STRIDE, PADDING, COMMON, INVERSE)
    rows = tl.cdiv(h - residue_h, STRIDE)
    columns = tl.cdiv(w - residue_w, STRIDE)
    pixels = n * rows * columns
    terms = tl.where(tile_m * BLOCK_M < pixels, taps_h * taps_w, 0) * k

    pixel = along_m % pixels
    row = residue_h + pixel // columns % rows * STRIDE
    column = residue_w + pixel % columns * STRIDE
    image = (pixel // columns // rows).to(tl.int64)
    # The windows whose first taps of this residue meet the pixel, perhaps beyond dy. STRIDE divides both.
    top = (row + PADDING - first_r * DILATION) // STRIDE
    left = (column + PADDING - first_s * DILATION) // STRIDE
    # Images can lie 2^31 elements apart; within one image, and within w, 32 bits suffice.
    dy = dy_pointer + ((image * p + top) * q + left) * (k * GROUPS) + group * k
    weights = w_pointer + group.to(tl.int64) * k * (WINDOW_H * WINDOW_W * c) + along_n % c

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, terms, BLOCK_K):
        tap = (along_k + start) // k
        channel = (along_k + start) % k
        down = tap // taps_w
        aside = tap % taps_w
        back = channel - (down * q + aside) * REACH * (k * GROUPS)
        r = first_r + down * STEP
        s = first_s + aside * STEP
        at = (channel * (WINDOW_H * WINDOW_W) + r * WINDOW_W + s) * c
        exists = along_k < terms - start
        if not WITHIN:
            in_p = top[:, None] - down[None, :] * REACH
            in_q = left[:, None] - aside[None, :] * REACH
            meets = (in_p >= 0) & (in_p < p) & (in_q >= 0) & (in_q < q)
            if not EVEN:
                meets = meets & exists[None, :]
            gradient = tl.load(dy[:, None] + back[None, :], mask=meets, other=0.0)
        elif EVEN:
            gradient = tl.load(dy[:, None] + back[None, :])
        else:
            gradient = tl.load(dy[:, None] + back[None, :], mask=exists[None, :], other=0.0)
        if EVEN:
            kernel = tl.load(weights[None, :] + at[:, None])
        else:
            kernel = tl.load(weights[None, :] + at[:, None], mask=exists[:, None], other=0.0)
        total = tl.dot(gradient, kernel, total, input_precision=PRECISION)

    dx = dx_pointer + ((image * h + row) * w + column) * (c * GROUPS)
    inside = (along_m < pixels)[:, None] & (along_n < c)[None, :]
    tl.store(dx[:, None] + (group * c + along_n)[None, :], total.to(dx_pointer.dtype.element_ty), mask=inside)


def grid(problem: Convolution, tile: Tile) -> tuple[int, int]:
    """Tiles of the residue with the most pixels, for each residue, and groups."""
    stride = problem.stride
    most_pixels = problem.n * -(-problem.h // stride) * -(-problem.w // stride)
    of_residue = -(-most_pixels // tile.m) * -(-(problem.c // problem.groups) // tile.n)
    return of_residue * min(problem.h, stride) * min(problem.w, stride), problem.groups


def sizes(problem: Convolution) -> dict[str, int]:
    """The run-time arguments of the kernel that are no tensors."""
    return {"n": problem.n, **tiles.sizes(problem)}


def constants(problem: Convolution, tile: Tile) -> dict[str, Any]:
    """The compile-time arguments of the kernel."""
    common = math.gcd(problem.stride, problem.dilation)
    counts = itertools.product(taps(problem.rows), taps(problem.columns))
    return {
        **tiles.constants(problem, tile),
        "COMMON": common,
        "INVERSE": pow(problem.dilation // common, -1, problem.stride // common),
        "WITHIN": problem.window_h * problem.window_w == 1 and problem.padding == 0,
        "EVEN": all(high * wide * (problem.k // problem.groups) % tile.k == 0 for high, wide in counts),
    }


def taps(axis: Axis) -> list[int]:
    """Along one axis, the number of taps that meet the points of each residue of which there are any."""
    beyond = [
        [(residue + axis.padding - tap * axis.dilation) % axis.stride for tap in range(axis.window)]
        for residue in range(min(axis.stride, axis.size))
    ]
    return [remainders.count(0) for remainders in beyond]


def prepare(problem: Convolution, tile: Tile, *tensors: torch.Tensor) -> Prepared:
    """The launch that writes dx of dy and w, as operator.py has them, NHWC; dx is allocated."""
    dy, w = tensors
    dx = dy.new_empty(problem.n, problem.h, problem.w, problem.c).permute(0, 3, 1, 2)
    pointers = {"dy_pointer": dy, "w_pointer": w, "dx_pointer": dx}
    arguments = {**pointers, **sizes(problem), **constants(problem, tile), **tiles.options(tile)}
    return Prepared(gather_gradient, grid(problem, tile), arguments, dx)
