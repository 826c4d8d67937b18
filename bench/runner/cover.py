"""A few examples that stand for all: what `pytest bench/` checks unless all are asked for. Pure arithmetic.

For every operator and family of implementations as many examples as it takes for each of the family's
implementations, and each value that a parameter has in any of its examples (data type, layout, direction, an
awkward size), to be among them. Pairs of values are not covered: that is what all examples are for.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple


class Check(NamedTuple):
    """An implementation at one example."""

    operator: str
    implementation: str
    parameters: Mapping[str, Hashable]

    @property
    def family(self) -> tuple[str, str]:
        """One kernel held to a tile is one family, whatever the tile: `triton-256x128`, `triton-64x64`."""
        return self.operator, re.sub(r"-\d+x\d+$", "-tile", self.implementation)

    @property
    def features(self) -> set[Hashable]:
        """What a check of it says something of."""
        return {("implementation", self.implementation), *self.parameters.items()}


def cover(checks: Sequence[Check]) -> list[int]:
    """Indices, ascending, of checks that together have every feature of their families; always the same.

    Greedy: next is the check with most features that no chosen one has, of several the first.
    """
    families: dict[tuple[str, str], list[int]] = {}
    for index, check in enumerate(checks):
        families.setdefault(check.family, []).append(index)
    chosen: list[int] = []
    for members in families.values():
        features = {index: checks[index].features for index in members}
        missing = set().union(*features.values())
        while missing:
            best = max(members, key=lambda index: len(features[index] & missing))
            missing -= features[best]
            chosen.append(best)
    return sorted(chosen)
