"""Mann-Whitney test of two rows' samples, after reducing them to independent ones.

Successive samples are correlated: a hundred samples of a drifting stream hold no more information than five
far apart, but the test would count a hundred, and find a difference between any two rows. So each visit's
samples are first cut into blocks worth 1.5 independent samples, and the blocks' medians are tested.

This test does not cover the spread between visits: three visits on a side could never be significant. The
intervals cover it (bench/judge/noise.py).
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy import stats

from bench.sampling.publish import Floats, effective_count

MOST_BLOCKS = 16
"""Most blocks of a visit: enough for any significance in use, and rows of equal sizes are tested together."""
BLOCK_SAMPLES = 1.5
"""Independent samples in a block: medians of blocks worth just one would still be slightly correlated."""
EXACT = 8
"""Up to this many samples on one side the exact distribution is used; beyond, the normal one is as good."""


def independent(visits: Sequence[Floats]) -> Floats:
    """Medians of blocks of each visit: two thirds as many as it has independent samples, 16 at most."""
    blocks: list[float] = []
    for samples in visits:
        in_time = samples.tolist()
        count = min(MOST_BLOCKS, max(1, int(effective_count(samples) / BLOCK_SAMPLES)))
        ends = [len(in_time) * block // count for block in range(count + 1)]
        blocks += [statistics.median(in_time[a:b]) for a, b in itertools.pairwise(ends)]
    return np.asarray(blocks)


def p_values(pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Two-sided p of each pair of independent samples, in order."""
    by_size: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs):
        by_size[len(pair[0]), len(pair[1])].append(place)
    p = np.ones(len(pairs))
    for sizes, places in by_size.items():
        left: Floats = np.stack([pairs[place][0] for place in places])
        right: Floats = np.stack([pairs[place][1] for place in places])
        method: Literal["exact", "asymptotic"] = "exact" if min(sizes) <= EXACT else "asymptotic"
        p[places] = stats.mannwhitneyu(left, right, axis=1, method=method).pvalue
    return p
