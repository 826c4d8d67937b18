"""The nights of one device as a folder: a page, the figures in it, and the movers as a table.

index.html                     all of it, in one file
movers.csv movers.png          what moved (plots/history/movers.py)
machine.png classes.png        how the ceilings and the classes did
series/<series>.png            those that moved, that stand open or that were requested; each also as SVG
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pandas as pd

from bench.case_name import row_name
from bench.errors import UserError
from bench.judge.history.detector import judged
from bench.judge.history.series import History
from plots.base import style
from plots.base.page import Page
from plots.base.saving import save_all
from plots.history import movers_figure, tracks
from plots.history import series as history_series
from plots.history.movers import movers
from plots.history.page import DeviceLine, Drawn, html
from plots.history.panel import NARROW_IN, WIDE_IN
from plots.history.view import View, view

MANY = 8
"""Most units of one kind that all get a page; of more, those with an open step: nobody reads hundreds."""


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
        yield from movers_figure.draw(view, moved)
    yield from tracks.machine(view, width_in)
    yield from tracks.classes(view, width_in)
    rows, left_out = history_series.chosen(view, moved, match)
    yield from history_series.draw(view, rows, left_out, width_in)
