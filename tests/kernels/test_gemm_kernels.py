"""The kernels of matrix products, of what is fused with them, and of convolution, interpreted and compiled.

Each needs a process of its own, which takes seconds to import torch and Triton. So an ordinary run, which
draws a few cases of each file, starts one process for all of them; a deep run starts one for each.
"""

from collections.abc import Sequence

import pytest

from tests.drawing import is_deep
from tests.kernels.gemm_compiled import FAMILIES
from tests.kernels.processes import compiled, interpreted

pytest.importorskip("triton")

INTERPRETED = ("gemm", "gemm_parts", "gemm_tma", "linear", "fusion", "convolution")


def together(names: Sequence[str]) -> list[list[str]]:
    """The names that share a process."""
    return [[name] for name in names] if is_deep() else [list(names)]


@pytest.mark.parametrize("names", together(INTERPRETED), ids="-".join)
def test_kernels_interpreted(names: list[str]) -> None:
    interpreted(*(f"tests/kernels/{name}_interpreted.py" for name in names))


@pytest.mark.parametrize("families", together(list(FAMILIES)), ids="-".join)
def test_kernels_compiled(families: list[str]) -> None:
    compiled("tests.kernels.gemm_compiled", "--drawn", *families)
