"""How healthy units differ: centre, spread and tails of effects of which some belong to slow units.

The null is estimated from the units themselves: a median and Rousseeuw and Croux's Qn of those that are not
far out on the slow side. Where a likelihood shows that healthy units are skewed or have heavier tails than a
normal distribution, it is a sinh-arcsinh distribution (Jones and Pewsey 2009), which a slow unit cannot
stretch much: the likelihood ends where the slow ones begin, and the fast side has no faults in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_ndtr
from scipy.stats import norm, t

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

QN_CONSISTENT = 2.2219
"""Makes Qn the standard deviation of a normal distribution."""
QN_SMALL = {2: 0.399, 3: 0.994, 4: 0.512, 5: 0.844, 6: 0.611, 7: 0.857, 8: 0.669, 9: 0.872}
"""Further factors for so few values (Croux and Rousseeuw 1992)."""
QN_EFFICIENCY = 0.82
"""Qn is as exact as a standard deviation of this share of the values."""
QN_TAIL = 1.0
"""So many degrees of freedom fewer: of few values Qn is far too small more often than such a deviation."""
MOST_PAIRED = 1500
"""Of more values only so many, evenly spaced by rank, are compared in pairs."""
MANY = 30
"""From so many units on they themselves show the tails of their distribution, and how noisy times are."""
ROUNDS = 8
"""The null has long settled by then, or goes to and fro over one unit."""
RARE = 1e-4
"""Nothing more probable than this is left out. With a higher bar the scale shrinks where a healthy one is
far out: with 0.005, p values below 0.0003 came four times too often of 16 units.
"""
TAILS, SKEWS = (0.4, 1.0), (-1.0, 1.0)
"""What a null may be. With tail 0.4 one value in 10,000 is 60 scales out; tails lighter than a normal
distribution's could only come of too few units.
"""
USUAL_TAIL, TAIL_SD, SKEW_SD = 0.70, 0.10, 0.10
"""What tails are taken to be before units show them, the standard deviation of their logarithm, and of skew."""
FAR, FAR_EFFECT = 6.0, 0.04
"""A unit is far out, whatever the tails, so many deviations and so much (ln) beyond the median of all faster
ones.
"""
CORE = 2 / 3
"""Of many units at first only so many, the fastest, are taken for healthy: a slow node may be a quarter of all."""
STEEP = 1e3
"""How steeply the likelihood falls outside of that."""
FLAT = 1e-2
"""A likelihood this flat is at its top. L-BFGS-B would be exact too, but its threads wait for each other."""


@dataclass(frozen=True)
class Null:
    """The distribution of healthy units: sinh(tail * asinh((x - centre) / scale) - skew) is normal."""

    centre: float
    scale: float
    """Of a normal distribution (tail 1, skew 0) the standard deviation."""
    tail: float
    """Less than 1: heavier tails than a normal distribution's."""
    skew: float
    freedom: float
    """Degrees of freedom with which the scale is known."""
    far: float = np.inf
    """From this effect on a unit is slow whatever the tails are."""

    def scores(self, effects: Floats, more: Floats | float = 0.0) -> Floats:
        """Normal scores of effects; `more` is the standard deviation that each has beyond the usual."""
        z = (effects - self.centre) / np.hypot(self.scale, more)
        return cast(Floats, np.sinh(self.tail * np.arcsinh(z) - self.skew))

    def slow_p(self, effects: Floats, more: Floats | float = 0.0) -> Floats:
        """The probability that a healthy unit is at least so slow. NaN stays NaN."""
        return cast(Floats, t.sf(self.scores(effects, more), self.freedom))

    def fast_p(self, effects: Floats, more: Floats | float = 0.0) -> Floats:
        """The probability that a healthy unit is at least so fast."""
        return cast(Floats, t.cdf(self.scores(effects, more), self.freedom))

    @property
    def sd(self) -> float:
        """Half the distance between the points within which 68 % of healthy units lie."""
        low, high = (self._at(score) for score in (-1.0, 1.0))
        return float(high - low) / 2

    @property
    def is_normal(self) -> bool:
        """Whether nothing speaks for skew or heavy tails."""
        return self.tail == 1 and self.skew == 0

    def quantile(self, share: Floats) -> Floats:
        """Effects that so many of the healthy units stay below."""
        return cast(Floats, self._at(norm.ppf(share)))

    def _at(self, score: Floats | float) -> Any:
        return self.centre + self.scale * np.sinh((np.arcsinh(score) + self.skew) / self.tail)


def qn(values: Floats) -> float:
    """Rousseeuw and Croux's robust standard deviation Qn; NaN for fewer than two values."""
    n = len(values)
    if n < 2:
        return float("nan")
    ordered = np.sort(values)
    if n > MOST_PAIRED:
        ordered = ordered[np.linspace(0, n - 1, MOST_PAIRED).round().astype(int)]
    m = len(ordered)
    above = np.triu_indices(m, 1)
    apart = ordered[above[1]] - ordered[above[0]]
    half = m // 2 + 1
    rank = half * (half - 1) // 2 - 1
    small = QN_SMALL.get(n, n / (n + (1.4 if n % 2 else 3.8)))
    return float(QN_CONSISTENT * small * np.partition(apart, rank)[rank])


def fitted(effects: Floats, least: float) -> Null:
    """The null of these effects (no NaN), some of which belong to slow units; `least`: smallest scale.

    What is so slow that a healthy unit would hardly be there is left out, and the null found again, until
    nothing changes.
    """
    many = len(effects) >= MANY
    kept = effects <= (np.quantile(effects, CORE) if many else np.inf)
    null = _simple(effects[kept], least)
    for _ in range(ROUNDS):
        null = _simple(effects[kept], least)
        now = null.slow_p(effects) > RARE
        if (now == kept).all():
            break
        kept = now
    if not many:
        return null
    far = null.centre + max(FAR * null.scale, FAR_EFFECT)
    # Only now, and of nothing that was left out: many slow units would pass for the tail of all.
    return replace(_shaped(effects[kept], null, least), far=far)


def _simple(effects: Floats, least: float) -> Null:
    scale = max(qn(effects), least)
    freedom = max(QN_EFFICIENCY * (len(effects) - 1) - QN_TAIL, 1.0)
    return Null(float(np.median(effects)), scale, tail=1.0, skew=0.0, freedom=freedom)


def _shaped(effects: Floats, simple: Null, least: float) -> Null:
    """With the skew and tails that these effects show; as few of them hardly do, the usual ones."""
    z = (effects - simple.centre) / simple.scale

    def null(given: Floats) -> Null:
        tail = float(np.clip(np.exp(given[2]), *TAILS))
        return replace(
            simple, centre=given[0], scale=np.exp(given[1]), tail=tail, skew=np.clip(given[3], *SKEWS)
        )

    def loss(given: Floats) -> float:
        found = null(given)
        beyond = (given[2] - np.log(found.tail)) ** 2 + (given[3] - found.skew) ** 2
        unusual = ((given[2] - np.log(USUAL_TAIL)) / TAIL_SD) ** 2 + (given[3] / SKEW_SD) ** 2
        return STEEP * float(beyond) + float(unusual) / 2 - _likelihood(found, z)

    found = null(minimize(loss, [0.0, 0.0, np.log(USUAL_TAIL), 0.0], method="BFGS", tol=FLAT).x)
    centre, scale = simple.centre + simple.scale * found.centre, simple.scale * found.scale
    return replace(found, centre=centre, scale=max(scale, least))


def _likelihood(null: Null, effects: Floats) -> float:
    """Logarithm of the likelihood of effects, none of which could have been slower than the slowest."""
    z = (effects - null.centre) / null.scale
    inner = null.tail * np.arcsinh(z) - null.skew
    scores = np.sinh(inner)
    log_density = np.log(np.cosh(inner)) - scores**2 / 2 - np.log1p(z**2) / 2
    each = log_density.sum() + len(z) * (np.log(null.tail / null.scale) - log_ndtr(scores.max()))
    return float(each)
