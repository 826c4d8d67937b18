"""Which units of a fleet are slow: log time = case + node + unit, by class, alone and all at once.

A unit is slow if a healthy one would hardly be so far from the others (bench/fleet/null.py). Of every twenty
units that are named one may be healthy (Benjamini and Hochberg 1995 over units, Benjamini and Bogomolov 2014
over a unit's classes). Nodes are judged first, and the units of a slow node relative to it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.fleet.effects import class_effects, run_noise
from bench.fleet.judge import MEDIAN_SE, OVERALL, Column, Tested, Wide, named, tested, with_mean
from bench.fleet.null import QN_EFFICIENCY, Null, qn
from bench.fleet.observed import CLASSES, Fleet, newest
from bench.format import count_text

Floats = npt.NDArray[np.float64]

LEAST_UNITS = 8
"""Fewest units of a kind to call one slow: of fewer, nobody knows how far healthy ones are apart."""
LEAST_NODES = 3
"""Fewest nodes with several units to call a node slow as a whole."""
MANY_NODES = 8
"""Number of nodes from which their own spread shows how far healthy ones are apart."""
MIDDLE = (0.1587, 0.8413)
"""Quantiles one standard deviation to each side of a normal distribution's middle."""
NODES_APART = 0.5
"""Spread of fewer nodes as a share of the units' spread, besides what their units explain."""


@dataclass(frozen=True)
class ClassSpread:
    """How far healthy units of a kind are apart in a class; numbers are ln of a ratio of times."""

    kind: str
    klass: str
    """A class, or `all`: the mean over all of them."""
    together: bool | None
    """Whether all GPUs of a node were at work; None for `all`."""
    units: int
    sd: float
    """Half of what the middle 68 % of the units lie within that are not slow."""
    own_sd: float
    """The part of it that is noise of measuring: between cases, and between runs if there are several."""
    null: Null


@dataclass(frozen=True)
class Slow:
    """A unit, or a node as a whole, that is slow."""

    kind: str
    node: str
    unit: str | None
    """Id of the unit; None: the node as a whole."""
    name: str
    """`node017 0000:1b:00.0`, or the node."""
    klass: str
    """The class in which it is slowest; `all`: it is slow in every class, or only its mean tells."""
    together: bool | None
    """Whether slowest with all GPUs of the node at work; None for `all`."""
    effect: float
    """ln of its time over that of the median unit of its kind (of its node, if the node is slow)."""
    low: float
    high: float
    """95 % interval of the effect."""
    p: float
    """Probability that a healthy one looks so slow, all its classes considered."""
    slow_in: tuple[tuple[str, bool | None], ...]
    """Every class in which it is slow, alone (False) or together (True); (`all`, None): its mean."""

    @property
    def ratio(self) -> float:
        """Its time over the others'."""
        return math.exp(self.effect)


@dataclass(frozen=True)
class Fit:
    """What a fleet's times say of its units."""

    effects: pd.DataFrame
    """A row for each unit, class (and `all`) and together (None with `all`).

    Columns: unit, kind, node, class, together, effect (ln of its time over the median unit's of its kind),
    relative (the same without its node's part, if the node is slow), low, high (95 % interval of relative),
    own (relative effect beyond that in its other classes; NaN with fewer than two), p (that a healthy unit is
    so slow here; NaN: too few units), slow, fast.
    """
    nodes: pd.DataFrame
    """A row for each node of at least two units, class and together: node, kind, class, together, effect (of
    its median unit), low, high, units, p, slow.
    """
    spreads: Sequence[ClassSpread]
    """One for each kind, class and together."""
    slow: Sequence[Slow]
    """Nodes first, then units, each the slowest first."""
    remarks: Sequence[str]
    """Sentences on what could not be judged."""
    judged: bool
    """Whether any kind has enough units."""


@dataclass(frozen=True)
class _Kind:
    """The effects of one kind's units, and the node that each belongs to."""

    kind: str
    wide: Wide
    nodes: list[str]

    @property
    def shared(self) -> dict[str, list[int]]:
        """Nodes of at least two units -> the rows of these."""
        rows = pd.Series(range(len(self.nodes))).groupby(self.nodes, sort=False).agg(list)
        return {str(node): each for node, each in rows.items() if len(each) > 1}

    @property
    def enough(self) -> bool:
        return len(self.wide.rows) >= LEAST_UNITS


def fit(fleet: Fleet) -> Fit:
    """Judge every unit of every kind. Nothing is raised: what cannot be judged is a remark."""
    every = [_kind(fleet, name) for name in fleet.kinds]
    kinds = [kind for kind in every if kind.wide.rows]
    with_nodes = [kind for kind in kinds if kind.enough and len(kind.shared) >= LEAST_NODES]
    of_nodes = _named({kind.kind: _tested_nodes(kind) for kind in with_nodes})
    of_units = {kind.kind: tested(_within(kind, of_nodes.get(kind.kind))) for kind in kinds}
    judged = _named({kind.kind: of_units[kind.kind] for kind in kinds if kind.enough})
    of_units |= judged
    slow = [each for name, part in of_nodes.items() for each in _slow(fleet, name, part, True)]
    slow += [each for name, part in judged.items() for each in _slow(fleet, name, part, False)]
    spreads = [each for name, part in judged.items() for each in _spreads(name, part)]
    units = [_unit_rows(kind, of_units[kind.kind]) for kind in kinds]
    nodes = [_node_rows(kind, of_nodes[kind.kind]) for kind in with_nodes]
    return Fit(
        effects=pd.concat(units, ignore_index=True) if units else pd.DataFrame(columns=UNIT_COLUMNS),
        nodes=pd.concat(nodes, ignore_index=True) if nodes else pd.DataFrame(columns=NODE_COLUMNS),
        spreads=spreads,
        slow=sorted(slow, key=lambda each: (each.unit is not None, -each.effect)),
        remarks=list(_remarks(every)),
        judged=bool(judged),
    )


def _named(parts: dict[str, Tested]) -> dict[str, Tested]:
    """The verdicts by kind. All kinds are one family: of all that is named one in twenty may be healthy."""
    return dict(zip(parts, named(list(parts.values())), strict=True))


def _remarks(kinds: list[_Kind]) -> Iterator[str]:
    for kind in kinds:
        count = len(kind.wide.rows)
        if not count:
            yield f"{kind.kind}: no case was timed on at least three units, so nothing can be compared"
        elif not kind.enough:
            few = count_text(count, "unit")
            yield f"{kind.kind}: {few}, too few to say how far healthy ones differ (it takes {LEAST_UNITS})"
        elif 0 < len(kind.shared) < LEAST_NODES:
            yield f"{kind.kind}: too few nodes to call one slow as a whole (it takes {LEAST_NODES})"


# ---- effects


def _kind(fleet: Fleet, kind: str) -> _Kind:
    """The effects of a kind's units, a column for each class, alone and together."""
    times = fleet.of_kind(kind)
    by_column: dict[Column, pd.DataFrame] = {}
    for together in (False, True):
        for klass in CLASSES:
            mine = times[(times["together"] == together) & (times["class"] == klass)]
            if not mine.empty and len(effects := class_effects(newest(mine), run_noise(mine))):
                by_column[klass, together] = effects
    units = sorted({unit for effects in by_column.values() for unit in effects.index})
    effect, se = (
        np.array([effects[name].reindex(units) for effects in by_column.values()]).T
        for name in ("effect", "se")
    )
    return _Kind(kind, Wide(units, [*by_column], effect, se), [fleet.units[unit].node for unit in units])


def _tested_nodes(kind: _Kind) -> Tested:
    """The nodes of several units, by the unit that more than half of its units are as slow as."""
    wide, groups = kind.wide, list(kind.shared.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nodes without a class
        low = [np.nanquantile(wide.effect[rows], 0.5, axis=0, method="lower") for rows in groups]
    effect = np.array(low) - np.nanmedian(low, axis=0)
    count = np.array([len(rows) for rows in groups])
    inside = np.concatenate(
        [
            (wide.effect[rows] - at) * math.sqrt(len(rows) / (len(rows) - 1))
            for rows, at in zip(groups, low, strict=True)
        ]
    )
    apart = np.array([qn(column[np.isfinite(column)]) for column in inside.T])
    se = MEDIAN_SE * apart / np.sqrt(count)[:, None]
    nulls = None
    if len(groups) < MANY_NODES:
        scale = np.hypot(np.median(se, axis=0), NODES_APART * apart)
        freedom = QN_EFFICIENCY * (len(inside) - len(groups))
        nulls = [Null(0.0, each, tail=1.0, skew=0.0, freedom=freedom) for each in scale]
    return tested(Wide(list(kind.shared), wide.columns, effect, se), nulls)


def _within(kind: _Kind, part: Tested | None) -> Wide:
    """The units' effects without those of the nodes that are slow as a whole."""
    if part is None:
        return kind.wide
    effect, se = kind.wide.effect.copy(), kind.wide.se.copy()
    for row in np.flatnonzero(part.slow):
        rows = np.array(kind.shared[part.wide.rows[row]])
        classes = part.slow_in[row, : effect.shape[1]]
        columns = np.flatnonzero(classes if classes.any() else np.ones_like(classes))
        cells = np.ix_(rows, columns)
        effect[cells] -= part.wide.effect[row, columns]
        se[cells] = np.hypot(se[cells], part.wide.se[row, columns])
    return kind.wide._replace(effect=effect, se=se)


# ---- tables


UNIT_COLUMNS = (
    *("unit", "kind", "node", "class", "together", "effect", "relative", "low", "high"),
    *("own", "p", "slow", "fast"),
)
NODE_COLUMNS = ("node", "kind", "class", "together", "effect", "low", "high", "units", "p", "slow")


def _unit_rows(kind: _Kind, part: Tested) -> pd.DataFrame:
    """Fit.effects of one kind."""
    whole = with_mean(kind.wide, part.nulls[: len(kind.wide.columns)])
    of_rows = {"unit": kind.wide.rows, "node": kind.nodes, "kind": kind.kind}
    p = part.p if kind.enough else np.full_like(part.p, np.nan)
    more = {"effect": whole.effect, "relative": part.wide.effect, "own": part.own, "fast": part.fast, "p": p}
    return _long(part, of_rows, more)[list(UNIT_COLUMNS)]


def _node_rows(kind: _Kind, part: Tested) -> pd.DataFrame:
    """Fit.nodes of one kind."""
    units = [len(rows) for rows in kind.shared.values()]
    of_rows = {"node": part.wide.rows, "kind": kind.kind, "units": units}
    return _long(part, of_rows, {"effect": part.wide.effect, "p": part.p})[list(NODE_COLUMNS)]


def _long(part: Tested, of_rows: dict[str, Any], more: dict[str, npt.NDArray[Any]]) -> pd.DataFrame:
    """A row for each row and column whose effect is known, with its interval and verdict."""
    low, high = part.intervals
    arrays = {"low": low, "high": high, "slow": part.slow_in, **more}
    tables = [
        pd.DataFrame(
            {**of_rows, "class": klass, "together": together, **{n: a[:, i] for n, a in arrays.items()}}
        )
        for i, (klass, together) in enumerate(part.wide.columns)
    ]
    table = pd.concat([each.astype({"together": object}) for each in tables], ignore_index=True)
    return table[table["effect"].notna()]


def _slow(fleet: Fleet, kind: str, part: Tested, of_nodes: bool) -> Iterator[Slow]:
    low, high = part.intervals
    for row in np.flatnonzero(part.slow):
        slow_in = np.flatnonzero(part.slow_in[row])
        columns = part.wide.columns
        classes = {columns[i][0] for i in slow_in} - {OVERALL[0]}
        everywhere = columns[-1] == OVERALL and classes >= {name for name, _ in columns[:-1]}
        single = [] if everywhere else [int(i) for i in slow_in if columns[i] != OVERALL]
        worst = max(single, key=lambda i: float(part.wide.effect[row, i]), default=len(columns) - 1)
        klass, together = columns[worst]
        name = part.wide.rows[row]
        unit = None if of_nodes else fleet.units[name]
        yield Slow(
            kind=kind,
            node=unit.node if unit else name,
            unit=unit.id if unit else None,
            name=unit.name if unit else name,
            klass=klass,
            together=together,
            effect=float(part.wide.effect[row, worst]),
            low=float(low[row, worst]),
            high=float(high[row, worst]),
            p=float(part.row_p[row]),
            slow_in=tuple(columns[i] for i in slow_in),
        )


def _spreads(kind: str, part: Tested) -> Iterator[ClassSpread]:
    for i, (klass, together) in enumerate(part.wide.columns):
        known = np.isfinite(part.wide.effect[:, i])
        own = float(np.median(part.wide.se[known, i]))
        healthy = part.wide.effect[known & ~part.slow_in[:, i], i]
        sd = float(np.diff(np.quantile(healthy, MIDDLE)).item()) / 2
        yield ClassSpread(kind, klass, together, int(known.sum()), sd, min(own, sd), part.nulls[i])
