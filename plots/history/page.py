"""The nights of one device as a folder: a page, the figures in it, and the movers as a table.

index.html                     all of it, in one file, with every word that comes from a file escaped
movers.csv movers.png          what moved (plots/history/movers.py)
machine.png classes.png        how the ceilings and the classes did
series/<series>.png            those that moved, that stand open or that were requested; each also as SVG
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Template

from bench.case_name import row_name
from bench.errors import UserError
from bench.format import change_text, seconds_text
from bench.judge.history.detector import ConfirmedChange, judged
from bench.judge.history.series import History
from plots.base import style
from plots.base.page import Page
from plots.base.saving import save_all
from plots.base.shell import templates
from plots.history import figures
from plots.history.movers import movers
from plots.history.panel import NARROW_IN, WIDE_IN
from plots.history.view import View, changed, state, verdict, view

MANY = 8
"""Most units of one kind that all get a page; of more, those with an open step: nobody reads hundreds."""
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


def shown(
    histories: Sequence[History], since: datetime | None, last: int | None, say: Callable[[str], object]
) -> list[DeviceLine]:
    """Each device's history, judged; a device without a night to show is reported to `say`.

    UserError, one sentence, if none is left.
    """
    units = Counter(history.device for history in histories)
    devices, without = [], []
    for history in histories:
        names = [row_name(history.series.iloc[row]) for row in range(len(history.series))]
        seen = view(judged(history), names, since, last)
        if seen is None:
            last_utc = history.nights[-1].utc[:10]
            without.append(f"{history.device}: its last night is of {last_utc}, before --since")
            continue
        several = units[history.device] > 1 and history.unit
        folder = f"{history.device}-{history.unit[:8]}" if several else history.device
        moved = any(step.kind != "machine" for step in seen.open_steps())
        devices.append(DeviceLine(seen, folder, moved or units[history.device] <= MANY))
    if not histories:
        raise UserError(
            "no night to show: no run of our own with a time is among these (imported rows are none)"
        )
    if not devices:
        raise UserError("; ".join(without))
    for sentence in without:
        say(f"{sentence}; nothing shown of it")
    for device, count in units.items():
        if count > MANY:
            pages = sum(each.has_page for each in devices if each.view.history.device == device)
            say(
                f"{device}: {count} units; {pages} with an open step get a page. `python -m plots fleet "
                "RESULT...` shows all of them on one page: which are slow, and since when"
            )
    return devices


def save(seen: View, folder: Path, match: str) -> int:
    """Write the folder; how many figures it has. `match` chooses series to draw. OSError of a file."""
    moved = movers(seen)
    folder.mkdir(parents=True, exist_ok=True)
    moved.drop(columns="row").to_csv(folder / "movers.csv", index=False)
    drawn: list[Drawn] = []
    with style.look():
        narrow = {stem: page.png() for stem, page in pages(seen, moved, match, NARROW_IN)}

        def noted() -> Iterator[tuple[Path, Page]]:
            for stem, page in pages(seen, moved, match):
                drawn.append(Drawn(stem, str(page.figure.get_label()), narrow.get(stem, b"")))
                yield folder / stem, page

        save_all(noted())
    (folder / "index.html").write_text(html(seen, moved, drawn, folder), "utf-8")
    return len(drawn)


def pages(
    view: View, moved: pd.DataFrame, match: str, width_in: float = WIDE_IN
) -> Iterator[tuple[str, Page]]:
    """(path without ending, page) of every figure of this width; the movers are only drawn wide."""
    if width_in == WIDE_IN:
        yield from figures.movers(view, moved)
    yield from figures.machine(view, width_in)
    yield from figures.classes(view, width_in)
    rows, left_out = figures.chosen(view, moved, match)
    yield from figures.series(view, rows, left_out, width_in)


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
    environment.globals["prefix"] = figures.PREFIX
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
