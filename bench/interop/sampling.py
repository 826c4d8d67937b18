"""Which rows a sample of an import keeps: the same every time, evenly over the octaves of their work."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping

SAMPLE = 300
"""Problems of a sample, without those that calibrate the model."""
SEED = 6


def stratified_sample(work: Mapping[str, float]) -> set[str]:
    """SAMPLE of these names, each with its work.

    The octaves of work take turns, each giving its next name in the order of a hash of SEED and the name. So
    the choice is the same in two tables that hold the same names, in whatever order.
    """
    octaves: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for name, amount in work.items():
        octaves[int(math.log2(amount))].append((hashlib.sha256(f"{SEED} {name}".encode()).hexdigest(), name))
    turns = sorted(
        (turn, octave, name)
        for octave, ranked in octaves.items()
        for turn, (_, name) in enumerate(sorted(ranked))
    )
    return {name for _, _, name in turns[:SAMPLE]}
