"""Descriptors made by the host and by each program, and what is chosen at the edge of a wave, for
`losses.py`.

With Triton 3.6 each program made its own; the difference is the same with 3.7, whose host makes them anyhow.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from unittest.mock import patch

from kernels.gemm.problem import Gemm
from tests.kernels.compiled import Built
from tests.kernels.losses import Form, Row


def losses() -> Iterator[Row]:
    """A large and a small tile on Hopper, one on Blackwell; shapes on either side of two edges."""
    for variant, capability, place in (
        ("tma", 90, 0),
        ("tma", 90, -1),
        ("persistent", 90, 0),
        ("tma", 100, 0),
    ):
        what = f"descriptors, {variant} {'large' if place == 0 else 'small'}, bfloat16 TN, sm_{capability}"
        made = partial(described, variant, capability, place)
        yield Row(what, partial(made, on_host=True), partial(made, on_host=False))
    for m, n in ((2304, 3712), (2304, 3776), (512, 8448), (512, 8976)):
        yield Row(
            f"choice, {m}x{n}x4096 float16 NT on 132 SMs",
            partial(chosen, m, n, "now"),
            partial(chosen, m, n, "before"),
        )


def described(variant: str, capability: int, place: int, *, on_host: bool) -> Form:
    from kernels.gemm import descriptors
    from tests.kernels.gemm_tma_compiled import cases, compile_one

    case = list(cases(variant, capability, "bfloat16", "TN", "none"))[place]
    made = partial(descriptors.arguments, on_host=on_host)

    def build() -> Built:
        with patch.object(descriptors, "arguments", made):
            return compile_one(case)

    return Form(f"gemm.{variant}.multiply", str(case.configuration), build, note=before_the_first_copy)


def before_the_first_copy(built: Built | None) -> str:
    assert built
    first = next(place for place, line in enumerate(built.program) if line.name.startswith("UTMALDG"))
    replaced = built.ptx.count("tensormap.replace")
    return f"{first} instructions before the first copy, tensormap.replace {replaced}"


def chosen(m: int, n: int, rule: str) -> Form:
    """By the model: the old rule's choice is the best of the largest shape of the class."""
    from tests.kernels import gemm_choices

    at = gemm_choices.Device((9, 0), 132)
    seconds = gemm_choices.clock(0.0, 0)
    case = gemm_choices.Case(Gemm(m=m, n=n, k=4096, dtype="float16", layout="NT"), "triton")
    asked = (gemm_choices.now if rule == "now" else gemm_choices.before)(case, at)
    of = case if rule == "now" else case._replace(problem=gemm_choices.largest(case.problem))
    found = min(asked.timed, key=lambda choice: seconds(of, choice, at))
    best = min(seconds(case, choice, at) for choice in gemm_choices.everything(case, at))
    note = f"of {len(asked.timed)} timed; {seconds(case, found, at) / best:.2f} of the best by the model"
    return Form(f"gemm.{found.variant}", str(found.configuration), None, note=lambda built: note)
