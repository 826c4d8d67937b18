"""Tensors as descriptors: what a bulk copy (TMA) must know of a matrix, and what kernels do with them.

A descriptor holds a tensor's address, shape and row length, and the shape of the block that one copy moves.
A copy is then one instruction of one thread, with all addresses computed by hardware: what lies beyond the
tensor reads as zero and is never written, so no size needs a mask. Rows must begin at multiples of 16 bytes,
and that is all: they may be of any length.

Descriptors are made on the host, at each launch, and are parameters of the kernel; or by the kernel itself,
in a *scratch* of 128 bytes each. Both end as the same copies, but on Triton 3.6 a program that makes them
has 260 to 400 instructions more to go through before its first copy, 13 writes to each of them, and three
or four fences. So the host makes them, but for specialized.py, whose warps Triton can divide on Hopper only
if the kernel does.

Not so in Triton's main branch of February 2026: its launcher laid a descriptor on its stack at a multiple
of 64 bytes and refused all but those of 128 (triton-lang/triton #9439, #9499). The 3.6 that was released
has another launcher, whose descriptors are objects of their own at multiples of 128; tests/contract
launches with both.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from bench.spec import Launch
from kernels.gemm.blocks import walk_descriptors
from kernels.gemm.operands import Operands
from kernels.gemm.tiles import Tile

SCRATCH_BYTE = 8 * 128
"""Of one program that makes its own descriptors: of A, B, C and D, once more where warps are specialized."""


def arguments(of: Operands, tile: Tile, *, on_host: bool = True) -> dict[str, Any]:
    """What the kernels that move tiles by bulk copies are called with.

    Raises ValueError if a row of anything does not begin at a multiple of 16 bytes.
    """
    wide, high, deep = tile.m, tile.n, tile.k
    a_rows_are_k, b_rows_are_k = of.problem.layout[0] == "N", of.problem.layout[1] == "T"
    blocks: dict[str, tuple[torch.Tensor | None, list[int]]] = {
        "a": (of.a, [deep, wide] if a_rows_are_k else [wide, deep]),
        "b": (of.b, [deep, high] if b_rows_are_k else [high, deep]),
        "c": (of.c, [high, wide // 2] if of.addend == "matrix" else [wide // 2]),
        "d": (of.d, [high, wide // 2]),
    }
    matrices = {
        name: None if tensor is None else _described(name, tensor, block, on_host)
        for name, (tensor, block) in blocks.items()
    }
    shared = of.arguments()
    kept = (
        *("a_scale", "b_scale", "m", "n", "k", "row_a", "row_b", "row_c", "row_d"),
        *("A_ROWS_ARE_K", "B_ROWS_ARE_K", "PRECISION", "ADD", "SUM"),
    )
    return {
        **matrices,
        **{name: shared[name] for name in kept},
        "ON_HOST": on_host,
        "BLOCK_M": wide,
        "BLOCK_N": high,
        "BLOCK_K": deep,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


def _described(name: str, tensor: torch.Tensor, block: list[int], on_host: bool) -> Any:
    # A kernel that makes descriptors itself would copy from elsewhere, or fault, without a word.
    row_byte = tensor.stride(0) * tensor.element_size() if tensor.dim() == 2 else 0
    if tensor.data_ptr() % 16 or row_byte % 16 or tensor.stride(-1) != 1:
        raise ValueError(f"{name} {tuple(tensor.shape)} has rows that do not begin at multiples of 16 bytes")
    if not on_host:
        return tensor
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block)


def launch(kernel: Any, of: Operands, programs: int, named: dict[str, Any]) -> Launch:
    """D in `of.d` by `programs` programs of a kernel called with `named` arguments."""
    run = kernel[(programs,)]
    if named["ON_HOST"]:
        return Launch.of(run, (of.d,), **named)
    scratch = torch.empty(programs * SCRATCH_BYTE, dtype=torch.int8, device=of.d.device)

    def given(size: int, alignment: int, stream: int | None) -> torch.Tensor:
        if size > scratch.numel():
            raise RuntimeError(f"{size} bytes of scratch asked for, {scratch.numel()} are there")
        return scratch

    def with_scratch() -> torch.Tensor:
        # The launch's own, for as long as it lives: a graph that replays it writes there again.
        triton.set_allocator(given)
        run(**named)
        return of.d

    return Launch(with_scratch, outputs=(of.d,))


@triton.jit  # type: ignore[untyped-decorator]
def described(tensor, rows, length, row, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ON_HOST: tl.constexpr):  # type: ignore[no-untyped-def]
    """A descriptor of [rows, length], `row` elements from row to row, in blocks of [HEIGHT, WIDTH]."""
    if ON_HOST:
        return tensor
    else:
        return tl.make_tensor_descriptor(
            tensor, shape=[rows, length], strides=[row, 1], block_shape=[HEIGHT, WIDTH]
        )


@triton.jit  # type: ignore[untyped-decorator]
def described_factors(  # type: ignore[no-untyped-def]
    a,
    b,
    m,
    n,
    k,
    row_a,
    row_b,
    A_ROWS_ARE_K: tl.constexpr,
    B_ROWS_ARE_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ON_HOST: tl.constexpr,
):
    """Descriptors of A and B as `walk_descriptors` takes them; made here unless they came as such."""
    if A_ROWS_ARE_K:
        a = described(a, k, m, row_a, BLOCK_K, BLOCK_M, ON_HOST)
    else:
        a = described(a, m, k, row_a, BLOCK_M, BLOCK_K, ON_HOST)
    if B_ROWS_ARE_K:
        b = described(b, k, n, row_b, BLOCK_K, BLOCK_N, ON_HOST)
    else:
        b = described(b, n, k, row_b, BLOCK_N, BLOCK_K, ON_HOST)
    return a, b


@triton.jit  # type: ignore[untyped-decorator]
def described_operands(  # type: ignore[no-untyped-def]
    a,
    b,
    c,
    d,
    m,
    n,
    k,
    row_a,
    row_b,
    row_c,
    row_d,
    A_ROWS_ARE_K: tl.constexpr,
    B_ROWS_ARE_K: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ON_HOST: tl.constexpr,
):
    """Descriptors of A, B, C and D, made here unless they came as such; without an addend D's also for C."""
    a, b = described_factors(
        a, b, m, n, k, row_a, row_b, A_ROWS_ARE_K, B_ROWS_ARE_K, BLOCK_M, BLOCK_N, BLOCK_K, ON_HOST
    )
    d = described(d, n, m, row_d, BLOCK_N, BLOCK_M // 2, ON_HOST)
    if ADD == "none":
        c = d  # unused; Triton 3.6 cannot return None from a function
    elif ADD == "matrix":
        c = described(c, n, m, row_c, BLOCK_N, BLOCK_M // 2, ON_HOST)
    elif not ON_HOST:
        c = tl.make_tensor_descriptor(c, shape=[m], strides=[1], block_shape=[BLOCK_M // 2])
    return a, b, c, d


@triton.jit  # type: ignore[untyped-decorator]
def multiply_tile(  # type: ignore[no-untyped-def]
    a,
    b,
    c,  # of [n, m] (ADD matrix) or of [m] (ADD bias); not read where nothing is added
    d,
    a_scale,
    b_scale,
    at_m,
    at_n,
    k,
    A_ROWS_ARE_K: tl.constexpr,
    B_ROWS_ARE_K: tl.constexpr,
    PRECISION: tl.constexpr,
    ADD: tl.constexpr,
    SUM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The tile of D that begins at column at_m, row at_n. It leaves in two halves, left and right.

    Half a tile is staged in shared memory at a time, and what that saves is a stage of the pipeline.
    """
    total = walk_descriptors(
        a,
        b,
        at_m,
        at_n,
        0,
        k,
        A_ROWS_ARE_K,
        B_ROWS_ARE_K,
        PRECISION,
        SUM,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )
    if a_scale is not None:
        total *= tl.load(a_scale) * tl.load(b_scale)
    left, right = total.reshape(BLOCK_N, 2, BLOCK_M // 2).permute(0, 2, 1).split()
    at_half = at_m + BLOCK_M // 2
    d.store([at_n, at_m], with_addend(left, c, at_m, at_n, ADD).to(d.dtype))
    d.store([at_n, at_half], with_addend(right, c, at_half, at_n, ADD).to(d.dtype))


@triton.jit  # type: ignore[untyped-decorator]
def with_addend(half, c, at_m, at_n, ADD: tl.constexpr):  # type: ignore[no-untyped-def]
    """Half a tile with what is to be added to it: a block of C, or the same piece of a bias to every row."""
    if ADD == "matrix":
        half += c.load([at_n, at_m]).to(half.dtype)
    elif ADD == "bias":
        half += c.load([at_m]).to(half.dtype)[None, :]
    return half
