"""Figure of tile and wave quantization: rate and duration over m or n of a forced tile, and the staircase.

There is a page for each tile and each problem but for the swept size. Kernels that choose their own tile are
further lines. Verticals show where the tiles need one more wave, or one more row or column; the strip below
shows how full the last wave is. The staircase is the structured level, if the run has its ceilings; it is not
fitted to these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, MultipleLocator

from bench.judge.frame import DeviceRun, parameter_names
from bench.model import quantization as model
from plots.base import measured_points, prediction_lines, scale, style
from plots.base.measured_points import Columns
from plots.base.page import Page
from plots.base.parameter_words import axis_words
from plots.base.plot_spec import Section, split
from plots.base.prediction_lines import STRUCTURED, Quantity

_WIDTH_IN = 7.4
_RATE_IN, _DURATION_IN, _STRIP_IN = 2.5, 2.0, 0.8
MOST_EDGES = 60
"""Most verticals of one kind that can be distinguished in a figure; more are not drawn."""
_EDGES: tuple[dict[str, Any], ...] = (
    {"color": "#555555", "lw": 0.9, "ls": "-", "alpha": 0.7, "zorder": 0.9},
    {"color": style.GREY, "lw": 0.6, "ls": (0, (1, 2)), "zorder": 0.8},
)
"""Looks of the verticals: edges of waves, and of tiles."""


def draw(run: DeviceRun, rows: pd.DataFrame, section: Section) -> Iterator[Page]:
    """The pages for rows of one sweep over m or n; none without a forced tile on a GPU."""
    x = section.x
    rows = rows[rows[x].notna() & (rows["device_kind"] == "cuda")]
    fixed = [c for c in ("dtype", *parameter_names(rows), "cache") if c != x]
    # One staircase needs every parameter but x to be fixed.
    apart = [c for c in fixed if rows[c].nunique(dropna=False) > 1]
    shown = [c for c in fixed if c in ("dtype", "m", "n", "k", "layout", *apart)]
    for _, of_problem in split(rows, apart):
        timed = of_problem[of_problem["median_s"].notna()]
        forced = {name: model.forced_tile(name) for name in timed["implementation"].unique()}
        for tile in sorted({tile for tile in forced.values() if tile is not None}, reverse=True):
            here = timed[[forced[name] in (None, tile) for name in timed["implementation"]]]
            held = here[[forced[name] == tile for name in here["implementation"]]]
            if held[x].nunique() > 1:
                problem = style.named(shown, here[shown].iloc[0])
                yield _Drawing(run, x, tile, here, len(of_problem) - len(timed)).page(problem, section)


def _tiled(shapes: pd.DataFrame, tile: tuple[int, int], sm_count: int) -> pd.DataFrame:
    """These m and n with their `tiles`, `waves`, and the shares of the last wave and of the tiles in use.

    A wave is one tile for each SM.
    """
    pairs = list(shapes[["m", "n"]].astype(int).itertuples(index=False))
    tiles = [model.tiles(m, n, *tile) for m, n in pairs]
    return shapes.assign(
        tiles=tiles,
        waves=[model.waves(count, sm_count) for count in tiles],
        last_wave=[model.last_wave(count, sm_count) for count in tiles],
        useful=[model.tile_efficiency(m, n, *tile) for m, n in pairs],
    )


class _Drawing:
    """One page: its rows are timed, of one problem but for x, with one forced tile or none."""

    def __init__(self, run: DeviceRun, x: str, tile: tuple[int, int], rows: pd.DataFrame, lost: int) -> None:
        self.run, self.x, self.lost, self.tile = run, x, lost, tile
        self.sm_count = int(rows["sm_count"].iloc[0])
        self.rows = _tiled(rows.sort_values(x), tile, self.sm_count)
        self.first, self.last = int(rows[x].min()), int(rows[x].max())
        self.step = tile["mn".index(x)]
        # Sizes that fill their tiles: one more row or column needs further tiles.
        self.edges = [at for at in range(self.step, self.last, self.step) if at >= self.first]
        # Enough sizes to draw every step upright, and the parts between steps smoothly.
        even = np.linspace(self.first, self.last, 512).round().astype(int).tolist()
        sizes = sorted({*even, *self.edges, *(at + 1 for at in self.edges)})
        row = rows.iloc[0]
        shapes = pd.DataFrame({"m": int(row["m"]), "n": int(row["n"])}, sizes).assign(**{x: sizes})
        self.stairs = _tiled(shapes, tile, self.sm_count)
        self.flop_per_x = float(row["flop"]) / float(row[x])
        names = sorted(rows["implementation"].unique())
        self.looks = {name: style.of_implementation(name) for name in names}
        known = set(rows["implementation"][rows["structured_s"].notna()])
        self.structured = [n for n in names if n in known and model.forced_tile(n) == tile]

    def page(self, problem: str, section: Section) -> Page:
        page = Page(
            _WIDTH_IN + Page.LEFT + Page.RIGHT,
            _RATE_IN + _DURATION_IN + _STRIP_IN,
            f"{section.heading(self.rows)}: tiles of {'x'.join(map(str, self.tile))}, {problem}",
            style.facts(self.run, self.rows),
            self._caption(),
        )
        page.legend(self._entries())
        grid = page.grid(3, 1, height_ratios=[_RATE_IN, _DURATION_IN, _STRIP_IN], hspace=0.1)
        rate = page.figure.add_subplot(grid[0])
        duration, strip = (page.figure.add_subplot(grid[i], sharex=rate) for i in (1, 2))
        self._quantity(rate, "rate", Columns("flop_per_s", "flop_low_per_s", "flop_high_per_s"))
        self._quantity(duration, "duration", Columns("median_s", "low_s", "high_s"))
        self._strip(strip)
        for axes in (rate, duration, strip):
            axes.grid(visible=False, axis="x")
            for edges, label, look in zip(self._verticals, ("_wave_edge", "_tile_edge"), _EDGES, strict=True):
                for at in edges:
                    axes.axvline(at, label=label, **look)
        for axes in (rate, duration):
            axes.tick_params(axis="x", labelbottom=False)
        self._ticks(strip)
        return page

    def _quantity(self, axes: Axes, quantity: Quantity, columns: Columns) -> None:
        factor, unit = scale.scaled(self.rows[columns.middle], "s" if quantity == "duration" else "flop/s")

        def drawn(sizes: np.ndarray, seconds: np.ndarray) -> np.ndarray:
            """The time of a launch at each of these sizes, or the rate, in the unit of the axis."""
            if quantity == "duration":
                return seconds * factor
            return np.asarray(self.flop_per_x * sizes / seconds * factor)

        for name, look in self.looks.items():
            rows = self.rows[self.rows["implementation"] == name]
            at = rows[self.x].to_numpy(dtype=float)
            points = measured_points.placed(rows, at, columns, factor)
            measured_points.series(axes, points, look, joined=not rows["imported"].all())
        predicted = prediction_lines.Lines(axes, quantity, factor)
        for name in self.structured:
            sizes, seconds = self._structured(name)
            predicted.add(STRUCTURED, sizes, drawn(sizes, seconds), self.looks[name].color)
        axes.set_ylabel(f"{quantity} ({unit})")
        scale.measured(axes.yaxis, self.rows[columns.middle].to_numpy(dtype=float) * factor, log=False)
        axes.set_ylim(0, axes.get_ylim()[1])

    def _structured(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(sizes, seconds) of the structured level for the rows of an implementation.

        The line is upright where a single edge of the tiles lies between two rows.
        """
        known = self.rows[(self.rows["implementation"] == name) & self.rows["structured_s"].notna()]
        sizes, seconds = known[self.x].astype(int).tolist(), known["structured_s"].tolist()
        at, y = sizes[:1], seconds[:1]
        for i in range(1, len(sizes)):
            edges = [edge for edge in self.edges if sizes[i - 1] <= edge < sizes[i]]
            if len(edges) == 1:
                at += [edges[0], edges[0] + 1]
                y += [seconds[i - 1], seconds[i]]
            at.append(sizes[i])
            y.append(seconds[i])
        return np.array(at), np.array(y)

    def _strip(self, axes: Axes) -> None:
        filled, useful = self.stairs["last_wave"], self.stairs["useful"]
        axes.fill_between(filled.index, 0, filled, color="#CFE2F3", lw=0, zorder=1)
        lines = axes.plot(filled, color=style.BLUE, lw=0.8, label="_last_wave", zorder=2)
        lines += axes.plot(useful, color="#444444", lw=0.8, ls=":", label="_useful", zorder=2)
        words = ["of the last wave that is filled", "of the tiles that is inside the matrix"]
        for look, word, at in zip(_EDGES, ("one more wave", "more tiles"), self._verticals, strict=True):
            if at:
                lines.append(Line2D([], [], **look))
                words.append(word)
        how: dict[str, Any] = {"loc": "lower right", "fontsize": 7, "frameon": True, "framealpha": 0.8}
        axes.legend(lines, words, borderpad=0.2, edgecolor="none", ncols=2, **how)
        axes.set_ylim(0, 1.08)
        axes.yaxis.set_major_locator(FixedLocator([0, 0.5, 1]))
        axes.set_ylabel("share")

    @cached_property
    def _verticals(self) -> tuple[list[int], list[int]]:
        """Edges of waves, and of tiles that are not edges of waves; each empty if there are too many."""
        count = self.stairs["waves"]
        waves = [at for at in self.edges if count[at + 1] > count[at]]
        tiles = [at for at in self.edges if at not in waves]
        return waves if len(waves) <= MOST_EDGES else [], tiles if len(tiles) <= MOST_EDGES else []

    def _ticks(self, axes: Axes) -> None:
        """Ticks at multiples of the tile, where the steps are."""
        span = self.last - self.first
        axes.set_xlim(self.first - 0.02 * span, self.last + 0.02 * span)
        every = self.step * max(1, round(span / self.step / 10))
        inside = self.last // every - (self.first - 1) // every
        axes.xaxis.set_major_locator(MultipleLocator(every) if inside > 1 else MaxNLocator(8, integer=True))
        axes.set_xlabel(axis_words(self.x, str(self.rows["operator"].iloc[0])))

    def _entries(self) -> list[Artist]:
        entries: list[Artist] = [
            style.marker(f"{name} (imported)", look.color, measured_points.IMPORTED)
            if self.rows["imported"].all()
            else measured_points.handle(name, look)
            for name, look in self.looks.items()
        ]
        if self.rows["suspect"].any():
            entries.append(style.flagged(4.4))
        color = self.looks[self.structured[0]].color if len(self.structured) == 1 else STRUCTURED.alone
        line = Line2D([], [], color=color, label="predicted from tiles and waves", **STRUCTURED.look)
        return [*entries, line] if self.structured else entries

    def _caption(self) -> list[str]:
        sentences = [style.flag_counts(self.rows)]
        if self.lost:
            sentences.insert(0, f"{self.lost} further cases have no time.")
        if not self.structured:
            sentences.insert(0, "This run lacks a ceiling that these rows need, hence no prediction.")
        else:
            held = self.rows[self.rows["implementation"].isin(self.structured)]
            off = (held["structured_s"] / held["median_s"] - 1).abs().mean()
            sentences += [
                f"Predicted from other timings: off by {off * 100:.2g} % in the mean.",
                prediction_lines.bound(held),
            ]
        sentences.append(measured_points.caption(self.rows))
        return sentences
