"""Every figure of one run: of the run as a whole, then of its sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from bench.judge.frame import DeviceRun
from plots.base.page import Page
from plots.base.plot_spec import Section, sections
from plots.figures import quantization, roofline, sweep


def pages(run: DeviceRun) -> Iterator[tuple[str, Page]]:
    """(path without ending, page) of every figure: the run as a whole, then the sweeps by name."""
    for name, page in roofline.draw(run):
        yield f"roofline-{name}", page
    for _, _, drawn in of_sweeps(run):
        yield from drawn


def of_sweeps(run: DeviceRun) -> Iterator[tuple[str, pd.DataFrame, Iterator[tuple[str, Page]]]]:
    """(sweep, its rows, its pages) by name."""
    once = run.frame[run.frame["visit"] == 0]
    for path, rows in once.groupby("sweep", sort=True):
        yield str(path), rows, _pages(run, str(path), rows, sections(rows, run.sweeps.get(str(path), {})))


def _pages(
    run: DeviceRun, path: str, rows: pd.DataFrame, wanted: Sequence[Section]
) -> Iterator[tuple[str, Page]]:
    for i, section in enumerate(wanted):
        which = f"-{i + 1}" if len(wanted) > 1 else ""
        for drawn, leaves in _drawings(run, rows, section):
            for number, page in enumerate(leaves, 1):
                leaf = f"-{number}" if number > 1 else ""
                yield f"{path}{which}-{drawn}{leaf}", page


def _drawings(run: DeviceRun, rows: pd.DataFrame, section: Section) -> Iterator[tuple[str, Iterator[Page]]]:
    """(name, pages) of each figure of a section; a curve has one for each quantity."""
    if section.kind == "quantization":
        yield section.kind, quantization.draw(run, rows, section)
    else:
        for quantity in (section.quantity,) if section.quantity else sweep.QUANTITIES:
            yield quantity, sweep.draw(run, rows, section, quantity)
