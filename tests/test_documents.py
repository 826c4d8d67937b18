"""The documents: every link leads to a file and a heading, and the README quotes what committed rows say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kernels
from bench.cli.claims import verdicts
from bench.cli.closing import COLUMNS, answer_lines
from bench.cli.terminal import wrapped
from bench.device.datasheet import find_datasheet
from bench.judge.read_runs import load

ROOT = Path(__file__).parents[1]
PAGES = [page for where in ("", "docs/", "results/**/", "studies/") for page in ROOT.glob(f"{where}*.md")]


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if not re.match(r"https?:", link):
            aim = page.parent / path if path else page
            assert aim.exists(), link
            assert not anchor or anchor in anchors(aim), link


def test_the_readmes_first_screen_is_what_the_rows_of_the_tour_say() -> None:
    tour = ROOT / "results" / "reference" / "tour"
    (run,) = load([tour], find_datasheet)
    screen = (ROOT / "README.md").read_text("utf-8").split("\n```\n")[3].splitlines()
    judged = verdicts([tour], kernels.problem, lambda _: None, lambda _: None)
    assert screen == [part for line in answer_lines(run, judged) for part in wrapped(line, COLUMNS)]
