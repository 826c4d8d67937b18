"""Whether the samples of one row are larger than another's: Mann and Whitney's test, of honest samples.

Samples that follow one another are alike: a hundred of a stream that drifts say no more than five apart, but
the test would count a hundred, and find a difference between any two rows. So each visit's samples are first
cut into as many blocks as there are independent samples in it, and the blocks' medians are tested.

That visits differ among themselves is not this test's matter: three visits a side could never reach its bar.
It is in the intervals, which know the spread between visits (bench/judge/wander.py).
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]

MOST_BLOCKS = 16
"""Blocks of one visit at most: enough for any bar in use, and rows of like sizes are tested together."""
EXACT = 8
"""Up to this many on one side the exact distribution is taken; beyond, the normal one is as good."""


def independent(visits: Sequence[Floats]) -> Floats:
    """Medians of blocks, as many for each visit as it has independent samples, 16 at most.

    n samples of which neighbours correlate by r are worth n (1 - r) / (1 + r); r is measured on ranks, over
    all visits of the row together, each about its own mean.
    """
    r = _neighbours(visits)
    share = (1 - r) / (1 + r)
    blocks: list[float] = []
    for samples in visits:
        in_time = samples.tolist()
        count = min(MOST_BLOCKS, max(1, int(len(in_time) * share)))
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


def _neighbours(visits: Sequence[Floats]) -> float:
    """Correlation of a sample with the next, 0 to just under 1; what a short series hides of it is added."""
    products = squares = 0.0
    count = 0
    for samples in visits:
        if len(samples) < 2:
            continue
        ordered = np.sort(samples)
        # Twice the rank, of equal samples the middle of theirs; less the mean of all.
        below, up_to = (np.searchsorted(ordered, samples, side) for side in ("left", "right"))
        ranks = np.asarray(below + up_to - len(samples), dtype=np.float64)
        products += float(ranks[1:] @ ranks[:-1])
        squares += float(ranks @ ranks)
        count += len(samples)
    if squares == 0.0:
        return 0.0
    r = products / squares
    r += (1 + 3 * r) * len(visits) / count  # a series about its own mean looks less correlated than it is
    return min(max(r, 0.0), 0.99)
