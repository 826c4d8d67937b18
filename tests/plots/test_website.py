"""The site: every link leads somewhere, browsers find no barrier, filters work, and numbers are the rows'."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import kernels
from bench.cli.claims import as_json, from_json, verdicts
from bench.cli.guide_tables import rules
from bench.device.datasheet import find_datasheet
from bench.format import amount_text
from bench.judge.frame import load
from bench.judge.speedup import gains, speedups
from kernels.gemm.problem import Gemm
from plots.__main__ import app
from plots.website import operators
from tests.plots.browser import LOOKS, Browsing, violations
from tests.plots.report_made import written
from tests.plots.synthetic import H100, H200, Machine, ceilings, row

SIZES = (256, 512, 1024, 2048, 4096, 8192)
MOST_BYTE = 15e6


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A result file of an H100 and one of an H200."""
    folder = tmp_path_factory.mktemp("results")
    return [made(folder, machine) for machine in (H100, H200)]


def made(folder: Path, machine: Machine) -> Path:
    shapes = itertools.product(SIZES, SIZES)
    some = [Gemm(m=m, n=n, k=4096, dtype="float16") for m, n in shapes]
    rows = [*ceilings(machine), *(row(machine, "gemm/some", each, "cublas") for each in some)]
    return written(folder / f"{machine.facts['device']}.parquet", rows)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, results: list[Path]) -> Path:
    """The site of two made devices, with the examples that every site has."""
    folder = tmp_path_factory.mktemp("site")
    print(run("site", *results, "-o", folder / "site"))
    return folder / "site"


class Page(HTMLParser):
    """The links and the places of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            if name == "id" and value:
                self.places.add(value)


def test_every_link_leads_somewhere_on_the_disk_and_every_page_is_linked(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    reached = {site / "index.html"}
    for path, page in pages.items():
        for link in page.links:
            assert "://" not in link, f"{path}: {link} needs a network"
            file, _, place = link.partition("#")
            to = (path.parent / file).resolve() if file else path
            assert to.is_file(), f"{path}: {link}"
            # The experiments of a report get their places by its script.
            if place and path.parent.name != "device":
                assert place in pages[to].places, f"{path}: {link}"
            reached.add(to)
    assert set(pages) <= reached
    assert {path.parent.name for path in pages} >= {"rule", "device", "operator"}
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < MOST_BYTE


@LOOKS
def test_pages_open_without_errors_or_barriers(
    browsing: Browsing, site: Path, width: int, dark: bool
) -> None:
    for name in ("index", "buy", "method", "rule/14", "operator/gemm", "accept"):
        assert browsing.faults(browsing.open_page(site / f"{name}.html", width, dark)) == [], name
    assert all(url.startswith(site.as_uri()) for url in browsing.requests)


@pytest.mark.parametrize("name", ["device/nvidia-h200", "fleet"])
def test_pages_with_charts_find_the_shared_library(browsing: Browsing, site: Path, name: str) -> None:
    page = browsing.open_page(site / f"{name}.html", 1280)
    page.wait_for_selector("body[data-ready=yes]")
    assert browsing.console_errors == [] and violations(page) == []


def test_the_rules_are_filtered_by_device_verdict_and_words(browsing: Browsing, site: Path) -> None:
    page = browsing.open_page(site / "index.html", 1280)
    shown = page.locator("#rules tbody tr:visible")
    assert shown.count() == 54
    page.locator("#text").fill("multiple")
    assert 0 < shown.count() < 54 and all("multiple" in text for text in shown.all_inner_texts())
    page.locator("#text").fill("")
    page.locator("#on").select_option("nvidia-h200")
    page.locator("#word").select_option("SUPPORTED")
    assert all("SUPPORTED" in text for text in shown.all_inner_texts())
    assert page.locator("#count").inner_text() == f"{shown.count()} rule{'' if shown.count() == 1 else 's'}"


def test_the_buyers_page_has_the_speed_ups_of_the_comparison_and_what_a_dollar_does(
    tmp_path: Path, results: list[Path]
) -> None:
    runs = [each for file in results for each in load([file], find_datasheet)]
    sheets = {each.device: each.datasheet for each in runs}
    rows = pd.concat([each.frame for each in runs])
    base, device = "h100-sxm", "nvidia-h200"
    wanted = [gain for gain in gains(dict(speedups(rows, base)), base, sheets) if gain.operator == "gemm"]
    run("buy", *results, "-o", tmp_path / "buy", "--price", "h100-sxm=20000", "--price", f"{device}=10000")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", (tmp_path / "buy.html").read_text("utf-8")))
    assert wanted
    for gain in wanted:
        assert f"{gain.median:.2f}" in text and f"{2 * gain.median:.2f} per USD" in text
        assert gain.stated is None or f"of {gain.stated:.2f}" in text
        assert f"measured here {gain.median:.2f} in {gain.cases}" in text


def test_the_buyers_page_divides_a_rate_by_the_power_of_its_own_rows(tmp_path: Path) -> None:
    n = 8192
    product = row(H100, "gemm/some", Gemm(m=n, n=n, k=n, dtype="float16"), "cublas", power_w=650.0)
    other = dataclasses.replace(product, operator="launch", flop=0, byte=0, power_w=100.0)
    rows = [product, other, other, other]
    files = [
        written(tmp_path / "h100.parquet", rows),
        written(tmp_path / "h200.parquet", [dataclasses.replace(each, **H200.facts) for each in rows]),
    ]
    run("buy", *files, "-o", tmp_path / "buy")
    text = re.sub(r"<[^>]+>", " ", (tmp_path / "buy.html").read_text("utf-8"))
    assert product.median_s is not None
    assert amount_text(2 * n**3 / product.median_s / 650, "FLOP/J") in text and "at 650 W measured" in text


@pytest.mark.parametrize(
    ("price", "says"),
    [
        (["h300=1"], "no device is called 'h300'"),
        (["h200"], "give NAME=USD"),
        (["h200=-2"], "give NAME=USD"),
        (["h200=2/h", "h100-sxm=20000"], "all of them in one way"),
        (["h200=2", "nvidia-h200=3"], "--price nvidia-h200=3: nvidia-h200 has a price already"),
    ],
)
def test_what_is_no_price_is_refused(results: list[Path], price: list[str], says: str) -> None:
    words = [word for each in price for word in ("--price", each)]
    done = CliRunner().invoke(app, ["buy", *map(str, results), *words])
    assert says in done.output


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, results: list[Path]) -> None:
    (tmp_path / "charts.js").write_text("mine")
    done = CliRunner().invoke(app, ["site", str(results[1]), "-o", str(tmp_path)])
    assert done.exit_code == 2 and "no site of ours" in done.output
    assert (tmp_path / "charts.js").read_text() == "mine"


def test_only_the_files_of_an_earlier_site_are_deleted(
    site: Path, results: list[Path], tmp_path: Path
) -> None:
    copy = shutil.copytree(site, tmp_path / "site")
    files = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    for name in ("device/mine.txt", "device/old.html"):
        (copy / name).write_text("")
    with (copy / ".roofbench-site").open("a") as listed:
        listed.write("device/old.html\n")
    run("site", *results, "-o", copy)
    now = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert now == files | {"device/mine.txt"}


def test_the_reading_has_the_curves_numbers(results: list[Path]) -> None:
    runs = [each for file in results for each in load([file], find_datasheet)]
    sheets = {each.device: each.datasheet for each in runs}
    rows = pd.concat([each.rated for each in runs], ignore_index=True)
    drawn = operators.drawn(rows[rows["operator"] == "gemm"], sheets)
    assert drawn is not None and (drawn.rate, drawn.dtype) == ("flop", "float16")
    best = {curve.device: curve.best for curve in drawn.curves}
    first, second = operators.reading(drawn)
    for value in best.values():
        assert f"{value / 1e12:.4g} TFLOP/s" in first
    assert "Half of its own best needs" in second


def test_verdicts_that_were_written_are_read_again(tmp_path: Path, results: list[Path]) -> None:
    judged = verdicts(results[1:], kernels.problem, print, print)
    file = tmp_path / "verdicts.json"
    file.write_text(as_json(judged))
    again = from_json(file)
    assert judged and as_json(again) == as_json(judged)
    assert rules(again, ["nvidia-h200"], None) == rules(judged, ["nvidia-h200"], None)
