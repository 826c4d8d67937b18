"""`python -m bench predict`: which GPU is meant. tests/bench/test_pooled.py has what is predicted of it."""

from __future__ import annotations

import pytest

from bench.cli.predict import datasheet_named
from bench.errors import UserError


@pytest.mark.parametrize(
    "name", ["h100_sxm5", "H100-SXM5", "NVIDIA H100 80GB HBM3", "nvidia h100 sxm5 80 gb"]
)
def test_a_device_by_any_of_its_names(name: str) -> None:
    assert datasheet_named(name).slug == "h100_sxm5"


@pytest.mark.parametrize("name", ["gtx_4090", "NVIDIA", "mi300x", "AMD Instinct MI300X"])
def test_an_unknown_device_names_those_there_are(name: str) -> None:
    with pytest.raises(UserError) as refusal:
        datasheet_named(name)
    told = str(refusal.value)
    assert told.startswith(f"--on: bench/device/datasheets has no CUDA GPU {name!r}")
    assert "; it has a10, " in told and "h100_sxm5" in told and "mi300x" not in told.split("it has")[1]
