"""Ceilings read back from rows, and predictions against sums done by hand."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from bench.model.ceilings import Ceilings, by_run
from bench.model.roofline import (
    calibrated,
    calibrated_columns,
    datasheet_s,
    largest_terms,
    nearest_terms,
    traffic,
)
from bench.spec import parameters_text
from bench.store.schema import Measurement
from tests.bench.rows import row as any_row
from tests.bench.rows import stored
from tests.our_sweeps import role

MIB = 2**20


def row(**facts: Any) -> Measurement:
    base: dict[str, Any] = {
        "run_id": "r1",
        "device": "cpu-test",
        "device_kind": "cpu",
        "device_id": "0",
        "sm_count": 2,
    }
    base |= {
        "cache_byte": 32 * MIB,
        "threads": 2,
        "sweep": "ceilings/gemm",
        "operator": "any",
        "cache": "cold",
    }
    base |= {"implementation": "onednn", "arithmetic": "matrix", "rate": "flop", "dtype": "float32"}
    base |= {"parameters": parameters_text({"dtype": "float32"}), "median_s": None, "samples_s": None}
    base |= facts
    return any_row(**({"role": role(base["sweep"])} | base))


def gemm(flop: int, median_s: float | None, **facts: Any) -> Measurement:
    return row(**({"flop": flop, "byte": 12 * MIB, "byte_written": 4 * MIB, "median_s": median_s} | facts))


def stream(share: float, per_s: float, byte: int = 600 * MIB, **facts: Any) -> Measurement:
    counts = {"byte": byte, "byte_moved": byte, "byte_written": round(byte * share), "median_s": byte / per_s}
    return row(
        **({"sweep": "ceilings/stream", "implementation": "aten", "arithmetic": "vector"} | counts | facts)
    )


def launch(median_s: float, **facts: Any) -> Measurement:
    return row(**({"sweep": "ceilings/launch", "arithmetic": "vector", "median_s": median_s} | facts))


def ceilings_of(rows: Iterable[Measurement]) -> Ceilings:
    """Of one run and condition."""
    return next(iter(by_run(rows).values()), Ceilings())


@pytest.fixture
def measured() -> Ceilings:
    return ceilings_of(
        [
            launch(2e-6),
            gemm(4_000_000, 1e-5),
            stream(0.0, 30e9),
            stream(0.5, 20e9),
            stream(1.0, 10e9),
        ]
    )


def test_ceilings_are_known_by_their_counts(measured: Ceilings) -> None:
    assert measured.launch_s == 2e-6
    assert measured.peak("matrix", "float32") == pytest.approx(4e11)
    assert measured.copy_byte_per_s == pytest.approx(20e9)
    assert list(measured.bandwidth_byte_per_s) == [0.0, 0.5, 1.0]
    assert (measured.device, measured.run_id, measured.condition) == ("cpu-test", "r1", "cold")


def test_the_launch_floor_is_the_quickest_implementations_median() -> None:
    floors = [launch(t, implementation="aten") for t in (3e-6, 9e-6, 4e-6)]
    floors += [launch(t, implementation="triton") for t in (2.6e-6, 2.2e-6)]
    assert ceilings_of(floors).launch_s == pytest.approx(2.4e-6)


def test_a_peak_is_the_highest_rate_with_the_interval_of_its_row() -> None:
    best = gemm(8_000_000, 1e-5, low_s=0.9e-5, high_s=1.25e-5, parameters='{"m":200}')
    found = ceilings_of([gemm(4_000_000, 1e-5), best, gemm(100, 1e-5)])
    peak = found.peak_flop_per_s["matrix", "float32"]
    assert peak.per_s == pytest.approx(8e11)
    assert (peak.low_per_s, peak.high_per_s) == pytest.approx((6.4e11, 8e11 / 0.9))
    assert peak.row == "ceilings/gemm-onednn-any-m200-cold"
    assert found.peak("matrix", "float16") is None


def test_bandwidth_takes_the_best_size_of_each_kind() -> None:
    found = ceilings_of([stream(1 / 3, 20e9, 300), stream(1 / 3, 25e9, 9000), stream(1 / 3, 24e9, 30000)])
    assert len(found.bandwidth_byte_per_s) == 1
    assert found.second_per_byte(0.33) == pytest.approx(1 / 25e9)


def test_bandwidth_is_linear_in_time_per_byte(measured: Ceilings) -> None:
    seconds = measured.second_per_byte([0.0, 0.25, 0.5, 1.0])
    assert seconds == pytest.approx([1 / 30e9, (1 / 30e9 + 1 / 20e9) / 2, 1 / 20e9, 1 / 10e9])
    only_copy = ceilings_of([stream(0.5, 20e9)])
    assert only_copy.second_per_byte(0.0) == pytest.approx(1 / 20e9)


@pytest.mark.parametrize("status", ["wrong", "skipped", "timeout"])
def test_rows_that_are_not_ok_are_no_ceiling(status: str) -> None:
    found = ceilings_of([gemm(10**9, 1e-9, status=status), launch(1e-9, status=status)])
    assert found.peak("matrix", "float32") is None and found.launch_s is None


# --- predictions, by hand ---------------------------------------------------------------------------


def test_the_launch_floor_is_added_to_the_larger_of_the_two(measured: Ceilings) -> None:
    compute = calibrated(4e9, 1e6, 0.5, "matrix", "float32", measured)
    assert compute is not None and compute.bound_by == "compute"
    assert compute.seconds == pytest.approx(2e-6 + 4e9 / 4e11)
    memory = calibrated(4e3, 1e9, 0.25, "matrix", "float32", measured)
    assert memory is not None and memory.bound_by == "memory"
    assert memory.seconds == pytest.approx(2e-6 + 1e9 * (1 / 30e9 + 1 / 20e9) / 2)
    small = calibrated(4e3, 1e3, 0.5, "matrix", "float32", measured)
    assert small is not None and small.bound_by == "launch"
    assert small.seconds == pytest.approx(2e-6 + 1e3 / 20e9)


def test_traffic_beside_the_arithmetic_adds_to_it(measured: Ceilings) -> None:
    """Of a layer, as if its products were one launch and what lies between them another."""
    whole = calibrated(4e9, 1e8, 0.5, "matrix", "float32", measured, beside=0.75)
    products = calibrated(4e9, 0.25e8, 0.5, "matrix", "float32", measured)
    others = calibrated(0, 0.75e8, 0.5, "matrix", "float32", measured)
    assert whole and products and others and products.bound_by == "compute"
    assert whole.lower_bound_s == pytest.approx(products.lower_bound_s + others.lower_bound_s)
    columns, _ = calibrated_columns([4e9], [1e8], [0.5], ["matrix"], ["float32"], measured, [0.75])
    assert columns[0] == pytest.approx(whole.seconds)


def test_the_measured_limit_is_the_nearest_term_if_one_is_near() -> None:
    terms = np.array([1e-6, 8e-6, 1e-4])
    seconds = {1.9e-6: "launch", 2.1e-6: "none", 4.2e-6: "memory", 1.5e-5: "memory", 5.1e-5: "compute"}
    assert {each: nearest_terms(each, terms) for each in seconds} == seconds
    assert nearest_terms(1.99e-4, terms) == largest_terms(terms) == "compute"
    assert nearest_terms(2.01e-4, terms) == "none" and nearest_terms(0.49e-6, terms) == "none"
    # What moves nothing is bound by no memory, however short it is; what is unknown bounds nothing.
    launch, unknown = np.array([1e-6, 0.0, 0.0]), np.array([1e-6, math.nan, 0.0])
    assert nearest_terms(1e-9, launch) == "none" and largest_terms(launch) == "launch"
    assert nearest_terms(1e-6, unknown).item() is largest_terms(unknown).item() is None


@pytest.mark.parametrize("missing", ["launch", "stream", "gemm"])
def test_a_missing_ceiling_means_no_prediction(missing: str) -> None:
    there = {"launch": launch(2e-6), "stream": stream(0.5, 2e10), "gemm": gemm(4_000_000, 1e-5)}
    some = ceilings_of([one for name, one in there.items() if name != missing])
    assert calibrated(1e6, 1e6, 0.5, "matrix", "float32", some) is None
    assert calibrated(1e6, 1e6, 0.5, "matrix", "float32", ceilings_of(there.values())) is not None


S = 100 * MIB
"""A tensor, as a normalisation in two passes reads it twice and writes another."""


@pytest.mark.parametrize(("cache_byte", "byte"), [(0, 3 * S), (S, 2.5 * S), (2 * S, 2 * S), (20 * S, 2 * S)])
def test_what_is_read_again_comes_from_the_cache_as_far_as_that_goes(cache_byte: int, byte: float) -> None:
    assert traffic(3 * S, S, S, cache_byte) == pytest.approx((byte, S / byte))
    assert traffic(3 * S, 0, S, cache_byte) == pytest.approx((3 * S, 1 / 3))
    assert traffic(0, 0, 0, cache_byte) == (0, 0)


def test_columns_say_what_single_predictions_say(measured: Ceilings) -> None:
    cases = [
        (4e9, 1e6, 0.5, "matrix", "float32"),
        (4e3, 1e9, 0.25, "matrix", "float32"),
        (4e3, 1e3, 1.0, "matrix", "float32"),
        (4e9, 1e6, 0.5, "matrix", "float16"),
        (4e9, 1e6, 0.5, "vector", "float16"),
        (0, 0, 0.0, "vector", "float32"),
    ]
    seconds, limiters = calibrated_columns(*zip(*cases, strict=True), measured)  # type: ignore[arg-type]
    for case, second, limiter in zip(cases, seconds, limiters, strict=True):
        one = calibrated(*case, measured)
        assert (one is None) == math.isnan(second) == (limiter == "")
        if one is not None:
            assert (one.seconds, one.bound_by) == (pytest.approx(second, rel=1e-12), limiter)


class Sheet:
    bandwidth_byte_per_s: float | None = 100e9

    def peak_flop_per_s(self, arithmetic: str, dtype: str) -> float | None:
        return 1e12 if (arithmetic, dtype) == ("matrix", "float16") else None


def test_memory_is_no_roof_of_what_crosses_the_link_to_the_host(measured: Ceilings) -> None:
    assert datasheet_s(0, 1e9, "link", "float32", Sheet()) is None
    assert calibrated(0, 1e9, 0.5, "link", "float32", measured) is None
    seconds, limiters = calibrated_columns([0], [1e9], [0.5], ["link"], ["float32"], measured)
    assert np.isnan(seconds).all() and limiters.tolist() == [""]


def test_a_datasheet_without_the_number_predicts_nothing() -> None:
    assert datasheet_s(1e12, 1e9, "matrix", "float32", Sheet()) is None
    assert datasheet_s(1e12, 1e9, "matrix", "float16", None) is None
    assert datasheet_s(0, 1e11, "vector", "float32", Sheet()) == pytest.approx(1.0)
    blind = Sheet()
    blind.bandwidth_byte_per_s = None
    assert datasheet_s(1e12, 1e9, "matrix", "float16", blind) is None


def test_a_roof_is_what_was_kept_up_in_the_quicker_of_two_states() -> None:
    """Three fifths of the time at 1.1 ms, two at 1.0 ms: the median says 1.1, the roof stands at 1.0."""
    samples = [1.1e-3] * 30 + [1.0e-3] * 20
    slow_and_fast = gemm(10**9, 1.1e-3, samples_s=samples)
    assert ceilings_of([slow_and_fast]).peak("matrix", "float32") == pytest.approx(1e12)
    assert ceilings_of(stored([slow_and_fast, gemm(1, 1.0)])).peak("matrix", "float32") == pytest.approx(1e12)
    few = gemm(10**9, 1.1e-3, samples_s=samples[-5:])
    assert ceilings_of([few]).peak("matrix", "float32") == pytest.approx(10**9 / 1.1e-3)
    one_quick = gemm(10**9, 1.1e-3, samples_s=[1.1e-3] * 49 + [1e-5])
    assert ceilings_of([one_quick]).peak("matrix", "float32") == pytest.approx(10**9 / 1.1e-3)
