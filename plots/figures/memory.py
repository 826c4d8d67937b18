"""Figure of memory: what training steps hold at most (`peak_byte`) over one parameter, with the prediction.

Points are counted, so they have no interval. The dashed line is bench.model.step_memory's, which knows
the problem alone. Over depth, steps with checkpoints are one line, however many segments each has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench.judge.frame import DeviceRun
from bench.model.step_memory import TrainingStep
from plots.base import scale, style
from plots.base.page import Page, PanelPage, Panels, leaves
from plots.base.parameter_words import axis_words
from plots.base.plot_spec import Section, split

MOST_PANELS = 6
"""Panels on one page."""
_PLACES = Panels(2, 3.475, 2.5, 0.7, 0.75 / 3.1)
_LINES = ("implementation", "optimizer", "checkpoints")
_PANELS = ("layers", "width", "batch", "dtype", "threads_asked")


def draw(run: DeviceRun, rows: pd.DataFrame, section: Section) -> Iterator[Page]:
    """A page for each six panels; none where no line has two points."""
    shown = rows[rows[section.x].notna() & (rows["peak_byte"] > 0)]
    checkpoints = np.where(shown["segments"] > 1, "with checkpoints", "without checkpoints")
    shown = shown.assign(
        checkpoints=checkpoints if section.x != "segments" else "", predicted=_predicted(shown)
    )
    apart = [name for name in _PANELS if name != section.x and shown[name].nunique() > 1]
    groups = [(key, panel) for key, panel in split(shown, apart) if panel[section.x].nunique() > 1]
    if not groups:
        return
    shown = pd.concat([panel for _, panel in groups])
    columns = [name for name in _LINES if shown[name].nunique() > 1] or ["implementation"]
    keys = list(dict.fromkeys(zip(*(shown[name] for name in columns), strict=True)))
    looks = style.of_lines(tuple(columns), keys)
    entries = [style.marker(style.named(columns, key), of.color, of.marker) for key, of in looks.items()]
    entries.append(Line2D([], [], color="#444444", ls="--", lw=1.0, label="predicted"))
    off = float((shown["predicted"] / shown["peak_byte"] - 1).abs().max())
    caption = [
        f"Counted, so without intervals. Predicted from the sizes: at most {100 * off:.2g} % off.",
        "Inputs are left out, and so are the weights where there is no optimizer.",
    ]
    for here, which in leaves(groups, MOST_PANELS):
        title = f"{section.heading(shown)}{which}"
        facts = style.facts(run, shown)
        page = PanelPage(len(here), _PLACES, title, facts, caption, decided=section.decided)
        places = page.axes(entries, axis_words(section.x, "training"), "memory, MB")
        for axes, (key, panel) in zip(places, here, strict=True):
            axes.set_title(style.named(apart, key), y=1.0)
            _panel(axes, panel.sort_values(section.x), section.x, columns, looks)
        yield page


def _predicted(rows: pd.DataFrame) -> list[int]:
    """Bytes of each row by the model of a training step, which has a field for each parameter."""
    predicted = []
    for row in rows.to_dict("records"):
        sizes: dict[str, Any] = {field.name: row[field.name] for field in fields(TrainingStep)}
        sizes = {name: size if isinstance(size, str) else int(size) for name, size in sizes.items()}
        predicted.append(TrainingStep(**sizes).peak_byte(str(row["implementation"])))
    return predicted


def _panel(
    axes: Axes,
    rows: pd.DataFrame,
    x: str,
    columns: list[str],
    looks: Mapping[tuple[Any, ...], style.LineStyle],
) -> None:
    for key, line in rows.groupby(columns, sort=False):
        look = looks[key]
        axes.plot(line[x], line["predicted"] / 1e6, color=look.color, ls="--", lw=1.0, label="_predicted")
        how: dict[str, Any] = {"color": look.color, "ms": 4.4, "label": "_measured", "zorder": 4}
        axes.plot(line[x], line["peak_byte"] / 1e6, look.marker, **how)
    values = rows[x].to_numpy(dtype=float)
    scale.swept(axes.xaxis, values, log=bool((values > 0).all()), width_in=3.1)
    scale.measured(axes.yaxis, rows["peak_byte"].to_numpy(dtype=float) / 1e6, log=True)
