"""What the tests of the figures share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from plots.base import saving
from tests.plots import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(autouse=True, scope="session")
def _saved_in_this_process() -> None:
    """Starting processes takes longer than saving a few figures; test_saving.py starts some."""
    saving.ALONE = sys.maxsize


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of a process."""
    if browser.CHROMIUM is None:
        pytest.skip("chromium is not on PATH")
    with browser.started() as started:
        yield started


@pytest.fixture
def browsing(chromium: Browser) -> Iterator[browser.Browsing]:
    """Opens pages for one test and collects their errors and requests."""
    pages = browser.Browsing(chromium)
    yield pages
    pages.close()
