"""What the tests of the figures share."""

from __future__ import annotations

import sys

import pytest

from plots.base import saving


@pytest.fixture(autouse=True, scope="session")
def _saved_in_this_process() -> None:
    """Starting processes takes longer than saving a few figures; test_saving.py starts some."""
    saving.ALONE = sys.maxsize
