"""What the tests of the harness share."""

from __future__ import annotations

import secrets

import numpy as np
import pytest


@pytest.fixture
def chance() -> np.random.Generator:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return np.random.default_rng(seed)
