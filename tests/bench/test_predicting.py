"""`python -m bench predict`: which GPU is meant. tests/bench/test_pooled.py has what is predicted of it."""

from __future__ import annotations

import pytest

from bench.cli.predict import datasheet_named


@pytest.mark.parametrize(
    "name", ["h100_sxm5", "H100-SXM5", "NVIDIA H100 80GB HBM3", "nvidia h100 sxm5 80 gb"]
)
def test_a_device_by_any_of_its_names(name: str) -> None:
    assert datasheet_named(name).slug == "h100_sxm5"
