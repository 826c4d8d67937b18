"""The one page in a browser, as a stranger uses it: a run, several devices, nights, units."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from plots.__main__ import app
from tests.bench.fleet_made import gpus
from tests.bench.fleet_made import written as fleet_written
from tests.drawing import covering, is_deep, run_seed
from tests.plots.browser import LOOKS, Browsing
from tests.plots.report_made import CORE, column, content, few, read, written
from tests.plots.synthetic import H100, H200
from tests.plots.test_rules_figure import RULES_OF

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OPENED = ("activations/forward", "gemm/growing_k", "softmax/rows")
"""Sweeps of the committed run whose page has each kind of element; `make test-deep` opens that of all."""
NIGHTS = Path("results/reference/nights")


def reported(page: Path, *results: Path) -> Path:
    """The page about these results, by the command."""
    done = CliRunner().invoke(app, ["report", *map(str, results), "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert page.stat().st_size < 3e6
    return page


def of_run(folder: Path) -> Path:
    (committed,) = CORE.rglob("*.parquet")
    (run,) = read(committed)
    rows = [row for row in run.rows if is_deep() or row.role != "measurement" or row.sweep in OPENED]
    return reported(folder / "run.html", written(folder / "run.parquet", rows, dict(run.sweeps)))


def of_devices(folder: Path) -> Path:
    files = [written(folder / f"{one.facts['device']}.parquet", few(one)) for one in (H100, H200)]
    return reported(folder / "devices.html", *files)


def of_nights(folder: Path) -> Path:
    return reported(folder / "nights.html", NIGHTS)


def of_units(folder: Path) -> Path:
    units = gpus(2, 8)
    units[9].slow = {"compute": 1.12}
    results = fleet_written(folder / "results", units, np.random.default_rng(run_seed()), together=True)
    (results / "expected.txt").write_text("node000 8\nnode001 8\nnode002 8\n")
    return reported(folder / "units.html", results)


MADE = {"run": of_run, "devices": of_devices, "nights": of_nights, "units": of_units}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in MADE.items()}


@pytest.fixture(scope="module")
def cases(pages: dict[str, Path]) -> dict[str, Any]:
    return content(pages["run"].read_text("utf-8"))["cases"]


@pytest.fixture(scope="module")
def shared(chromium: Browser, pages: dict[str, Path]) -> Iterator[Page]:
    """The page of a run in a window, for all tests that can let go of what they chose."""
    browsing = Browsing(chromium)
    yield ready(browsing.open_page(pages["run"], 1280))
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


def counted(page: Page) -> int:
    """How many cases the page says it shows."""
    number = re.match(r"\d+", page.locator("#count").inner_text())
    assert number
    return int(number[0])


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    covering(
        [(name, *look) for name in MADE for look in LOOKS],
        "pages and how they are looked at",
        lambda opening: opening[0],
        lambda opening: opening[1:],
    ),
)
def test_it_opens_without_errors_requests_or_barriers(
    browsing: Browsing, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    page = ready(browsing.open_page(pages[name], width, dark))
    assert name == "run" or page.locator(f"section#{name}").count() == 1, "the section that this page is for"
    for box in page.locator("details").all():
        box.evaluate("box => { box.open = true; }")
    assert browsing.faults(page) == [] and browsing.requests == [pages[name].as_uri()]
    # Letters of a figure on a telephone would be four pixels high if it were as narrow as the window.
    shares = page.evaluate(
        "[...document.querySelectorAll('.drawing > svg')]"
        ".map((one) => [one.clientWidth, one.viewBox.baseVal.width])"
    )
    assert (name == "devices" or shares) and all(shown >= 0.6 * drawn for shown, drawn in shares)


def test_runs_of_others_without_predictions_are_filtered_by_run(browsing: Browsing, tmp_path: Path) -> None:
    stripped: dict[str, Any] = {"source": "made; a file", "low_s": None, "high_s": None, "timed_by": "events"}
    stripped["sweep"] = "imported/some_serving_source/gated_activation"
    rows = [row for row in few(H200) if row.role == "measurement"]
    names = ("some_source-123abc-events-cold-median", "some_source-123abc-events-cold-median-2")
    files = [
        written(tmp_path / f"{name}.parquet", [dataclasses.replace(r, **stripped, run_id=name) for r in rows])
        for name in names
    ]
    page = ready(browsing.open_page(reported(tmp_path / "page.html", *files), 390))
    assert browsing.faults(page) == []
    heads = page.locator("#table thead th").all_inner_texts()
    assert "run" in heads and not {"predicted", "of roof", "bound by"} & set(heads)
    assert not page.locator("[data-column=bound_by]").count(), "a filter without a value"
    whole = counted(page)
    page.locator("[data-column=device]").select_option(index=1)
    assert counted(page) == whole / 2
    # Without an interval each case says so.
    (of_interval,) = [n for n, text in enumerate(heads, 1) if "95 %" in text]
    assert set(page.locator(f"#table tbody td:nth-child({of_interval})").all_inner_texts()) == {"unknown"}
    page.locator("#table tbody button").first.click()
    assert "interval unknown" in page.locator("#case").inner_text()


def test_each_filter_leaves_the_cases_that_have_the_value(opened: Page, cases: dict[str, Any]) -> None:
    for name in ("operator", "implementation", "dtype", "bound_by", "flags"):
        select, values = opened.locator(f"[data-column={name}]"), column(cases, name)
        options = select.locator("option").evaluate_all(
            "all => all.map(option => option.value).filter(Boolean)"
        )
        assert options, name
        for option in options:
            select.select_option(option)
            if name == "flags":
                wanted = sum((option in v.split()) if option != "(none)" else not v for v in values)
            else:
                wanted = values.count(option)
            assert wanted > 0 and counted(opened) == wanted, (name, option)
        assert opened.locator("#table tbody tr").count() == min(50, wanted)
        opened.get_by_role("button", name="Clear").click()
        assert counted(opened) == len(values)


def test_words_in_the_name_are_a_filter_and_filters_add_up(opened: Page, cases: dict[str, Any]) -> None:
    opened.locator("#text").fill("relu")
    opened.locator("[data-column=dtype]").select_option("float16")
    pairs = zip(cases["name"], column(cases, "dtype"), strict=True)
    wanted = [name for name, dtype in pairs if "relu" in name and dtype == "float16"]
    assert 0 < counted(opened) == len(wanted) < len(cases["name"])
    assert set(opened.locator("#table tbody button").all_inner_texts()) <= set(wanted)


def test_the_table_sorts_both_ways_by_its_numbers_and_shows_more_on_request(
    opened: Page, cases: dict[str, Any]
) -> None:
    ratios = [value for value in cases["ratio"] if value is not None]
    head = opened.get_by_role("button", name="measured / predicted")
    cell = "#table tbody tr:first-child td:nth-child(6)"
    head.click()
    assert opened.locator(cell).inner_text() == f"{min(ratios):.2f}"
    head.click()
    assert opened.locator(cell).inner_text() == f"{max(ratios):.2f}"
    assert opened.locator("th[aria-sort=descending]").inner_text().startswith("measured / predicted")
    assert opened.locator("#table tbody tr").count() == 50
    opened.locator("#more").click()
    assert opened.locator("#table tbody tr").count() == min(250, len(cases["name"]))


def test_a_row_tells_its_prediction_and_the_command_that_measures_it_again(opened: Page) -> None:
    name = opened.locator("#table tbody button").first.inner_text()
    opened.locator("#table tbody button").first.click()
    box = opened.locator("#case")
    assert box.locator("strong").inner_text() == name
    assert f"--bench-case {name}" in box.locator("code").inner_text()
    assert "measured" in box.inner_text() and "predicted" in box.inner_text()


def test_devices_are_a_filter_too(browsing: Browsing, pages: dict[str, Path]) -> None:
    page = ready(browsing.open_page(pages["devices"], 390))
    assert counted(page) == 18
    page.locator("[data-column=device]").select_option("nvidia-h200")
    assert counted(page) == 9


def test_prices_and_headings_sort_what_to_buy(browsing: Browsing, pages: dict[str, Path]) -> None:
    page = ready(browsing.open_page(pages["devices"], 1280))
    names = page.locator("#buy tbody th")
    head = page.locator("#buy thead button", has_text="Memory-bound work")
    head.click()
    assert names.all_inner_texts() == ["h200", "h100_sxm5"]
    head.click()
    assert names.first.inner_text() == "h200", "no price is known"
    page.get_by_label("Price of h200").fill("40000")
    page.get_by_label("Price of h100_sxm5").fill("20000")
    (line,) = page.locator("#buy tbody tr", has=page.get_by_label("Price of h100_sxm5")).all()
    assert line.locator("td[data-label^=Memory-bound] .priced").inner_text() == "0.05 for 1,000"
    head.click()
    assert names.all_inner_texts() == ["h100_sxm5", "h200"]


def test_rules_by_gpus_are_filtered_and_a_cell_tells_its_evidence(browsing: Browsing, tmp_path: Path) -> None:
    (tmp_path / "verdicts.json").write_text(json.dumps({"commit": "0123456789ab", "rules": RULES_OF}))
    done = CliRunner().invoke(app, ["rules", str(tmp_path / "verdicts.json"), "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    page = ready(browsing.open_page(tmp_path / "rules.html", 390))
    assert browsing.faults(page) == [] and len(browsing.requests) == 1
    lines, box = page.locator("#matrix tbody tr"), page.locator("#of-cell")
    assert [text.split()[0] for text in lines.locator("th").all_inner_texts()] == list(RULES_OF)
    assert lines.nth(1).locator("td[data-label='h100_sxm5'] button").inner_text() == "50"
    lines.nth(1).locator("td[data-label='h100_sxm5'] button").click()
    assert "99 hold, 1 do not; a" in box.inner_text() and "0 hold, 2 do not" in box.inner_text()
    page.locator("#of-verdict").select_option("UNDECIDED")
    assert [text.split()[0] for text in lines.locator("th").all_inner_texts()] == ["3", "5"]
    page.locator("#of-device").select_option(label="a100_sxm4_80gb")
    assert lines.count() == 0
    page.locator("#of-verdict").select_option("")
    assert lines.count() == 1 and "2 of 5 pairs: 2 times" in lines.inner_text()
    page.locator("#of-device").select_option("")
    page.locator("#of-rule").fill("ALIGN dim")
    assert lines.count() == 1 and lines.locator("th").inner_text().startswith("3 align dimensions")
