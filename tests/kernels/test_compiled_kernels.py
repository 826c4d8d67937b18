"""Our kernels compiled for every architecture, and what their promises are read from.

An ordinary run draws one compilation of each family; a deep run compiles every configuration in some form.
What a family may be compiled to takes seconds to list, so each test does that for itself.
"""

import pytest

pytest.importorskip("triton")

from tests.kernels.compile_table import families, few

FAMILIES = families()


@pytest.mark.parametrize("name", FAMILIES)
def test_compiled_kernels_keep_their_promises(name: str) -> None:
    faults = {
        f"{form.name} {capability}": form.faults(form.compiled(capability))
        for form, capability in few(name, FAMILIES[name])
    }
    assert faults and not any(faults.values()), faults
