"""Fused chains on Blackwell: accesses of 32 bytes, which Triton does not make (test_wide_loads.py)."""

from collections.abc import Iterator
from functools import partial

from tests.kernels.activations_losses import share
from tests.kernels.losses import Form, Row, of_variant
from tests.kernels.softmax_losses import flying


def losses() -> Iterator[Row]:
    """The chain that reads two tensors, and the one that computes most."""
    for chain in ("bias-residual", "bias-gelu"):
        for capability in (90, 100):
            yield Row(what=f"{chain}, bfloat16, sm_{capability}", now=partial(now, chain, capability))


def now(chain: str, capability: int) -> Form:
    """16 elements a thread."""
    from kernels.fusion import stream
    from tests.kernels.fusion_compiled import streamed

    made = streamed(chain, "bfloat16", stream.CANDIDATES[1], 64, 4096)  # type: ignore[arg-type]
    flight = partial(flying, capability, made.warps)
    return of_variant(made, capability, passes=1.0, in_flight=flight, note=share)
