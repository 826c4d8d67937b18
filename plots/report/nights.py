"""The section on several nights: how each series went, where it changed, and what changed with it."""

from __future__ import annotations

from plots.report.section import Results, Section


def section(results: Results) -> Section | None:
    """The section on the nights of every device among `results.files`; None if no device has several."""
    return None
