"""The gradient of a convolution's weights, NHWC, in Triton: dw from dy and x.

**Why this algorithm.** dw is a matrix of k channels by r s c / groups weights, and each of its elements a
sum over all n p q pixels of dy. That matrix is often a few tiles and the sum a million terms, so that whole
tiles would leave most of the device idle. Hence the pixels are cut into parts (`Convolution.pixel_parts`), a
program computes a tile over the pixels of one part, and the last program of a tile to arrive adds the parts,
always in the same order (kernels/gemm/parts.py): one launch, no atomic addition of data, the same bits every
time. The matrix that im2col would write is never written: a program works out where a tap's pixel lies in x.
Tiles are cut without regard to where a tap of the window ends, so three channels fill a tile as well as 64.

The number of parts is the problem's and not the tile's: it is known before a device chooses, and so are the
bytes of the parts.

**Bytes moved.** c' = c / groups, k' = k / groups, T = ceil(r s c' / BLOCK_M) ceil(k' / BLOCK_N) groups tiles.
Programs read

    T BLOCK_N n p q + sum over the tiles' columns of the pixels whose tap lies in x

elements of dy and x, mostly from L2; weights and channels past the end wrap around to ones that exist. dw is
stored once. With P > 1 parts, T P BLOCK_M BLOCK_N float32 sums are written and read again, and of more than 8
parts ceil(P / 8) / P of them once more. What must come from memory is dy, and x as far as windows cover it,
once.

**Alignment.** dy is contiguous along k' and x along c', neither along the sum. Loads of dy are 16 bytes wide
if k' is a multiple of 16 bytes; loads of x and stores of dw if c' is.

**Arithmetic.** As in forward.py; a sum is P shorter ones, added in float32.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels.convolution import tiles
from kernels.convolution.problem import Convolution
from kernels.convolution.tiles import read
from kernels.gemm.blocks import grouped, known_multiple, store
from kernels.gemm.parts import FAN, bring, rows, tiles_of, workspace
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from kernels.prepared import Prepared
from kernels.tensors import empty


@triton.jit(do_not_specialize=["pixels", "parts", "h", "w", "p", "q", "c", "k"])
def correlate(
    dy_pointer,  # [n, p, q, groups, k]
    x_pointer,  # [n, h, w, groups, c]
    dw_pointer,  # [groups, k, WINDOW_H, WINDOW_W, c]: every element is written once
    slots,  # [groups, tiles, parts, BLOCK_N, BLOCK_M] float32
    counters,  # [groups, tiles, 1 + ceil(parts / FAN)], zero before and after
    pixels,  # n p q
    parts,
    h,
    w,
    p,
    q,
    c,  # channels of x in a group
    k,  # channels of dy in a group
    WINDOW: tl.constexpr,
    EVEN: tl.constexpr,  # BLOCK_K divides the number of pixels: no mask along them
    SPLIT: tl.constexpr,  # parts > 1
    ROWS: tl.constexpr,  # of a tile, whose parts are added at a time
    TILE: tl.constexpr,
):
    """A part of the sums of a tile [BLOCK_N, BLOCK_M] of one group's dw; grid (tiles, parts, groups)."""
    c = known_multiple(c, TILE.align_c)
    k = known_multiple(k, TILE.align_k)
    weights = c * (WINDOW.h * WINDOW.w)
    tiles_m, tiles_n = tl.cdiv(weights, TILE.m), tl.cdiv(k, TILE.n)
    tile_m, tile_n = grouped(tl.program_id(0), tiles_m, tiles_n, TILE.group)
    part = tl.program_id(1)
    group = tl.program_id(2)
    along_m = tile_m * TILE.m + tl.arange(0, TILE.m)
    along_n = tile_n * TILE.n + tl.arange(0, TILE.n)
    along_k = tl.arange(0, TILE.k)
    # The first parts have one step more than the others.
    steps = tl.cdiv(pixels, TILE.k)
    each, more = steps // parts, steps % parts
    first = part * each + tl.minimum(part, more)
    last = first + each + tl.where(part < more, 1, 0)

    tap = along_m // c % (WINDOW.h * WINDOW.w)
    down = tap // WINDOW.w * WINDOW.dilation
    aside = tap % WINDOW.w * WINDOW.dilation
    # Images can lie 2^31 elements apart; within one image 32 bits suffice.
    x = x_pointer + group * c + (down * w + aside) * (c * WINDOW.groups) + along_m % c
    dy = dy_pointer + group * k + along_n % k
    total = tl.full((TILE.n, TILE.m), 0.0, tl.float32)
    for start in range(first * TILE.k, last * TILE.k, TILE.k):
        pixel = start + along_k
        exists = pixel < pixels
        top = pixel // q % p * WINDOW.stride - WINDOW.padding
        left = pixel % q * WINDOW.stride - WINDOW.padding
        corner = ((pixel // q // p).to(tl.int64) * h + top) * w + left
        image = x[None, :] + (corner * (c * WINDOW.groups))[:, None]
        gradient = dy[:, None] + (pixel.to(tl.int64) * (k * WINDOW.groups))[None, :]
        in_h = top[:, None] + down[None, :]
        in_w = left[:, None] + aside[None, :]
        inside = (in_h >= 0) & (in_h < h) & (in_w >= 0) & (in_w < w)
        right = read(image, inside, exists[:, None], WINDOW.padding > 0, EVEN)
        left_factor = read(gradient, None, exists[None, :], False, EVEN)
        total = tl.dot(left_factor, right, total, input_precision=TILE.precision)

    dw = dw_pointer + (group * k).to(tl.int64) * weights
    if SPLIT:
        tile = (group * (tiles_m * tiles_n) + tl.program_id(0)).to(tl.int64)
        # In a tuple that is passed on, a field of TILE would be no constant.
        block_m: tl.constexpr = TILE.m
        block_n: tl.constexpr = TILE.n
        bring(
            total,
            part,
            parts,
            slots + tile * parts * (TILE.m * TILE.n),
            counters + tile * (1 + tl.cdiv(parts, FAN)),
            tile_m,
            tile_n,
            (None, dw, None, None, weights, k, weights, weights),
            "none",
            (block_m, block_n, ROWS),
        )
    else:
        store(total, dw, along_m, along_n, weights, k, weights)


def product(problem: Convolution) -> Gemm:
    """The product of one group by problem.py's table."""
    _, n, k = problem.product
    m = problem.c // problem.groups * problem.window_h * problem.window_w
    return Gemm(m=m, n=n, k=k, layout="NT", dtype=problem.dtype)


def grid(problem: Convolution, tile: Tile) -> tuple[int, int, int]:
    """Tiles of a group, parts, groups."""
    return tiles_of(product(problem), tile), problem.pixel_parts, problem.groups


def prepare(problem: Convolution, tile: Tile, *tensors: torch.Tensor) -> Prepared:
    """The launch that writes dw of dy and x, as operator.py has them, NHWC; dw is allocated.

    Launches that live at the same time must run one after the other, on one stream: they share a workspace.
    """
    dy, x = tensors
    dw = empty(problem, dy)[0]
    programs, parts, of_group = grid(problem, tile), problem.pixel_parts, product(problem)
    count = programs[0] * problem.groups if parts > 1 else 0
    room = workspace(
        of_group,
        dy,
        elements=count * parts * tile.m * tile.n,
        counters=count * (1 + math.ceil(parts / FAN.value)),
    )
    pointers = {"dy_pointer": dy, "x_pointer": x, "dw_pointer": dw}
    shared = {"slots": room.parts, "counters": room.counters, "parts": parts, "SPLIT": parts > 1}
    more = {"pixels": of_group.k, "EVEN": of_group.k % tile.k == 0, "ROWS": rows(of_group, tile)}
    arguments = pointers | shared | more | tiles.arguments(problem, tile)
    return Prepared(correlate, programs, arguments, dw)
