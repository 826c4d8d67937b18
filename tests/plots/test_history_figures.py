"""What is drawn of a history: every night once, in the right dress, and no word upon another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from bench.judge.history.detector import ConfirmedChange
from bench.judge.history.series import History
from plots.base import style
from plots.base.page import Page
from plots.history import figures
from plots.history.movers import movers
from plots.history.panel import step_marks
from plots.history.view import APART, View, calendar, moment
from tests.bench.nights_made import QUIET, doubted, made, missing, rows_of, stepped, throttled
from tests.plots.judged_made import HALF, cut, judged, seen, step

NIGHTS = 40
START = datetime(2026, 3, 1, 3, 30, tzinfo=UTC)


@pytest.fixture
def quiet(chance: np.random.Generator) -> History:
    return made(chance, 40, NIGHTS, noise=QUIET, segments=(12,))


@pytest.fixture
def gemm(quiet: History) -> list[int]:
    return rows_of(quiet, "gemm", "triton")


@pytest.fixture(autouse=True)
def look() -> Iterator[None]:
    with style.look():
        yield


def panel(view: View, row: int) -> tuple[Page, Axes]:
    ((_, page),) = figures.series(view, [row], 0)
    (axes,) = page.figure.axes
    return page, axes


def points(axes: Axes, name: str) -> list[tuple[float, float]]:
    return [
        (float(x), float(y))
        for line in axes.lines
        if line.get_label() == name
        for x, y in np.asarray(line.get_xydata()).tolist()
        if np.isfinite(y)
    ]


def upright(axes: Axes, name: str) -> np.ndarray:
    """[line, lower or upper end, x or y] of the vertical lines of this name."""
    (found,) = (one for one in axes.collections if one.get_label() == name)
    assert isinstance(found, LineCollection)
    return np.array([segment[[0, -1]] for segment in found.get_segments()])


def legend(page: Page) -> list[str]:
    return [text.get_text() for legend in page.figure.legends for text in legend.get_texts()]


def in_unit(axes: Axes, log_s: np.ndarray | float) -> Any:
    """These durations in the unit of the y axis."""
    unit = axes.get_ylabel().split("(")[1].rstrip(")")
    return {"ns": 1e9, "µs": 1e6, "ms": 1e3, "s": 1.0}[unit] * np.exp(log_s)


def test_each_night_is_drawn_once_and_doubt_makes_it_hollow(quiet: History, gemm: list[int]) -> None:
    row, odd, gone = gemm[2], [7, 21, 30], [8, 9]
    half = quiet.half.copy()
    half[row] = np.linspace(0.001, 0.02, NIGHTS)
    history = missing(doubted(replace(quiet, half=half), [row], odd), [row], gone)
    view = seen(judged(history))
    _, axes = panel(view, row)
    nights = dict(zip(view.calendar.x, range(NIGHTS), strict=True))
    solid, hollow = points(axes, "_night"), points(axes, "_doubted")
    assert [nights[x] for x, _ in hollow] == odd
    assert [nights[x] for x, _ in points(axes, "_missing")] == gone
    assert len(solid) == NIGHTS - 5
    for x, y in solid + hollow:
        assert y == pytest.approx(in_unit(axes, quiet.log_s[row, nights[x]]))
    (line,) = [one for one in axes.lines if one.get_label() == "_doubted"]
    assert line.get_markerfacecolor() == "white"
    ends = upright(axes, "_interval")[..., 1]
    assert np.log(ends[:, 1] / ends[:, 0]) / 2 == pytest.approx(np.delete(half[row], gone))


def test_lines_break_at_segments_and_where_nights_are_missing(quiet: History, gemm: list[int]) -> None:
    keep = [i for i in range(NIGHTS) if not 20 <= i < 27]
    _, axes = panel(seen(judged(cut(quiet, keep))), gemm[0])
    for name in ("_line", "_centre"):
        (line,) = [one for one in axes.lines if one.get_label() == name]
        y = np.asarray(line.get_ydata(), dtype=float)
        assert list(np.flatnonzero(np.isnan(y))) == [12, 21], name
    # The commit changes every night, and begins no segment.
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["driver 550.0 -> 550.1"]


def test_a_step_is_told_in_words_and_stays_on_the_axes(quiet: History, gemm: list[int]) -> None:
    for by, word in ((2.0, "SLOWER x 3, open"), (-0.4, "FASTER -40.0 %, open")):
        moved = stepped(quiet, gemm[:1], 37, by)
        _, axes = panel(seen(judged(moved, [step(quiet, gemm[0], 37, np.log1p(by))])), gemm[0])
        assert word in [text.get_text() for text in axes.texts]
        assert len(points(axes, "_night")) == NIGHTS and not points(axes, "_far")


def test_one_wild_night_stands_on_the_edge_and_is_told(quiet: History, gemm: list[int]) -> None:
    page, axes = panel(seen(judged(stepped(quiet, gemm[:1], 20, 9.0, until=21))), gemm[0])
    ((_, y),) = points(axes, "_far")
    assert y == axes.get_ylim()[1] and len(points(axes, "_night")) == NIGHTS - 1
    assert "beyond" in page.figure.caption


def test_what_the_machine_moved_is_drawn_beside_what_was_measured(quiet: History, gemm: list[int]) -> None:
    whole = judged(throttled(quiet, [20], 0.3))
    log = np.where(np.arange(NIGHTS) == 20, whole.series.log - 0.2, whole.series.log)
    view = seen(replace(whole, series=replace(whole.series, log=log)))
    page, axes = panel(view, gemm[0])
    expected = in_unit(axes, quiet.log_s[gemm[0], 20] + np.log(1.3) - 0.2)
    assert points(axes, "_judged") == [(view.calendar.x[20], pytest.approx(expected))]
    assert "Crosses" in page.figure.caption
    assert not points(panel(seen(judged(quiet)), gemm[0])[1], "_judged")


def test_a_step_is_told_on_the_nights_that_it_reaches_and_to_its_members(
    quiet: History, gemm: list[int]
) -> None:
    one = ConfirmedChange("class", "gemm triton", 1, 20, 21, None, None, np.log(1.1), HALF, tuple(gemm[1:]))
    view = seen(judged(quiet, [one]))
    told = [[mark.text for mark in step_marks(view, "series", row)] for row in gemm[:2]]
    assert told == [[], ["class SLOWER +10.0 %, open"]]
    still = step(quiet, gemm[0], 15, 0.1)
    over = step(quiet, gemm[0], 15, 0.1, ended=22, ending="accepted")
    for one, first, reaches in ((still, 30, True), (over, 20, True), (over, 22, True), (over, 23, False)):
        found = step_marks(seen(judged(quiet, [one]), first), "series", gemm[0])
        assert bool(found) == reaches, (one.ended, first)
        assert all(f"since {quiet.nights[15].utc[:10]}" in mark.text for mark in found)


def overlapping(page: Page) -> list[tuple[str, str]]:
    """Pairs of words over panels, titles and words beside rows that cover each other; what is cut off."""
    canvas = FigureCanvasAgg(page.figure)
    canvas.draw()
    texts = [text for axes in page.figure.axes for text in axes.texts]
    boxes = [
        (text.get_text(), text.get_window_extent(canvas.get_renderer()))
        for text in texts
        if isinstance(text, Annotation) and text.get_text()
    ]
    pairs = itertools.combinations([(text, box.padded(-0.5)) for text, box in boxes], 2)
    found = [(one, other) for (one, box), (other, next_box) in pairs if box.overlaps(next_box)]
    inside = page.figure.bbox.extents
    return found + [
        (text, "edge")
        for text, box in boxes
        if not np.array_equal(Bbox.union([page.figure.bbox, box]).extents, inside)
    ]


def test_words_never_cover_each_other(chance: np.random.Generator) -> None:
    segments = sorted({int(one) for one in chance.integers(1, NIGHTS, 14)})
    history_ = made(chance, 40, NIGHTS, noise=QUIET, segments=segments)
    row = rows_of(history_, "gemm", "triton")[0]
    steps = [
        step(history_, row, int(night), float(chance.uniform(-1, 1))) for night in chance.integers(0, 39, 6)
    ]
    steps += [replace(one, kind="class", row=which) for one in steps for which in (0, 1)]
    view = seen(judged(stepped(history_, [row], 38, 0.5), steps))
    pages = [*figures.series(view, [row], 3), *figures.classes(view), *figures.machine(view)]
    pages += figures.movers(view, movers(view))
    assert [stem.split("/")[0] for stem, _ in pages][:3] == ["series", "classes", "machine"]
    for stem, page in pages:
        assert not overlapping(page), stem


def test_words_that_find_no_room_are_counted(chance: np.random.Generator) -> None:
    view = seen(judged(made(chance, 6, 60, noise=QUIET, segments=range(5, 60, 2))))
    page, axes = panel(view, 8)
    lines = [line for line in axes.lines if line.get_label() == "_mark"]
    assert len(lines) == len(range(5, 60, 2)) > len(axes.texts) - 1
    assert "Lines without words" in page.figure.caption


def test_classes_with_an_open_step_come_first_and_dozens_take_pages(chance: np.random.Generator) -> None:
    many = made(chance, 90, 10, per_class=3, noise=QUIET)
    whole = judged(many)
    last = len(whole.classes) - 1
    one = ConfirmedChange("class", "x", last, 5, 6, None, None, 0.1, HALF, ())
    pages = list(figures.classes(seen(replace(whole, steps=(one,)))))
    assert len(whole.classes) == 30 and [stem for stem, _ in pages] == ["classes", "classes-2", "classes-3"]
    assert [len(page.figure.axes) for _, page in pages] == [12, 12, 6]
    name = whole.classes.iloc[last]
    title = next(text.get_text() for text in pages[0][1].figure.axes[0].texts if "series" in text.get_text())
    assert title.startswith(f"{name['operator']} {name['implementation']} (")


def test_what_is_drawn_of_series(quiet: History, gemm: list[int]) -> None:
    other = rows_of(quiet, "activations", "triton")
    moved = stepped(stepped(quiet, gemm, 30, 0.5), other[:1], 30, 0.05)
    open_ = step(moved, other[5], 39, 0.1)
    view = seen(judged(moved, [open_]))
    table = movers(view)
    rows, left_out = figures.chosen(view, table, "-k64-")
    assert rows[:2] == [gemm[0], other[5]] and len(rows) + left_out == 22
    # The one mover of the other class is not behind all twenty of the first.
    assert other[0] in rows[: 2 + figures.OF_A_CLASS + 1]
    everything, left_out = figures.chosen(view, table, "TRITON")
    assert len(everything) == figures.MOST_SERIES and left_out == 40 - figures.MOST_SERIES
    assert figures.matching(view, "gemm/sizes") == gemm and figures.matching(view, "") == []
    page = next(iter(figures.series(view, everything, left_out)))[1]
    assert "16 more series" in page.figure.caption


def test_series_that_read_alike_get_files_of_their_own(quiet: History) -> None:
    series = quiet.series.copy()
    series.loc[9] = series.loc[8]
    series.loc[9, "protocol"] = "another"
    view = seen(judged(replace(quiet, series=series)))
    assert view.labels[8] == view.labels[9]
    assert figures.stem(view, 8) != figures.stem(view, 9)


@pytest.mark.parametrize("nights", [1, 2])
def test_a_young_history_is_drawn_without_a_band(chance: np.random.Generator, nights: int) -> None:
    young = made(chance, 6, nights, noise=QUIET)
    whole = judged(young)
    none: Any = np.full_like(young.log_s, np.nan)
    track = replace(whole.series, centre=none, low=none, high=none)
    view = seen(replace(whole, series=track))
    page, axes = panel(view, 9)
    assert len(points(axes, "_night")) == nights
    assert "_band" not in [one.get_label() for one in axes.collections]
    assert "there is no band" in page.figure.caption and "band" not in legend(page)


def test_change_points_are_found_in_all_nights_and_drawn_on_those_shown(
    quiet: History, gemm: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[np.ndarray, list[int]]] = []

    def found(values: np.ndarray, segments: list[int]) -> list[int]:
        asked.append((values, segments))
        return [5, 20, 30]

    monkeypatch.setattr(figures, "change_points", found)
    view = seen(judged(doubted(quiet, gemm[:1], [13])), first=10)
    page, axes = panel(view, gemm[0])
    ((values, segments),) = asked
    assert list(np.flatnonzero(np.isnan(values))) == [13]
    assert values[20:] == pytest.approx(quiet.log_s[gemm[0], 20:]) and segments == [0] * 12 + [1] * 28
    assert upright(axes, "_change")[:, 0, 0].tolist() == [view.calendar.x[10], view.calendar.x[20]]
    assert "change point" in legend(page)


def test_classes_are_drawn_in_percent(quiet: History) -> None:
    view = seen(judged(stepped(quiet, rows_of(quiet, "activations", "triton"), 20, 0.1)))
    ((_, page),) = figures.classes(view)
    found = [y for _, y in points(page.figure.axes[0], "_night")]
    assert found == pytest.approx(100 * np.expm1(view.judged.by_class.log[0])) and max(found) > 9


# ---- nights on an axis of dates: in their order, at their time, none covering another


def utc(*hours: float) -> list[str]:
    return [(START + timedelta(hours=float(one))).isoformat() for one in hours]


def test_regular_nights_stand_at_their_own_time() -> None:
    for nights in (1, 2, 7, 60, 365, 1000):
        found = calendar(utc(*(24 * i for i in range(nights))))
        assert found.spread == 0 and not found.remark(), nights
        assert [moment(x) for x in found.x[:5]] == [START + timedelta(days=i) for i in range(min(nights, 5))]


def test_nights_never_overlap_and_never_change_order(chance: np.random.Generator) -> None:
    for _ in range(50):
        n = int(chance.integers(2, 60))
        hours = np.sort(chance.choice([0, 1, 24, 25, 500, 501, 2000], n) + chance.integers(0, 2, n) / 60)
        found = calendar(utc(*hours))
        apart = np.diff(found.x)
        span = float(found.x[-1] - found.x[0])
        assert (apart > 0).all() and float(apart.min()) >= 0.3 * min(APART, 0.5 / n) * span
        assert found.together == (hours[0] == hours[-1])


def test_two_nights_of_one_time_are_told_and_stay_near() -> None:
    found = calendar(utc(0, 24, 48, 48, 72))
    assert found.spread == 1 and "1 night stands" in found.remark()
    assert 0 < found.x[3] - found.x[2] < 0.1 and found.x[4] - found.x[2] == pytest.approx(1)


def test_nights_all_of_one_time_stand_in_their_order() -> None:
    found = calendar(utc(5, 5, 5))
    assert found.together and not found.remark()
    assert found.ticks(8) == ([found.x[0]], ["08:30"], "2026-03-01")


def test_ticks_are_inside_distinct_and_say_all_of_the_date() -> None:
    for hours in ((0, 1, 2), (0, 30), (0, 24 * 6), (0, 24 * 50), (0, 24 * 300), (0, 24 * 2000)):
        found = calendar(utc(*hours))
        places, labels, common = found.ticks(8)
        assert 2 <= len(places) == len(set(labels)) <= 16 or hours[-1] > 24 * 365, hours
        assert all(found.x[0] <= one <= found.x[-1] for one in places)
        assert "2026" in common
        assert hours[-1] <= 24 * 365 or common.startswith("2026 to 20")


def test_a_place_is_its_time_to_the_second(chance: np.random.Generator) -> None:
    seconds = np.sort(chance.choice(10**8, 100, replace=False)).tolist()
    found = calendar([(START + timedelta(seconds=one)).isoformat() for one in seconds[:2]])
    assert [moment(x) for x in found.x] == [START + timedelta(seconds=one) for one in seconds[:2]]
    for one in seconds:
        (x,) = calendar([(START + timedelta(seconds=one)).isoformat()]).x
        assert moment(float(x)) == START + timedelta(seconds=one)


def test_shares_run_from_0_to_1() -> None:
    found = calendar(utc(0, 24))
    low, high = found.limits
    assert (found.share(low), found.share(high)) == (0.0, 1.0) and 0 < found.share(found.x[0]) < 0.1
