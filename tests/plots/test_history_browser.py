"""The history pages in Chromium, on a desk and on a telephone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page

from bench.judge.history.detector import ConfirmedChange
from plots.history import page as history
from tests.bench.nights_made import QUIET, made, rows_of, stepped
from tests.plots.browser import LOOKS, Browsing
from tests.plots.judged_made import HALF, judged, seen, step

WIDTHS = (390, 1280)
LONG = "gemm/" + "a_very_long_name_of_an_implementation_" * 2 + "-float32-NN-m4096-n4096-k4096-cold"
NIGHTS = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a device with an open alarm, one that ended tonight, and a long name."""
    quiet = made(np.random.default_rng(1), 25, NIGHTS, noise=QUIET)
    row, other = rows_of(quiet, "gemm", "triton")[:2]
    moved = stepped(quiet, [row], 10, 0.3)
    ended = step(moved, other, 8, 0.1, ended=NIGHTS - 1, ending="recovered", name="ended tonight")
    steps = [
        step(moved, row, 10, 0.3, name=LONG),
        ended,
        ConfirmedChange("machine", "memory", 0, 9, 10, None, None, 0.3, HALF, (0, 2)),
    ]
    nights = [replace(night, remarks=(f"cut short: {LONG}",)) for night in moved.nights]
    view = seen(judged(replace(moved, nights=tuple(nights)), steps))
    view = replace(view, labels=tuple(LONG if i == row else name for i, name in enumerate(view.labels)))
    pages = tmp_path_factory.mktemp("pages")
    history.save(view, pages / "device", "")
    index = history.index_html([history.DeviceLine(view, "device")])
    (pages / "index.html").write_text(index, "utf-8")
    return pages


@LOOKS
@pytest.mark.parametrize("name", ["index.html", "device/index.html"])
def test_a_page_reads_well(browsing: Browsing, folder: Path, name: str, width: int, dark: bool) -> None:
    page = browsing.open_page(folder / name, width, dark)

    assert browsing.faults(page) == [] and browsing.requests == [(folder / name).as_uri()]


@pytest.mark.parametrize("width", WIDTHS)
def test_alarms_stand_above_everything(browsing: Browsing, folder: Path, width: int) -> None:
    page = browsing.open_page(folder / "device/index.html", width)
    rows = page.locator("main table").first.locator("tbody tr")

    assert [row.locator("td").nth(1).inner_text().split(" (")[0] for row in rows.all()] == [
        "the machine: memory",
        LONG,
        "ended tonight",
    ]
    above = top(page, "main table >> nth=0")
    assert all(above < top(page, further) for further in ("main p >> nth=0", "main table >> nth=1", "img"))
    assert above < 300


def top(page: Page, selector: str) -> float:
    box = page.locator(selector).first.bounding_box()
    assert box is not None
    return box["y"]


def test_figures_are_as_narrow_as_the_window(browsing: Browsing, folder: Path) -> None:
    """Letters of a wide figure on a telephone would be four pixels high."""
    for width in WIDTHS:
        page = browsing.open_page(folder / "device/index.html", width)
        shares = page.evaluate(
            "[...document.images].map((image) => image.getBoundingClientRect().width / image.naturalWidth)"
        )
        assert len(shares) >= 4 and min(shares) >= 0.6, width
