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

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from bench.spec import Launch
from kernels.convolution.problem import Convolution
from kernels.gemm.blocks import grouped, known_multiple
from kernels.tuning import fastest, tuned

GROUP = 8
"""Tiles of channels that run together."""


class Tile(NamedTuple):
    """BLOCK_M pixels, BLOCK_N channels of y, BLOCK_K terms, warps, and steps in flight."""

    m: int
    n: int
    k: int
    warps: int
    stages: int

    def __str__(self) -> str:
        """As people write it: `128x64x64 w4 s3`."""
        return f"{self.m}x{self.n}x{self.k} w{self.warps} s{self.stages}"


WIDE: dict[str, tuple[Tile, ...]] = {
    "16-bit": (
        Tile(128, 128, 64, 8, 3),
        Tile(128, 128, 32, 8, 4),
        Tile(128, 64, 64, 4, 3),
        Tile(64, 128, 64, 4, 3),
        Tile(64, 64, 64, 4, 4),
        Tile(64, 32, 64, 4, 4),
        Tile(128, 16, 64, 4, 3),
    ),
    "tf32": (
        Tile(128, 128, 16, 8, 4),
        Tile(128, 64, 32, 4, 3),
        Tile(64, 64, 32, 4, 4),
        Tile(64, 32, 32, 4, 4),
    ),
    "float32": (Tile(128, 64, 16, 8, 3), Tile(64, 64, 16, 4, 3), Tile(64, 32, 16, 4, 3)),
}
"""Tiles to try where c / groups is a multiple of 16 bytes; tests/kernels shows that no loop spills."""
NARROW: dict[str, tuple[Tile, ...]] = {
    "16-bit": (Tile(64, 64, 32, 4, 2), Tile(64, 32, 32, 4, 2), Tile(64, 16, 32, 4, 2)),
    "tf32": (Tile(64, 64, 16, 4, 2), Tile(64, 32, 16, 4, 2), Tile(64, 16, 16, 4, 2)),
    "float32": (Tile(64, 64, 16, 4, 2), Tile(64, 32, 16, 4, 2), Tile(64, 16, 16, 4, 2)),
}
"""Tiles to try elsewhere: each element is a load of its own and needs an address and a mask."""


@triton.jit(do_not_specialize=["pixels", "h", "w", "p", "q", "c", "k", "of_group"])  # type: ignore[untyped-decorator]
def convolve(  # type: ignore[no-untyped-def]
    x_pointer,  # [n, h, w, groups, of_group]
    w_pointer,  # [groups, k, WINDOW_H, WINDOW_W, of_group]
    bias_pointer,  # [groups, k], or None
    y_pointer,  # [n, p, q, groups, k]: every element is written once
    pixels,  # n p q
    h,
    w,
    p,
    q,
    of_group,  # channels of x in a group
    k,  # channels of y in a group
    GROUPS: tl.constexpr,
    WINDOW_H: tl.constexpr,
    WINDOW_W: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    ALIGN_C: tl.constexpr,  # powers of two that divide of_group and k; at most 16 bytes' worth of elements
    ALIGN_K: tl.constexpr,
    EVEN: tl.constexpr,  # BLOCK_K divides the sum's length: no mask along it
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """y = x * w + bias, a tile of one group's pixels and channels a program; grid (tiles, groups)."""
    of_group = known_multiple(of_group, ALIGN_C)
    k = known_multiple(k, ALIGN_K)
    tile_n, tile_m = grouped(tl.program_id(0), tl.cdiv(k, BLOCK_N), tl.cdiv(pixels, BLOCK_M), GROUP)
    group = tl.program_id(1)
    along_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    along_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    along_k = tl.arange(0, BLOCK_K)

    pixel = along_m % pixels
    top = pixel // q % p * STRIDE - PADDING
    left = pixel % q * STRIDE - PADDING
    # Images can lie 2^31 elements apart; within one image 32 bits suffice.
    corner = ((pixel // q // p).to(tl.int64) * h + top) * w + left
    x = x_pointer + corner * (of_group * GROUPS) + group * of_group
    terms = of_group * (WINDOW_H * WINDOW_W)
    row = (group * k + along_n % k).to(tl.int64) * terms

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, terms, BLOCK_K):
        tap = (along_k + start) // of_group
        channel = (along_k + start) % of_group
        down = tap // WINDOW_W * DILATION
        across = tap % WINDOW_W * DILATION
        at = (down * w + across) * (of_group * GROUPS) + channel
        weights = w_pointer + row[None, :] + (along_k + start)[:, None]
        if PADDING > 0:
            rows = top[:, None] + down[None, :]
            columns = left[:, None] + across[None, :]
            inside = (rows >= 0) & (rows < h) & (columns >= 0) & (columns < w)
            if not EVEN:
                inside = inside & (along_k < terms - start)[None, :]
            image = tl.load(x[:, None] + at[None, :], mask=inside, other=0.0)
        elif EVEN:
            image = tl.load(x[:, None] + at[None, :])
        else:
            image = tl.load(x[:, None] + at[None, :], mask=(along_k < terms - start)[None, :], other=0.0)
        if EVEN:
            kernel = tl.load(weights)
        else:
            kernel = tl.load(weights, mask=(along_k < terms - start)[:, None], other=0.0)
        total = tl.dot(image, kernel, total, input_precision=PRECISION)

    exists = along_n < k
    if bias_pointer is not None:
        total += tl.load(bias_pointer + group * k + along_n, mask=exists, other=0.0).to(tl.float32)[None, :]
    y = y_pointer + along_m.to(tl.int64)[:, None] * (k * GROUPS) + (group * k + along_n)[None, :]
    tl.store(y, total.to(y_pointer.dtype.element_ty), mask=(along_m < pixels)[:, None] & exists[None, :])


def candidates(problem: Convolution) -> tuple[Tile, ...]:
    """Tiles worth timing: none of twice the pixels or channels that there are."""
    kind = "16-bit" if problem.item_byte == 2 else problem.dtype
    wide = problem.c // problem.groups * problem.item_byte % 16 == 0
    listed = (WIDE if wide else NARROW)[kind]
    channels = problem.k // problem.groups
    kept = tuple(tile for tile in listed if tile.n < 2 * channels or tile.n <= 16)
    return kept or listed[-1:]


def sizes(problem: Convolution) -> dict[str, int]:
    """The run-time arguments of the kernel that are no tensors."""
    return {
        "pixels": problem.n * problem.p * problem.q,
        "h": problem.h,
        "w": problem.w,
        "p": problem.p,
        "q": problem.q,
        "of_group": problem.c // problem.groups,
        "k": problem.k // problem.groups,
    }


def constants(problem: Convolution, tile: Tile) -> dict[str, Any]:
    """The compile-time arguments of the kernel."""
    of_group, wide = problem.c // problem.groups, 16 // problem.item_byte
    return {
        "GROUPS": problem.groups,
        "WINDOW_H": problem.window_h,
        "WINDOW_W": problem.window_w,
        "STRIDE": problem.stride,
        "PADDING": problem.padding,
        "DILATION": problem.dilation,
        "ALIGN_C": math.gcd(of_group, wide),
        "ALIGN_K": math.gcd(problem.k // problem.groups, wide),
        "EVEN": of_group * problem.window_h * problem.window_w % tile.k == 0,
        "PRECISION": "tf32" if problem.dtype == "tf32" else "ieee",
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "GROUP": GROUP,
    }


def grid(problem: Convolution, tile: Tile) -> tuple[int, int]:
    """Tiles of pixels x channels of a group, ragged ones included, and groups."""
    pixels = problem.n * problem.p * problem.q
    return -(-pixels // tile.m) * -(-(problem.k // problem.groups) // tile.n), problem.groups


def launch(problem: Convolution, *tensors: torch.Tensor, tile: Tile | None = None) -> Launch:
    """y of x, w and perhaps a bias, as operator.py has them, NHWC; preallocated, on the current device.

    Without a `tile` the first launch of a problem compiles and times the candidates; later ones remember.
    """
    x, w, *bias = tensors
    y = x.new_empty(problem.n, problem.p, problem.q, problem.k).permute(0, 3, 1, 2)
    pointers = {"x_pointer": x, "w_pointer": w, "bias_pointer": bias[0] if bias else None, "y_pointer": y}
    arguments = {**pointers, **sizes(problem)}

    def with_tile(tile: Tile) -> Launch:
        run = convolve[grid(problem, tile)]
        options = constants(problem, tile) | {"num_warps": tile.warps, "num_stages": tile.stages}

        def call() -> torch.Tensor:
            run(**arguments, **options)
            return y

        return Launch(call, outputs=(y,))

    return with_tile(tile) if tile else tuned(_question(problem), candidates(problem), with_tile)


def configuration(problem: Convolution) -> str:
    """The tile that `launch` chose for this problem in this process: `128x64x64 w4 s3`."""

    def unknown(_: Tile) -> Launch:
        raise LookupError(f"{problem} was not launched in this process")

    return str(fastest(_question(problem), candidates(problem), unknown))


def _question(problem: Convolution) -> tuple[object, ...]:
    return "convolution", problem
