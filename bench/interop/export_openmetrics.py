"""Export to Prometheus: a text file for node_exporter's textfile collector, of each unit's newest run.

The labels name the unit and the case, and nothing that changes from run to run (run, commit, driver), so that
the number of series is that of units times cases, however long it goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, generate_latest, write_to_textfile

from bench.case_name import row_name
from bench.errors import UserError
from bench.interop.export_points import SeriesPoint
from bench.judge.flags import SUSPECT
from bench.store.schema import Measurement

SUFFIX = ".prom"
"""The collector reads no other files."""
OF_UNIT = ("device", "unit", "uuid", "host", "pci_bus", "gpus")
"""Labels of a unit, and how many GPUs of its node the run timed at the same time."""
OF_CASE = (*OF_UNIT, "sweep", "operator", "implementation", "dtype", "case")


def unit(point: SeriesPoint) -> tuple[str, ...]:
    """What this format holds the newest run of: a unit, alone and together with others."""
    row = point.row
    host = (row.host or "") if row.device_kind == "cpu" else ""  # a GPU may move to another host
    return row.device, row.device_id, host, _gpus(row)


def text(points: Iterable[SeriesPoint]) -> str:
    """The metrics in the Prometheus text format."""
    return generate_latest(_registry(points)).decode()


def write(path: Path, points: Iterable[SeriesPoint]) -> None:
    """Write the file at once, so that the collector never reads a part of it; UserError if it cannot."""
    if path.suffix != SUFFIX:
        raise UserError(f"-o {path}: node_exporter reads files whose names end in {SUFFIX} only")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(path), _registry(points))
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def _registry(points: Iterable[SeriesPoint]) -> CollectorRegistry:
    registry = CollectorRegistry()

    def gauge(name: str, says: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(f"roofbench_{name}", says, labels, registry=registry)

    seconds = gauge("case_seconds", "Median seconds of one launch.", OF_CASE)
    share = gauge(
        "case_roof_ratio", "Predicted over measured time: 1 is on the roof of the same run.", OF_CASE
    )
    suspect = gauge("case_suspect", "1 if a flag casts doubt on the time, else 0.", OF_CASE)
    ended = gauge("run_timestamp_seconds", "When the last case of the run ended, Unix time.", OF_UNIT)
    ends: dict[tuple[str, str, str, str, str, str], float] = {}
    for point in points:
        row = point.row
        unit = (row.device, row.device_id, row.gpu_uuid or "", row.host or "", row.pci_bus or "", _gpus(row))
        case = (*unit, row.sweep, row.operator, row.implementation, row.dtype, row_name(row))
        seconds.labels(*case).set(row.median_s or 0.0)
        if point.of_roof is not None:
            share.labels(*case).set(point.of_roof)
        suspect.labels(*case).set(not SUSPECT.isdisjoint(point.flags))
        ends[unit] = max(ends.get(unit, 0.0), datetime.fromisoformat(row.utc).timestamp())
    for unit, end in ends.items():
        ended.labels(*unit).set(end)
    return registry


def _gpus(row: Measurement) -> str:
    return str(row.concurrent_gpus or 1)
