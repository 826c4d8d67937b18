"""Convolution as an implicit matrix product: the forward pass, NHWC, in Triton.

**Why this algorithm.** y is a matrix of n p q pixels by k channels, and each of its elements a sum over
r s c / groups terms. One program computes a tile of BLOCK_M pixels x BLOCK_N channels of one group by walking
along that sum in steps of BLOCK_K, as a GEMM does, and works out where each term lies in x: the matrix that
im2col would write is never written. In NHWC the channels of a pixel are contiguous, so that 16 bytes of them
are one load. The sum is cut without regard to where a tap of the window ends: three channels of an image fill
a step as well as 64.

**Bytes moved.** A tile reads BLOCK_N rows of w, each r s c / groups long, and for each of its pixels the taps
that lie in the image:

    loads  = ceil(m / BLOCK_M) ceil(k' / BLOCK_N) groups (BLOCK_N r s c' + sum over the tile of taps c')
    stores = n p q k                                                c' = c / groups, k' = k / groups

elements, mostly from L2. Pixels and channels past the end wrap around to ones that exist. What must come from
memory is x as far as windows cover it, w and the bias, each once. Programs run in grouped order, as those of
the GEMM kernel do, so that tiles which run together share operands in L2.

**Alignment.** Loads of x and w are 16 bytes wide if c / groups is a multiple of 16 bytes, stores if
k / groups is one; what divides the two is a compile-time constant.

**Arithmetic.** Products are summed in float32, the bias is added, and the result rounded once. `tf32`
truncates float32 operands to 10 bits; `float32` uses no matrix unit.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.convolution import tiles
from kernels.convolution.problem import Convolution
from kernels.convolution.tiles import read
from kernels.gemm.blocks import grouped, known_multiple
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared
from kernels.tensors import empty


@triton.jit(do_not_specialize=["pixels", "h", "w", "p", "q", "c", "k"])
def convolve(
    x_pointer,  # [n, h, w, groups, c]
    w_pointer,  # [groups, k, WINDOW_H, WINDOW_W, c]
    bias_pointer,  # [groups, k], or None
    y_pointer,  # [n, p, q, groups, k]: every element is written once
    pixels,  # n p q
    h,
    w,
    p,
    q,
    c,  # channels of x in a group
    k,  # channels of y in a group
    WINDOW: tl.constexpr,
    EVEN: tl.constexpr,  # BLOCK_K divides the sum's length: no mask along it
    TILE: tl.constexpr,
):
    """y = x * w + bias, a tile of one group's pixels and channels a program; grid (tiles, groups)."""
    c = known_multiple(c, TILE.align_c)
    k = known_multiple(k, TILE.align_k)
    tile_n, tile_m = grouped(tl.program_id(0), tl.cdiv(k, TILE.n), tl.cdiv(pixels, TILE.m), TILE.group)
    group = tl.program_id(1)
    along_m = tile_m * TILE.m + tl.arange(0, TILE.m)
    along_n = tile_n * TILE.n + tl.arange(0, TILE.n)
    along_k = tl.arange(0, TILE.k)

    pixel = along_m % pixels
    top = pixel // q % p * WINDOW.stride - WINDOW.padding
    left = pixel % q * WINDOW.stride - WINDOW.padding
    # Images can lie 2^31 elements apart; within one image 32 bits suffice.
    corner = ((pixel // q // p).to(tl.int64) * h + top) * w + left
    x = x_pointer + corner * (c * WINDOW.groups) + group * c
    terms = c * (WINDOW.h * WINDOW.w)
    row = (group * k + along_n % k).to(tl.int64) * terms

    total = tl.full((TILE.m, TILE.n), 0.0, tl.float32)
    for start in range(0, terms, TILE.k):
        tap = (along_k + start) // c
        channel = (along_k + start) % c
        down = tap // WINDOW.w * WINDOW.dilation
        across = tap % WINDOW.w * WINDOW.dilation
        at = (down * w + across) * (c * WINDOW.groups) + channel
        weights = w_pointer + row[None, :] + (along_k + start)[:, None]
        exists = along_k < terms - start
        rows = top[:, None] + down[None, :]
        columns = left[:, None] + across[None, :]
        inside = (rows >= 0) & (rows < h) & (columns >= 0) & (columns < w)
        image = read(x[:, None] + at[None, :], inside, exists[None, :], WINDOW.padding > 0, EVEN)
        kernel = read(weights, None, exists[:, None], False, EVEN)
        total = tl.dot(image, kernel, total, input_precision=TILE.precision)

    stored = along_n < k
    if bias_pointer is not None:
        total += tl.load(bias_pointer + group * k + along_n, mask=stored, other=0.0).to(tl.float32)[None, :]
    y = y_pointer + along_m.to(tl.int64)[:, None] * (k * WINDOW.groups) + (group * k + along_n)[None, :]
    tl.store(y, total.to(y_pointer.dtype.element_ty), mask=(along_m < pixels)[:, None] & stored[None, :])


def prepare(problem: Convolution, tile: Tile, *tensors: torch.Tensor) -> Prepared:
    """The launch that writes y of x, w and perhaps a bias, as operator.py has them, NHWC; y is allocated.

    A program for each tile of pixels x channels of a group, ragged ones included.
    """
    x, w, *bias = tensors
    (y,) = empty(problem, x)
    pixels, terms = problem.n * problem.p * problem.q, problem.c // problem.groups
    pointers = {"x_pointer": x, "w_pointer": w, "bias_pointer": bias[0] if bias else None, "y_pointer": y}
    more = {"pixels": pixels, "EVEN": terms * problem.window_h * problem.window_w % tile.k == 0}
    count = -(-pixels // tile.m) * -(-(problem.k // problem.groups) // tile.n)
    return Prepared(convolve, (count, problem.groups), pointers | more | tiles.arguments(problem, tile), y)
