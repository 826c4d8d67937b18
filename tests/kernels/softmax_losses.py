"""Long rows of softmax: two walks, the second through L2, against one reading into shared memory."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.spec import ITEM_BYTE, Dtype
from kernels.layernorm.tiles import chunks
from kernels.softmax import long_rows
from tests.kernels.compiled import Built
from tests.kernels.in_flight import in_flight
from tests.kernels.losses import Form, Row, of_variant

CASES: tuple[tuple[str, Dtype, int, int], ...] = (
    ("forward", "bfloat16", 65536, 90),
    ("forward", "bfloat16", 65536, 100),
    ("forward", "float16", 131072, 90),
    ("backward", "bfloat16", 65536, 90),
    ("backward", "float32", 131072, 100),
)


def losses() -> Iterator[Row]:
    """Each direction, in one block and in clusters."""
    for direction, dtype, length, capability in CASES:
        yield Row(
            what=f"{direction}, rows of {length} {dtype}, sm_{capability}",
            now=partial(now, direction, dtype, length, capability),
            before=partial(before, direction, dtype, length, capability),
        )


def before(direction: str, dtype: Dtype, length: int, capability: int) -> Form:
    """Two walks."""
    from tests.kernels.softmax_compiled import variant

    kernel = long_rows.forward_long if direction == "forward" else long_rows.backward_long
    made = variant(kernel, dtype, length, chunks(length, ITEM_BYTE[dtype])[1])
    return of_variant(
        made,
        capability,
        passes=1.5 if direction == "forward" else 5 / 3,
        in_flight=partial(flying, capability, made.warps),
        note=again_from_cache,
    )


def now(direction: str, dtype: Dtype, length: int, capability: int) -> Form:
    """The middle one of the shares that the device chooses among."""
    from kernels.layernorm import held
    from kernels.softmax import held_rows
    from tests.kernels.held_compiled import variant

    kernel, tensors = (held_rows.forward_held, 1) if direction == "forward" else (held_rows.backward_held, 2)
    made = variant(kernel, dtype, length, held.candidates(length, ITEM_BYTE[dtype], tensors)[1], tensors)
    return of_variant(made, capability, passes=1.0, in_flight=partial(flying, capability, made.warps))


def flying(capability: int, warps: int, built: Built) -> float:
    """Bytes in flight on one multiprocessor."""
    return in_flight(built, capability, warps).byte


def again_from_cache(built: Any) -> str:
    """What the second walk reads."""
    return "second reading from L2 as far as that holds the rows under way"
