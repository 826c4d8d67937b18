"""What the tests of the figures share."""

from __future__ import annotations

import sys

import pytest

from plots.base import saving


@pytest.fixture(autouse=True, scope="session")
def _saved_in_this_process() -> None:
    """Starting processes to save a handful of figures takes longer than saving them; test_saving.py does it."""
    saving.ALONE = sys.maxsize
