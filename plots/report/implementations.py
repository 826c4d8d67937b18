"""The section on implementations: which is fastest in how many cases, and how far the others are behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.judge.frame import DeviceRun
from plots.report.section import Results, Section, filled

MOST = 12
"""Implementations of an operator in a table of what others timed, which may be dozens of launch shapes."""
PROBLEM = ["operator", "parameters", "cache", "threads_asked"]
"""Columns that two rows of one problem share."""


def section(results: Results) -> Section | None:
    """Every implementation of every operator with more than one; None if no operator has several."""
    named = zip(results.runs, results.labels, strict=True)
    rows = [(label, each) for run, label in named for each in _of_run(run)]
    if not rows:
        return None
    html = filled(
        "implementations.html.j2",
        rows=rows,
        whose=results.whose,
        several=len(results.runs) > 1,
        most=MOST if any(run.imported for run in results.runs) else 0,
    )
    return Section("Implementations compared", "against", html)


def _of_run(run: DeviceRun) -> Iterator[dict[str, Any]]:
    """Every implementation of a run; of imported rows the MOST fastest of each operator.

    In how many of the `problems` that several of them timed it is the `fastest`, and the median of its time
    over the fastest one's. Suspect rows are left out.
    """
    frame = run.rated
    sound = (frame["role"] == "measurement") & (frame["visit"] == 0) & ~frame["suspect"].astype(bool)
    timed = frame[sound & frame["median_s"].notna()]
    latest = timed.sort_values("utc", kind="stable").drop_duplicates(
        [*PROBLEM, "implementation"], keep="last"
    )
    several = latest[latest.groupby(PROBLEM)["implementation"].transform("nunique") > 1]
    behind = several["median_s"] / several.groupby(PROBLEM)["median_s"].transform("min")
    by_name = behind.groupby([several["operator"], several["implementation"]])
    place = by_name.median().groupby("operator").rank(method="first").to_dict()
    for (operator, name), ratios in by_name:
        if run.imported and place[operator, name] > MOST:
            continue
        counts = {"problems": len(ratios), "fastest": int((ratios == 1).sum())}
        yield {"operator": operator, "implementation": name, **counts, "behind": float(ratios.median())}
