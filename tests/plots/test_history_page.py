"""The page: whole HTML that needs nothing else, every word escaped, every fact where it belongs."""

from __future__ import annotations

import base64
import csv
import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from bench.judge.comparability import Difference
from bench.judge.history.detector import ConfirmedChange
from bench.judge.history.series import History
from plots.history import page as history
from plots.history.movers import movers
from plots.history.view import View, moment_of, view
from tests.bench.nights_made import QUIET, doubted, made, missing, rows_of, stepped
from tests.plots.judged_made import HALF, cut, judged, seen, step

NIGHTS = 16


@pytest.fixture
def quiet(chance: np.random.Generator) -> History:
    return made(chance, 25, NIGHTS, noise=QUIET)


class Parsed(HTMLParser):
    """Tags that are never closed or closed out of order, and what a browser would load or run."""

    VOID = frozenset({"meta", "source", "img", "br", "link", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.images: list[tuple[str, bytes]] = []
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        assert not [name for name in given if name.startswith("on")]
        if tag == "a":
            self.links.append(given.get("href") or "")
        elif src := given.get("src"):
            kind, _, data = src.partition(",")
            self.images.append((kind, base64.b64decode(data, validate=True)))
            assert given.get("alt")
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def table(self, heading: str) -> list[list[str]]:
        """Rows of the table with this word among its headings."""
        (at,) = (i for i, row in enumerate(self.rows) if heading in row)
        rows = itertools.takewhile(
            lambda row: len(row) == len(self.rows[at]) and row[0] != "began (UTC)", self.rows[at + 1 :]
        )
        return [[" ".join(cell.split()) for cell in row] for row in rows]


def page(view: View) -> Parsed:
    return Parsed(history.html(view, movers(view), [], Path(".")))


HOSTILE = "<script>alert(1)</script>\"'&amp;<img src=x onerror=y>"


def test_nothing_from_a_file_becomes_markup(quiet: History) -> None:
    words = {"commit": HOSTILE, "remarks": (HOSTILE,), "facts": {"driver": HOSTILE}}
    nights = [replace(n, run=n.run._replace(run_id=HOSTILE), **words) for n in quiet.nights]
    nights[-1] = replace(nights[-1], changed=(Difference(HOSTILE, HOSTILE, HOSTILE),))
    row = rows_of(quiet, "gemm", "triton")[0]
    series = quiet.series.copy()
    series["operator"] = HOSTILE
    hostile = replace(
        stepped(quiet, [row], 10, 0.3), nights=tuple(nights), device_name=HOSTILE, unit="", series=series
    )
    one = step(hostile, row, 14, 0.3, name=HOSTILE)
    found = page(seen(judged(hostile, [one])))
    assert "script" not in found.tags and "img" not in found.tags
    assert found.words.count(HOSTILE) >= 3 * NIGHTS + 8
    index = Parsed(history.index_html([history.DeviceLine(seen(judged(hostile)), HOSTILE)]))
    assert "script" not in index.tags and HOSTILE in index.words
    assert all("<" not in link and '"' not in link for link in index.links)


def test_it_needs_nothing_else(quiet: History, tmp_path: Path) -> None:
    row = rows_of(quiet, "gemm", "triton")[0]
    view = seen(judged(stepped(quiet, [row], 10, 0.3), [step(quiet, row, 10, np.log(1.3))]))
    drawn = history.save(view, tmp_path, "")
    text = (tmp_path / "index.html").read_text("utf-8")
    found = Parsed(text)
    assert drawn == len(found.images) == 4
    for kind, image in found.images:
        assert kind == "data:image/png;base64"
        assert image.startswith(b"\x89PNG") and image.endswith(b"IEND\xaeB`\x82")
    assert not re.search(r"https?://|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text and "script" not in found.tags
    assert found.links and all((tmp_path / link).is_file() for link in found.links)
    with (tmp_path / "movers.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert "row" not in line and line["name"] == view.labels[row] and line["state"] == "open"
    assert float(line["moved_s"]) == pytest.approx(float(line["now_s"]) - float(line["before_s"]))


def test_tonight_is_what_is_open_or_came_or_went_tonight(quiet: History) -> None:
    row, last = rows_of(quiet, "gemm", "triton")[0], NIGHTS - 1
    old = step(quiet, row, 3, 0.1, ended=10, ending="accepted", name="old")
    went = step(quiet, row, 8, 0.1, ended=last, ending="recovered", name="went")
    still = step(quiet, row, 9, 0.2, name="still")
    came = step(quiet, row, last - 1, -0.1, name="came")
    hot = ConfirmedChange("machine", "memory", 0, 9, 10, None, None, 0.3, HALF, (0, 2))
    whole = ConfirmedChange("class", "gemm triton", 1, 9, 10, None, None, 0.06, HALF, (row, row + 1, row + 2))
    rows = page(seen(judged(quiet, [old, went, still, whole, hot, came]))).table(
        "what else changed that night"
    )
    assert [one[:3] for one in rows] == [
        ["FASTER", "came", "-9.5 %"],
        ["SLOWER", "the machine: memory (2 series with it)", "+35.0 %"],
        ["SLOWER", "all of gemm triton (3 series with it)", "+6.2 %"],
        ["SLOWER", "still", "+22.1 %"],
        ["SLOWER", "went", "+10.5 %"],
    ]
    assert [one[5] for one in rows] == ["open"] * 4 + ["recovered"]
    assert [one[3] for one in rows] == ["3.3", "10.0", "2.0", "6.7", "3.3"]
    night = quiet.nights[9]
    assert rows[3][4] == f"{night.utc[:10]}, {night.commit}"
    assert rows[3][6] == f"commit {quiet.nights[8].commit} -> {night.commit}"
    assert "Nothing: no step stands open" in page(seen(judged(quiet, [old]))).words


def test_every_night_shown_is_listed_the_newest_first(quiet: History) -> None:
    gone = missing(doubted(quiet, [9, 10, 11], [NIGHTS - 1]), [1], [2])
    nights = list(gone.nights)
    nights[-1] = replace(nights[-1], timed=30, asked=33, remarks=("cut short", "odd"))
    view = seen(judged(replace(gone, nights=tuple(nights))), first=4)
    rows = page(view).table("timed of asked")
    assert [one[0] for one in rows] == [n.utc[:16].replace("T", " ") for n in reversed(nights[4:])]
    assert rows[0][3:5] == ["30 of 33", "3"] and rows[0][6] == "cut short; odd" and rows[1][4] == ""
    assert f"Shown are the last {NIGHTS - 4} of {NIGHTS} nights" in page(view).words


def test_movers_are_listed_up_to_a_number(quiet: History, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = stepped(quiet, rows_of(quiet, "gemm", "triton"), 10, 0.3)
    view = seen(judged(moved))
    table = movers(view)
    rows = page(view).table("before")
    assert [one[1].removeprefix("all of ") for one in rows] == list(table["name"])
    assert {one[0] for one in rows} == {"SLOWER"} and all(one[5].startswith("+") for one in rows)
    monkeypatch.setattr(history, "MOST", 4)
    some = page(view)
    assert len(some.table("before")) == 4 and f"{len(table) - 4} more are in the file" in some.words


def test_what_there_is_not_is_said(quiet: History) -> None:
    def said(history: History, short: bool = False) -> str:
        whole = judged(history)
        return page(seen(replace(whole, short=np.full(len(history.series), short)))).words

    assert "first night: there is nothing to compare with" in said(cut(quiet, [0]))
    rows = range(len(quiet.series))
    with np.errstate(all="ignore"):
        assert "is suspect, so nothing was judged" in said(doubted(quiet, rows, range(NIGHTS)))
        apart = missing(missing(cut(quiet, [0, 1]), rows[:9], [0]), rows[9:], [1])
        assert "No series has a time on two nights" in said(apart)
    assert "No series has enough nights" in said(quiet, short=True)
    calm = said(quiet)
    assert "Nothing left its band" in calm
    assert "nothing to compare" not in calm and "enough nights" not in calm


def test_a_page_of_every_device_and_of_each_unit(quiet: History) -> None:
    other = replace(quiet, unit="aaaabbbbcccc")
    alone = replace(cut(quiet, range(5)), device="nvidia-t4", device_name="Tesla T4")
    told: list[str] = []
    found = history.shown([quiet, other, alone], None, None, told.append)
    assert [one.folder for one in found] == [
        f"{quiet.device}-{quiet.unit[:8]}",
        f"{quiet.device}-aaaabbbb",
        "nvidia-t4",
    ]
    row = rows_of(quiet, "gemm", "triton")[0]
    steps = [step(quiet, row, 9, 0.2), step(quiet, row, 9, 0.1), step(quiet, row, 9, -0.2)]
    steps += [step(quiet, row, 3, 0.2, ended=9, ending="accepted"), replace(steps[0], kind="machine", row=0)]
    found[0] = history.DeviceLine(seen(judged(quiet, steps)), found[0].folder)
    index = Parsed(history.index_html(found))
    assert index.links == [f"{one.folder}/index.html" for one in found]
    first, _, third = index.table("last night")
    assert first[1:] == ["2026-01-16 02:00", "16", "2", "1"]
    assert third[1:] == ["2026-01-05 02:00", "5", "0", "0"]
    late = history.shown([quiet, alone], moment_of("2026-01-10"), None, told.append)
    assert [one.folder for one in late] == [quiet.device]
    assert told == ["nvidia-t4: its last night is of 2026-01-05, before --since; nothing shown of it"]


def test_which_nights_are_shown(quiet: History) -> None:
    whole = judged(quiet)

    def shown(moment: str | None, last: int | None) -> int:
        found = view(whole, [""] * len(quiet.series), moment_of(moment) if moment else None, last)
        return len(found.nights) if found else 0

    assert shown(None, None) == 16 and shown(None, 3) == 3 and shown(None, 99) == 16
    assert shown("2026-01-10", None) == 7 and shown("2026-01-10T02:00", None) == 7
    assert shown("2026-01-10T02:00:01", None) == 6 and shown("2026-01-10T02:30+01:00", None) == 7
    assert shown("2026-01-10", 3) == 3 and shown("2026-01-15", 3) == 2 and shown("2026-01-17", None) == 0
