"""A fleet's page in a browser: it is whole, readable, and its choice of a class changes the charts."""

from pathlib import Path

import pytest
from playwright.sync_api import Page
from typer.testing import CliRunner

from plots.__main__ import app
from tests.plots.browser import LOOKS, Browsing
from tests.plots.fleet_made import Slow, write

READY = "body[data-ready=yes]"
DRAWN = "document.querySelectorAll('[data-chart]:not([data-drawn])').length === 0"
UNITS, NIGHTS = 24, 11


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page about three nodes, of which a unit is hot since the fourth night."""
    folder = tmp_path_factory.mktemp("fleet")
    write(folder / "results", UNITS, [Slow(9, 1, "heat", 0.12, 3)], NIGHTS, concurrent=False, without=[20])
    done = CliRunner().invoke(app, ["fleet", str(folder / "results"), "-o", str(folder)])
    assert done.exit_code == 0, done.output
    return folder / "fleet.html"


def drawn(page: Page) -> Page:
    page.wait_for_selector(READY)
    for box in page.locator("[data-chart]").all():
        box.scroll_into_view_if_needed()
    page.wait_for_function(DRAWN)
    return page


@LOOKS
def test_it_opens_without_errors_requests_or_barriers(
    browsing: Browsing, fleet: Path, width: int, dark: bool
) -> None:
    page = drawn(browsing.open_page(fleet, width, dark))
    assert browsing.faults(page) == [] and browsing.requests == [fleet.as_uri()]


def test_it_says_who_is_slow_why_since_when_and_who_is_missing(browsing: Browsing, fleet: Path) -> None:
    page = browsing.open_page(fleet, 1280)
    line = page.locator("#slow tbody tr", has_text="node002 0000:33:00.0").inner_text()
    assert "compute, alone" in line and "°C" in line and "2026-03-04" in line
    assert "MISSING node003: 1 of 8 units (0000:7b:00.0)" in page.locator("#slow").inner_text()


def test_the_choice_of_a_class_changes_the_strips(browsing: Browsing, fleet: Path) -> None:
    page = drawn(browsing.open_page(fleet, 1280))
    picture = "document.querySelector('[data-chart=strip-0] canvas').toDataURL()"
    before = page.evaluate(picture)
    page.locator("select[data-kind]").select_option("launch, alone")
    page.wait_for_function(f"{picture} !== {before!r}")
    assert browsing.console_errors == []
