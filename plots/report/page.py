"""The one page: an HTML file that needs nothing else, of whatever it is given, section by section."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.judge.achieved import rates_of
from bench.judge.claims import JudgedClaim
from bench.judge.frame import DeviceRun
from bench.judge.speedup import compared
from plots.report import accept, cases, claims, devices, experiments, machine, nights, units
from plots.report.section import Results, Section, ShownRun, filled

OfResults = Callable[[Results], Section | None]
SECTIONS: Sequence[OfResults] = (
    *(units.section, nights.section, devices.section, machine.section, accept.section),
    *(claims.section, cases.section, experiments.section),
)
"""In the order of the page; each appears if the results have what it shows."""


def of_runs(
    files: Sequence[Path],
    runs: Sequence[DeviceRun],
    judged: Sequence[JudgedClaim],
    timed: int = 0,
) -> Results:
    """What a page is about, of runs that have been read; `timed`: the cases of the page, if it has more."""
    listed = [int(cases.listed(run.columns).sum()) for run in runs]
    share = cases.MOST_ROWS / max(timed, sum(listed), 1)
    shown = [_shown(run, count, share) for run, count in zip(runs, listed, strict=True)]
    return Results(files, shown, judged, runs[0] if len(runs) == 1 else None)


def _shown(run: DeviceRun, listed: int, share: float) -> ShownRun:
    known = (run.key, run.name, run.device_name, run.datasheet, run.imported, run.measured)
    rates, of_cases = rates_of(run), compared(run)
    table = (listed, cases.drawn(run, share), cases.untimed(run))
    return ShownRun(*known, machine.head(run), rates, of_cases, *table)


def without_rows(of_device: Results) -> Results:
    """What a page of several devices needs of one."""
    return replace(of_device, alone=None)


def joined(devices_results: Iterable[Results]) -> Results:
    """What a page of all these devices is about: the first one, then the others by name."""
    remaining = iter(devices_results)
    first = next(remaining)
    others = [without_rows(part) for part in remaining]
    parts = [first, *sorted(others, key=lambda part: part.runs[0].device)]
    judged = sorted((each for part in parts for each in part.judged), key=lambda each: each.imported)
    runs = [run for part in parts for run in part.runs]
    return replace(first, runs=runs, judged=judged, alone=None if others else first.alone)


def html(results: Results, sections: Sequence[OfResults] = SECTIONS) -> str:
    """The page about these results."""
    return of(title(results), made(results, sections))


def made(results: Results, sections: Sequence[OfResults]) -> list[Section]:
    """Those of the sections that the results have something for."""
    return [made for section in sections if (made := section(results)) is not None]


def of(title: str, sections: Sequence[Section]) -> str:
    """A page of these sections."""
    return filled("page.html.j2", title=title, sections=sections)


def title(results: Results) -> str:
    """`roofbench: NVIDIA H100, NVIDIA H200 and 3 more`."""
    names = list(dict.fromkeys(run.device_name for run in results.runs))
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"roofbench: {', '.join(names[:3])}{rest}"
