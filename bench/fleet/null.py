"""How healthy units differ: centre, spread and tails of effects of which some belong to slow units.

The null is estimated from the units themselves: a median and Rousseeuw and Croux's Qn of those that are not
far out on the slow side. Tails and skew are those of a sinh-arcsinh distribution (Jones and Pewsey 2009). Few
units hardly show them, so a prior has heavy tails, from which many units depart if theirs are light. Slow
units cannot stretch the tails: the likelihood ends where the slow ones begin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
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
"""Degrees of freedom to subtract: Qn of few values is far too small more often than such a deviation."""
MOST_PAIRED = 1500
"""Most values that are compared in pairs; of more, so many evenly spaced by rank."""
MANY = 30
"""Number of units from which they show the tails of their own distribution, and how noisy times are."""
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
USUAL_TAIL, TAIL_SD, SKEW_SD = 0.5, 0.3, 0.1
"""The prior: the likeliest tail, and the standard deviations of its logarithm and of the skew."""
HEAVY = 0.6
"""About the tails of Student's t with three degrees of freedom."""
FAR, FAR_EFFECT = 5.0, 0.04
"""A unit so many robust deviations, and so much (ln), beyond the median is slow whatever the tails are."""
CORE = 2 / 3
"""Share of many units, the fastest, that passes for healthy at first: the rest may hold an unknown node."""
CUT = 3.7
"""Scores within which tails and skew are fitted: RARE of a normal distribution."""
FLAT = 1e-2
"""A likelihood this flat is at its top."""
RANKS = (np.arange(200) + 0.5) / 200
"""Shares of a distribution whose quantiles stand for it."""


@dataclass(frozen=True)
class Null:
    """The distribution of healthy units: sinh(tail * asinh((x - centre) / scale) - skew) is normal."""

    centre: float
    scale: float
    """The standard deviation, if the distribution is normal (tail 1, skew 0)."""
    tail: float
    """Less than 1: heavier tails than a normal distribution's."""
    skew: float
    freedom: float
    """Degrees of freedom with which the scale is known."""
    far: float = np.inf
    """Effect from which a unit is slow whatever the tails are."""

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

    def log_density(self, effects: Floats) -> Floats:
        """ln of the density of healthy units, but for a constant."""
        z = (effects - self.centre) / self.scale
        inner = self.tail * np.arcsinh(z) - self.skew
        shape = np.log(np.cosh(inner)) - np.sinh(inner) ** 2 / 2 - np.log1p(z**2) / 2
        return cast(Floats, shape + np.log(self.tail / self.scale))

    @property
    def sd(self) -> float:
        """Half the distance between the points within which 68 % of healthy units lie."""
        low, high = (self._at(score) for score in (-1.0, 1.0))
        return float(high - low) / 2

    @property
    def is_heavy(self) -> bool:
        """Whether tails are heavy, or skewed: many units have shown it, or few have not ruled it out."""
        return self.tail < HEAVY or abs(self.skew) > SKEW_SD

    def quantile(self, share: Floats) -> Floats:
        """Effects that so many of the healthy units stay below."""
        return cast(Floats, self._at(norm.ppf(share)))

    def _at(self, score: Floats | float) -> Any:
        return self.centre + self.scale * np.sinh((np.arcsinh(score) + self.skew) / self.tail)


STANDARD = Null(0.0, 1.0, tail=1.0, skew=0.0, freedom=np.inf)


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


def fitted(effects: Floats, least: Floats, like: Null | None = None) -> list[Null]:
    """The null of each column of effects [row, column], NaN where unknown; `least` [column]: smallest scale.

    All columns of many rows have the same tails and skew: those that they show together, or those of `like`.
    """
    nulls = [_settled(column[np.isfinite(column)], at) for column, at in zip(effects.T, least, strict=True)]
    many = np.flatnonzero(np.isfinite(effects).sum(axis=0) >= MANY)
    if len(many):
        centre, scale = np.array([(nulls[i].centre, nulls[i].scale) for i in many]).T
        tail, skew = (like.tail, like.skew) if like else _shape((effects[:, many] - centre) / scale)
        for i in many:
            nulls[i] = _reshaped(nulls[i], tail, skew)
    return nulls


def _settled(effects: Floats, least: float) -> Null:
    """A normal null, fitted again without those so slow that a healthy unit would hardly be there."""
    now = effects <= (np.quantile(effects, CORE) if len(effects) >= MANY else np.inf)
    for _ in range(1 + ROUNDS):
        kept, healthy = now, effects[now]
        freedom = max(QN_EFFICIENCY * (len(healthy) - 1) - QN_TAIL, 1.0)
        scale = max(qn(healthy), least)
        null = Null(float(np.median(healthy)), scale, tail=1.0, skew=0.0, freedom=freedom)
        now = null.slow_p(effects) > RARE
        if (now == kept).all():
            break
    return null


def _shape(scaled: Floats) -> tuple[float, float]:
    """Tail and skew of scores [row, column] of normal nulls: the likeliest, with what is usual beforehand.

    Beyond CUT scores do not count on the slow side, where faults are, and only their number on the fast one.
    Columns that are alike count as one.
    """
    inside = np.clip(np.nan_to_num(scaled), -CUT, CUT)
    alike = inside.T @ inside
    independent = np.trace(alike) ** 2 / np.square(alike).sum() if alike.any() else 1.0
    share = independent / scaled.shape[1]
    fast, z = np.count_nonzero(scaled < -CUT), scaled[np.abs(scaled) <= CUT]

    def loss(given: Floats) -> float:
        tail, skew = _bounded(given)
        null = _reshaped(STANDARD, tail, skew)
        density, (low, high) = null.log_density(z).sum(), norm.logcdf(null.scores(np.array([-CUT, CUT])))
        likelihood = share * (density + fast * low - (len(z) + fast) * high)
        unusual = np.sum(((given - [np.log(USUAL_TAIL), 0.0]) / [TAIL_SD, SKEW_SD]) ** 2)
        return float(unusual / 2 - likelihood)

    start = np.array([np.log(USUAL_TAIL), 0.0])
    return _bounded(minimize(loss, start, method="Nelder-Mead", tol=FLAT).x)


def _bounded(given: Floats) -> tuple[float, float]:
    return float(np.clip(np.exp(given[0]), *TAILS)), float(np.clip(given[1], *SKEWS))


def _reshaped(normal: Null, tail: float, skew: float) -> Null:
    """A null of another shape with the median and Qn of this normal one, and its bar for what is far out."""
    shape = replace(STANDARD, tail=tail, skew=skew)
    scale = normal.scale / qn(shape.quantile(RANKS))
    far = normal.centre + max(FAR * normal.scale, FAR_EFFECT)
    centre = normal.centre - scale * float(np.sinh(skew / tail))
    return Null(centre, scale, tail, skew, normal.freedom, far)
