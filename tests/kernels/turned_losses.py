"""Products of operands that are not K-major, turned tile by tile inside the product or once before it.

A row of `losses.py` for each type and layout shows the loop over K of one thread: what it issues for a step.
`before` it is that of the kernel which multiplies the operands as they lie, `now` that of layout TN, to which
the time of turning adds: the rows of the kernel that does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.spec import Dtype
from kernels.gemm.problem import Gemm, Layout
from tests.kernels.compiled import Built
from tests.kernels.gemm_tma_compiled import cases, compile_one
from tests.kernels.in_flight import in_flight
from tests.kernels.losses import Form, Row, loops, of_variant

TURNED: tuple[tuple[Dtype, tuple[Layout, ...], int], ...] = (
    ("float8_e4m3", ("NN", "NT", "TT"), 90),
    ("int8", ("NN", "NT", "TT"), 90),
    ("tf32", ("NN", "NT", "TT"), 90),
    ("int8", ("NN", "NT"), 100),
    ("tf32", ("NN", "NT", "TT"), 100),
)
"""What goes through registers where it is multiplied as it lies."""
AS_THEY_LIE: tuple[tuple[Dtype, Layout, int], ...] = (("float8_e4m3", "NT", 100), ("int8", "TT", 100))
"""What does not."""
UNITS = ("HGMMA", "QGMMA", "IGMMA", "UTCHMMA", "UTCQMMA", "IMMA")
PIECES = ("STS", "LDS.", "PRMT")
"""Beginnings of the instructions by which a block goes through registers, but for LDSM."""
SIDE = 4096
"""Of the product whose passes over memory are shown."""


def losses() -> Iterator[Row]:
    """The products of each type and layout; and turning itself."""
    for dtype, layouts, capability in TURNED:
        for layout in layouts:
            yield Row(
                f"a step of {dtype} {layout}, sm_{capability}",
                now=partial(product, dtype, layout, "TN", capability),
                before=partial(product, dtype, layout, layout, capability),
            )
    for dtype, layout, capability in AS_THEY_LIE:
        now = partial(product, dtype, layout, layout, capability)
        yield Row(f"a step of {dtype} {layout}, sm_{capability}", now)
    for item in (1, 4):
        for capability in (90, 100):
            yield Row(f"turning {item}-byte elements, sm_{capability}", partial(turning, item, capability))


def product(dtype: Dtype, layout: Layout, multiplied: Layout, capability: int) -> Form:
    """The largest tile by bulk copies, of operands in layout `multiplied`."""
    case = next(iter(cases("tma", capability, dtype, multiplied, "none")))
    by = "triton-tma" if multiplied == layout else "triton-turned"
    problem = Gemm(m=SIDE, n=SIDE, k=SIDE, dtype=dtype, layout=layout)
    return Form(
        "gemm.tma.multiply",
        f"{multiplied} {case.configuration}",
        partial(compile_one, case),
        passes=problem.byte_moved(by) / problem.byte,
        note=of_a_step,
    )


def turning(item: int, capability: int) -> Form:
    """The kernel that turns an operand."""
    from tests.kernels.turned_compiled import variants

    variant = next(one for one in variants() if one.constants["WIDE"] * item == 16)
    return of_variant(
        variant,
        capability,
        passes=1.0,
        in_flight=lambda built: in_flight(built, capability, variant.warps).byte,
    )


def of_a_step(built: Built | None) -> str:
    """Instructions of the innermost loop with matrix instructions, and those that turn a block."""
    assert built
    bodies = [[line.name for line in body] for body in loops(built)]
    body = min((one for one in bodies if any(name.startswith(UNITS) for name in one)), key=len)
    counts = {piece: sum(name.startswith(piece) for name in body) for piece in (*UNITS, *PIECES)}
    shown = ", ".join(f"{count} {piece.rstrip('.')}" for piece, count in counts.items() if count)
    return f"{len(body)} instructions: {shown}"
