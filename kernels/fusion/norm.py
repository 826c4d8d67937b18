"""A chain that ends in layernorm: h = x + bias + residual and y = layernorm(h), rows held on chip.

**Why this algorithm.** A row's mean and variance must be known before its first element can be written, so
either the row is read again or it stays on chip meanwhile. Up to 16,384 features it fits the registers of one
block, at most 32 a thread of 512: each input is then read once and each output written once, the least there
is. A program takes one row, or several short ones, so that each thread has at least one load of 16 bytes.
Longer rows would need two passes, another idea.

**Bytes moved.** With P programs:

    loads  = 2 rows length + P (2 + [bias]) length   elements; bias, weight and shift come from the cache
    stores = 2 rows length                           elements

**Alignment.** As kernels/layernorm/rows.py says; narrower than 16 bytes, accesses are single elements. A
row is masked to its length, 16 bytes at a time.

**Arithmetic.** All in float32. The variance is that of the differences from the mean, so that no large
numbers are subtracted; they are at hand. y is made from the h that was summed, not from the rounded one that
is written. Sums run in a fixed order: results are the same each time.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from bench.spec import Launch
from kernels.fusion.problem import EPSILON, Fusion
from kernels.layernorm.rows import known_length, rows_of
from kernels.tensors import empty


class Rows(NamedTuple):
    """Rows of one program, and its warps."""

    rows: int
    warps: int

    def __str__(self) -> str:
        """`4 rows w4`."""
        return f"{self.rows} row{'s' if self.rows > 1 else ''} w{self.warps}"


def candidates(length: int) -> tuple[Rows, ...]:
    """What to try for rows of this length: 8, 16 or 32 elements a thread.

    Few elements a thread leave more threads to wait for memory, many need fewer exchanges between warps.
    """
    padded = triton.next_power_of_2(length)
    listed = []
    for warps in (1, 2, 4, 8, 16):
        for each in (8, 16, 32):
            rows = 32 * warps * each // padded
            # One row may take all the warps there are; several rows are worth it for four warps.
            if rows == 1 or (rows > 1 and warps == 4):
                listed.append(Rows(rows, warps))
    return tuple(listed)


@triton.jit(do_not_specialize=["rows", "length"])
def chain(
    x_pointer,  # [rows, length], contiguous
    bias_pointer,  # [length], or None
    residual_pointer,  # [rows, length], contiguous
    weight_pointer,  # [length]
    shift_pointer,  # [length]
    y_pointer,  # [rows, length], contiguous; every element is written once
    h_pointer,  # likewise
    rows,
    length,
    epsilon,
    ALIGN: tl.constexpr,  # 16 bytes' worth of elements if that divides length, else 1
    ROWS: tl.constexpr,
    PADDED: tl.constexpr,  # the power of two that length is at most
):
    """h = x + bias + residual; y = (h - mean) / sqrt(variance + epsilon) * weight + shift, row by row."""
    length = known_length(length, ALIGN, False, PADDED)
    _, start, i, inside = rows_of(tl.program_id(0), rows, length, False, ROWS, PADDED)
    column = tl.arange(0, PADDED)
    in_row = column < length

    h = tl.load(x_pointer + start + i, mask=inside, other=0.0).to(tl.float32)
    if bias_pointer is not None:
        h += tl.load(bias_pointer + column, mask=in_row, other=0.0).to(tl.float32)[None, :]
    h += tl.load(residual_pointer + start + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(h_pointer + start + i, h.to(h_pointer.dtype.element_ty), mask=inside)

    mean = tl.sum(h, axis=1)[:, None] / length
    centred = tl.where(inside, h - mean, 0.0)
    variance = tl.sum(centred * centred, axis=1)[:, None] / length
    weight = tl.load(weight_pointer + column, mask=in_row, other=0.0).to(tl.float32)[None, :]
    shift = tl.load(shift_pointer + column, mask=in_row, other=0.0).to(tl.float32)[None, :]
    y = centred * tl.rsqrt(variance + epsilon) * weight + shift
    tl.store(y_pointer + start + i, y.to(y_pointer.dtype.element_ty), mask=inside)


def launch(problem: Fusion, *tensors: torch.Tensor, chosen: Rows | None = None) -> Launch:
    """y and h [rows, length] in the type of x, on its device, with `chosen`; else with what is fastest.

    x, residual, y, h are contiguous and 16-byte aligned; bias, weight, shift [length] likewise. The first
    launch of a problem in a process compiles and times every candidate; later ones remember.
    """
    if chosen is None:
        from bench.autotune.tuning import tuned  # asks a device: not for those who only compile or interpret

        tiles = candidates(problem.length)
        return tuned(("fusion", problem), tiles, lambda rows: launch(problem, *tensors, chosen=rows))
    y, h = outputs = empty(problem, tensors[0])
    run = chain[(triton.cdiv(problem.rows, chosen.rows),)]
    wide = 16 // problem.item_byte
    cut = {"ALIGN": wide if problem.length % wide == 0 else 1, "ROWS": chosen.rows, "num_warps": chosen.warps}
    cut |= {"PADDED": triton.next_power_of_2(problem.length)}
    of = dict(zip(problem.tensors[0], tensors, strict=True))
    arguments = [of.get(name) for name in ("x", "bias", "residual", "weight", "shift")]
    return Launch.of(run, outputs, *arguments, y, h, problem.rows, problem.length, EPSILON, **cut)
