"""What the tests of the figures share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.plots import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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
