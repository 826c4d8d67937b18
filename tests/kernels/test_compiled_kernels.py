"""Our kernels compiled for every architecture, and what their promises are read from.

The modules `*_compiled.py` of this folder have the families, each of which says what its kernels promise. An
ordinary run draws one compilation of each family; a deep run compiles every configuration in some form.
What a family may be compiled to takes seconds to list, so each test does that for itself.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("triton")

from tests.drawing import drawn
from tests.kernels.compiled import Form

FAMILIES: dict[str, Callable[[], Iterable[Form]]] = {}
for path in sorted(Path(__file__).parent.glob("*_compiled.py")):
    FAMILIES |= import_module(f"tests.kernels.{path.stem}").FAMILIES


@pytest.mark.parametrize("name", FAMILIES)
def test_compiled_kernels_keep_their_promises(name: str) -> None:
    every = [(form, capability) for form in FAMILIES[name]() for capability in form.capabilities]
    compiled = drawn(every, 1, f"compiled {name}")
    faults = {f"{form.name} {capability}": form.faults(capability) for form, capability in compiled}
    assert faults and not any(faults.values()), faults
