"""A section of the one page, what sections are made of, and a figure as a part of one.

A section is a file of this folder with one public function, `section(results) -> Section | None`, and where
it needs one a template of the same name.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from bench.judge.claims import JudgedClaim
from bench.judge.frame import DeviceRun
from bench.store.parquet import Sweeps
from bench.store.schema import RunKey
from plots.base import style


class Section(NamedTuple):
    """A part of the page."""

    title: str
    anchor: str
    """Its `id` in the page, which links name."""
    html: Markup
    """What stands below its title."""


@dataclass(frozen=True)
class Results:
    """What a page is about."""

    files: Sequence[Path]
    """Files and folders as they were given: all nights and all units are in them."""
    runs: Sequence[DeviceRun]
    """The newest run of each device, of one unit of each kind; the first stands first on the page."""
    sweeps: Mapping[RunKey, Sweeps]
    """What each run's sweeps declared."""
    judged: Sequence[tuple[Sequence[DeviceRun], Sequence[JudgedClaim]]]
    """Verdicts on the guides' rules, with the runs that were judged together."""

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
