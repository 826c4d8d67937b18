"""Export of times: the formats by name, written to standard output or a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.case_name import row_name
from bench.environment.dependencies import demand
from bench.errors import UserError, unknown, write_text
from bench.interop.export_points import Results, SeriesPoint, newest

UNIT = "us"
"""Unit of github-action-benchmark, one for all sizes: a series whose unit changed would jump."""


def _entry(point: SeriesPoint) -> dict[str, str | float]:
    """A point for benchmark-action/github-action-benchmark, tool `customSmallerIsBetter`.

    The action takes an array of these, which must not be empty. It identifies a series by its `name` and
    compares its last `value` with the one before. It shows `range` after the value, and if that begins with a
    plus-minus sign reads the rest as a number in the value's unit: half of the 95 % interval. `extra` is its
    tooltip for a point.
    """
    row = point.row
    entry: dict[str, str | float] = {"name": point.name, "unit": UNIT, "value": point.microseconds}
    if row.low_s is not None and row.high_s is not None:
        entry["range"] = f"± {float(f'{(row.high_s - row.low_s) / 2e-6:.3g}'):.12g}"
    extra = {"case": row_name(row), "flags": " ".join(point.flags) or "none", "device": row.device_name}
    extra |= {"run": row.run_id, "driver": row.driver, "torch": row.torch, "commit": row.commit or "unknown"}
    return entry | {"extra": "\n".join(f"{name}: {value}" for name, value in extra.items())}


GITHUB = "github-action-benchmark"
OPENMETRICS = "openmetrics"
"""The format that is replaced at once, as something else reads it at any time."""
NAMES = (GITHUB, OPENMETRICS)


def exported(
    form: str,
    results: Sequence[Path],
    output: Path | None,
    left_out: Callable[[str], object],
    remark: Callable[[str], object],
) -> Iterator[str]:
    """Write these results in a format; yields the output of the command: the text, or the file's name.

    `left_out` gets a sentence for each file that cannot be read, `remark` one for whatever is not exported.
    UserError is raised before anything is written.
    """
    if form not in NAMES:
        raise UserError(unknown("format", form, "export", NAMES))
    source = Results(results, left_out)
    if form == OPENMETRICS:
        demand("export openmetrics", "prometheus-client")
        from bench.interop import export_openmetrics

        points, more = newest(source.points(), export_openmetrics.unit, "the newest of each unit")
        text = export_openmetrics.text(points)
    else:
        points, more = newest(source.points(), lambda point: point.name, "one a series")
        text = json.dumps([_entry(point) for point in points], indent=1, ensure_ascii=False) + "\n"
    for sentence in (*source.omissions(), *more):
        remark(sentence)
    if output is None:
        yield text
        return
    if form == OPENMETRICS:
        export_openmetrics.write(output, points)
    else:
        write_text(output, text)
    yield f"{output}\n"
