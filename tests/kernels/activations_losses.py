"""Activations on Blackwell: accesses of 32 bytes, which Triton does not make (test_wide_loads.py).

What 16 bytes leave: bytes in flight are what memory needs all the same (in_flight.needed), and of the
instructions an element, loads and stores are a small part.
"""

from collections.abc import Iterator
from functools import partial

from tests.kernels.compiled import Built
from tests.kernels.in_flight import needed
from tests.kernels.losses import Form, Row, of_variant
from tests.kernels.softmax_losses import flying

B200 = (8e12, 148)
"""Bytes a second and multiprocessors."""


def losses() -> Iterator[Row]:
    """The lightest function and a laborious one."""
    for function in ("relu", "gelu"):
        for capability in (90, 100):
            what = f"{function}, bfloat16, sm_{capability}"
            yield Row(what=what, now=partial(now, function, capability))


def now(function: str, capability: int) -> Form:
    """16 elements a thread."""
    from tests.kernels.activations_compiled import USUAL, variant

    made = variant(function, "forward", "bfloat16", USUAL)  # type: ignore[arg-type]
    flight = partial(flying, capability, made.warps)
    return of_variant(made, capability, passes=1.0, in_flight=flight, note=share)


def share(built: Built | None) -> str:
    """Of loads and stores in all instructions."""
    assert built is not None
    count = sum(n for name, n in built.instructions.items() if not name.startswith("NOP"))
    moving = built.count("LDG", "STG")
    return f"{moving} of {count} instructions load or store; a B200 needs {needed(*B200):.0f} in flight"
