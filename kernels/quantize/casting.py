"""Quantisation in Triton: rows, or blocks of 32, in registers; a whole tensor in two passes.

**Why this algorithm.** Every y needs the largest |x| of what shares its scale. Of a row, or of a block of 32,
one program holds all of it in registers, finds the largest and casts: x is read from memory once. What shares
one scale with a whole tensor does not fit. So one kernel writes the largest of each of up to PARTS parts, and
each program of a second takes the largest of those, PARTS numbers from L2, before it casts its own elements.

**Bytes moved.** Rows and blocks: x once, y and the scales once, the least there is. A tensor: x twice, the
second time from L2 as far as that holds it.

**Arithmetic.** float32: x times 1 / scale, rounded by the hardware's cast.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from bench.autotune.tuning import tuned
from bench.spec import Launch, Tensors
from kernels.layernorm.row_tiles import Tile, known_length, of_rows, rows_of, whole_rows
from kernels.quantize.problem import LARGEST, MX_BLOCK, Quantize
from kernels.tensors import empty

MOST = tl.constexpr(LARGEST)
POWER = tl.constexpr(int(LARGEST).bit_length() - 1)
"""The largest number is 2^POWER to 2^(POWER + 1)."""
PARTS = 1024
"""Parts of a tensor, and most programs of its first pass."""


@triton.jit
def cast(x, per_scale, y_pointer):
    """x times per_scale (broadcast), rounded to the type that y_pointer points to; never beyond MOST."""
    return tl.minimum(tl.maximum(x * per_scale, -MOST), MOST).to(y_pointer.dtype.element_ty)


@triton.jit(do_not_specialize=["rows", "length"])
def in_registers(
    x_pointer,  # [rows, length], contiguous
    y_pointer,  # [rows, length], contiguous; every element is written once
    scale_pointer,  # [rows]: float32, or with MX exponents plus 127; each written once
    rows,
    length,
    MX: tl.constexpr,  # scales are powers of two
    ALIGN: tl.constexpr,  # a power of two that divides length; at most 16 bytes' worth of elements
    EVEN: tl.constexpr,  # length is BLOCK: columns need no mask
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,  # at least length
):
    """y and scales of the rows from ROWS x program on."""
    length = known_length(length, ALIGN, EVEN, BLOCK)
    row, start, at, inside = rows_of(tl.program_id(0), rows, length, EVEN, ROWS, BLOCK)
    x = tl.load(x_pointer + start + at, mask=inside, other=0.0).to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(x), 1), 1e-30)
    if MX:
        # The exponent bits of the largest, and of one over the scale: 2^(127 - e) has the bits 254 - e.
        exponent = (largest.to(tl.int32, bitcast=True) >> 23) - POWER
        tl.store(scale_pointer + row, exponent.to(tl.uint8), mask=row < rows)
        per_scale = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    else:
        tl.store(scale_pointer + row, largest * (1.0 / MOST), mask=row < rows)
        per_scale = MOST / largest
    tl.store(y_pointer + start + at, cast(x, per_scale[:, None], y_pointer), mask=inside)


@triton.jit(do_not_specialize=["elements", "blocks"])
def largest_of_parts(
    x_pointer,  # [elements]
    part_pointer,  # [programs], float32: the largest |x| of each part, each written once
    elements,
    blocks,  # of BLOCK elements
    EVEN: tl.constexpr,  # BLOCK divides elements
    BLOCK: tl.constexpr,
):
    """The largest |x| of every (programs)th block from the program's own on."""
    along = tl.arange(0, BLOCK)
    largest = tl.zeros((BLOCK,), tl.float32)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        at = tl.cast(block, tl.int64) * BLOCK + along
        if EVEN:
            x = tl.load(x_pointer + at)
        else:
            x = tl.load(x_pointer + at, mask=at < elements, other=0.0)
        largest = tl.maximum(largest, tl.abs(x.to(tl.float32)))
    tl.store(part_pointer + tl.program_id(0), tl.max(largest, 0))


@triton.jit(do_not_specialize=["elements", "parts"])
def cast_by_parts(
    x_pointer,  # [elements]
    part_pointer,  # [parts]
    y_pointer,  # [elements]; every element is written once
    scale_pointer,  # [1]; written by the first program
    elements,
    parts,
    EVEN: tl.constexpr,  # BLOCK divides elements
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,  # at least parts
):
    """y of BLOCK elements, by the largest of all parts."""
    place = tl.arange(0, PARTS)
    largest = tl.max(tl.load(part_pointer + place, mask=place < parts, other=0.0), 0)
    largest = tl.maximum(largest, 1e-30)
    if tl.program_id(0) == 0:
        tl.store(scale_pointer, largest * (1.0 / MOST))
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    x = tl.load(x_pointer + at, mask=None if EVEN else inside).to(tl.float32)
    tl.store(y_pointer + at, cast(x, MOST / largest, y_pointer), mask=None if EVEN else inside)


def candidates(problem: Quantize) -> list[Tile]:
    """Tiles worth trying: rows x elements, warps."""
    if problem.scaling == "tensor":
        return [Tile(1, 2048, 4), Tile(1, 4096, 8), Tile(1, 8192, 8)]
    if problem.scaling == "mx":
        return [Tile(32, MX_BLOCK, 4), Tile(64, MX_BLOCK, 4), Tile(128, MX_BLOCK, 4), Tile(128, MX_BLOCK, 8)]
    return whole_rows(problem.length, most=32)


def with_tile(problem: Quantize, x: torch.Tensor, results: Tensors, tile: Tile) -> Launch:
    """y and scales of x into `results`, both contiguous, by tiles of this size."""
    return (_of_tensor if problem.scaling == "tensor" else _of_rows)(problem, x, results, tile)


def _of_rows(problem: Quantize, x: torch.Tensor, results: Tensors, tile: Tile) -> Launch:
    mx = problem.scaling == "mx"
    rows, length = (problem.scales, MX_BLOCK) if mx else (problem.rows, problem.length)
    run = in_registers[(-(-rows // tile.rows),)]
    options = of_rows(tile, length, problem.item_byte) | {"MX": mx}
    return Launch.of(run, results, x, *results, rows, length, **options)


def _of_tensor(problem: Quantize, x: torch.Tensor, results: Tensors, tile: Tile) -> Launch:
    blocks = -(-problem.elements // tile.block)
    programs = min(blocks, PARTS)
    parts = torch.empty(programs, dtype=torch.float32, device=x.device)
    even = problem.elements % tile.block == 0
    same = {"EVEN": even, "BLOCK": tile.block, "num_warps": tile.warps, "num_stages": 1}
    largest = Launch.of(largest_of_parts[(programs,)], (), x, parts, problem.elements, blocks, **same)
    arguments = x, parts, *results, problem.elements, programs
    return largest.then(Launch.of(cast_by_parts[(blocks,)], results, *arguments, **same, PARTS=PARTS))


def launch(problem: Quantize, x: torch.Tensor, results: Tensors = ()) -> Launch:
    """The launch with the tile that is fastest on the current device, into `results` or new tensors."""
    written = results or empty(problem, x)
    return tuned(
        ("quantize", problem), candidates(problem), lambda tile: with_tile(problem, x, written, tile)
    )
