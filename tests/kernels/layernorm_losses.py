"""Long rows of layer normalization: read twice, against held by a block or a cluster and read once."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.spec import ITEM_BYTE, Dtype
from kernels.layernorm import backward_long, forward_long
from kernels.layernorm.problem import LayerNorm
from kernels.layernorm.tiles import chunks
from tests.kernels.losses import Form, Row, of_variant
from tests.kernels.softmax_losses import again_from_cache, flying

FORWARD: tuple[tuple[Dtype, int, int], ...] = (
    ("bfloat16", 65536, 90),
    ("bfloat16", 65536, 100),
    ("float16", 131072, 90),
)
BACKWARD: tuple[tuple[Dtype, int, int], ...] = (
    ("bfloat16", 16384, 90),
    ("bfloat16", 65536, 90),
    ("float32", 131072, 100),
)


def losses() -> Iterator[Row]:
    """Each direction; of the two kernels of the old gradient the second, which reads all of it again."""
    for dtype, length, capability in FORWARD:
        yield Row(
            what=f"forward, rows of {length} {dtype}, sm_{capability}",
            now=partial(forward_now, dtype, length, capability),
            before=partial(forward_before, dtype, length, capability),
        )
    for dtype, length, capability in BACKWARD:
        yield Row(
            what=f"backward, rows of {length} {dtype}, sm_{capability}",
            now=partial(backward_now, dtype, length, capability),
            before=partial(backward_before, dtype, length, capability),
        )


def forward_before(dtype: Dtype, length: int, capability: int) -> Form:
    """Two walks."""
    from tests.kernels.layernorm_compiled import variant

    made = variant(forward_long.normalize_long, dtype, length, chunks(length, ITEM_BYTE[dtype])[1])
    flight = partial(flying, capability, made.warps)
    return of_variant(made, capability, passes=1.5, in_flight=flight, note=again_from_cache)


def forward_now(dtype: Dtype, length: int, capability: int) -> Form:
    """The middle one of the shares that the device chooses among."""
    from kernels.layernorm import forward_held, held
    from tests.kernels.held_compiled import variant

    share = held.candidates(length, ITEM_BYTE[dtype], 1)[1]
    made = variant(forward_held.normalize_held, dtype, length, share, 1)
    return of_variant(made, capability, passes=1.0, in_flight=partial(flying, capability, made.warps))


def backward_before(dtype: Dtype, length: int, capability: int) -> Form:
    """Row sums first, then columns."""
    from tests.kernels.layernorm_compiled import variant

    tile = backward_long.candidates(_gradient(dtype, length))[0]
    made = variant(backward_long.columns, dtype, length, tile)
    flight = partial(flying, capability, made.warps)
    return of_variant(made, capability, passes=5 / 3, in_flight=flight, note=two_kernels)


def backward_now(dtype: Dtype, length: int, capability: int) -> Form:
    """The last of the shares that the device chooses among."""
    from kernels.layernorm import backward_held
    from tests.kernels.held_compiled import variant

    share = backward_held.candidates(_gradient(dtype, length))[-1]
    made = variant(backward_held.gradient_held, dtype, length, share, 2)
    return of_variant(
        made,
        capability,
        passes=1.0,
        in_flight=partial(flying, capability, made.warps),
        instructions=lambda built: None,
    )


def two_kernels(built: Any) -> str:
    """What else there is."""
    return "and a kernel that reads x and dy before"


def _gradient(dtype: Dtype, length: int) -> LayerNorm:
    return LayerNorm(direction="backward", rows=1, length=length, dtype=dtype)
