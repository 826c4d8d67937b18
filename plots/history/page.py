"""A device's history as one HTML file that needs nothing else: what changed, what moved, every night.

Every word that comes from a file is escaped by the template engine; figures are inlined.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bench.format import change_text, seconds_text
from bench.judge.history.series import Night
from plots.history.movers_figure import PREFIX
from plots.history.view import View, state, verdict

if TYPE_CHECKING:
    from bench.judge.history.detector import Step

MOST = 60
"""Movers of the page's table; movers.csv has all."""


class Drawn(NamedTuple):
    """A figure that was saved."""

    path: Path
    """Without its ending."""
    alt: str
    """Its title, for who does not see it."""


def html(view: View, moved: pd.DataFrame, drawn: Sequence[Drawn], folder: Path) -> str:
    """The page; figures are read from where they were saved below `folder`. OSError if they cannot be."""
    figures = [_figure(one, folder) for one in drawn]
    parts = [
        {"title": title, "figures": [one for one in figures if one["stem"].startswith(stems)]}
        for title, stems in (
            ("The movers, drawn", "movers"),
            ("The machine", "machine"),
            ("Classes", "classes"),
            ("Series", "series"),
        )
    ]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=f"{view.history.device_name}, night by night",
            facts=view.facts,
            remarks=_remarks(view),
            steps=[_step(view, one) for one in tonight(view)],
            movers=[_mover(one) for one in moved.head(MOST).to_dict("records")],
            movers_left=max(0, len(moved) - MOST),
            parts=parts,
            nights=_nights(view),
        )
    )


class Device(NamedTuple):
    """A line of the page over all devices."""

    view: View
    folder: str
    """Of its page, beside the page over all."""


def index_html(devices: Sequence[Device]) -> str:
    """The page that links the devices' pages."""
    lines = []
    for one in devices:
        still = [step.effect > 0 for step in one.view.open_steps() if step.kind != "machine"]
        unit = f" ({one.view.history.unit[:8]})" if one.view.history.unit else ""
        lines.append(
            {
                "name": one.view.history.device_name + unit,
                "link": quote(f"{one.folder}/index.html"),
                "last": _began(one.view.nights[-1]),
                "nights": len(one.view.nights),
                "slower": sum(still),
                "faster": len(still) - sum(still),
            }
        )
    template = _environment().get_template("index.html.j2")
    return template.render(title="Devices, night by night", devices=lines)


def tonight(view: View) -> list[Step]:
    """Steps that stand open, that the last night raised or that it ended: the newest first."""
    last = len(view.history.nights) - 1
    return [
        one for one in reversed(view.judged.steps) if one.ended is None or last in (one.raised, one.ended)
    ]


def _environment() -> Environment:
    folder = Path(__file__).parent
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _figure(one: Drawn, folder: Path) -> dict[str, str]:
    stem = one.path.relative_to(folder).as_posix()
    png = one.path.with_name(one.path.name + ".png").read_bytes()
    return {"stem": stem, "link": quote(stem), "alt": one.alt, "png": base64.b64encode(png).decode()}


def _remarks(view: View) -> list[str]:
    """What must be known before anything is read out of the page."""
    history, judged = view.history, view.judged
    nights = len(history.nights)
    usable = np.isfinite(history.log_s) & ~history.doubted
    found = []
    if view.first:
        found.append(f"Shown are the last {len(view.nights)} of {nights} nights; judged are all.")
    if nights == 1:
        found.append("This is the first night: there is nothing to compare with yet.")
    elif not usable.any():
        found.append("Every time of every night is in doubt, so nothing was judged.")
    elif not (usable.sum(1) > 1).any():
        found.append("No series has a time on two nights, so there is nothing to compare.")
    elif judged.short.all():
        found.append("No series has enough nights of this segment behind it to be judged yet.")
    elif judged.short.any():
        n, of = int(judged.short.sum()), len(judged.short)
        found.append(f"{n} of {of} series have too few nights of this segment behind them to be judged.")
    return found


def _step(view: View, one: Step) -> dict[str, Any]:
    night = view.history.nights[one.began]
    return {
        "verdict": verdict(one.effect),
        "name": ("the machine: " if one.kind == "machine" else PREFIX.get(one.kind, "")) + one.name,
        "members": len(one.members),
        "effect": change_text(math.exp(one.effect)),
        "over_noise": f"{abs(one.effect) / one.noise:.1f}" if one.noise else "",
        "since": f"{night.utc[:10]}, {night.commit}" if night.commit else night.utc[:10],
        "state": state(one),
        "changed": _changed(night),
    }


def _mover(one: dict[Any, Any]) -> dict[str, str]:
    return {
        "verdict": verdict(one["effect"]),
        "name": PREFIX.get(one["kind"], "") + one["name"],
        "group": f"{one['operator']} {one['implementation']}",
        "before": seconds_text(one["before_s"]),
        "now": seconds_text(one["now_s"]),
        "moved": ("+" if one["moved_s"] > 0 else "") + seconds_text(one["moved_s"]),
        "effect": change_text(1 + one["effect"]),
        "over_noise": f"{one['over_noise']:.1f}",
        "since": one["since"],
        "commit": one["commit"],
        "state": one["state"],
    }


def _nights(view: View) -> list[dict[str, Any]]:
    """The newest first."""
    doubted = view.history.doubted.sum(0)
    return [
        {
            "began": _began(night),
            "run": night.run_id,
            "commit": night.commit,
            "timed": night.timed,
            "asked": night.asked,
            "doubted": int(doubted[view.first + i]) or "",
            "changed": _changed(night),
            "remarks": "; ".join(night.remarks),
        }
        for i, night in reversed(list(enumerate(view.nights)))
    ]


def _began(night: Night) -> str:
    return night.utc[:16].replace("T", " ")


def _changed(night: Night) -> str:
    return ", ".join(f"{one.fact} {one.before} -> {one.after}" for one in night.changed)
