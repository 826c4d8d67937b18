"""Every tile that the bias gradient may try, and what it promises of its compiled form.

The layer's GEMM has families of its own. This kernel writes next to nothing, so of 16-byte accesses it
promises the loads: as many as its elements fill, and none of 1 or 2 bytes.
"""

import itertools
from collections.abc import Iterator
from functools import partial

import torch

from kernels.linear import bias_gradient
from tests.kernels.compiled import (
    CAPABILITIES,
    Family,
    Form,
    everywhere,
    launched,
    narrow_faults,
    resource_faults,
)
from tests.kernels.tensors import FLOATS, TORCH_TYPE


def forms(dtype: str, columns: int, capabilities: Iterator[int], *, counted: bool = False) -> Iterator[Form]:
    """Every tile for so many columns, its loads counted or not, the architectures taking turns."""
    kind = TORCH_TYPE[dtype]
    for tile in bias_gradient.candidates(kind, columns):
        dy = torch.empty(4096, columns, dtype=kind, device="meta")
        (call,) = launched(bias_gradient.launch(dy, tile, 132))
        read = kind.itemsize + (8 if dtype == "float64" else 4)  # an element of dy, a partial sum
        loads = tile.rows * tile.block * read // (16 * 32 * tile.warps)
        wide = (partial(narrow_faults, loads=loads, stores=0),) if counted else ()
        promises = (resource_faults, *wide)
        yield Form(f"column_sums {dtype} {columns} {tile}", call, promises, (next(capabilities),))


def plain() -> Iterator[Form]:
    """Aligned rows, odd ones, and some that 4 but not 8 divides."""
    turns = itertools.cycle(CAPABILITIES)
    for columns, dtype in itertools.product((1024, 1001, 1004), FLOATS):
        yield from forms(dtype, columns, turns)
        next(turns)  # so that a tile meets all of them


def counted() -> Iterator[Form]:
    """Aligned rows, whose loads are counted."""
    for dtype in FLOATS:
        yield from forms(dtype, 1024, itertools.cycle((90,)), counted=True)


FAMILIES = {"linear": Family(lambda: (*plain(), *counted()), lambda: (*everywhere(plain()), *counted()))}
