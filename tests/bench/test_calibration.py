"""The numbers of a machine: by rule from its ceilings, and drawn to sixty-four shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.device.datasheet import find_datasheet
from bench.model import tile_wave
from bench.model.calibration import FITTED, fit, started, with_launch
from bench.model.ceiling import Ceiling, Duration
from bench.model.ceilings import Ceilings
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
H100 = find_datasheet("NVIDIA H100 80GB HBM3")


def error(machine: Machine, shapes: Products, seconds: np.ndarray) -> float:
    """Mean |predicted / measured - 1| of these shapes."""
    return float(np.mean(np.abs(tile_wave.predict(machine, shapes).seconds / seconds - 1.0)))


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


def test_three_gross_outliers_do_not_rule_it(chance: np.random.Generator, shapes: Products) -> None:
    true = device(chance)
    other = bfloat16(sizes(chance, 300, 2**14))
    exact = tile_wave.predict(true, other).seconds
    seconds = tile_wave.predict(true, shapes).seconds * np.exp(chance.normal(0.0, 0.05, len(shapes.m)))
    wild = seconds.copy()
    wild[chance.choice(len(wild), 3, replace=False)] *= chance.choice([0.1, 5.0, 20.0], 3)
    assert error(fit(USUAL, shapes, wild), other, exact) < 0.05


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


# ---- where it starts


def test_priors_are_by_rule(chance: np.random.Generator) -> None:
    """A run that measured a peak and the bandwidth of reading, and nothing else."""
    assert H100
    for major, tile_s in ((8, 2e-6), (9, 0.5e-6), (10, 0.5e-6), (12, 2e-6), (None, 2e-6)):
        sheet = replace(H100, capability=(major, 0) if major else None, boost_clock_hz=1.5e9)
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
            sheet,
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
    found = started(ceilings, "bfloat16", 100, 10**7, H100)
    assert found is not None
    assert (found.flop_per_s, found.byte_per_s, found.launch_s) == (peak, pytest.approx(reads), launch_s)
    assert (found.cached_byte_per_s, found.sm_byte_per_s) == (7e12, 4e10)
    assert found.tile_s == tile_s
    # The probe's step multiplies a large tile: it is no least time of a small one.
    assert found.step_s == pytest.approx(0.3 * 2 * 128 * 128 * 64 * 100 / peak)
    other = started(ceilings, "float16", 100, 10**7, H100)
    assert other is not None and (other.flop_per_s, other.tile_s) == (2 * peak, 0.5e-6)
    slow = replace(ceilings, cached={2**20: ceiling(1e9)})  # a cache slower than memory is not believed
    of_slow = started(slow, "bfloat16", 100, 10**7, H100)
    assert of_slow is not None and of_slow.cached_byte_per_s == pytest.approx(reads)


def test_no_start_without_peak_or_bandwidth() -> None:
    peak, reads = {("matrix", "bfloat16"): ceiling(1e15)}, {0.0: ceiling(1e12)}
    both = Ceilings(peak_flop_per_s=peak, bandwidth_byte_per_s=reads)
    assert started(both, "bfloat16", 100, 1, None)
    assert started(both, "float16", 100, 1, None) is None
    assert started(Ceilings(peak_flop_per_s=peak), "bfloat16", 100, 1, None) is None
    assert started(Ceilings(bandwidth_byte_per_s=reads), "bfloat16", 100, 1, None) is None
    vector = Ceilings(peak_flop_per_s={("vector", "bfloat16"): ceiling(1.0)}, bandwidth_byte_per_s=reads)
    assert started(vector, "bfloat16", 100, 1, None) is None


# ---- data types
