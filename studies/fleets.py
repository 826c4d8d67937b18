"""Held-out fleets: `python -m studies.fleets [DRAWS [SEED]]`: how often are slow and healthy units named?

Each draw is a fleet with slow units that only the draw knows: in one kind of work, in all, or only with all
GPUs at work. Healthy units differ by 1.2 %, in parts common to all kinds of work and in parts of each kind's
own, as the draw has it; runs scatter by 0.4 %, and one time in fifty is missing. Printed is how many of the
slow are named and how many of the named are healthy.
Seeds below 1000, 2027 to 2066 and 8000 to 8024 were used to choose the constants of bench/fleet/judge.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.fleet.judge import judge
from bench.fleet.observed import Fleet, Unit

Floats = npt.NDArray[np.float64]
WORKS = ("compute", "memory", "cache", "launch", "transfer")
UNIT, RUN = 0.012, 0.004
"""Standard deviations of ln time: between healthy units of a kind, and between a unit's cases."""
LACKING = 0.02


@dataclass(frozen=True)
class Plan:
    """What a fleet is drawn like."""

    name: str
    units: int = 200
    per_node: int = 8
    tail: str = "normal"
    """normal | t3 | lognormal: of the units' noise, always with the standard deviation UNIT."""
    slow: tuple[float, ...] = (0.08,) * 5 + (0.12,) * 5
    slow_node: bool = False
    """Whether a node is slow as a whole, by 6 to 10 %."""
    node_sd: float = 0.0


PLANS = (
    Plan("200 units"),
    Plan("200 units, t(3) tails", tail="t3"),
    Plan("200 units, nodes differ by 0.5 %, one is slow", slow_node=True, node_sd=0.005),
    Plan("200 units, t(3) tails, nodes differ, one is slow", tail="t3", slow_node=True, node_sd=0.005),
    Plan("200 units, skewed (log-normal)", tail="lognormal"),
    Plan("200 units, two slow", slow=(0.08, 0.12)),
    Plan("200 units, t(3) tails, two slow", tail="t3", slow=(0.08, 0.12)),
    Plan("64 units, two slow", 64, slow=(0.08, 0.12)),
    Plan("8 units, one slow by 8 %", 8, per_node=1, slow=(0.08,)),
    Plan("8 units, one slow by 12 %", 8, per_node=1, slow=(0.12,)),
    Plan("200 units, none slow", slow=()),
)


@dataclass(frozen=True)
class Draw:
    """A fleet, and what is slow in it."""

    fleet: Fleet
    slow: dict[str, float]
    """Unit -> by how much."""
    node: str | None


def drawn(plan: Plan, chance: np.random.Generator) -> Draw:
    """One fleet."""
    n = plan.units
    node = np.arange(n) // plan.per_node
    bad_node = int(chance.integers(node.max() + 1)) if plan.slow_node else -1
    bad = chance.choice(np.flatnonzero(node != bad_node), len(plan.slow), replace=False)
    manners = (False, True) if chance.random() < 0.7 else (False,)
    where = [(chance.choice([*WORKS, "all"]), chance.random() < 0.2 and len(manners) > 1) for _ in bad]
    common = chance.choice([0.0, 0.5, 1.0])  # share of the units' variance that all kinds have in common
    of_unit = np.sqrt(common) * _noise(plan, chance) + plan.node_sd * chance.standard_normal(n)[node]
    of_unit += np.log1p(chance.uniform(0.06, 0.1)) * (node == bad_node)
    tables = []
    for work in WORKS:
        of_work = of_unit + np.sqrt(1 - common) * _noise(plan, chance)
        for together in manners:
            log_s = of_work.copy()
            for unit, by, (slow_in, only_together) in zip(bad, plan.slow, where, strict=True):
                log_s[unit] += np.log1p(by) * (slow_in in (work, "all") and together >= only_together)
            for case in range(int(chance.integers(2, 5))):
                there = np.flatnonzero(chance.random(n) >= LACKING)
                seconds = chance.uniform(-12, -3) + log_s + RUN * chance.standard_normal(n)
                facts = {"case": f"{work}/{case}", "class": work, "together": together}
                tables.append(pd.DataFrame({"at": there, "log_s": seconds[there], **facts}))
    times = pd.concat(tables, ignore_index=True)
    times["unit"] = [f"u{at}" for at in times["at"]]
    times = times.assign(kind="h100", status="ok", utc="2026-11-01", name=None)
    units = {
        f"u{at}": Unit(f"u{at}", "h100", f"n{node[at]:03d}", f"{at % plan.per_node}", "", "", {})
        for at in range(n)
    }
    slow = {f"u{unit}": by for unit, by in zip(bad, plan.slow, strict=True)}
    return Draw(Fleet(units, times, [], {}), slow, f"n{bad_node:03d}" if plan.slow_node else None)


def _noise(plan: Plan, chance: np.random.Generator) -> Floats:
    if plan.tail == "t3":
        return UNIT * chance.standard_t(3, plan.units) / np.sqrt(3)
    if plan.tail == "lognormal":
        skewed = chance.lognormal(0, 0.4, plan.units)
        return UNIT * (skewed - np.exp(0.08)) / np.sqrt((np.exp(0.16) - 1) * np.exp(0.16))
    return UNIT * chance.standard_normal(plan.units)


def ours(draw: Draw) -> set[str]:
    """Ids of the units, and names of the nodes, that `bench fleet` names."""
    return {each.unit.id if each.unit else each.node for each in judge(draw.fleet).slow}


def line(draws: list[Draw]) -> str:
    """How many of the slow are named, by how slow they are, and how many of the named are healthy."""
    hits: dict[str, list[bool]] = {}
    named = healthy = 0
    for draw in draws:
        names = ours(draw)
        inside = {unit.id for unit in draw.fleet.units.values() if unit.node == draw.node}
        for unit, by in draw.slow.items():
            hits.setdefault(f"{by:.0%}", []).append(unit in names)
        if draw.node:
            hits.setdefault("node", []).append(draw.node in names or inside <= names)
        # The units of a slow node are named rightly, where the node itself is not.
        right = {*draw.slow, draw.node} | (set() if draw.node in names else inside)
        named, healthy = named + len(names), healthy + len(names - right)
    found = (
        ", ".join(f"{100 * np.mean(of):.1f} % of {by}" for by, of in sorted(hits.items())) or "none to name"
    )
    return f"named {found}; healthy {100 * healthy / max(named, 1):.1f} % of {named} named"


def report(draws: int, seed: int) -> Iterator[str]:
    """A line for each plan."""
    for plan in PLANS:
        fleets = [drawn(plan, np.random.default_rng(seed + at)) for at in range(draws)]
        yield f"{plan.name} ({draws} draws): {line(fleets)}"


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    for text in report(*(given + [100, 2027][len(given) :])):
        print(text, flush=True)
