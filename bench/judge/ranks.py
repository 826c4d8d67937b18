"""Whether the samples of one row are larger than another's: Mann and Whitney's test, of honest samples.

Samples that follow one another are alike: a hundred of a stream that drifts say no more than five apart, but
the test would count a hundred, and find a difference between any two rows. So each visit's samples are first
cut into blocks that are worth one independent sample and a half, and the blocks' medians are tested.

That visits differ among themselves is not this test's matter: three visits a side could never reach its bar.
It is in the intervals, which know the spread between visits (bench/judge/noise.py).
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
"""Blocks of one visit at most: enough for any bar in use, and rows of like sizes are tested together."""
BLOCK_SAMPLES = 1.5
"""Independent samples in a block: medians of blocks just long enough for one are still a little alike."""
EXACT = 8
"""Up to this many on one side the exact distribution is taken; beyond, the normal one is as good."""


def independent(visits: Sequence[Floats]) -> Floats:
    """Medians of blocks of each visit: as many as it has independent samples, less a third, 16 at most."""
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
    for place, (one, other) in enumerate(pairs):
        by_size[len(one), len(other)].append(place)
    found = np.ones(len(pairs))
    for sizes, places in by_size.items():
        ones: Floats = np.stack([pairs[place][0] for place in places])
        others: Floats = np.stack([pairs[place][1] for place in places])
        method: Literal["exact", "asymptotic"] = "exact" if min(sizes) <= EXACT else "asymptotic"
        found[places] = stats.mannwhitneyu(ones, others, axis=1, method=method).pvalue
    return found
