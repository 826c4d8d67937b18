"""Page: a figure with room for its title, its legend and its caption."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

T = TypeVar("T")
MOST_ENTRIES = 10
"""Most entries of a legend: more looks than these cannot be told apart."""


def leaves(panels: Sequence[T], most: int) -> Iterator[tuple[Sequence[T], str]]:
    """The panels of each page, with the addition to its title, empty for a single page."""
    pages = math.ceil(len(panels) / most)
    for i in range(pages):
        yield panels[i * most : (i + 1) * most], f" (page {i + 1} of {pages})" if pages > 1 else ""


class Captioned(Figure):
    """A figure with its whole caption, of which its page shows one line."""

    caption = ""


class Page:
    """A figure of a given drawing area, with room in inches for title, legend and caption.

    Margins are fixed instead of using matplotlib's constrained layout, which takes five times as long.
    """

    LEFT, RIGHT, UNDER = 0.72, 0.2, 0.45

    def __init__(
        self,
        width_in: float,
        height_in: float,
        title: str,
        below: str,
        caption: Sequence[str],
        under_in: float = UNDER,
    ) -> None:
        """`height_in` is the drawing area's, x labels included; the page grows around it.

        `caption` are sentences, the most important first: those that fit on one line stand below the axes,
        and all of them are in the description that the saved files carry.
        `under_in` is the margin under the axes for x labels.
        """
        self.width_in = width_in
        self._under_in = under_in
        columns = int((width_in - 0.3) * 16.4)
        self._title = textwrap.wrap(title, int(columns * 0.62)) or [""]
        self._below = [line.strip(" ·") for line in textwrap.wrap(below, columns)]
        self._caption = _one_line([sentence for sentence in caption if sentence], columns)
        self._area_in = height_in
        self._legend: list[list[Artist]] = []
        self.figure = Captioned()
        self.figure.caption = " ".join(filter(None, caption))

    def legend(self, entries: Sequence[Artist]) -> None:
        """Lay the entries in rows that fit the width."""
        row_in = math.inf
        for entry in entries:
            need_in = 0.47 + 0.062 * len(str(entry.get_label()))
            if row_in + need_in > self.width_in - 0.3:
                self._legend.append([])
                row_in = 0.0
            self._legend[-1].append(entry)
            row_in += need_in

    def grid(self, rows: int, columns: int, **how: Any) -> GridSpec:
        """Grid of axes in the drawing area; call after `legend`."""
        top_in = 0.14 + 0.21 * len(self._title) + 0.15 * len(self._below) + 0.2 * len(self._legend) + 0.26
        bottom_in = self._under_in + (0.31 if self._caption else 0.17)
        height_in = top_in + self._area_in + bottom_in
        figure = self.figure
        figure.set_size_inches(self.width_in, height_in)
        y_in = height_in - 0.14
        at_x = 0.15 / self.width_in
        for line in self._title:
            figure.text(at_x, y_in / height_in, line, size=11, weight="bold", va="top")
            y_in -= 0.21
        for line in self._below:
            figure.text(at_x, y_in / height_in, line, size=7.5, color="#444444", va="top")
            y_in -= 0.15
        for row in self._legend:
            figure.legend(
                handles=row,
                loc="upper left",
                bbox_to_anchor=(at_x, (y_in - 0.03) / height_in),
                ncols=len(row),
                borderpad=0.0,
                borderaxespad=0.0,
                handlelength=2.2,
                columnspacing=1.3,
                handletextpad=0.5,
            )
            y_in -= 0.2
        figure.text(at_x, 0.08 / height_in, self._caption, size=7, color="#555555", va="bottom")
        return figure.add_gridspec(
            rows,
            columns,
            left=self.LEFT / self.width_in,
            right=1 - self.RIGHT / self.width_in,
            top=1 - top_in / height_in,
            bottom=bottom_in / height_in,
            **how,
        )

    def save(self, stem: Path) -> list[Path]:
        """Write `stem`.png at 150 dpi and `stem`.svg; the paths."""
        stem.parent.mkdir(parents=True, exist_ok=True)
        paths = [stem.with_name(stem.name + ending) for ending in (".png", ".svg")]
        # A low level of compression makes files a tenth larger and saves much of the time.
        about = {"Description": self.figure.caption}
        self.figure.savefig(paths[0], dpi=150, metadata=about, pil_kwargs={"compress_level": 3})
        self.figure.savefig(paths[1], metadata=about | {"Date": None})
        return paths


def _one_line(sentences: Sequence[str], columns: int) -> str:
    """The first sentences that fit into so many columns."""
    line = ""
    for sentence in sentences:
        longer = f"{line} {sentence}".strip()
        line = longer if len(longer) <= columns else line
    return line
