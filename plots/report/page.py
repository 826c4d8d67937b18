"""The one page: an HTML file that needs nothing else, of whatever it is given, section by section."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plots.report import accept, cases, claims, devices, experiments, machine, nights, units
from plots.report.section import Results, Section, filled

OfResults = Callable[[Results], Section | None]
SECTIONS: Sequence[OfResults] = (
    *(units.section, nights.section, devices.section, machine.section, accept.section),
    *(claims.section, cases.section, experiments.section),
)
"""In the order of the page; each appears if the results have what it shows."""


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
