"""Tiles, waves and caches of a matrix product: by hand, what physics allows, and where numbers end."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest

from bench.model.tile_wave import SPLITS, TILES, Machine, Products, predict, resident
from tests.bench.machines import bfloat16, machine, products, sizes


class ByHand(NamedTuple):
    seconds: float
    compute_s: float
    memory_s: float
    cache_share: float
    used: float


def by_hand(of: Machine, tile: tuple[int, int], parts: int, held_to_it: bool, *launch: float) -> ByHand:
    """One launch in one way, number by number as the module's text has it: no arrays, nothing imported."""
    m, n, k, item_byte, byte, working_set, beside = launch
    assert beside == 0
    area = tile[0] * tile[1]
    programs = math.ceil(m / tile[0]) * math.ceil(n / tile[1]) * parts
    holds = 2 if area <= 64 * 64 else 1
    waves = programs / (of.sm_count * holds)
    if waves <= 1:
        waves = 1.0
    else:
        waves += (1.0 if held_to_it else of.tail) * (math.ceil(waves) - waves)
    # Two programs share an SM only where there are more programs than SMs.
    together = holds if programs > of.sm_count else 1
    tile_flop = 2 * area * (128 / item_byte)
    steps = math.ceil(math.ceil(k * item_byte / 128) / parts)
    loop_s = steps * max(together * tile_flop / (of.flop_per_s / of.sm_count), of.step_s)
    used = min(1.0, m * n * parts / (waves * of.sm_count * holds * area))
    whole_s = waves * (loop_s + of.tile_s * math.sqrt(area / (128 * 128)))
    compute_s = whole_s - 0.12 * (1 - used) * whole_s

    share = working_set / of.cache_byte
    inside = 1.0 if share <= 0.8 else 0.0 if share >= 1.25 else (1.25 - share) / 0.45
    sms = min(programs, of.sm_count)

    def drawn(all_of_them: float, one_sm: float) -> float:
        every, some = all_of_them / (one_sm * of.sm_count), all_of_them / (one_sm * sms)
        return float(all_of_them * ((1 + every**4) / (1 + some**4)) ** 0.25)

    cache_s = byte * inside / drawn(of.cached_byte_per_s, 2 * of.sm_byte_per_s)
    memory_s = cache_s + byte * (1 - inside) / drawn(of.byte_per_s, of.sm_byte_per_s)
    p = min(1 + steps * waves / 16, 16)
    high, low = max(compute_s, memory_s), min(compute_s, memory_s)
    seconds = of.launch_s + high * (1 + (low / high) ** p) ** (1 / p) + (of.split_s if parts > 1 else 0.0)
    return ByHand(seconds, compute_s, memory_s, cache_s / memory_s, used)


def ways(of: Machine, m: float, n: float, k: float, item_byte: float) -> list[tuple[tuple[int, int], int]]:
    """Tiles and parts of K that a library may take: no part without a step, no more than fill it twice."""
    usual = math.ceil(m / 128) * math.ceil(n / 128)
    most = math.ceil(k * item_byte / 128)
    parts = [p for p in SPLITS if p == 1 or (p <= most and max(1, p - 1) * usual < 2 * of.sm_count)]
    return list(itertools.product(TILES, parts))


def launches(of: Products) -> list[tuple[float, ...]]:
    return [tuple(float(part[i]) for part in of) for i in range(len(of.m))]


# ---- the formula


def test_the_quickest_of_all_ways_by_hand(chance: np.random.Generator) -> None:
    for _ in range(12):
        of = machine(chance)
        some = products(chance, sizes(chance, 25))
        found = predict(of, some)
        for i, launch in enumerate(launches(some)):
            least = min(by_hand(of, *way, False, *launch).seconds for way in ways(of, *launch[:4]))
            assert found.seconds[i] == pytest.approx(least, rel=1e-9), launch
            tile = int(found.tile[i, 0]), int(found.tile[i, 1])
            assert (tile, found.parts[i]) in ways(of, *launch[:4])
            taken = by_hand(of, tile, int(found.parts[i]), False, *launch)
            told = [float(part[i]) for part in found[:5]]
            assert told == pytest.approx(list(taken), rel=1e-9, abs=1e-300)


def test_a_stated_tile_by_hand(chance: np.random.Generator) -> None:
    for tile in (*TILES, (256, 256), (48, 80), (1, 1)):
        of = machine(chance)
        some = products(chance, sizes(chance, 20))
        found = predict(of, some, tile)
        assert (found.tile == tile).all() and (found.parts == 1).all()
        for i, launch in enumerate(launches(some)):
            told = [float(part[i]) for part in found[:5]]
            assert told == pytest.approx(list(by_hand(of, tile, 1, True, *launch)), rel=1e-9, abs=1e-300)


def test_one_case_in_round_numbers() -> None:
    """100 SMs, 200 tiles of 128 x 128: two waves; of 4 us of steps each, and nothing that moves slowly."""
    of = Machine(
        sm_count=100,
        cache_byte=10**6,
        flop_per_s=100 * 2 * 128 * 128 * 64 / 1e-6,  # a step of such a tile takes an SM 1 us
        byte_per_s=1e18,
        launch_s=3e-6,
        cached_byte_per_s=1e18,
        sm_byte_per_s=1e18,
        step_s=1e-9,
        tile_s=2e-6,
        split_s=1.0,
        tail=0.0,
    )
    found = predict(of, bfloat16(np.array([1280, 2560, 256])), (128, 128))
    assert found.seconds[0] == pytest.approx(3e-6 + 2 * (4e-6 + 2e-6), rel=1e-6)
    assert found.used[0] == 1.0
    more = predict(of, bfloat16(np.array([1280, 2561, 256])), (128, 128))
    # 210 tiles: a third wave; 2561 of 3 x 1280 columns' worth of places are in use.
    assert more.used[0] == pytest.approx(2561 / 3840)
    assert more.seconds[0] == pytest.approx(3e-6 + 3 * 6e-6 * (1 - 0.12 * (1 - 2561 / 3840)), rel=1e-6)


# ---- what physics allows


def test_more_of_anything_is_never_slower(chance: np.random.Generator) -> None:
    some = products(chance, sizes(chance, 400))
    rates = ("flop_per_s", "byte_per_s", "cached_byte_per_s", "sm_byte_per_s")
    costs = ("launch_s", "step_s", "tile_s", "split_s")
    quicker = set()
    for _ in range(10):
        of = machine(chance)
        for tile in (None, (64, 16), (256, 128)):
            before = predict(of, some, tile).seconds
            for name in (*rates, *costs):
                by = float(chance.uniform(1.01, 3.0))
                factor = by if name in rates else 1 / by
                better = dataclasses.replace(of, **{name: getattr(of, name) * factor})
                after = predict(better, some, tile).seconds
                assert (after <= before * (1 + 1e-12)).all(), name
                quicker |= {(name, tile is None)} if (after < before).any() else set()
    assert quicker == {(n, free) for n in (*rates, *costs) for free in (True, False)} - {("split_s", False)}


# ---- caches


def test_resident_from_all_to_nothing(chance: np.random.Generator) -> None:
    cache = float(chance.uniform(1e6, 1e8))
    ends = resident(np.array([0.0, 0.8, 1.25, 2.0, math.inf]) * cache, cache)
    assert ends == pytest.approx([1, 1, 0, 0, 0], abs=1e-12)
    assert resident(1.025 * cache, cache) == pytest.approx(0.5)  # half way between the two
    share = resident(np.sort(chance.uniform(0, 2, 1000)) * cache, cache)
    assert ((share >= 0) & (share <= 1)).all() and (np.diff(share) <= 0).all()
