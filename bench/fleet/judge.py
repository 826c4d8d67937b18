"""Which units of a fleet are slow: medians by kind of work, robust deviations, one rule for many units.

A unit's effect in a kind of work, alone or with all GPUs of its node at work, is the median over its cases of
ln(its time / the median unit's). A unit is slow if a healthy one would hardly be so far out, of which the
units themselves tell: their middle how far healthy ones are apart, their fast side how heavy the tails are,
since a fault makes nothing faster. Of many units some would be far out by chance, so the p-values are
adjusted (Benjamini and Hochberg). Nodes are judged first, and the units of a slow node relative to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, norm

from bench.fleet.observed import Fleet, Unit, newest
from bench.judge.change import Change, Z, adjusted, chance

ALL, TOGETHER = "all", " together"
"""The mean over all kinds of work, and what follows a kind where all GPUs of the node were at work."""
RATE, RATE_OF_MANY = 0.007, 0.004
"""Share of healthy units among the named that is aimed at, and of MANY_UNITS. Where healthy units have
heavier tails than they show more of the named are healthy: studies/README.md has the share as tried."""
LEAST_UNITS = 8
"""Fewest units of a kind to call one slow: of fewer, nobody knows how far healthy ones are apart."""
LEAST_UNITS_OF_CASE = 3
"""A case on fewer units is compared with nothing."""
LEAST_NODES, MANY_NODES = 3, 8
"""Fewest nodes of several units to call a node slow, and how many show how far healthy ones are apart. Fewer
are assumed to differ as much as units inside a node do."""
LEAST_EFFECT, LEAST_OF_NODE, LEAST_SPREAD = math.log(1.053), math.log(1.03), 5e-4
"""No unit, and no node, is named for less (ln), however quiet the others are: of units with heavy tails the
healthy ones among the named are then about a tenth (studies/README.md); of nodes it is assumed. And
healthy units are assumed to be at least so far apart."""
DEVIATION, MEDIAN_ERROR = 1.4826, 1.2533
"""What makes a median distance from the median (MAD) a normal distribution's standard deviation, and how many
times a mean's standard error a median's is."""
CLIP, FREEDOM = 3.0, 0.7
"""Robust deviations within which units count for how far healthy ones are apart, and the degrees of freedom
that each unit then gives to this spread."""
FAST_TAIL, STRETCH, LIGHTEST = 0.002, (1.2, 1.8), 1.05
"""Share of effects beyond the fast one from which the tails are read, and how much farther out than a normal
distribution's they are taken to be: few units hardly show them, so never as light as that, and Student's
t with three degrees of freedom has about 2. LIGHTEST is the least of many units. Chosen, as SKEWED, on seeds
that studies/README.md leaves out."""
MANY_UNITS, SKEWED, SKEW_SHARE = 100, (0.1, 0.5, 0.9), 0.6
"""Units from which on their tails show, the quantiles of effects that show whether the slow side is longer
than the fast one, where a twentieth of slow units changes little, and the power of that ratio by which the
slow tail is then taken to be longer."""
FAILING = 0.5
"""A case that fails on more of the units than this is no unit's fault."""
Verdicts = tuple[pd.DataFrame, pd.Series, pd.Series, pd.DataFrame]


@dataclass(frozen=True)
class Slow:
    """A unit, or a node as a whole, that is slow."""

    kind: str
    node: str
    unit: Unit | None
    """None: the node as a whole."""
    work: str
    """The kind of work in which it is slowest, `memory` or `memory together`; `all`: slow in every one, or
    only its mean tells.
    """
    change: Change
    """Its time over that of the median unit of its kind (of its node, if the node is slow)."""
    slow_in: Sequence[str]
    """Everything in which it is slow, as for `work`."""

    @property
    def name(self) -> str:
        """`node017 0000:1b:00.0`, or the node."""
        return self.unit.name if self.unit else self.node


@dataclass(frozen=True)
class JudgedFleet:
    """A fleet with what its times say."""

    fleet: Fleet
    effects: Mapping[str, pd.DataFrame]
    """Kind of device -> [unit, work] ln of a unit's time over the median unit's; work as in `Slow`."""
    half: Mapping[str, pd.DataFrame]
    """Half of the 95 % intervals of the effects."""
    spread: Mapping[str, pd.Series]
    """Kind of device, if it has enough units -> [work] standard deviation of healthy units, ln."""
    slow: Sequence[Slow]
    """Of each kind of device nodes first, then units, each the slowest first."""
    remarks: Sequence[str]
    """Sentences on what could not be judged."""


def judge(fleet: Fleet) -> JudgedFleet:
    """Judge every unit of every kind. Nothing is raised: what cannot be judged is a remark."""
    slow: list[Slow] = []
    remarks: list[str] = []
    effects, halves, spread = {}, {}, {}
    times = newest(fleet.times)
    for kind in fleet.kinds:
        effect, half = effects[kind], halves[kind] = _effects(times[times["kind"] == kind])
        if len(effect) < LEAST_UNITS:
            few = f"{len(effect)} of {fleet.kinds[kind]} were timed in the same cases; it takes {LEAST_UNITS}"
            remarks.append(f"{kind}: too few units to say how far healthy ones differ: {few}")
            continue
        nodes = pd.Series({unit: fleet.units[unit].node for unit in effect.index})
        shared = nodes[nodes.duplicated(keep=False)]
        if shared.nunique() >= LEAST_NODES:
            # The lower median: a node is as slow as more than half of its units are.
            of_node = effect.loc[shared.index].groupby(shared).quantile(0.5, interpolation="lower")
            inside = effect.loc[shared.index] - of_node.loc[shared].set_axis(shared.index)
            within = DEVIATION * inside[inside != 0].abs().median()
            spread_of, count = (None, len(of_node)) if len(of_node) >= MANY_NODES else (within, len(shared))
            verdicts = _verdicts(of_node, spread_of, count, LEAST_OF_NODE)
            mine = list(_slow(fleet, kind, half.groupby(nodes).median(), verdicts))
            shift = of_node.loc[[each.node for each in mine]].reindex(nodes).set_axis(nodes.index)
            effect = effect - shift.fillna(0.0)
            slow += mine
        verdicts = _verdicts(effect, None, len(effect), LEAST_EFFECT)
        spread[kind] = verdicts[1].drop(ALL)
        slow += _slow(fleet, kind, half, verdicts)
    return JudgedFleet(fleet, effects, halves, spread, slow, remarks)


def _effects(times: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """[unit, work] effects, and half of their 95 % intervals, of the newest times of one kind of unit."""
    effect: dict[str, pd.Series] = {}
    half: dict[str, pd.Series] = {}
    for (klass, together), rows in times.groupby(["class", "together"]):
        above = rows.pivot(index="unit", columns="case", values="log_s")
        above = above.loc[:, above.count() >= LEAST_UNITS_OF_CASE].dropna(how="all")
        if above.empty:
            continue
        above -= above.median()
        mine = above.median(axis=1)
        noise = DEVIATION * above.sub(mine, axis=0).abs().stack().median()
        work = f"{klass}{TOGETHER if together else ''}"
        effect[work] = mine - mine.median()
        half[work] = Z * MEDIAN_ERROR * noise * (above.count(axis=1) - 1).clip(lower=1) ** -0.5
    return pd.DataFrame(effect), pd.DataFrame(half)


def _verdicts(effect: pd.DataFrame, spread: pd.Series | None, count: int, least: float) -> Verdicts:
    """Of rows (units or nodes) by their effects [row, work], of which less than `least` is nothing.

    `spread` of healthy rows, if others tell it, and by how many rows, or others, it is known.

    Each row is tested in every kind of work, in the mean of all, and in each kind beyond its other kinds,
    where units that are fast or slow in everything hide nothing. Returned are the effects with ALL as their
    last column, the spread [work], the p-value of each row, adjusted, and [row, work] where it is slow.
    """
    whole = effect.assign(**{ALL: effect.mean(axis=1)})
    spread = _spread(whole) if spread is None else spread.reindex(whole.columns).fillna(spread.max())
    tests = [_chance_of_slow(whole, spread, count, least)]
    if len(effect.columns) > 2:
        beyond = pd.DataFrame({of: effect[of] - effect.drop(columns=of).median(axis=1) for of in effect})
        p = _chance_of_slow(beyond, _spread(beyond), len(beyond), least)
        tests.append(p.where((effect > least) | p.isna(), 1.0))
    each = pd.concat(tests, axis=1).fillna(1.0)
    each = pd.DataFrame(false_discovery_control(each, axis=1), each.index, each.columns)
    of_row = each.min(axis=1)
    rate = RATE if len(effect) < MANY_UNITS else RATE_OF_MANY
    among_all = pd.Series(adjusted(of_row), of_row.index)
    slow_in = pd.DataFrame({of: (each[[of]] <= rate).any(axis=1) & (among_all <= rate) for of in whole})
    return whole, spread, among_all, slow_in


def _spread(effect: pd.DataFrame) -> pd.Series:
    """[work] standard deviation of the rows that are not far out."""
    away = effect - effect.median()
    deviation = (DEVIATION * away.abs().median()).clip(lower=LEAST_SPREAD)
    return away.where(away.abs() <= CLIP * deviation).std().clip(lower=LEAST_SPREAD)


def _chance_of_slow(effect: pd.DataFrame, spread: pd.Series, count: int, least: float) -> pd.DataFrame:
    """[row, work] the probability that a healthy row is so slow, by `least` or more; NaN if unknown."""
    z = (effect - effect.median()) / spread
    tail, (lightest, heaviest) = np.nanquantile(z, FAST_TAIL) / norm.ppf(FAST_TAIL), STRETCH
    if len(z) >= MANY_UNITS:
        fast, middle, slow = np.nanquantile(z, SKEWED, axis=0)
        lightest, tail = LIGHTEST, max(tail, np.mean((slow - middle) / (middle - fast)) ** SKEW_SHARE)
    p = chance(z, np.clip(tail, lightest, heaviest), FREEDOM * (count - 1)) / 2
    return pd.DataFrame(p, effect.index, effect.columns).where((effect > least) | effect.isna(), 1.0)


def _slow(fleet: Fleet, kind: str, half: pd.DataFrame, verdicts: Verdicts) -> Iterator[Slow]:
    """The slow rows by `_verdicts`, the slowest first; `half` as in JudgedFleet."""
    effect, spread, p, slow_in = verdicts
    half = half.assign(**{ALL: np.sqrt((half**2).mean(axis=1) / half.count(axis=1))})
    of_middle = Z * MEDIAN_ERROR * spread.to_numpy(float) / np.sqrt(effect.count().to_numpy(float))
    works, named = list(map(str, effect.columns)), slow_in.index[slow_in.any(axis=1)]
    tables = (table.loc[named].to_numpy() for table in (effect, half, slow_in))
    rows = []
    for name, values, halves, is_slow in zip(map(str, named), *tables, strict=True):
        where = [work for work, here in zip(works, is_slow, strict=True) if here]
        single = {work: values[works.index(work)] for work in where if work != ALL}
        everywhere = 1 < len(single) == np.isfinite(values).sum() - 1
        work = ALL if everywhere or not single else max(single, key=single.__getitem__)
        end = float(np.hypot(halves, of_middle)[works.index(work)])
        change = Change(float(values[works.index(work)]), end, end, float(p[name]))
        unit = fleet.units.get(name)
        rows.append(Slow(kind, unit.node if unit else name, unit, work, change, where))
    yield from sorted(rows, key=lambda each: -each.change.log)


def failed(fleet: Fleet) -> pd.DataFrame:
    """The newest rows that failed on a unit, of cases that do not fail on most units; as `Fleet.times`."""
    rows = newest(fleet.times).loc[lambda every: every["log_s"].isna()]
    failing = rows.groupby(["kind", "case"])["unit"].transform("nunique")
    return rows[failing <= FAILING * rows["kind"].map(fleet.kinds).astype(float)]
