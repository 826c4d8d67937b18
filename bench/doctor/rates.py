"""Check of two anchors, measured as in a run, against the datasheet's peaks; and of late samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import kernels
from bench.device.detect import Device
from bench.doctor import requests
from bench.doctor.finding import Finding, checked, failed, warned
from bench.format import share_text
from bench.runner.rows import SEED
from bench.runner.supervisor import WorkerSupervisor
from bench.spec import Problem

GRACE_S = 30.0
GEMM: dict[str, Any] = {"dtype": "float16", "m": 8192, "n": 8192, "k": 8192, "layout": "NN"}
COPY: dict[str, Any] = {"dtype": "float32", "kind": "copy", "length": 1 << 26}
LATE = 0.05
"""Share of a row's samples that may be late: an interrupted host makes some, and they are discarded."""
LEAST, MOST = 0.60, 1.05
"""Shares of a datasheet's peak between which a large GEMM and a copy lie on a sound device."""
LOW_REMEDY = (
    "Look at the clock, power limit and neighbours above; a GPU that is held back measures its brake."
)
HIGH_REMEDY = (
    "Do not measure: nothing exceeds its peak, so the clock or bench/device/datasheets is wrong. Report it."
)
ROW_REMEDY = "Look at the lines above, and at the row in the JSON file: mend what it names first."
LATE_REMEDY = "Leave the processor to the run: the host queued launches later than the spin lasted."


def findings(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on the rates of a GPU."""
    with closing(WorkerSupervisor(device, SEED, GRACE_S)) as supervisor:
        yield from rated(supervisor, device)


def rated(supervisor: WorkerSupervisor, device: Device) -> Iterator[Finding]:
    """The rates of a large GEMM and of a copy, and the late samples of these and of an empty launch."""
    sheet = device.datasheet
    gemm = kernels.problem("gemm")(**GEMM)
    copy = kernels.problem("stream")(**COPY)
    flop_per_s = sheet.peak_flop_per_s("matrix", "float16") if sheet else None
    byte_per_s = sheet.bandwidth_byte_per_s if sheet else None
    rows = [_row(supervisor, "cublas", gemm), _row(supervisor, "aten", copy)]
    yield share("GEMM rate", rows[0], gemm.flop, "FLOP/s", flop_per_s)
    yield share("copy rate", rows[1], copy.byte, "B/s", byte_per_s)
    rows.append(_row(supervisor, "aten", kernels.problem("launch")(dtype="float32")))
    yield late(rows)


def share(name: str, row: Mapping[str, Any], amount: int, unit: str, peak: float | None) -> Finding:
    """The share of the datasheet's `peak`, in `unit`, that a row with `amount` of work a launch reached."""
    if row["status"] != "ok":
        return failed(name, f"Its row is {requests.outcome(row)}.", ROW_REMEDY, row=dict(row))
    rate = amount / row["median_s"]
    numbers = {"rate": rate, "peak": peak, "row": dict(row)}
    at = f" at {1e-6 * row['sm_clock_hz']:.0f} MHz" if row.get("sm_clock_hz") else ""
    seen = f"{rate * 1e-12:.3g} T{unit}{at}"
    if peak is None:
        remedy = (
            "Add a device file with its peaks (bench/device/datasheets): "
            "without one no time is known to be too good."
        )
        return warned(name, f"{seen}; the datasheet knows no peak to hold it against.", remedy, **numbers)
    sentence = f"{seen}: {share_text(rate / peak)} of the datasheet's {peak * 1e-12:.3g} T{unit}."
    if rate > MOST * peak:
        return failed(name, sentence, HIGH_REMEDY, **numbers)
    return checked(name, rate >= LEAST * peak, sentence, LOW_REMEDY, **numbers)


def late(rows: list[dict[str, Any]]) -> Finding:
    """The samples that were discarded because the spin ended before all launches were queued."""
    counts = [row.get("late_samples") for row in rows]
    samples = [row.get("samples", 0) for row in rows]
    known = [count for count in counts if count is not None]
    starts = [row["clock_start_s"] for row in rows if row.get("clock_start_s") is not None]
    if not known:
        return warned("late samples", "Rows do not say how many samples were late.", ROW_REMEDY)
    sentence = f"{sum(known)} late samples in {len(known)} rows"
    sentence += f"; a graph takes {1e6 * max(starts):.1f} us to start." if starts else "."
    numbers: dict[str, Any] = {"late": counts, "samples": samples, "starts": starts}
    few = all((count or 0) <= LATE * many for count, many in zip(counts, samples, strict=True))
    return checked("late samples", few, sentence, LATE_REMEDY, **numbers)


def _row(supervisor: WorkerSupervisor, implementation: str, problem: Problem) -> dict[str, Any]:
    """One visit's row, with the number of its samples in place of the samples."""
    row, samples = requests.measured(supervisor, implementation, problem)
    return row | {"samples": samples}
