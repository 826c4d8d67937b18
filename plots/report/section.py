"""A section of the one page, what sections are made of, and a figure as a part of one.

A section is a file of this folder with one public function, `section(results) -> Section | None`, and where
it needs one a template of the same name.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from bench.device.datasheet import Datasheet
from bench.judge.claims import JudgedClaim
from bench.judge.frame import DeviceRun
from bench.store.schema import RunKey
from plots.base import style


class Section(NamedTuple):
    """A part of the page."""

    title: str
    anchor: str
    """Its `id` in the page, which links name."""
    html: Markup
    """What stands below its title."""


class Head(NamedTuple):
    """What a page says of how a run was measured."""

    name: str
    sentence: str
    state: tuple[str, ...]
    """How far its times can be trusted: noise from visit to visit."""
    ceilings: tuple[tuple[str, str, str, str], ...]
    """(name, value, interval, case) of each ceiling that was measured."""
    facts: tuple[tuple[str, str], ...]
    """(fact, its values)."""

    @property
    def trust(self) -> str:
        """The sentence and the state, by which runs are listed together."""
        return f"{self.sentence} {'; '.join(self.state)}"


@dataclass(frozen=True)
class ShownRun:
    """What pages say of a run, without its rows: those of all devices would fill the memory."""

    key: RunKey
    name: str
    device_name: str
    datasheet: Datasheet | None
    imported: bool
    measured: int
    """How many rows have a time."""
    head: Head
    rates: pd.DataFrame | None
    """As `bench.judge.achieved.rates_of` has them."""
    compared: pd.DataFrame
    """The columns of its rows that `bench.judge.speedup.speedups` needs."""
    listed: int
    """How many timed cases it has, of which ..."""
    cases: pd.DataFrame
    """... these stand on the page."""
    untimed: pd.DataFrame
    """status, reason and sweep of each row without a time."""

    @property
    def device(self) -> str:
        """Slug of the device."""
        return self.key.device


@dataclass(frozen=True)
class Results:
    """What a page is about."""

    files: Sequence[Path]
    """Files and folders as they were given: all nights and all units are in them."""
    runs: Sequence[ShownRun]
    """The newest run of each device, of one unit of each kind; the first stands first on the page."""
    judged: Sequence[JudgedClaim]
    """Verdicts on the guides' rules."""
    alone: DeviceRun | None = None
    """The run with its rows, if it is the only one."""

    @property
    def whose(self) -> str:
        """What tells the runs apart: device, or run where all are of one device."""
        return "run" if len({run.device for run in self.runs}) == 1 < len(self.runs) else "device"

    @property
    def labels(self) -> list[str]:
        """The name of each run on the page."""
        return [run.name if self.whose == "run" else run.device for run in self.runs]


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def filled(template: str, **words: Any) -> Markup:
    """The template of this name in this folder with these words; words from files are escaped."""
    return Markup(_templates().get_template(template).render(words))


def packed(text: bytes) -> str:
    """Text for a page, gzip in base64, which makes it a fifth as long; `report.js` unpacks it."""
    return base64.b64encode(gzip.compress(text, mtime=0)).decode()


def svg(figure: Figure, says: str) -> Markup:
    """The figure as a part of a page, as wide as there is room, but never wider than it was drawn.

    `says` is what it shows, for those who do not see it. In a window so narrow that its words could not be
    read it scrolls sideways in a frame of its own.
    """
    written = BytesIO()
    with style.look():
        figure.savefig(written, format="svg", metadata={"Date": None})
    drawn = written.getvalue().decode()
    drawn = drawn[drawn.index("<svg") :]
    # Names that nothing refers to would stand several times in a page of several figures.
    named = set(re.findall(r"#([\w-]+)", drawn))
    drawn = re.sub(r' id="([\w-]+)"', lambda found: found[0] if found[1] in named else "", drawn)
    # Tenths of a point are less than a pixel.
    drawn = re.sub(r' (?:d|x|y)="[^"]*"', lambda found: re.sub(r"(\.\d)\d+", r"\1", found[0]), drawn)
    drawn = drawn.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    width, height = (96 * inch for inch in figure.get_size_inches())
    return filled("figure.html.j2", says=says, packed=packed(drawn.encode()), width=width, height=height)
