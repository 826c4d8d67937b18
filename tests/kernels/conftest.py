"""What every test of a kernel shares."""

import os

import pytest
import torch


@pytest.fixture
def seed() -> int:
    """New for every test; printed, so shown when it fails. ROOFBENCH_SEED repeats one."""
    chosen = int(os.environ.get("ROOFBENCH_SEED", torch.seed() % 2**32))
    print(f"ROOFBENCH_SEED={chosen}")
    return chosen
