"""`python -m bench predict`: which GPU is meant. tests/bench/test_pooled.py has what is predicted of it."""

from __future__ import annotations

import pytest

from bench.device.datasheet import cuda_gpu_named


@pytest.mark.parametrize(
    "name",
    ["h100_sxm5", "H100-SXM5", "H100 SXM5 80 GB", "nvidia-h100-80gb-hbm3", "NVIDIA H100 80GB HBM3"],
)
def test_a_device_by_any_of_its_names(name: str) -> None:
    assert cuda_gpu_named(name, "--on").slug == "h100_sxm5"
