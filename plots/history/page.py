"""A device's history as one self-contained HTML file: what changed, what moved, every night.

Every word that comes from a file is escaped by the template engine; figures are inlined.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Template

from bench.format import change_text, seconds_text
from bench.judge.history.detector import ConfirmedChange
from plots.base.shell import templates
from plots.history.movers_figure import PREFIX
from plots.history.view import View, changed, state, verdict

MOST = 60
"""Movers of the page's table; movers.csv has all."""
_PARTS = (
    *(("The movers, drawn", "movers"), ("The machine", "machine")),
    *(("Classes", "classes"), ("Series", "series")),
)
"""Title of a part of the page, and how the stems of its figures begin."""


class Drawn(NamedTuple):
    """A figure that was saved."""

    stem: str
    """Path below the page's folder, without its ending."""
    alt: str
    """Its title, as the alternative text."""
    narrow: bytes = b""
    """The same as a PNG for a narrow window; empty if it is only drawn wide."""


class DeviceLine(NamedTuple):
    """A line of the page over all devices."""

    view: View
    folder: str
    """Folder of its page, relative to the page over all."""
    has_page: bool = True
    """Not if it is one of many units of its kind and has no open step."""


def html(view: View, moved: pd.DataFrame, drawn: Sequence[Drawn], folder: Path) -> str:
    """The page; figures are read from where they were saved below `folder`. OSError if they cannot be."""

    def png(stem: str) -> str:
        return base64.b64encode((folder / f"{stem}.png").read_bytes()).decode()

    doubted = view.history.doubted.sum(0)[view.first :]
    return _template("page.html.j2").render(
        view=view,
        remarks=_remarks(view),
        steps=tonight(view),
        movers=moved.head(MOST).to_dict("records"),
        movers_left=max(0, len(moved) - MOST),
        parts=[
            (title, [figure for figure in drawn if figure.stem.startswith(stems)]) for title, stems in _PARTS
        ],
        png=png,
        nights=list(zip(view.nights, doubted, strict=True)),
    )


def index_html(devices: Sequence[DeviceLine]) -> str:
    """The page that links the devices' pages."""
    return _template("index.html.j2").render(devices=devices)


def tonight(view: View) -> list[ConfirmedChange]:
    """Steps that stand open, then those that the last night raised or ended; the newest of each first."""
    last = len(view.history.nights) - 1
    closed = [step for step in reversed(view.judged.steps) if step.ended is not None]
    return [*view.open_steps(), *(step for step in closed if last in (step.raised, step.ended))]


def _template(name: str) -> Template:
    environment = templates(Path(__file__).parent)
    environment.filters |= {"change": change_text, "changed": changed, "exp": math.exp}
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    environment.filters |= {"seconds": seconds_text, "state": state, "verdict": verdict}
    environment.globals["prefix"] = PREFIX
    return environment.get_template(name)


def _remarks(view: View) -> list[str]:
    """Remarks that a reader must know before interpreting the page."""
    history, judged = view.history, view.judged
    nights = len(history.nights)
    usable = np.isfinite(history.log_s) & ~history.doubted
    remarks = []
    if view.first:
        remarks.append(f"Shown are the last {len(view.nights)} of {nights} nights; judged are all.")
    if nights == 1:
        remarks.append("This is the first night: there is nothing to compare with yet.")
    elif not usable.any():
        remarks.append("Every time of every night is suspect, so nothing was judged.")
    elif not (usable.sum(1) > 1).any():
        remarks.append("No series has a time on two nights, so there is nothing to compare.")
    elif judged.short.all():
        remarks.append("No series has enough nights of this segment behind it to be judged yet.")
    elif judged.short.any():
        n, of = int(judged.short.sum()), len(judged.short)
        remarks.append(f"{n} of {of} series have too few nights of this segment behind them to be judged.")
    return remarks
