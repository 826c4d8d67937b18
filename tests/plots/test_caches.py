"""The memory hierarchy's curves: which rows make points, and what is drawn of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

import kernels
from bench.device.datasheet import find_datasheet
from bench.interop.imported_problems import PROBLEMS
from bench.interop.imported_rows import device_columns, foreign_row
from bench.judge.frame import DeviceRun, runs
from bench.spec import parameters_text
from bench.store.schema import Measurement
from plots.figures import caches
from tests.plots import drawn

A100, CPU = "NVIDIA A100-SXM4-80GB", "A Xeon"
KIB, MIB = 2**10, 2**20
STEPS = 1000
SMALL = [KIB * 4**power for power in range(6)]


def row(device: str, operator: str, rate: float, columns: dict[str, object], **given: object) -> Measurement:
    """A warm row that moves its bytes at this rate, or, of latency, whose step takes this time."""
    problem = (PROBLEMS.get(operator) or kernels.problem(operator))(dtype="float32", **given)
    facts = problem.facts("somebody's")
    seconds = rate * STEPS if operator == "latency" else problem.byte / rate
    named = {"run_id": "made", "source": "made; a file", "cache": "warm", "sweep": "imported/made"}
    text = {"parameters": parameters_text(problem.parameters()), "median_s": seconds, "protocol": "made"}
    about = device_columns(device, "cpu" if device == CPU else "cuda", find_datasheet(device))
    return foreign_row(facts | about | named | text | columns)


def copies(
    rate: float, device: str = A100, footprints: Sequence[int] = SMALL, **columns: object
) -> list[Measurement]:
    """Copies of these footprints, 1 KiB to 1 MiB if none are given."""
    return [row(device, "stream", rate, columns, kind="copy", length=each // 8) for each in footprints]


def reads(rate: float, footprints: Sequence[int], readers: str) -> Iterator[Measurement]:
    for each in footprints:
        yield row(A100, "cached_read", rate, {}, readers=readers, footprint_byte=each)


def made(rows: Sequence[Measurement]) -> list[DeviceRun]:
    return [replace(run, datasheet=find_datasheet(run.device_name)) for run in runs(rows)]


KERNELS = [of for name in "abc" for of in copies(3e12, implementation=name)]
CURVES = {
    "of each footprint the fastest kernel": (
        "copy",
        [*copies(1e12, implementation="slow"), *copies(3e12, implementation="fast")],
        dict.fromkeys(SMALL, 3e12),
    ),
    "not the footprint that a file breaks off in": (
        "copy",
        [*KERNELS, *copies(1e11, footprints=[8 * MIB], implementation="a")],
        dict.fromkeys(SMALL, 3e12),
    ),
    "reads of all by each end where reads of parts begin": (
        "read",
        [*reads(9e12, [*SMALL, 2 * MIB], "each"), *reads(4e12, [MIB, 4 * MIB], "together")],
        dict.fromkeys(SMALL[:-1], 9e12) | {MIB: 4e12, 4 * MIB: 4e12},
    ),
    "a load takes the time of one step": (
        "latency",
        [row(A100, "latency", 2e-8, {}, footprint_byte=each, steps=STEPS) for each in SMALL],
        dict.fromkeys(SMALL, 2e-8),
    ),
    "of two runs that with more footprints, then the newer": (
        "copy",
        [*copies(1e12, run_id="1"), *copies(2e12, run_id="2"), *copies(9e12, run_id="3")[:5]],
        dict.fromkeys(SMALL, 2e12),
    ),
}


@pytest.mark.parametrize(("measure", "rows", "wanted"), CURVES.values(), ids=list(CURVES))
def test_a_curve(measure: str, rows: list[Measurement], wanted: dict[int, float]) -> None:
    found = caches.curves(made(rows))
    found = found[found["measure"] == measure]
    assert dict(zip(found["footprint_byte"], found["value"], strict=True)) == pytest.approx(wanted)


@pytest.mark.parametrize("columns", [{"cache": "cold"}, {"time_includes": "launch"}, {"visit": 1}])
def test_rows_that_say_nothing_of_a_cache_make_no_curve(columns: dict[str, object]) -> None:
    assert caches.curves(made(copies(1e12, **columns))).empty


def test_four_footprints_are_no_curve() -> None:
    assert caches.curves(made(copies(1e12)[:4])).empty


def test_a_ring_marks_the_last_level_cache_and_what_was_measured_here_is_broad() -> None:
    rows = [*reads(9e12, SMALL, "each"), *reads(4e12, [16 * MIB, 64 * MIB], "together")]
    measured = made([*rows, *copies(5e10, CPU, source=None, cache_byte=32 * KIB)])
    (figure,) = drawn.opened(caches.draw(caches.curves(measured), measured)).values()
    above, below = figure.axes
    (ring,) = [line for line in above.lines if line.get_markerfacecolor() == "none"]
    assert np.ravel(ring.get_xdata()) == [40 * MIB]
    assert below.lines[0].get_linewidth() > above.lines[0].get_linewidth()
    assert np.ravel(below.lines[0].get_ydata()) == pytest.approx([50] * len(SMALL))
    assert "2 devices, 14 points, by made; measured here" in drawn.said(figure)
    assert drawn.described(figure) == CACHES


CACHES = """\
Memory hierarchies: rate and latency over the footprint
legend: A100 SXM4 80 GB | A Xeon
[reads by the whole device: each SM reads all, of large footprints a part (GB/s)] - (log) x - (log):
[copies by the whole device, source and target together (GB/s)] footprint (bytes) (log) of 1 Ki, 4 Ki, 16 \
Ki, 64 Ki, 256 Ki, 1 Mi, 4 Mi, 16 Mi, 64 Mi, 256 Mi, 1 Gi, 4 Gi x - (log):"""
