"""The numbers of a machine: by rule from its ceilings, and drawn to sixty-four shapes."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize

from bench.model import calibration, tile_wave
from bench.model.calibration import FITTED, Calibration, error, fit, started, with_launch
from bench.model.ceilings import Ceiling, Ceilings, Duration
from bench.model.tile_wave import Machine, Products
from tests.bench.machines import bfloat16, calibration_shapes, machine, moved, sizes

USUAL = Machine(
    sm_count=132,
    cache_byte=50 * 2**20,
    flop_per_s=7.5e14,
    byte_per_s=2.9e12,
    launch_s=2.5e-6,
    cached_byte_per_s=7e12,
    sm_byte_per_s=3.2e10,
    step_s=1.2e-7,
    tile_s=1e-6,
    split_s=3e-6,
    tail=0.3,
)
"""Much like an H100: where fits begin."""


def ceiling(per_s: float) -> Ceiling:
    return Ceiling(per_s, per_s, per_s, "a row")


def duration(seconds: float) -> Duration:
    return Duration(seconds, seconds, seconds, "a row")


def device(chance: np.random.Generator) -> Machine:
    """One that a fit begun at USUAL may be asked to find: each number off by about as far as it may be
    drawn."""
    true = moved(USUAL, chance, {name: 0.7 * spread for name, spread in FITTED.items()})
    return replace(true, tail=min(true.tail, 1.0))


# ---- the fit


@pytest.fixture(scope="module")
def shapes() -> Products:
    return bfloat16(calibration_shapes())


def test_a_fit_finds_the_machine(chance: np.random.Generator, shapes: Products) -> None:
    """By what it predicts of shapes that it never saw; numbers that do the same may stand for each other."""
    for _ in range(3):
        true = device(chance)
        other = bfloat16(sizes(chance, 300, 2**14))
        exact = tile_wave.predict(true, other).seconds
        seconds = tile_wave.predict(true, shapes).seconds
        assert error(fit(USUAL, shapes, seconds), other, exact) < 0.02
        noisy = seconds * np.exp(chance.normal(0.0, 0.05, len(seconds)))
        assert error(fit(USUAL, shapes, noisy), other, exact) < 0.045


def test_a_fit_finds_what_moving_bytes_beside_takes(chance: np.random.Generator, shapes: Products) -> None:
    """Of quantised layers, whose input is moved again; without such bytes the number is nobody's business."""
    true = replace(device(chance), beside=5.0)
    more = shapes._replace(beside=3.0 * shapes.n * shapes.k)
    found = fit(USUAL, more, tile_wave.predict(true, more).seconds)
    large = more.beside > 1e7
    moving_s = [
        tile_wave.predict(one, more).seconds - tile_wave.predict(one, shapes).seconds for one in (found, true)
    ]
    assert np.median(np.abs(moving_s[0][large] / moving_s[1][large] - 1.0)) < 0.15
    assert fit(USUAL, shapes, tile_wave.predict(true, shapes).seconds).beside == USUAL.beside


def test_three_gross_outliers_do_not_rule_it(chance: np.random.Generator, shapes: Products) -> None:
    true = device(chance)
    other = bfloat16(sizes(chance, 300, 2**14))
    exact = tile_wave.predict(true, other).seconds
    seconds = tile_wave.predict(true, shapes).seconds * np.exp(chance.normal(0.0, 0.05, len(shapes.m)))
    wild = seconds.copy()
    wild[chance.choice(len(wild), 3, replace=False)] *= chance.choice([0.1, 5.0, 20.0], 3)
    assert error(fit(USUAL, shapes, wild), other, exact) < 0.05


def test_a_fit_is_the_same_twice(chance: np.random.Generator, shapes: Products) -> None:
    seconds = tile_wave.predict(device(chance), shapes).seconds * np.exp(chance.normal(0.0, 0.05, 64))
    assert fit(USUAL, shapes, seconds) == fit(USUAL, shapes, seconds)


def test_of_two_attempts_the_nearer_counts(
    chance: np.random.Generator, shapes: Products, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles change by jumps, so an attempt may end where it need not: here the first, then the second."""
    seconds = tile_wave.predict(device(chance), shapes).seconds
    real, ends = scipy.optimize.least_squares, []

    def halted(residuals: Any, start: Any, **how: Any) -> Any:
        found = real(residuals, start, **how)
        if len(ends) % 3 == 0:  # of four attempts the first and the last
            found.x, found.cost = np.full_like(found.x, 2.0), found.cost + 1.0
        ends.append(found)
        return found

    monkeypatch.setattr(scipy.optimize, "least_squares", halted)
    for attempt in (1, 2):
        found = fit(USUAL, shapes, seconds)
        at = 2 * attempt - 2
        (good,) = [one for one in ends[at : at + 2] if not (one.x == 2.0).all()]
        assert found.flop_per_s == pytest.approx(USUAL.flop_per_s * math.exp(good.x[0]))
    assert len(ends) == 4


def test_a_fit_to_its_own_start_stays_there(shapes: Products) -> None:
    found = fit(USUAL, shapes, tile_wave.predict(USUAL, shapes).seconds)
    for name in FITTED:
        assert getattr(found, name) == pytest.approx(getattr(USUAL, name), rel=1e-3), name
    assert (found.sm_count, found.cache_byte) == (USUAL.sm_count, USUAL.cache_byte)


def test_what_the_shapes_do_not_tell_is_left_alone(chance: np.random.Generator) -> None:
    """Products that fill the device many times over know nothing of splits, launches or memory."""
    large = bfloat16(chance.integers(80, 100, (40, 3)) * 128.0)
    true = replace(USUAL, flop_per_s=USUAL.flop_per_s * float(np.exp(chance.normal(0.0, 0.08))))
    found = fit(USUAL, large, tile_wave.predict(true, large).seconds)
    for name in ("split_s", "byte_per_s", "sm_byte_per_s", "cached_byte_per_s", "launch_s"):
        assert getattr(found, name) == pytest.approx(getattr(USUAL, name), rel=0.01), name
    assert error(found, large, tile_wave.predict(true, large).seconds) < 0.005


def test_what_was_measured_moves_least(shapes: Products) -> None:
    """All times a tenth longer can be told by any number: bandwidth, well known, hardly gives way."""
    seconds = 1.1 * tile_wave.predict(USUAL, shapes).seconds
    found = fit(USUAL, shapes, seconds)
    change = {name: abs(math.log(getattr(found, name) / getattr(USUAL, name))) for name in FITTED}
    assert change["byte_per_s"] < 0.045 < change["flop_per_s"] < 0.1
    assert change["launch_s"] > 0.08
    assert error(found, shapes, seconds) < 0.03


@pytest.mark.parametrize(
    ("name", "changes", "shape", "spread"),
    [
        ("flop_per_s", {"flop_per_s": 1e9}, (4096, 4096, 4096), 0.10),
        ("byte_per_s", {"byte_per_s": 1e6, "sm_byte_per_s": 1e9}, (4096, 4096, 64), 0.015),
        ("launch_s", {"launch_s": 1.0}, (64, 64, 64), 0.30),
        ("cached_byte_per_s", {"cached_byte_per_s": 1e6, "sm_byte_per_s": 1e9}, (4096, 1024, 64), 0.60),
        ("sm_byte_per_s", {"byte_per_s": 1e3, "sm_byte_per_s": 2e3 / 132}, (16, 16, 64), 0.60),
        ("step_s", {"step_s": 1.0}, (16, 16, 64), 0.60),
        ("tile_s", {"tile_s": 1e3}, (16, 16, 64), 0.80),
    ],
)
def test_each_number_gives_way_by_its_spread(
    name: str, changes: dict[str, float], shape: tuple[int, ...], spread: float
) -> None:
    """One shape that one number rules, a twentieth slower than told: prior and shape share the difference."""
    start = replace(USUAL, **changes)
    some = bfloat16(np.array(shape))
    if name.startswith("cached"):
        some = some._replace(working_set=some.byte)
    before = tile_wave.predict(start, some).seconds
    found = fit(start, some, 1.05 * before)
    change = abs(math.log(getattr(found, name) / getattr(start, name)))
    assert change == pytest.approx(math.log(1.05) * spread**2 / (spread**2 + 0.10**2), rel=0.12)


def test_a_number_that_is_nothing_stays_nothing(chance: np.random.Generator, shapes: Products) -> None:
    bare = replace(USUAL, tile_s=0.0, tail=0.0)
    found = fit(bare, shapes, tile_wave.predict(device(chance), shapes).seconds)
    assert found.tile_s == found.tail == 0.0
    assert found.launch_s != bare.launch_s


def test_error_is_the_mean_of_both_sides(chance: np.random.Generator, shapes: Products) -> None:
    exact = tile_wave.predict(USUAL, shapes).seconds
    assert error(USUAL, shapes, exact) == 0.0
    off = chance.uniform(-0.5, 1.0, len(exact))
    assert error(USUAL, shapes, exact / (1.0 + off)) == pytest.approx(float(np.abs(off).mean()))


# ---- the launch floor of shapes


def test_the_launch_floor_is_what_the_quickest_shapes_leave(
    chance: np.random.Generator, shapes: Products
) -> None:
    for _ in range(5):
        of = machine(chance)
        seconds = tile_wave.predict(of, shapes).seconds
        found = with_launch(replace(of, launch_s=float(chance.uniform(0, 1))), shapes, seconds)
        least = 0.1 * float(seconds.min())
        assert found.launch_s == pytest.approx(max(of.launch_s, least), rel=1e-9)
        assert found == replace(of, launch_s=found.launch_s)


def test_the_least_rest_counts_and_slow_shapes_do_not(shapes: Products) -> None:
    seconds = tile_wave.predict(USUAL, shapes).seconds
    order = np.argsort(seconds)
    slower = seconds.copy()
    slower[order[0]] *= 1.1  # one of several quick shapes takes longer than it should
    assert with_launch(USUAL, shapes, slower).launch_s == pytest.approx(USUAL.launch_s)
    odd = seconds.copy()
    odd[order[40]] = 1.3 * seconds.min()  # below what its bytes take, and not among the quickest
    assert with_launch(USUAL, shapes, odd).launch_s == pytest.approx(USUAL.launch_s)
    odd[order[40]] = 1.1 * seconds.min()
    assert with_launch(USUAL, shapes, odd).launch_s == pytest.approx(0.1 * seconds.min())  # a tenth at least


# ---- where it starts


def test_priors_are_by_rule(chance: np.random.Generator) -> None:
    """A run that measured a peak and the bandwidth of reading, and nothing else."""
    for major, tile_s in ((8, 2e-6), (9, 0.5e-6), (10, 0.5e-6), (12, 2e-6), (None, 2e-6)):
        peak, reads = float(chance.uniform(1e14, 2e15)), float(chance.uniform(1e12, 8e12))
        sm_count = int(chance.integers(50, 200))
        found = started(
            Ceilings(
                peak_flop_per_s={("matrix", "bfloat16"): ceiling(peak)},
                bandwidth_byte_per_s={0.0: ceiling(reads), 0.5: ceiling(0.9 * reads)},
            ),
            "bfloat16",
            sm_count,
            10**7,
            (major, 0) if major else None,
            1.5e9,
        )
        assert found == Machine(
            sm_count=sm_count,
            cache_byte=10**7,
            flop_per_s=peak,
            byte_per_s=pytest.approx(reads),
            launch_s=0.0,
            cached_byte_per_s=pytest.approx(2.5 * reads),
            sm_byte_per_s=pytest.approx(max(1.4 * reads / sm_count, 7.5e9)),
            step_s=pytest.approx(max(80e-9, 0.3 * 2 * 128 * 128 * 64 * sm_count / peak)),
            tile_s=tile_s,
            split_s=3e-6,
            tail=0.3,
        )


def test_each_side_of_each_prior() -> None:
    def of(peak: float, reads: float, clock_hz: float | None) -> Machine:
        found = started(
            Ceilings(
                peak_flop_per_s={("matrix", "float16"): ceiling(peak)},
                bandwidth_byte_per_s={0.0: ceiling(reads)},
            ),
            "float16",
            100,
            1,
            None,
            clock_hz,
        )
        assert found is not None
        return found

    assert of(1e15, 1e12, 2e9).sm_byte_per_s == pytest.approx(1.4e10)
    assert of(1e15, 5e11, 2e9).sm_byte_per_s == pytest.approx(1e10)
    assert of(1e15, 1e9, None).sm_byte_per_s == pytest.approx(1.4e7)
    assert of(1e15, 1e12, None).step_s == 80e-9
    assert of(1e14, 1e12, None).step_s == pytest.approx(0.3 * 2097152e-12)


def test_what_was_measured_comes_before_priors(chance: np.random.Generator) -> None:
    reads, peak = 2e12, 5e14
    tile_s, launch_s = chance.uniform(1e-7, 1e-5, 2).tolist()
    ceilings = Ceilings(
        launch_s=launch_s,
        peak_flop_per_s={("matrix", "bfloat16"): ceiling(peak), ("matrix", "float16"): ceiling(2 * peak)},
        bandwidth_byte_per_s={0.0: ceiling(reads), 1.0: ceiling(reads / 2)},
        cached={2**20: ceiling(3e12), 2**24: ceiling(7e12), 2**29: ceiling(1e12)},
        sm_byte_per_s=ceiling(4e10),
        step={"bfloat16": duration(5e-6)},
        tile={"bfloat16": duration(tile_s)},
    )
    found = started(ceilings, "bfloat16", 100, 10**7, (9, 0), 1e9)
    assert found is not None
    assert (found.flop_per_s, found.byte_per_s, found.launch_s) == (peak, pytest.approx(reads), launch_s)
    assert (found.cached_byte_per_s, found.sm_byte_per_s) == (7e12, 4e10)
    assert found.tile_s == tile_s
    # The probe's step multiplies a large tile: it is no least time of a small one.
    assert found.step_s == pytest.approx(0.3 * 2 * 128 * 128 * 64 * 100 / peak)
    other = started(ceilings, "float16", 100, 10**7, (9, 0), 1e9)
    assert other is not None and (other.flop_per_s, other.tile_s) == (2 * peak, 0.5e-6)
    slow = replace(ceilings, cached={2**20: ceiling(1e9)})  # a cache slower than memory is not believed
    of_slow = started(slow, "bfloat16", 100, 10**7, (9, 0), 1e9)
    assert of_slow is not None and of_slow.cached_byte_per_s == pytest.approx(reads)


def test_no_start_without_peak_or_bandwidth() -> None:
    peak, reads = {("matrix", "bfloat16"): ceiling(1e15)}, {0.0: ceiling(1e12)}
    both = Ceilings(peak_flop_per_s=peak, bandwidth_byte_per_s=reads)
    assert started(both, "bfloat16", 100, 1, None, None)
    assert started(both, "float16", 100, 1, None, None) is None
    assert started(Ceilings(peak_flop_per_s=peak), "bfloat16", 100, 1, None, None) is None
    assert started(Ceilings(bandwidth_byte_per_s=reads), "bfloat16", 100, 1, None, None) is None
    vector = Ceilings(peak_flop_per_s={("vector", "bfloat16"): ceiling(1.0)}, bandwidth_byte_per_s=reads)
    assert started(vector, "bfloat16", 100, 1, None, None) is None


# ---- data types


def test_other_data_types_go_by_their_own_shapes() -> None:
    by = Calibration(USUAL, "bfloat16", {"bfloat16": 8e14, "float8_e4m3": 1.6e15}, fitted=True, shapes=64)
    assert by.of("bfloat16") is by.of("float16") is by
    assert by.of("float8_e4m3") is by.of("tf32") is None
    eight = replace(by, dtype="float8_e4m3")
    assert replace(by, others={"float8_e4m3": eight}).of("float8_e4m3") is eight
    assert eight.of("float16") is None


def test_all_but_what_a_driver_tells_is_fitted() -> None:
    assert set(FITTED) | {"sm_count", "cache_byte"} == {one.name for one in dataclasses.fields(Machine)}
    assert calibration.LEAST_SHAPES <= len(calibration_shapes()) == 64
