"""report.html in a browser, as a stranger uses it: filters, charts, table, telephone, screen reader."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from bench.store.parquet import read_rows, read_sweeps
from tests.drawing import is_deep
from tests.plots.browser import LOOKS, Browsing
from tests.plots.report_made import CORE, column, content, few, written
from tests.plots.report_made import page as page_of
from tests.plots.synthetic import H100, H200

OPENED = (
    *("activations/forward", "activations/implementations", "convolution/layout", "gemm/doubling"),
    *("gemm/growing_k", "linear/batch", "linear/batch_4096", "softmax/rows"),
)
"""Sweeps of the committed run whose page has each kind of element; `make test-deep` opens that of all."""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page about the committed run, as far as it is of ceilings and OPENED."""
    folder = tmp_path_factory.mktemp("report")
    (committed,) = CORE.rglob("*.parquet")
    rows = [
        row for row in read_rows(committed) if is_deep() or row.role != "measurement" or row.sweep in OPENED
    ]
    (sweeps,) = read_sweeps([committed]).values()
    file = folder / "report.html"
    file.write_text(page_of(written(folder / "core.parquet", rows, dict(sweeps))), "utf-8")
    return file


@pytest.fixture(scope="module")
def cases(core: Path) -> dict[str, Any]:
    return content(core.read_text("utf-8"))["cases"]


@pytest.fixture(scope="module")
def shared(chromium: Browser, core: Path) -> Iterator[Page]:
    """That page in a window, for all tests that can let go of what they chose."""
    browsing = Browsing(chromium)
    yield ready(browsing.open_page(core, 1280))
    assert browsing.console_errors == []
    browsing.close()


@pytest.fixture
def opened(shared: Page) -> Page:
    """That page with nothing chosen."""
    shared.get_by_role("button", name="Clear").click()
    return shared


def ready(page: Page) -> Page:
    page.wait_for_selector("body[data-ready=yes]")
    return page


def opened_page(browsing: Browsing, folder: Path, width: int) -> Page:
    """The page about the result files in a folder."""
    (folder / "report.html").write_text(page_of(folder), "utf-8")
    return ready(browsing.open_page(folder / "report.html", width))


def first_experiment(page: Page) -> None:
    """Draw the first experiment by scrolling to it."""
    page.locator("[data-experiment]").first.scroll_into_view_if_needed()
    page.wait_for_selector("[data-experiment][data-drawn=yes]")


def counted(page: Page) -> int:
    """How many cases the page says it shows."""
    number = re.match(r"\d+", page.locator("#count").inner_text())
    assert number
    return int(number[0])


@LOOKS
def test_it_opens_without_errors_requests_or_barriers(
    browsing: Browsing, core: Path, width: int, dark: bool
) -> None:
    page = ready(browsing.open_page(core, width, dark))
    for box in page.locator("details").all():
        box.evaluate("box => { box.open = true; }")
    first_experiment(page)
    assert browsing.faults(page) == [] and browsing.requests == [core.as_uri()]


@pytest.mark.parametrize("width", [1280, 390])
def test_runs_of_others_without_predictions_open_and_are_filtered_by_run(
    browsing: Browsing, tmp_path: Path, width: int
) -> None:
    stripped: dict[str, Any] = {"source": "made; a file", "low_s": None, "high_s": None, "timed_by": "events"}
    stripped["sweep"] = "imported/some_serving_source/gated_activation"
    rows = [row for row in few(H200) if row.role == "measurement"]
    for name in ("some_source-123abc-events-cold-median", "some_source-123abc-events-cold-median-2"):
        run = [dataclasses.replace(row, **stripped, run_id=name) for row in rows]
        written(tmp_path / f"{name}.parquet", run)
    page = opened_page(browsing, tmp_path, width)
    first_experiment(page)
    assert browsing.faults(page) == []
    heads = page.locator("#table thead th").all_inner_texts()
    assert "run" in heads and not {"predicted", "of roof", "bound by"} & set(heads)
    whole = counted(page)
    select = page.locator("[data-column=device]")
    select.select_option(index=1)
    assert counted(page) == whole / 2


def test_each_filter_leaves_the_cases_that_have_the_value(opened: Page, cases: dict[str, Any]) -> None:
    for column_name in ("operator", "implementation", "dtype", "bound_by", "flags"):
        filters_by(opened, cases, column_name)


def filters_by(opened: Page, cases: dict[str, Any], column_name: str) -> None:
    select = opened.locator(f"[data-column={column_name}]")
    values = column(cases, column_name)
    options = select.locator("option").evaluate_all("all => all.map(option => option.value).filter(Boolean)")
    assert options, column_name
    for option in options:
        select.select_option(option)
        if column_name == "flags":
            wanted = sum((option in v.split()) if option != "(none)" else not v for v in values)
        else:
            wanted = values.count(option)
        assert wanted > 0 and counted(opened) == wanted, (column_name, option)
    assert opened.locator("#table tbody tr").count() == min(50, wanted)
    opened.get_by_role("button", name="Clear").click()
    assert counted(opened) == len(values)


def test_words_in_the_name_are_a_filter_and_filters_add_up(opened: Page, cases: dict[str, Any]) -> None:
    opened.locator("#text").fill("relu")
    opened.locator("[data-column=dtype]").select_option("float16")
    pairs = zip(cases["name"], column(cases, "dtype"), strict=True)
    wanted = [name for name, dtype in pairs if "relu" in name and dtype == "float16"]
    assert 0 < counted(opened) == len(wanted) < len(cases["name"])
    shown = opened.locator("#table tbody button").all_inner_texts()
    assert set(shown) <= set(wanted)


def test_the_table_sorts_both_ways_by_its_numbers(opened: Page, cases: dict[str, Any]) -> None:
    ratios = [value for value in cases["ratio"] if value is not None]
    head = opened.get_by_role("button", name="measured / predicted")
    cell = "#table tbody tr:first-child td:nth-child(6)"
    head.click()
    assert opened.locator(cell).inner_text() == f"{min(ratios):.2f}"
    head.click()
    assert opened.locator(cell).inner_text() == f"{max(ratios):.2f}"
    assert opened.locator("th[aria-sort=descending]").inner_text().startswith("measured / predicted")


def test_a_row_tells_its_prediction_and_the_command_that_measures_it_again(
    opened: Page, cases: dict[str, Any]
) -> None:
    name = opened.locator("#table tbody button").first.inner_text()
    opened.locator("#table tbody button").first.click()
    box = opened.locator("#case")
    assert box.locator("strong").inner_text() == name
    assert f"--bench-case {name}" in box.locator("code").inner_text()
    assert "measured" in box.inner_text() and "predicted" in box.inner_text()


def test_a_point_tells_the_same(opened: Page) -> None:
    opened.locator("#text").fill("gemm/growing_k")
    chart = opened.locator("#roofline canvas")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box
    x, y = chart.evaluate(_FIRST_POINT)
    opened.mouse.click(box["x"] + x, box["y"] + y)
    assert opened.locator("#case strong").inner_text().startswith("gemm/growing_k")


_FIRST_POINT = """(canvas) => {
    const box = canvas.getBoundingClientRect();
    const scale = canvas.width / box.width;
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    for (let y = Math.trunc(box.height * 0.05); y < box.height * 0.75; y += 4) {
        for (let x = Math.trunc(box.width * 0.3); x < box.width * 0.95; x += 6) {
            const at = 4 * (Math.trunc(y * scale) * canvas.width + Math.trunc(x * scale));
            const colour = data.slice(at, at + 3);
            if (Math.max(...colour) - Math.min(...colour) > 60) return [x, y];
        }
    }
}"""
"""The first place of the picture that is coloured: there a point is."""


def test_a_selection_in_one_chart_restricts_the_table_until_it_is_let_go(
    opened: Page, cases: dict[str, Any]
) -> None:
    chart = opened.locator("#roofline canvas")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box
    opened.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.1)
    opened.mouse.down()
    opened.mouse.move(box["x"] + box["width"] * 0.95, box["y"] + box["height"] * 0.3, steps=5)
    opened.mouse.up()
    total = len(cases["name"])
    opened.wait_for_function(f"parseInt(document.querySelector('#count').textContent) < {total}")
    selected = counted(opened)
    assert 0 < selected < total
    operators = {text.split("/")[0] for text in opened.locator("#table tbody button").all_inner_texts()}
    matrix = {"gemm", "linear", "convolution", "convolution_block", "attention"}
    assert operators <= matrix, "the upper right corner is where matrix units are"
    opened.get_by_role("button", name="Clear").click()
    opened.wait_for_function(f"parseInt(document.querySelector('#count').textContent) === {total}")


def test_more_rows_come_on_request(browsing: Browsing, core: Path) -> None:
    page = ready(browsing.open_page(core, 1280))
    assert page.locator("#table tbody tr").count() == 50
    page.locator("#more").click()
    assert page.locator("#table tbody tr").count() == 250


def test_every_experiment_is_drawn_when_it_comes_into_sight(browsing: Browsing, tmp_path: Path) -> None:
    written(tmp_path / "run.parquet", few())
    page = opened_page(browsing, tmp_path, 390)
    for box in page.locator("[data-experiment]").all():
        box.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelectorAll('[data-experiment]:not([data-drawn])').length === 0")
    assert browsing.console_errors == []


def test_a_case_without_an_interval_says_so(browsing: Browsing, tmp_path: Path) -> None:
    written(tmp_path / "run.parquet", [dataclasses.replace(row, low_s=None, high_s=None) for row in few()])
    page = opened_page(browsing, tmp_path, 1280)
    heads = page.locator("#table th").all_inner_texts()
    (of_interval,) = [n for n, text in enumerate(heads, 1) if "95 %" in text]
    cells = page.locator(f"#table tbody td:nth-child({of_interval})").all_inner_texts()
    assert cells == ["unknown"] * 9
    page.locator("#table tbody button").first.click()
    assert "interval unknown" in page.locator("#case").inner_text()
    first_experiment(page)
    assert browsing.console_errors == []


def test_devices_are_a_filter_too(browsing: Browsing, tmp_path: Path) -> None:
    for machine in (H100, H200):
        written(tmp_path / f"{machine.facts['device']}.parquet", few(machine))
    page = opened_page(browsing, tmp_path, 390)
    assert counted(page) == 18
    page.locator("[data-column=device]").select_option("nvidia-h200")
    assert counted(page) == 9
    assert browsing.faults(page) == []
