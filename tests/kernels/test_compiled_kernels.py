"""Our kernels compiled for every architecture, and what their promises are read from.

An ordinary run draws one compilation of each family; a deep run compiles every configuration in some form.
"""

import pytest

pytest.importorskip("triton")


from tests.kernels.compile_table import families, few
from tests.kernels.compiled import Form

FEW = [pytest.param(*one, id=f"{one[0].name} {one[1]}") for of in families().items() for one in few(*of)]


@pytest.mark.parametrize(("form", "capability"), FEW)
def test_compiled_kernels_keep_their_promises(form: Form, capability: int) -> None:
    assert not form.faults(form.compiled(capability))
