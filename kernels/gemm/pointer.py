"""GEMM as a grid of tiles addressed by pointers: the Triton kernel that runs everywhere, at any size.

**Why this algorithm.** One program computes one tile of C, BLOCK_M x BLOCK_N, by walking along K in steps
of BLOCK_K and feeding each pair of operand tiles to the matrix units. Loads are plain pointers, so any
size and any alignment works, and the compiler overlaps them with the arithmetic (`cp.async`, as many
steps ahead as the configuration has stages). Bulk tensor copies (TMA) are faster on Hopper and later,
but need rows that start at multiples of 16 bytes; they are another file's idea.

**Bytes moved.** Every program reads BLOCK_M rows of op(A)^T and BLOCK_N rows of op(B)^T, each K long, and
writes its tile once:

    loads  = ceil(m / BLOCK_M) ceil(n / BLOCK_N) (BLOCK_M + BLOCK_N) k  elements, mostly from L2
    stores = m n                                                        elements

A ragged tile loads as much as a full one: its missing rows wrap around to rows that exist, so that no
load along K needs a mask for them. `Problem.byte` is what must come from DRAM, each operand once; to stay
near it, programs run in *grouped order*: GROUP tiles of N by all of M, so that the tiles which run at
the same time share operands in L2.

**Alignment.** The loads are 16 bytes wide only if the compiler can prove that rows start at multiples of
16 bytes, so each size's alignment (1, 2, 4 or 8 elements of 16 bits) is a compile-time constant here.
Triton's own specialisation knows only "divisible by 16" and would hide that 8 elements are enough.

**Arithmetic.** Products are summed in float32 (float64 for float64) and rounded once, to the type of the
operands. `tf32` truncates float32 operands to 10 bits; `float32` uses no matrix unit.
"""

import functools
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner

from bench.spec import Launch, Problem
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile, candidates

GROUP = 8
"""Tiles of N that run together: 8 x 256 rows of op(B) and one column of tiles of op(A) share the L2."""


@triton.heuristics(  # type: ignore[untyped-decorator]
    {"EVEN_K": lambda arguments: arguments["k"] % arguments["BLOCK_K"] == 0}
)
@triton.jit(do_not_specialize=["m", "n", "k"])  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    a_pointer,  # op(A): [k, m] if A_ROWS_ARE_K else [m, k], contiguous
    b_pointer,  # op(B): [k, n] if B_ROWS_ARE_K else [n, k], contiguous
    c_pointer,  # C: [n, m], contiguous; every element is written once
    m,
    n,
    k,
    A_ROWS_ARE_K: tl.constexpr,
    B_ROWS_ARE_K: tl.constexpr,
    ALIGN_M: tl.constexpr,  # powers of two that divide m, n, k; at most 16 bytes' worth of elements
    ALIGN_N: tl.constexpr,
    ALIGN_K: tl.constexpr,
    PRECISION: tl.constexpr,  # "tf32" or "ieee"; means something for float32 operands only
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_K: tl.constexpr,  # BLOCK_K divides k: the walk along K needs no mask
):
    """C [n, m] = op(B) [n, k] op(A) [k, m]: the column-major product, written row-major."""
    # Changes no value: it is how the compiler learns what divides them (a hint on an argument is lost).
    m = m // ALIGN_M * ALIGN_M
    n = n // ALIGN_N * ALIGN_N
    k = k // ALIGN_K * ALIGN_K

    # Grouped order: program 0, 1, 2... walk down GROUP tiles of N, then step to the next tile of M.
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    program = tl.program_id(0)
    group = program // (GROUP * tiles_m)
    first = group * GROUP
    height = tl.minimum(tiles_n - first, GROUP)
    within = program % (GROUP * tiles_m)
    tile_n = first + within % height
    tile_m = within // height

    along_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    along_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    along_k = tl.arange(0, BLOCK_K)
    in_m = along_m % m  # rows past the end wrap around: read in bounds, never stored
    in_n = along_n % n

    # Rows times their length can pass 2^31 elements: those products, and those alone, are 64-bit.
    if A_ROWS_ARE_K:
        a = a_pointer + along_k.to(tl.int64)[:, None] * m + in_m[None, :]
        a_step = tl.cast(m, tl.int64) * BLOCK_K
    else:
        a = a_pointer + along_k[:, None] + in_m.to(tl.int64)[None, :] * k
        a_step = tl.cast(BLOCK_K, tl.int64)
    if B_ROWS_ARE_K:
        b = b_pointer + in_n[:, None] + along_k.to(tl.int64)[None, :] * n
        b_step = tl.cast(n, tl.int64) * BLOCK_K
    else:
        b = b_pointer + in_n.to(tl.int64)[:, None] * k + along_k[None, :]
        b_step = tl.cast(BLOCK_K, tl.int64)

    SUM: tl.constexpr = tl.float64 if c_pointer.dtype.element_ty == tl.float64 else tl.float32
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=SUM)
    for start in range(0, k, BLOCK_K):
        if EVEN_K:
            b_tile = tl.load(b)
            a_tile = tl.load(a)
        else:
            left = along_k < k - start
            b_tile = tl.load(b, mask=left[None, :], other=0.0)
            a_tile = tl.load(a, mask=left[:, None], other=0.0)
        total = tl.dot(b_tile, a_tile, total, input_precision=PRECISION, out_dtype=SUM)
        a += a_step
        b += b_step

    c = c_pointer + along_n.to(tl.int64)[:, None] * m + along_m[None, :]
    inside = (along_n < n)[:, None] & (along_m < m)[None, :]
    tl.store(c, total.to(c_pointer.dtype.element_ty), mask=inside)


def operands(problem: Gemm, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Any]:
    """What `multiply` is called with, but for the tile: tensors, sizes, and what is known of them.

    Shapes as `kernels.gemm.problem` says, all contiguous, fewer than 2^31 - 256 elements a side.
    """
    wide = 16 // problem.item_byte
    aligned = leading(problem)
    return {
        "a_pointer": a,
        "b_pointer": b,
        "c_pointer": c,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "A_ROWS_ARE_K": problem.layout[0] == "N",
        "B_ROWS_ARE_K": problem.layout[1] == "T",
        # A size that leads no tensor is part of no address but as a factor: one compilation for all of it.
        **{f"ALIGN_{s.upper()}": math.gcd(getattr(problem, s), wide) if s in aligned else 1 for s in "mnk"},
        "PRECISION": "tf32" if problem.dtype == "tf32" else "ieee",
    }


def leading(problem: Gemm) -> set[str]:
    """The sizes that are the length of a row of A, of B or of C: those whose alignment counts."""
    of_a, of_b = problem.layout
    return {"m", "m" if of_a == "N" else "k", "k" if of_b == "N" else "n"}


def has_wide_loads(problem: Gemm) -> bool:
    """Whether every row of A, B and C starts at a multiple of 16 bytes."""
    return all(getattr(problem, size) * problem.item_byte % 16 == 0 for size in leading(problem))


def grid(problem: Gemm, block_m: int, block_n: int) -> tuple[int]:
    """One program for each tile of C, ragged ones included."""
    return (-(-problem.m // block_m) * -(-problem.n // block_n),)


def launch(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> Launch:
    """C [n, m] in the type of a and b, on their device, with the tile that was fastest for this problem.

    Shapes as `kernels.gemm.problem` says; the device must be the current one. The first launch of a
    problem in a process compiles and times every candidate (seconds); later ones remember.
    """
    c = a.new_empty(problem.n, problem.m)
    arguments = operands(problem, a, b, c)
    tile = _fastest(problem, arguments)
    run = multiply[grid(problem, tile.m, tile.n)]
    options = _config(tile).all_kwargs()

    def product() -> torch.Tensor:
        run(**arguments, **options)
        return c

    return Launch(product, outputs=(c,))


def configuration(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> str:
    """The tile that `launch` chooses, m x n x k, its warps and stages: `256x128x64 w8 s3`."""
    return str(_fastest(problem, operands(problem, a, b, a.new_empty(problem.n, problem.m))))


def _fastest(problem: Gemm, arguments: dict[str, Any]) -> Tile:
    device = arguments["c_pointer"].device
    known = _choices(device)
    if problem not in known:
        known[problem] = _tuned(problem, arguments, torch.cuda.get_device_capability(device))
    return known[problem]


@functools.cache
def _choices(device: torch.device) -> dict[Problem, Tile]:
    """What has been tuned in this process: a ring of thousands of slots asks for the same again."""
    return {}


def _tuned(problem: Gemm, arguments: dict[str, Any], capability: tuple[int, int]) -> Tile:
    tuner = _tuner(candidates(capability, problem.dtype, problem.layout, wide=has_wide_loads(problem)))

    def programs(meta: dict[str, Any]) -> tuple[int]:
        return grid(problem, meta["BLOCK_M"], meta["BLOCK_N"])

    # The tuner compiles one candidate after the other; all at once first, on all cores.
    with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool):
        tuner.warmup(**arguments, grid=programs)
    tuner[programs](**arguments)
    chosen: triton.Config = tuner.best_config
    return _tile(chosen.all_kwargs())


@functools.cache
def _tuner(tiles: tuple[Tile, ...]) -> Autotuner:
    # One tuner for each list, kept, since it remembers what it chose. It times replays of a graph, so that
    # the time to launch from Python (some 20 us) does not decide between small tiles; 2 ms of them, warm.
    return triton.autotune(
        configs=[_config(tile) for tile in tiles],
        key=["m", "n", "k", "A_ROWS_ARE_K", "B_ROWS_ARE_K", "PRECISION"],
        do_bench=functools.partial(triton.testing.do_bench_cudagraph, rep=2),
    )(multiply)


def _config(tile: Tile) -> triton.Config:
    blocks = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k, "GROUP": GROUP}
    return triton.Config(blocks, num_warps=tile.warps, num_stages=tile.stages)


def _tile(meta: Mapping[str, Any]) -> Tile:
    return Tile(*(meta[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")))
