"""How often a unit that did not change is said to be worse: `python -m studies.quiet_fleets [SEED]`.

Quiet years of single series (a unit in a class, ln of its time over the fleet's) are simulated and looked at
every night with bench/fleet/since.py: with 1 % from night to night; with 0.4 % and a season of 1 % either
way; with 0.4 % and a wander of 0.6 % that lasts ten nights. In all, 5 % of the nights are slow by 3 to 8 %.
A false alarm is a night on which a series is called worse; it is raised if the night before it was not.

Then steps of 3, 5 and 8 % after sixty nights: the share that is seen so many nights later, dated within two
nights of the step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import numpy as np

from bench.fleet.since import NIGHTS, since
from bench.judge.history.series import Floats
from tests.bench.nights_made import Noise

YEAR = 365
SERIES = 150
OF_FLEET = 2000
"""200 units in five classes, alone and together."""
BEFORE = 60
LATER = (NIGHTS, 10, 14)


def usual(chance: np.random.Generator, series: int, nights: int) -> Floats:
    """The noise that history's trials take."""
    return Noise().drawn(chance, series, nights)


def season(chance: np.random.Generator, series: int, nights: int) -> Floats:
    """Summer and winter, of each unit at its own time."""
    year = np.arange(nights) / YEAR + chance.random((series, 1))
    return Noise(between=0.004).drawn(chance, series, nights) + 0.01 * np.sin(2 * np.pi * year)


def wander(chance: np.random.Generator, series: int, nights: int) -> Floats:
    """What lasts for days, as the weather does."""
    drawn = 0.006 * chance.standard_normal((nights, series))
    for night in range(1, nights):
        drawn[night] = 0.9 * drawn[night - 1] + np.sqrt(1 - 0.9**2) * drawn[night]
    return Noise(between=0.004).drawn(chance, series, nights) + drawn.T


KINDS: Mapping[str, Callable[[np.random.Generator, int, int], Floats]] = {
    "1 % from night to night": usual,
    "0.4 % and a season": season,
    "0.4 % and a wander": wander,
}


def main(seed: int) -> None:
    """Print both tables."""
    chance = np.random.default_rng(seed)
    for name, drawn in KINDS.items():
        wrong = raised = looks = 0
        for values in drawn(chance, SERIES, YEAR):
            called = [since(values[:night]) is not None for night in range(1, YEAR + 1)]
            wrong += sum(called)
            raised += sum(now and not before for before, now in zip([False, *called], called, strict=False))
            looks += YEAR
        print(
            f"{name}: {1e4 * wrong / looks:.2f} false in 10,000 series-nights, "
            f"{OF_FLEET * wrong / looks:.2f} on a page of 200 units; "
            f"raised {OF_FLEET * raised / SERIES:.1f} times in a year of them"
        )
        for step in (0.03, 0.05, 0.08):
            seen = dict.fromkeys(LATER, 0)
            for values in drawn(chance, SERIES, BEFORE + max(LATER)):
                values[BEFORE:] += np.log1p(step)
                for later in LATER:
                    found = since(values[: BEFORE + later])
                    seen[later] += found is not None and abs(found.night - BEFORE) <= 2
            shares = ", ".join(f"{n / SERIES:.0%} after {later} nights" for later, n in seen.items())
            print(f"  +{step:.0%}: seen and dated {shares}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
