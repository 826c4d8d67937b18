"""The site: a report of each device, and one of all of them together that links to these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from bench.errors import UserError
from bench.judge.achieved import by_age
from plots.report import cases, claims, devices, machine, page
from plots.report.section import Results, Section, filled

MARKER = ".roofbench-site"
"""Its presence says that the pages of the folder are those of a site, which the next site may delete."""
OF_ONE = (machine.section, claims.section, cases.section)
OF_ALL = (devices.section, claims.section, machine.section)


def begin(folder: Path) -> None:
    """Make the folder, or empty it of an earlier site; UserError if it holds files, but none of a site."""
    marker = folder / MARKER
    if marker.exists():
        for file in folder.glob("*.html"):
            file.unlink()
    elif folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: holds files that are no site of ours; give an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text("")


def write_device(folder: Path, of_device: Results) -> Results:
    """Write the page of a device; what the page of all needs of it."""
    if any(run.measured for run in of_device.runs):
        _write(folder, of_device.runs[0].device, page.html(of_device, OF_ONE))
    runs = [replace(run, cases=pd.DataFrame()) for run in of_device.runs]
    return replace(of_device, runs=runs, alone=None)


def write(devices_results: Iterable[Results], folder: Path) -> tuple[int, int]:
    """Write the page of all devices beside their own; the bytes and the number of the pages."""
    results = page.joined(devices_results)
    times: Counter[str] = Counter()
    for run in results.runs:
        times[run.device] += run.measured
    names = by_age({run.device: run.datasheet for run in results.runs if run.measured})
    links = [(f"{name}.html", name, f"{times[name]:,} times") for name in names]
    each = Section("Each device", "pages", filled("index.html.j2", links=links))
    _write(folder, "index", page.of(page.title(results), [each, *page.made(results, OF_ALL)]))
    written = list(folder.glob("*.html"))
    return sum(file.stat().st_size for file in written), len(written)


def _write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.html").write_text(text, "utf-8")
