"""The section on several units of a kind: which are slow, in what, by how much, and why."""

from __future__ import annotations

from plots.report.section import Results, Section


def section(results: Results) -> Section | None:
    """The section on the units of each kind among `results.files`; None if no kind has several."""
    return None
