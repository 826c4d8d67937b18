"""The lines of a claim, each decided by the noise of its own rows: how many hold, where not, and by how much.

A line is a pair, a line of rows, an edge or a row: whatever `bench.judge.claim_tests` makes one cluster of.
Whether its effect is where the claim expects it is asked twice, in each direction, by Student's t with the
freedom that the intervals of rows have. Of many lines some are off by chance: of those that are said to hold,
and apart from them of those that are said not to, no more than `CHANCE` may be wrong (Benjamini and Hochberg,
J. R. Stat. Soc. B 57, 1995). So one line of a true rule, that is off by chance, is left undecided.

A share is one number, with the interval of Wilson.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.format import count_text
from bench.judge.claim_tests import ALIKE, Seen
from bench.judge.columns import Bools, Columns, Floats, Places
from bench.judge.within_run import PRIOR_FREEDOM
from bench.sampling.publish import student
from bench.store.schema import RunKey
from bench.sweep.claims import Bound, Claim, ExpectedRange, Jumps, Knee, Ratio, Slope

CHANCE = 0.025
"""Share of the lines that are said to hold, or not to, that may be wrong."""
FREEDOM = PRIOR_FREEDOM + 2
"""Degrees of freedom of the interval of a row that was visited three times."""
MOST_NAMED = 4
"""Exceptions of which one is named, if no parameter tells them from the others."""
NOUNS: Mapping[str, str] = {
    "ratio": "pair", "slope": "line", "spread": "group", "bound": "row", "across": "edge", "within": "column",
    "knee": "line", "share": "row",
}  # fmt: skip
"""Kind of test, or of jump -> what its lines are called."""


@dataclass(frozen=True)
class ClaimEffect:
    """What the rows say: ratios, exponents or a share, and in how many lines they are as expected."""

    value: float
    """The median of all lines."""
    low: float
    high: float
    """The least and the greatest of the lines that are decided, or of all if none is; of a share, the ends of
    its 95 % interval."""
    lines: int
    holding: int
    failing: int
    """How many are as expected, and how many are not; of the others nothing can be said."""
    exceptions: str = ""
    """Where the fewer of the two are: `not at k of 2048 and more`."""
    assumed: float = 0.0
    """Half of the widest interval, as a share, that decided a line and was assumed; 0 if none was."""
    noun: str = "line"
    unit: str = "{} times"

    @property
    def decided(self) -> int:
        """How many lines are decided."""
        return self.holding + self.failing

    def __str__(self) -> str:
        if self.noun == "share":
            return f"{sizes([self])} of {count_text(self.lines, 'row')}"
        open_lines = self.lines - self.decided
        counts = [f"{self.holding} of {count_text(self.decided, self.noun)}"] if self.decided else []
        counts += [f"{open_lines} undecided" if counts else f"{count_text(open_lines, self.noun)} undecided"]
        assumed = f" (±{100 * self.assumed:.2g} % assumed)" if self.assumed else ""
        not_at = f"; {self.exceptions}" if self.exceptions else ""
        return f"{', '.join(counts[: 1 + (open_lines > 0)])}: {sizes([self])}{assumed}{not_at}"


def sizes(effects: Sequence[ClaimEffect]) -> str:
    """`time ~ batch^0.39 to ^0.58`, `1.02 to 1.31 times`, `39 % [31, 47]`: of one claim, on these devices."""
    low, high = min(each.low for each in effects), max(each.high for each in effects)
    first, values = effects[0], [each.value for each in effects]
    if first.noun == "share":
        shares = dict.fromkeys(f"{100 * end:.0f}" for end in (min(values), max(values)))
        return f"{' to '.join(shares)} % [{100 * low:.0f}, {100 * high:.0f}]"
    is_exponent = "^" in first.unit
    low_text, high_text = (f"{end:.2f}" if is_exponent else f"{end:.3g}" for end in (low, high))
    between = " to ^" if is_exponent else " to "
    return first.unit.format(low_text if low_text == high_text else f"{low_text}{between}{high_text}")


def _unit(test: Any) -> str:
    if isinstance(test, Slope):
        of = {"median_s": "time", "peak_byte": "memory", "rest_share": "share"}[test.of]
        return f"{of} ~ {test.columns[0]}^{{}}"
    if isinstance(test, Bound):
        return f"{{}} times {'the ' if test.by == 'formula' else ''}{test.by}'s time"
    if isinstance(test, Knee):
        return f"{{}} times {'the ridge' if test.to == 'ridge' else test.to}"
    return "{} times the memory" if isinstance(test, Ratio) and test.y == "peak_byte" else "{} times"


def lines_of(seen: Seen) -> tuple[Floats, Floats, Floats, Floats, Places]:
    """(value, half, down, up, first observation) of each cluster: the mean of its observations.

    Their rows err apart, but for a shared one.
    """
    _, first, number = np.unique(seen.cluster, return_index=True, return_inverse=True)
    count = np.bincount(number)

    def mean(values: Floats) -> Floats:
        return np.bincount(number, values) / count

    shared = np.zeros(len(count))
    np.maximum.at(shared, number, seen.half_to)
    half = np.hypot(np.sqrt(mean(seen.half**2) / count), shared)
    return mean(seen.value), half, mean(seen.down), mean(seen.up), first


def effect(claim: Claim, rows: Columns, sound: Bools, seen: Seen, against: Seen) -> ClaimEffect | None:
    """What the observations of a claim say of it; None of fewer than two lines.

    `rows`: those of the sweep, of which the `sound` may be observed. `against`: the observations of a ratio
    that this one is `less` than, whose mean each line is divided by.
    """
    name, test = claim.test
    value, half, down, up, first = lines_of(seen)
    if len(value) < 2 or (getattr(test, "less", None) is not None and not len(against.value)):
        return None
    if name == "share":
        return _share(claim, value)
    if len(against.value):
        other, half_other, *_ = lines_of(against)
        value = value - other.mean()
        half = np.hypot(half, math.sqrt((half_other**2).sum()) / len(other))
    ends = np.cumsum(seen.counts)
    assumed = np.logical_or.reduceat(_assumed(rows, sound)[seen.rows], ends - seen.counts)[first]
    if assumed.sum() > 1:  # rows differ by no more than their lines do
        apart = student(int(assumed.sum()) - 1, 0.95) * float(value[assumed].std(ddof=1))
        half, assumed = np.where(assumed, np.minimum(half, apart), half), assumed & (half <= apart)
    is_exponent = isinstance(test, Slope)
    expected = claim.expected
    if not is_exponent:
        low, high = (math.log(bar) if bar > 0 else -math.inf for bar in expected[:2])
        expected = expected._replace(low=low, high=high)
    ways = chances(value, half, down, up, expected)
    holding, failing = map(named, ways)
    told = holding | failing
    # Where lines are known to be of both kinds, those count that are known by name.
    counts = (
        int(holding.sum()) if failing.any() else count(ways[0]),
        int(failing.sum()) if holding.any() else count(ways[1]),
    )
    shown = value[told] if told.any() else value
    numbers = np.array([np.median(value), shown.min(), shown.max()])
    middle, low, high = (numbers if is_exponent else np.exp(numbers)).tolist()
    return ClaimEffect(
        middle,
        low,
        high,
        len(value),
        *counts,
        exceptions=_exceptions(test, rows, sound, seen.rows[ends - 1][first], holding, failing),
        assumed=math.expm1(half[told & assumed].max(initial=0.0)),
        noun=NOUNS[test.of if isinstance(test, Jumps) else name],
        unit=_unit(test),
    )


def _assumed(rows: Columns, sound: Bools) -> Bools:
    """Whether the interval of each row, or of its case in another run, is only what such work usually has."""
    key, count = rows.numbers("key")
    of_case = np.zeros(count, dtype=bool)
    of_case[key[rows["assumed"] & sound]] = True
    return of_case[key]


def chances(
    value: Floats, half: Floats, down: Floats, up: Floats, expected: ExpectedRange
) -> tuple[Floats, Floats]:
    """The chance of each line if it is not as expected, and if it is."""
    from scipy import special

    unit = half / student(FREEDOM, 0.95)

    def chance(distance: Floats) -> Floats:
        """That of being so far beyond a bar if it is not. Without noise 0, at the bar too."""
        with np.errstate(divide="ignore", invalid="ignore"):
            far = np.nan_to_num(distance / unit, nan=math.inf, posinf=math.inf)
        return special.stdtr(FREEDOM, -far)

    inside = np.maximum(chance(value - down - expected.low), chance(expected.high - value - up))
    apart = np.minimum(chance(expected.low - value - up), chance(value - down - expected.high))
    return (apart, inside) if expected.outside else (inside, apart)


def named(chances: Floats) -> Bools:
    """Which lines are so, beyond chance."""
    from scipy import stats

    return np.asarray(stats.false_discovery_control(chances) <= CHANCE)


def count(chances: Floats) -> int:
    """How many lines at least are so: those named, or more of which it is not known which they are.

    At least u of n are if the n - u + 1 largest chances are together (Fisher) too small for none of these to
    be (Benjamini and Heller, Biometrics 64, 2008).
    """
    from scipy import special

    ranked = np.sort(np.maximum(chances, np.finfo(float).tiny))
    fisher = np.cumsum(-2 * np.log(ranked[::-1]))[::-1]  # of each place and those after it
    beyond = np.asarray(special.chdtrc(2 * np.arange(len(ranked), 0, -1), fisher) > CHANCE)
    return int(max(named(chances).sum(), beyond.argmax() if beyond.any() else len(ranked)))


def _share(claim: Claim, holds: Floats) -> ClaimEffect:
    from scipy import stats

    count, share = len(holds), float(holds.mean())
    ends = stats.binomtest(round(share * count), count).proportion_ci(method="wilson")
    answer = claim.expected.answer(ends.low, ends.high)
    counts = (count, count * (answer is True), count * (answer is False))
    return ClaimEffect(share, ends.low, ends.high, *counts, noun="share")


def _exceptions(test: Any, rows: Columns, sound: Bools, last: Places, holding: Bools, failing: Bools) -> str:
    """Where the fewer of the decided lines are, by the parameter that tells them from the others.

    `last`: the place of the last row of each line.
    """
    if not (holding.any() and failing.any()):
        return ""
    moving = {*test.columns} if isinstance(test, Slope) else {getattr(test, "over", "")}
    moving |= {test.x} if isinstance(test, Knee) else set()
    named = (*ALIKE, *rows.parameters, "intensity")
    names = [name for name in named if name not in {*RunKey._fields, *moving}]
    told = holding | failing
    few = (failing if failing.sum() <= holding.sum() else holding)[told]
    names = [name for name in names if not rows.missing(name)[sound].any()]
    word = "not" if failing.sum() <= holding.sum() else "only"
    where = _where({name: tuple(rows[name][last[told]].tolist()) for name in names}, few)
    return f"{word} at {where}" if where else ""


def _where(table: Mapping[str, tuple[Any, ...]], few: Bools) -> str:
    """What tells the few from the others: one parameter, else the names of the first; empty of many."""
    columns: dict[tuple[Any, ...], list[str]] = {}
    for name, of_cases in table.items():
        columns.setdefault(of_cases, []).append(name)
    named = {" = ".join(names): np.array(values, dtype=object) for values, names in columns.items()}
    for name, values in named.items():
        ours, others = values[few], values[~few]
        if {*map(type, values)} <= {bool, int, float}:
            if min(ours) > max(others):
                return f"{name} of {_text(min(ours))} and more"
            if max(ours) < min(others):
                return f"{name} of {_text(max(ours))} and less"
        if name != "intensity" and {*ours}.isdisjoint(others) and len({*ours}) == 1:
            return f"{name} {_text(ours[0])}"
    if few.sum() > MOST_NAMED:
        return ""
    differing = [name for name, values in named.items() if len({*values}) > 1 and name != "intensity"]
    first = ", ".join(f"{name} {_text(named[name][few][0])}" for name in differing)
    return first + (f" and {few.sum() - 1} more" if few.sum() > 1 else "")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else f"{value:.3g}"
    return str(value)
