"""The rank test: of samples that follow one another only the independent ones count."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from bench.judge.ranks import independent, p_values


def correlated(chance: np.random.Generator, r: float, count: int) -> np.ndarray[Any, Any]:
    steps = chance.standard_normal(count) * math.sqrt(1 - r * r)
    steps[0] = chance.standard_normal()
    return 1 + 0.01 * np.asarray(lfilter([1.0], [1.0, -r], steps))


def test_samples_that_are_alike_count_as_few(chance: np.random.Generator) -> None:
    """Two thirds of n (1 - r) / (1 + r), which is n / 3 at r = 0.5, n / 39 at 0.95; 16 at most."""
    for r, count, least, most in (
        (0.0, 300, 16, 16),
        (0.5, 30, 5, 14),
        (0.95, 300, 3, 14),
        (-0.9, 30, 14, 16),
    ):
        blocks = [len(independent([correlated(chance, r, count)])) for _ in range(100)]
        assert least <= np.median(blocks) <= most, (r, np.median(blocks))
    one, other = correlated(chance, 0.0, 40), correlated(chance, 0.0, 3)
    assert len(independent([one, other])) == len(independent([other, one])) <= 19
    assert independent([np.full(6, 2.0)]).tolist() == [2.0] * 4
    assert independent([np.array([3.0])]).tolist() == [3.0]


def test_blocks_follow_one_another_in_time() -> None:
    rising = np.arange(64.0)
    (one,) = independent([rising])  # all samples as one: it drifts
    assert one == 31.5
    assert independent([rising, 100 + rising]).tolist() == [31.5, 131.5]


def test_drifting_samples_of_one_level_are_not_told_apart(chance: np.random.Generator) -> None:
    """2,000 pairs: the rank test of single samples finds a difference in most, of blocks in few."""
    pairs = [(correlated(chance, 0.9, 60), correlated(chance, 0.9, 60)) for _ in range(2000)]
    assert np.mean(p_values(pairs) < 0.002) > 0.2
    assert np.mean(p_values([(independent([a]), independent([b])) for a, b in pairs]) < 0.002) < 0.05


def test_p_values_are_scipys_whatever_stands_beside_them(chance: np.random.Generator) -> None:
    pairs = [
        (chance.standard_normal(n), shift + chance.standard_normal(m))
        for n, m in ((8, 8), (7, 30), (30, 7), (9, 9), (16, 16), (16, 48))
        for shift in (0.0, 1.0, 3.0)
    ]
    order = chance.permutation(len(pairs))
    found = p_values([pairs[place] for place in order])
    for p, place in zip(found, order, strict=True):
        one, other = pairs[place]
        assert p == pytest.approx(stats.mannwhitneyu(one, other, method="auto").pvalue)
    assert p_values([]).tolist() == []
