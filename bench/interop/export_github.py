"""For the action benchmark-action/github-action-benchmark, tool `customSmallerIsBetter`: one JSON array.

The action knows a series by its `name` and holds its last `value` against the one before. It shows `range`
after the value, and where that begins with a plus-minus sign reads the rest as a number in the value's unit.
`extra` is what it shows when a point is pointed at. An empty array is an error to it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from bench.case_name import row_name
from bench.interop.export_points import SECONDS_PER_MICROSECOND, Point

UNIT = "us"
"""One unit for all: a series whose unit followed its size would jump when it crosses a power of ten."""


def text(points: Sequence[Point]) -> str:
    """The file's content; one point a series."""
    return json.dumps([_entry(point) for point in points], indent=1, ensure_ascii=False) + "\n"


def _entry(point: Point) -> dict[str, str | float]:
    entry: dict[str, str | float] = {"name": point.name, "unit": UNIT, "value": point.microseconds}
    if half := _range(point):
        entry["range"] = half
    return entry | {"extra": _extra(point)}


def _range(point: Point) -> str:
    """Half of the 95 % interval as the action writes ranges itself; empty where it is unknown."""
    low_s, high_s = point.row.low_s, point.row.high_s
    if low_s is None or high_s is None:
        return ""
    half = (high_s - low_s) / 2 / SECONDS_PER_MICROSECOND
    return f"± {float(f'{half:.3g}'):.12g}"


def _extra(point: Point) -> str:
    row = point.row
    lines = [f"case: {row_name(row)}"]
    lines += [f"flags: {' '.join(point.flags) or 'none'}", f"device: {row.device_name}", f"run: {row.run_id}"]
    lines += [f"driver: {row.driver}", f"torch: {row.torch}", f"commit: {row.commit or 'unknown'}"]
    return "\n".join(lines)
