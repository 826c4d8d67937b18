"""The memory hierarchy's curves: which rows make points, and what is drawn of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import kernels
from bench.device.datasheet import find_datasheet
from bench.interop.imported_problems import PROBLEMS
from bench.interop.imported_rows import device_columns, foreign_row
from bench.judge.frame import DeviceRun, runs
from bench.spec import parameters_text
from bench.store.schema import Measurement
from plots.base import style
from plots.figures import caches

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


def copies(device: str, rate: float, **columns: object) -> list[Measurement]:
    """Copies of footprints from 1 KiB to 1 MiB."""
    return [row(device, "stream", rate, columns, kind="copy", length=each // 8) for each in SMALL]


def reads(rate: float, footprints: list[int], readers: str) -> Iterator[Measurement]:
    for each in footprints:
        yield row(A100, "cached_read", rate, {}, readers=readers, footprint_byte=each)


def made(*rows: Measurement) -> list[DeviceRun]:
    return [replace(run, datasheet=find_datasheet(run.device_name)) for run in runs(rows)]


def values(points: pd.DataFrame, measure: str) -> dict[int, float]:
    of = points[points["measure"] == measure]
    return dict(zip(of["footprint_byte"], of["value"], strict=True))


def test_each_footprint_has_the_rate_of_its_fastest_kernel() -> None:
    rows = [*copies(A100, 1e12, implementation="slow"), *copies(A100, 3e12, implementation="fast")]
    assert values(caches.curves(made(*rows)), "copy") == pytest.approx(dict.fromkeys(SMALL, 3e12))


def test_the_footprint_that_a_file_breaks_off_in_is_left_out() -> None:
    rows = [of for name in ("a", "b", "c") for of in copies(A100, 3e12, implementation=name)]
    last = row(A100, "stream", 1e11, {"implementation": "a"}, kind="copy", length=MIB)
    assert list(values(caches.curves(made(*rows, last)), "copy")) == SMALL


def test_reads_of_all_by_each_end_where_reads_of_parts_begin() -> None:
    rows = [*reads(9e12, [*SMALL, 2 * MIB], "each"), *reads(4e12, [MIB, 4 * MIB], "together")]
    expected = dict.fromkeys(SMALL[:-1], 9e12) | {MIB: 4e12, 4 * MIB: 4e12}
    assert values(caches.curves(made(*rows)), "read") == pytest.approx(expected)


def test_a_load_takes_the_time_of_one_step() -> None:
    rows = [row(A100, "latency", 2e-8, {}, footprint_byte=each, steps=STEPS) for each in SMALL]
    assert values(caches.curves(made(*rows)), "latency") == pytest.approx(dict.fromkeys(SMALL, 2e-8))


@pytest.mark.parametrize("columns", [{"cache": "cold"}, {"time_includes": "launch"}, {"visit": 1}])
def test_rows_that_say_nothing_of_a_cache_make_no_curve(columns: dict[str, object]) -> None:
    assert caches.curves(made(*copies(A100, 1e12, **columns))).empty


def test_four_footprints_are_no_curve() -> None:
    assert caches.curves(made(*copies(A100, 1e12)[:4])).empty


def test_of_two_runs_the_one_with_more_footprints_counts_then_the_newer() -> None:
    short = copies(A100, 9e12, run_id="3")[:5]
    rows = [*copies(A100, 1e12, run_id="1"), *copies(A100, 2e12, run_id="2"), *short]
    assert values(caches.curves(made(*rows)), "copy") == pytest.approx(dict.fromkeys(SMALL, 2e12))


def test_a_ring_marks_the_last_level_cache_and_what_was_measured_here_is_broad() -> None:
    rows = [*reads(9e12, SMALL, "each"), *reads(4e12, [16 * MIB, 64 * MIB], "together")]
    measured = made(*rows, *copies(CPU, 5e10, source=None, cache_byte=32 * KIB))
    points = caches.curves(measured)
    with style.look():
        page = caches.draw(points, measured)
    above, below = page.figure.axes
    assert above.get_title(loc="left").startswith("reads") and below.get_title(loc="left").startswith(
        "copies"
    )
    (ring,) = [line for line in above.lines if line.get_markerfacecolor() == "none"]
    assert np.ravel(ring.get_xdata()) == [40 * MIB]
    broad, fine = below.lines[0].get_linewidth(), above.lines[0].get_linewidth()
    assert broad > fine
    assert np.ravel(below.lines[0].get_ydata()) == pytest.approx([50] * len(SMALL))
    assert "2 devices, 14 points, by made; measured here" in [text.get_text() for text in page.figure.texts]
