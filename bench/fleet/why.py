"""Why a unit is slow, as far as its own rows tell: cooling, power, chip, memory clock, shared, settings.

Each figure is the unit's, of the newest rows of the class in which it is slowest, compared with the median of
the units of its kind that are not slow, case by case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from scipy.stats import hypergeom

from bench.fleet.fit import Fit, Slow
from bench.fleet.observed import SETTINGS, STATE, Fleet, Unit, newest, nodes_of
from bench.format import share_text

Cause = Literal[
    "cooling", "power", "chip", "clock", "memory clock", "shared", "settings", "not the clock", "unknown"
]
"""chip: a lower clock at as much power, neither hotter nor limited more than the others. clock: a lower clock
for which no row gives a reason. unknown: the rows tell no clock, and nothing else either.
"""
LOWER_CLOCK = 0.01
"""A clock is lower from this share on."""
HOTTER_C = 8.0
"""A unit is hot if it is warmer than the others by so much."""
HELD = 0.05
"""Share of the time, beyond the others', for which a limit must hold a clock that counts as held back."""
LOWER_LIMIT = 0.01
AS_MUCH_POWER = 0.95
"""Share of the others' power; a clock that is low with less power than this is not the chip's demand."""
SHARED = 0.05
"""Share of the time by which a processor waited more, or was taken by the hypervisor, than the others'."""
MAJORITY = 2 / 3
"""A setting that so many of the other units have in common is the usual one."""
RARE = 0.01
"""Slow units gather in a slot or under a tag if chance would do it this seldom."""


@dataclass(frozen=True)
class Why:
    """What its rows say of why a unit or node is slow."""

    slow: Slow
    cause: Cause
    sentence: str
    """The cause with the figures that it rests on."""
    clock_share: float | None
    """Part of the slowness that the lower SM clock explains, 0 to 1; None where no clock is known."""


def explained(fleet: Fleet, fit: Fit) -> list[Why]:
    """The causes of everything that is slow, in the order of `fit.slow`."""
    causes = []
    for slow in fit.slow:
        times = newest(fleet.of_kind(slow.kind))
        if slow.klass != "all":
            times = times[(times["class"] == slow.klass) & (times["together"] == slow.together)]
        nodes = times["unit"].map({unit.id: unit.node for unit in fleet.units.values()})
        is_slow = times["unit"].isin([each.unit for each in fit.slow if each.unit])
        is_slow |= nodes.isin([each.node for each in fit.slow if not each.unit and each.kind == slow.kind])
        mine = times["unit"] == slow.unit if slow.unit else nodes == slow.node
        causes.append(_explained(slow, _Beside(times[mine], times[~is_slow & ~mine])))
    return causes


class _Beside:
    """The rows of a slow unit, and those of healthy ones."""

    def __init__(self, mine: pd.DataFrame, others: pd.DataFrame) -> None:
        key, names = ["case", "together"], [*STATE, "power_limit_w"]
        usual = others.groupby(key, observed=True)[names].median(numeric_only=False)
        self._pairs = mine[[*key, *names]].merge(usual, on=key, suffixes=("", "_others"))
        self._mine, self._others = mine, others
        self.clock = self.ln_ratio("sm_clock_hz")
        self.has_lower_clock = self.clock is not None and self.clock < -LOWER_CLOCK

    def _known(self, name: str) -> pd.DataFrame:
        """The unit's and the others' value of each case."""
        pairs = self._pairs[[name, f"{name}_others"]].astype("float64").dropna()
        return pairs.set_axis(["mine", "others"], axis=1)

    def both(self, name: str) -> tuple[float, float] | None:
        """The unit's and the others' median over the cases; None if either is unknown."""
        pairs = self._known(name)
        return (float(pairs["mine"].median()), float(pairs["others"].median())) if len(pairs) else None

    def ln_ratio(self, name: str) -> float | None:
        """ln of the unit's value over the others', the median over the cases; None if unknown."""
        pairs = self._known(name)
        pairs = pairs[(pairs > 0).all(axis=1)]
        return math.log((pairs["mine"] / pairs["others"]).median()) if len(pairs) else None

    def more(self, name: str) -> float:
        """The difference of the unit's from the others'; 0 if unknown."""
        pair = self.both(name)
        return pair[0] - pair[1] if pair else 0.0

    def setting(self, name: str) -> tuple[str, str] | None:
        """The unit's setting and the usual one, where they differ."""
        others = self._others.drop_duplicates("unit")[name].dropna().astype(str)
        mine = self._mine[name].dropna().astype(str)
        if others.empty or mine.empty:
            return None
        counts = others.value_counts()
        usual, own = str(counts.index[0]), str(mine.mode().iloc[0])
        return (own, usual) if own != usual and counts.iloc[0] >= MAJORITY * len(others) else None


def _explained(slow: Slow, beside: _Beside) -> Why:
    clock = beside.clock
    share = min(max(-clock / slow.effect, 0.0), 1.0) if clock is not None and slow.effect > 0 else None
    explanations = ((cause, rule(beside)) for cause, rule in _RULES)
    cause, sentence = next((pair for pair in explanations if pair[1]), None) or _unexplained(clock)
    parts = [sentence]
    if clock is not None and beside.has_lower_clock:
        parts.append(
            f"SM clock {share_text(-math.expm1(clock), 1)} lower, {share_text(share)} of the slowness"
        )
    if slow.together and (slow.klass, False) not in slow.slow_in and slow.klass != "all":
        parts.append("only with all GPUs of the node at work")
    return Why(slow, cause, "; ".join(parts), share)


def _shared(beside: _Beside) -> str:
    pair = beside.both("foreign_processes")
    if pair and pair[0] > 0 and pair[1] == 0:
        return f"other programs on the GPU: {pair[0]:.0f}"
    for name, text in (("steal", "taken by the hypervisor"), ("pressure", "waited for a processor")):
        if (by := beside.more(name)) > SHARED:
            return f"{text} {share_text(by)} of the time more than the others"
    return ""


def _power(beside: _Beside) -> str:
    limits = beside.both("power_limit_w")
    if limits and 0 < limits[0] < (1 - LOWER_LIMIT) * limits[1]:
        return f"power limit {limits[0]:.0f} W, the others' {limits[1]:.0f} W"
    if beside.has_lower_clock and beside.more("held_hardware") > HELD:
        return f"the power brake held its clock {share_text(beside.more('held_hardware'))} of the time more"
    return ""


def _cooling(beside: _Beside) -> str:
    hot, held = beside.more("temperature_c"), beside.more("held_thermal")
    if not (held > HELD or (beside.has_lower_clock and hot > HOTTER_C)):
        return ""
    parts = []
    if pair := beside.both("temperature_c"):
        parts.append(f"{pair[0]:.0f} °C, the others {pair[1]:.0f} °C")
    if held > HELD:
        parts.append(f"heat held its clock {share_text(held)} of the time more")
    return ", ".join(parts)


def _memory_clock(beside: _Beside) -> str:
    ratio = beside.ln_ratio("memory_clock_hz")
    if ratio is None or ratio > -LOWER_CLOCK:
        return ""
    return f"memory clock {share_text(-math.expm1(ratio), 1)} lower"


def _settings(beside: _Beside) -> str:
    names = [name for name in SETTINGS if name != "power_limit_w"]
    differ = {name: pair for name in names if (pair := beside.setting(name))}
    return ", ".join(f"{name} {own}, the others {usual}" for name, (own, usual) in differ.items())


def _chip(beside: _Beside) -> str:
    power = beside.ln_ratio("power_w")
    if not beside.has_lower_clock or power is None or power < math.log(AS_MUCH_POWER):
        return ""
    sentence = f"it draws {share_text(math.exp(power))} of the others' power"
    if pair := beside.both("temperature_c"):
        sentence += f" at {pair[0]:.0f} °C (they {pair[1]:.0f} °C)"
    return f"{sentence} without a lower limit"


_RULES: tuple[tuple[Cause, Callable[[_Beside], str]], ...] = (
    ("shared", _shared),
    ("power", _power),
    ("cooling", _cooling),
    ("memory clock", _memory_clock),
    ("settings", _settings),
    ("chip", _chip),
)
"""The rules in their order: the first with a sentence is the cause; the others' sentences are empty."""


def _unexplained(clock: float | None) -> tuple[Cause, str]:
    if clock is None:
        return "unknown", "its rows tell no clock, and nothing else that differs from the others"
    if clock < -LOWER_CLOCK:
        return "clock", "no row says what holds its clock"
    as_others = f"SM clock as the others' ({share_text(math.expm1(clock), 1)})"
    return "not the clock", f"{as_others}, nothing recorded differs"


# ---- where


def gathered(fleet: Fleet, fit: Fit) -> list[str]:
    """A sentence for each slot, node or tag that has more of the slow units than chance would give it."""
    return [sentence for kind in fleet.kinds for sentence in _gathered(fleet, fit, kind)]


def _gathered(fleet: Fleet, fit: Fit, kind: str) -> Iterator[str]:
    every = [fleet.units[unit] for unit in fit.effects.loc[fit.effects["kind"] == kind, "unit"].unique()]
    whole = {each.node for each in fit.slow if each.kind == kind and each.unit is None}
    slow = {each.unit for each in fit.slow if each.kind == kind and each.unit}
    inside = [unit for unit in every if unit.node not in whole]
    nodes = nodes_of(every)
    for name, group, total in _more_often(((unit.slot, unit) for unit in inside), slow):
        if len({unit.node for unit in group if unit.id in slow}) > 1:
            yield f"slot {name}: {_share(group, slow, 'units')}, {total}"
    for name, group, total in _more_often(((unit.node, unit) for unit in inside), slow):
        yield f"node {name}: {_share(group, slow, 'units')}, {total}"
    # Of a tag, nodes are counted: the units of a slow node have the same rack for no other reason.
    first = [units[0] for units in nodes.values()]
    bad = {
        units[0].id for node, units in nodes.items() if node in whole or slow & {unit.id for unit in units}
    }
    of = "nodes have slow units" if len(nodes) < len(every) else "units"
    for tag in sorted({key for unit in first for key in unit.tags}):
        for name, group, total in _more_often(((unit.tags.get(tag, ""), unit) for unit in first), bad):
            yield f"{tag} {name}: {_share(group, bad, of)}, {total}"


def _share(group: Sequence[Unit], slow: set[str], of: str) -> str:
    count = sum(unit.id in slow for unit in group)
    return f"{count} of its {len(group)} {of}" + ("" if " " in of else " are slow")


def _more_often(named: Iterable[tuple[str, Unit]], slow: set[str]) -> Iterator[tuple[str, list[Unit], str]]:
    """The names under which more are slow than chance would put there: name, its units, `5 of all 200`."""
    groups: dict[str, list[Unit]] = {}
    for name, unit in named:
        if name:
            groups.setdefault(name, []).append(unit)
    counts = {name: sum(unit.id in slow for unit in group) for name, group in groups.items()}
    every, total = sum(counts.values()), sum(map(len, groups.values()))
    for name, group in sorted(groups.items()):
        by_chance = hypergeom.sf(counts[name] - 1, total, every, len(group))
        if counts[name] > 1 and by_chance * len(groups) < RARE:
            yield name, group, f"{every} of all {total}"
