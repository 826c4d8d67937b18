"""Held-out fleets: `python -m studies.fleets [DRAWS [FILES [SEED]]]`: how often are slow units named?

Each draw is a fleet with slow units that only the draw knows: 200 units in nodes of 8, a fifth of them of a
second kind, five units missing, one file lost. Unit noise 1.2 % (in parts common to all classes and in parts
of each class's own, as the draw has it), run noise 0.4 %. Three units are slow by 8 %, three by 6 %: in one
class, in all or only with all GPUs at work; one node is slow as a whole by 6 to 10 %. Prints for our rule and
three simpler ones on the same draws how many of the slow ones are named and how many of the named are
healthy; then the same for fleets of other kinds. FILES draws also go through parquet files and the command.
Seeds 21, 33, 1001 and 2026 were used to choose the constants of bench/fleet.

Nothing of bench/fleet is used but `fit`: a trial by the rule's own parts would agree with it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.fleet.fit import fit
from bench.fleet.observed import CLASSES, Fleet, Unit
from bench.store.parquet import write
from bench.store.schema import Measurement
from tests.bench.rows import row

ROOT = Path(__file__).parents[1]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """What a fleet is drawn like."""

    name: str = "200 units as in the issue"
    units: int = 200
    per_node: int = 8
    second_kind: float = 0.2
    unit_sd: float = 0.012
    run_sd: float = 0.004
    tail: str = "normal"
    """normal | t4 | lognormal: of the units' noise, always with the standard deviation above."""
    slow: tuple[float, ...] = (0.08, 0.08, 0.08, 0.06, 0.06, 0.06)
    slow_node: bool = True
    missing: int = 5


PLANS = (
    Plan(),
    Plan("healthy units with t(4) tails", tail="t4"),
    Plan("healthy units log-normal, skewed", tail="lognormal"),
    Plan("a fifth of the units slow by 8 %", slow=(0.08,) * 40, slow_node=False),
    Plan("unit noise 8 % (slow by 8, 30 %)", unit_sd=0.08, slow=(0.08, 0.08, 0.3, 0.3), slow_node=False),
    Plan("64 units, one kind", 64, second_kind=0, slow=(0.08, 0.05), slow_node=False, missing=0),
    Plan("32 units, one kind", 32, second_kind=0, slow=(0.08, 0.06), slow_node=False, missing=1),
    Plan("16 units, one kind", 16, second_kind=0, slow=(0.08,), slow_node=False, missing=0),
    Plan("12 units, one kind, nodes of 4", 12, 4, second_kind=0, slow=(0.08,), slow_node=False, missing=0),
)


@dataclass
class Draw:
    """A fleet, and what is slow in it."""

    log_s: pd.DataFrame
    """Columns unit, kind, node, slot, case, class, together, log_s."""
    slow: dict[str, float] = field(default_factory=dict)
    """Unit -> by how much."""
    node: str | None = None


def drawn(plan: Plan, chance: np.random.Generator) -> Draw:
    """One fleet."""
    n = plan.units
    node = np.arange(n) // plan.per_node
    second = node >= round((1 - plan.second_kind) * n / plan.per_node)
    bad_node = int(chance.integers(node.max() + 1)) if plan.slow_node else -1
    gone = chance.choice(n, plan.missing, replace=False)
    candidates = np.setdiff1d(np.flatnonzero(node != bad_node), gone)
    slow = dict(
        zip(chance.choice(candidates, len(plan.slow), replace=False).tolist(), plan.slow, strict=True)
    )
    manners = (False, True) if chance.random() < 0.7 else (False,)
    where = {
        unit: (chance.choice([*CLASSES, "all"]), chance.random() < 0.2 and len(manners) > 1) for unit in slow
    }
    common = chance.choice([0.0, 0.5, 1.0])  # share of the units' variance that all classes have in common
    of_unit = _noise(plan, chance, n) * np.sqrt(common)
    node_slow = np.log1p(chance.uniform(0.06, 0.1)) * (node == bad_node)
    tables = []
    for klass in CLASSES:
        of_class = of_unit + _noise(plan, chance, n) * np.sqrt(1 - common) + node_slow
        for together in manners:
            by = np.array(
                [
                    np.log1p(slow[u])
                    if u in slow and where[u][0] in (klass, "all") and together >= where[u][1]
                    else 0
                    for u in range(n)
                ]
            )
            for case in range(int(chance.integers(2, 5))):
                level = chance.uniform(-12, -3) + second * chance.uniform(-1, 1)
                log_s = level + of_class + by + plan.run_sd * chance.standard_normal(n)
                tables.append(
                    pd.DataFrame(
                        {
                            "i": np.arange(n),
                            "case": f"{klass}/{case}",
                            "class": klass,
                            "together": together,
                            "log_s": log_s,
                        }
                    )
                )
    table = pd.concat(tables, ignore_index=True)
    table = table[~table["i"].isin(gone)]
    lost = chance.choice(np.setdiff1d(candidates, list(slow)))  # a damaged file: one run of one unit
    table = table[~((table["i"] == lost) & (table["together"] == manners[-1]))]
    table = table.assign(
        unit=[f"u{i}" for i in table["i"]],
        node=[f"n{node[i]:03d}" for i in table["i"]],
        slot=[f"0000:{i % plan.per_node:02x}:00.0" for i in table["i"]],
        kind=np.where(second[table["i"]], "b200", "h100"),
    )
    bad = f"n{bad_node:03d}" if plan.slow_node else None
    return Draw(table, {f"u{u}": by for u, by in slow.items()}, bad)


def _noise(plan: Plan, chance: np.random.Generator, n: int) -> Floats:
    if plan.tail == "t4":
        return plan.unit_sd * chance.standard_t(4, n) / np.sqrt(2)
    if plan.tail == "lognormal":
        skewed = chance.lognormal(0, 0.4, n)
        return plan.unit_sd * (skewed - np.exp(0.08)) / np.sqrt((np.exp(0.16) - 1) * np.exp(0.16))
    return plan.unit_sd * chance.standard_normal(n)


# ---- rules: the units and nodes that each names


def ours(draw: Draw) -> set[str]:
    """Names of units, and of nodes as a whole."""
    table = draw.log_s
    units = {
        u: Unit(u, k, n, s, "", "", {})
        for u, k, n, s in table[["unit", "kind", "node", "slot"]].drop_duplicates().itertuples(index=False)
    }
    times = table.assign(name=table["case"], run_id="r", utc="2026-11-01", half=0.002).drop(
        columns=["node", "slot", "i"]
    )
    found = fit(Fleet(units, times, pd.DataFrame(), [], []))
    return {slow.unit or slow.node for slow in found.slow}


def _by_class(draw: Draw) -> pd.DataFrame:
    """[unit, kind and class and manner] mean over the cases of time over the units' median."""
    table = draw.log_s
    centre = table.groupby(["kind", "case", "together"])["log_s"].transform("median")
    ratio = np.exp(table["log_s"] - centre)
    mean = table.assign(ratio=ratio).groupby(["unit", "kind", "class", "together"])["ratio"].mean()
    return mean.unstack(["kind", "class", "together"])


def z_above_3(draw: Draw) -> set[str]:
    ratio = _by_class(draw)
    z = (ratio - ratio.mean()) / ratio.std()
    return set(ratio.index[(z > 3).any(axis=1)])


def five_percent(draw: Draw) -> set[str]:
    ratio = _by_class(draw)
    return set(ratio.index[(ratio > 1.05).any(axis=1)])


def megatron(draw: Draw) -> set[str]:
    """More than one standard deviation and more than 10 % slower than the mean."""
    ratio = _by_class(draw)
    far = (ratio > ratio.mean() + ratio.std()) & (ratio > 1.1 * ratio.mean())
    return set(ratio.index[far.any(axis=1)])


RULES = {"ours": ours, "z > 3": z_above_3, "> 5 %": five_percent, "> 1 sigma, > 10 %": megatron}


@dataclass
class Score:
    """How a rule did over many draws."""

    hits: dict[float, list[bool]] = field(default_factory=dict)
    """By how much a unit is slow -> whether it was named."""
    whole: dict[float, list[bool]] = field(default_factory=dict)
    """The same for all such units of a draw together."""
    nodes: list[bool] = field(default_factory=list)
    named: int = 0
    false: int = 0
    clean: int = 0
    """Draws in which no healthy one was named."""
    seconds: float = 0.0

    def add(self, draw: Draw, names: set[str]) -> None:
        for by in set(draw.slow.values()):
            hits = [unit in names for unit, each in draw.slow.items() if each == by]
            self.hits.setdefault(by, []).extend(hits)
            self.whole.setdefault(by, []).append(all(hits))
        inside = set(draw.log_s.loc[draw.log_s["node"] == draw.node, "unit"])
        if draw.node:
            self.nodes.append(draw.node in names or inside <= names)
        # A rule that knows no nodes names the units of a slow one, and rightly; ours has named the node.
        true = {*draw.slow, draw.node} | (set() if draw.node in names else inside)
        self.named += len(names)
        self.false += len(names - true)
        self.clean += not names - true

    def line(self, draws: int) -> str:
        hits = ", ".join(
            f"{100 * np.mean(self.hits[by]):.1f} % of {by:.0%}" for by in sorted(self.hits, reverse=True)
        )
        every = ", ".join(f"{100 * np.mean(self.whole[by]):.0f}" for by in sorted(self.whole, reverse=True))
        node = f"; node {100 * np.mean(self.nodes):.0f} %" if self.nodes else ""
        share = 100 * self.false / max(self.named, 1)
        return (
            f"named {hits or 'none to name'} (all of a draw's: {every or '-'} %){node}; "
            f"false {share:.1f} % of {self.named} named, none in {100 * self.clean / draws:.0f} % of draws"
        )


def scores(plan: Plan, draws: int, seed: int, rules: tuple[str, ...] = tuple(RULES)) -> dict[str, Score]:
    """Every rule on the same draws."""
    chance = np.random.default_rng(seed)
    found = {name: Score() for name in rules}
    for _ in range(draws):
        draw = drawn(plan, chance)
        for name, score in found.items():
            began = time.process_time()
            score.add(draw, RULES[name](draw))
            score.seconds += time.process_time() - began
    return found


# ---- through files and the command


def written(draw: Draw, folder: Path) -> None:
    """A parquet file for each run of each unit, one of them damaged."""
    paths = []
    for (unit, together), rows in draw.log_s.groupby(["unit", "together"]):
        kind = rows["kind"].iloc[0]
        path = folder / kind / f"{unit}-{int(together)}.parquet"
        paths.append(write(path, [_row(each) for each in rows.itertuples(index=False, name="Row")]))
    healthy = next(path for path in paths if path.stem.split("-")[0] not in draw.slow)
    healthy.write_bytes(healthy.read_bytes()[:-100])


def _row(each: tuple[object, ...]) -> Measurement:
    facts = dict(
        zip(("i", "case", "class", "together", "log_s", "unit", "node", "slot", "kind"), each, strict=True)
    )
    seconds = float(np.exp(facts["log_s"]))  # type: ignore[arg-type]
    klass = facts["class"]
    operator = {"launch": "launch", "transfer": "transfer"}.get(str(klass), "gemm")
    return row(
        operator=operator, sweep=facts["case"], cache="warm" if klass == "cache" else "cold",
        arithmetic="matrix", flop=10**9 if klass == "compute" else 0, byte=10**6,
        device=facts["kind"], device_kind="cuda", device_id=facts["unit"], host=facts["node"],
        pci_bus=facts["slot"], concurrent_gpus=1 + 7 * bool(facts["together"]),
        run_id="20261101T030000Z-abc", utc="2026-11-01T03:00:00Z",
        parameters=json.dumps({"name": str(facts["case"])}), median_s=seconds, low_s=0.998 * seconds,
        high_s=1.002 * seconds, samples_s=[seconds],
    )  # fmt: skip


def commanded(draw: Draw, folder: Path) -> tuple[set[str], int, float]:
    """Units and nodes that the command names, its exit code, and its seconds of processor time."""
    words = [sys.executable, "-m", "bench", "fleet", str(folder), "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    slow = json.loads(done.stdout)["slow"]
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {each["unit"] or each["node"] for each in slow}, done.returncode, spent


def report(draws: int, files: int, seed: int) -> Iterator[str]:
    """The table, a line for each plan and rule."""
    for plan in PLANS:
        yield f"{plan.name} ({draws} draws)"
        rules = tuple(RULES) if plan is PLANS[0] else ("ours", "z > 3", "> 5 %")
        for name, score in scores(plan, draws, seed, rules).items():
            yield f"  {name:18} {score.line(draws)}"
            if name == "ours":
                yield f"  {'':18} {score.seconds / draws:.2f} s of processor time a fleet"
    for at in range(seed, seed + files):
        draw = drawn(PLANS[0], np.random.default_rng(at))
        with tempfile.TemporaryDirectory() as folder:
            written(draw, Path(folder))
            names, code, spent = commanded(draw, Path(folder))
        missed = {unit for unit in draw.slow if unit not in names}
        missing = ", ".join(sorted(missed)) or "none"
        yield f"through files, {at}: named {len(names)}, missed {missing}, exit code {code}, {spent:.1f} s"


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    for line in report(*(given + [100, 2, 2027][len(given) :])):
        print(line, flush=True)
