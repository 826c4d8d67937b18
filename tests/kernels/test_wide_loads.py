"""Blackwell loads and stores 32 bytes at once (PTX ISA, ld.global.v8.b32); Triton does not yet.

As of 3.7.1 a thread's access to global memory is at most 16 bytes wide, whatever is known of addresses and
whatever layout is asked for. If one of these fails, Triton has learned it: ask for it in
kernels/activations/elementwise.py and kernels/fusion/stream.py.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import re

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from tests.kernels.compiled import build


@triton.jit
def doubled(x_pointer, y_pointer, BLOCK: tl.constexpr):
    """y = 2 x, with all that Triton can be told of the addresses."""
    x, y = tl.multiple_of(x_pointer, 32), tl.multiple_of(y_pointer, 32)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.max_contiguous(tl.multiple_of(at, BLOCK), BLOCK)
    tl.store(y + at, tl.load(x + at) * 2)


@gluon.jit
def doubled_by_layout(x_pointer, y_pointer, BLOCK: gl.constexpr):
    """y = 2 x, 16 neighbouring elements in each thread."""
    layout: gl.constexpr = gl.BlockedLayout([16], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    at = gl.max_contiguous(gl.multiple_of(at, BLOCK), BLOCK)
    gl.store(y_pointer + at, gl.load(x_pointer + at) * 2)


@pytest.mark.parametrize("kernel", [doubled, doubled_by_layout], ids=["triton", "gluon"])
def test_triton_has_no_accesses_of_32_bytes(kernel) -> None:
    pointers = dict.fromkeys(("x_pointer", "y_pointer"), "*fp16")
    built = build(kernel, pointers, {"BLOCK": 4096}, 100, {"num_warps": 4})
    widths = re.findall(r"(?:ld|st)\.global\S*\.(v\d\.b\d+)", built.ptx)
    assert set(widths) == {"v4.b32"} and len(widths) == 8
    assert all("256" not in name for name in built.instructions)
