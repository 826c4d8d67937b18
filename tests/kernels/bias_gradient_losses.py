"""The gradient of a linear layer's bias: bytes in flight of its loop, before and after asynchronous copies.

Rows of `losses.py`: the first candidate for rows of whole 16 bytes, of 4 bytes, and odd ones.
"""

from collections.abc import Iterator
from functools import partial

from bench.spec import Dtype
from kernels.linear import bias_gradient
from tests.kernels.compiled import Built
from tests.kernels.in_flight import in_flight
from tests.kernels.linear_compiled import variant
from tests.kernels.losses import Form, Row, in_loop, of_variant
from tests.kernels.tensors import TORCH_TYPE

CASES: tuple[tuple[Dtype, int, int], ...] = (
    ("bfloat16", 1024, 90),
    ("bfloat16", 1024, 100),
    ("float32", 1024, 90),
    ("bfloat16", 1002, 90),
    ("bfloat16", 1001, 90),
)


def losses() -> Iterator[Row]:
    """A row for each type, number of columns and architecture."""
    for dtype, columns, capability in CASES:
        yield Row(f"{columns} columns of {dtype}, sm_{capability}", partial(form, dtype, columns, capability))


def form(dtype: Dtype, columns: int, capability: int) -> Form:
    """The first candidate."""
    tile = bias_gradient.candidates(TORCH_TYPE[dtype], columns)[0]

    def under_way(built: Built) -> float:
        return in_flight(built, capability, tile.warps, tile.per_sm).byte

    def issued(built: Built) -> float | None:
        return in_loop(built, tile.rows * tile.block / (32 * tile.warps))

    one = variant(dtype, columns, tile)
    return of_variant(one, capability, passes=1, in_flight=under_way, instructions=issued)
