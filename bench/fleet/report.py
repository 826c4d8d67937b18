"""What `python -m bench fleet` prints of a fleet: one screen, Markdown or JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import hypergeom

from bench.cli.table import table_lines
from bench.fleet.expect import Reached, reached, short_of_published
from bench.fleet.fit import Fit, Slow, fit
from bench.fleet.judge import OVERALL
from bench.fleet.observed import CLASSES, Fleet, missing, read, tags_of_all
from bench.fleet.why import Why, explained, gathered
from bench.format import amount_text, change_text, count_text, share_text

ALARM = 0.03
"""Slower by more than this fails the command."""
MOST_LISTED = 20
"""Slow units in the table; --json has all."""
JOBS = (8, 64, 512)
"""Units of a synchronous job."""
FAILING = 0.5
"""A case that fails on more of the units than this is no unit's fault."""


@dataclass(frozen=True)
class JudgedFleet:
    """A fleet with all that is said of it."""

    fleet: Fleet
    fit: Fit
    why: Sequence[Why]
    """The reason of each of fit.slow."""
    gathered: Sequence[str]
    missing: Sequence[str]
    failed: pd.DataFrame
    """Cases that fail on a unit and not on most others: unit, name, status."""
    reached: Sequence[Reached]
    """Empty unless requested."""

    @property
    def exit_code(self) -> int:
        """1: something is slow by more than 3 %, missing, or fails what others can do; 3: none was judged."""
        alarm = any(slow.effect > math.log1p(ALARM) for slow in self.fit.slow)
        if alarm or self.missing or len(self.failed):
            return 1
        return 0 if self.fit.judged else 3


def judged(results: Sequence[Path], expected: Path | None, expect: bool) -> JudgedFleet:
    """Read and judge a fleet. UserError as for `bench.fleet.observed.read`."""
    fleet = read(results, expected)
    fitted = fit(fleet)
    return JudgedFleet(
        fleet=fleet,
        fit=fitted,
        why=explained(fleet, fitted),
        gathered=gathered(fleet, fitted),
        missing=missing(fleet),
        failed=_failed(fleet),
        reached=reached(fleet) if expect else (),
    )


def _failed(fleet: Fleet) -> pd.DataFrame:
    """The failures that are not most units' too and that no later run of the unit has made good."""
    if fleet.failed.empty:
        return fleet.failed
    key = ["unit", "case"]
    passed = fleet.times[[*key, "run_id"]].astype(object).groupby(key)["run_id"].max()
    failed = fleet.failed.astype(str).sort_values("run_id").drop_duplicates(key, keep="last")
    later = pd.Series(passed.reindex(pd.MultiIndex.from_frame(failed[key])).to_numpy(), index=failed.index)
    failed = failed[~(later.fillna("") > failed["run_id"])]
    kinds = [unit.kind for unit in fleet.units.values()]
    failing = failed.groupby(["kind", "case"])["unit"].transform("nunique")
    return failed[failing <= FAILING * failed["kind"].map(kinds.count)]


# ---- text


def lines(judged_fleet: JudgedFleet, markdown: bool = False) -> Iterator[str]:
    """The report; `markdown`: for the summary of a CI job."""
    fleet = judged_fleet.fleet
    yield _measured(fleet)
    yield from judged_fleet.missing
    yield from (f"left out: {sentence}" for sentence in fleet.left_out)
    yield from judged_fleet.fit.remarks
    if judged_fleet.fit.slow:
        yield from _slow_table(judged_fleet, markdown)
    elif judged_fleet.fit.judged:
        yield "No unit is slow beyond what healthy units differ by."
    yield from judged_fleet.gathered
    yield from _fast(judged_fleet)
    yield from _failures(judged_fleet)
    yield from _spreads(judged_fleet)
    yield from _costs(judged_fleet)
    yield from _reached(judged_fleet, markdown)


def _measured(fleet: Fleet) -> str:
    """What was measured on how many units, and when."""
    units, times = fleet.units.values(), fleet.times
    kinds = [unit.kind for unit in units]
    per_kind = ", ".join(f"{kinds.count(kind)} {kind}" for kind in fleet.kinds)
    words = {False: "alone", True: "together with all GPUs of the node"}
    manners = " and ".join(word for together, word in words.items() if (times["together"] == together).any())
    days = times["utc"].astype(object).groupby(times["unit"], observed=True).max().astype(str).str[:10]
    span = " to ".join(dict.fromkeys((days.min(), days.max()))) if len(days) else ""
    nodes = count_text(len({unit.node for unit in units}), "node")
    return (
        f"{count_text(len(units), 'unit')} ({per_kind}) on {nodes}, "
        f"{count_text(times['case'].nunique(), 'case')} {manners}, newest runs {span}".rstrip()
        + "".join(f", {tag}" for tag in tags_of_all(units))
    )


def _slow_table(judged_fleet: JudgedFleet, markdown: bool) -> Iterator[str]:
    names = ("slow", "kind of work", ">time", "95 %", "why")
    several = len(judged_fleet.fleet.kinds) > 1
    rows = []
    for why in judged_fleet.why[:MOST_LISTED]:
        slow = why.slow
        name = (
            slow.name + (" (whole node)" if slow.unit is None else "") + (f" {slow.kind}" if several else "")
        )
        time, low, high = (change_text(math.exp(end)) for end in (slow.effect, slow.low, slow.high))
        rows.append([name, class_text(slow), time, f"{low} to {high}", f"{why.cause}: {why.sentence}"])
    yield from table_lines(names, rows, markdown)
    if len(judged_fleet.why) > MOST_LISTED:
        yield f"... and {len(judged_fleet.why) - MOST_LISTED} more: --json lists them"


def class_text(slow: Slow) -> str:
    """The class in which it is slow, `compute together`, and how many others, `memory +2`; or `all kinds`."""
    if slow.klass == OVERALL[0]:
        return "all kinds"
    others = {klass for klass, _ in slow.slow_in} - {slow.klass, OVERALL[0]}
    return slow.klass + (" together" if slow.together else "") + (f" +{len(others)}" if others else "")


def _fast(judged_fleet: JudgedFleet) -> Iterator[str]:
    effects = judged_fleet.fit.effects
    fast = effects[effects["fast"].astype(bool)].sort_values("relative").drop_duplicates("unit")
    names = [
        f"{judged_fleet.fleet.units[unit].name} ({klass} {change_text(math.exp(relative))})"
        for unit, klass, relative in fast[["unit", "class", "relative"]].itertuples(index=False)
    ]
    if names:
        rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"faster than healthy units differ by: {', '.join(names[:3])}{rest}"


def _failures(judged_fleet: JudgedFleet) -> Iterator[str]:
    for unit, rows in judged_fleet.failed.groupby("unit", observed=True, sort=True):
        counts = rows["status"].value_counts()
        what = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        cases = sorted(set(rows["name"].astype(str)))
        rest = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        name = judged_fleet.fleet.units[str(unit)].name
        yield f"FAILED {name}: {what} ({cases[0]}{rest}), which most others pass"


def _spreads(judged_fleet: JudgedFleet) -> Iterator[str]:
    for kind in judged_fleet.fleet.kinds:
        mine = {(s.klass, s.together): s for s in judged_fleet.fit.spreads if s.kind == kind}
        parts = []
        for klass in CLASSES:
            texts = [f"±{share_text(mine[klass, t].sd, 1)}" for t in (False, True) if (klass, t) in mine]
            parts += [f"{klass} {' / '.join(texts)}"] if texts else []
        if parts:
            heavy = any(spread.null.is_heavy for spread in mine.values())
            tails = " (judged as with heavy tails or skew)" if heavy else ""
            within = "healthy units differ by (68 % lie within; alone / together)"
            yield f"{kind}: {within} {', '.join(parts)}{tails}"


def _costs(judged_fleet: JudgedFleet) -> Iterator[str]:
    for cost in costs(judged_fleet):
        parts = [f"of {size} units {change_text(ratio)}" for size, ratio in cost["slowest"].items()]
        without = ", ".join(change_text(ratio) for ratio in cost["without_slow"].values())
        yield (
            f"{cost['kind']}: a synchronous job waits for its slowest unit ({cost['class']}"
            f"{' together' if cost['together'] else ''}): a job {', '.join(parts)}"
            + (f"; without the slow ones {without}" if cost["without_slow"] != cost["slowest"] else "")
        )


def costs(judged_fleet: JudgedFleet) -> list[dict[str, Any]]:
    """Expected time of the slowest of 8, 64 and 512 units over the median unit's, by kind.

    In compute, together if that was measured; a kind without compute: in the mean of its classes.
    """
    rows = []
    effects = judged_fleet.fit.effects
    nodes = {slow.node for slow in judged_fleet.fit.slow if slow.unit is None}
    slow = effects["unit"].isin([each.unit for each in judged_fleet.fit.slow]) | effects["node"].isin(nodes)
    for kind in judged_fleet.fleet.kinds:
        for klass, together in (("compute", True), ("compute", False), ("all", None)):
            mine = (effects["kind"] == kind) & (effects["class"] == klass)
            mine &= effects["together"].isna() if together is None else effects["together"] == together
            if (mine & ~slow).sum() >= 2:
                cost: dict[str, Any] = {"kind": kind, "class": klass, "together": together}
                for name, among in (("slowest", mine), ("without_slow", mine & ~slow)):
                    drawn = effects.loc[among, "effect"].to_numpy(dtype=float)
                    cost[name] = {size: slowest_of(drawn, size) for size in JOBS}
                rows.append(cost)
                break
    return rows


def slowest_of(effects: npt.NDArray[np.float64], size: int) -> float:
    """The mean time of the slowest of `size` units over the median unit's, of all jobs that could be drawn.

    `effects` [units] are ln of each unit's time over the median's, none NaN. Exact for these effects: all of
    a job are among the i fastest in C(i, size) of C(units, size) draws. A job of more units than there are is
    drawn with repetition, as from a larger fleet alike. ValueError without units.
    """
    count = len(effects)
    if not count or size < 1:
        raise ValueError(f"slowest_of: {size} of {count} units")
    times = np.exp(np.sort(effects) - np.median(effects))
    ranks = np.arange(1, count + 1)
    below = (ranks / count) ** size if size > count else hypergeom.pmf(size, count, ranks, size)
    return float(times @ np.diff(below, prepend=0.0))


def _reached(judged_fleet: JudgedFleet, markdown: bool) -> Iterator[str]:
    if not judged_fleet.reached:
        return
    names = ("case", ">units", ">median", ">of datasheet 5 %", ">50 %", ">95 %", ">of published 50 %")
    rows = []
    for row in judged_fleet.reached:
        unit = "FLOP/s" if row.klass == "compute" else "byte/s"
        shares = [share_text(share, 1) for share in row.of_datasheet or (None, None, None)]
        published = share_text(row.of_published[1], 1) if row.of_published else ""
        rows.append([row.case, str(row.units), amount_text(row.rate_per_s, unit), *shares, published])
    yield "What the units reach, each alone:"
    yield from table_lines(names, rows, markdown)
    yield from short_of_published(judged_fleet.reached)
    for kind in judged_fleet.fleet.kinds:
        if not any(row.of_datasheet for row in judged_fleet.reached if row.kind == kind):
            yield f"{kind}: no datasheet here has this device, so there is nothing to expect"


# ---- JSON


def as_json(judged_fleet: JudgedFleet) -> str:
    """Everything, with the keys that docs/fleet.md lists."""
    fleet, told = judged_fleet.fleet, ("id", "kind", "node", "slot", "uuid", "serial", "tags")
    report = {
        "exit_code": judged_fleet.exit_code,
        "units": [{name: getattr(unit, name) for name in told} for unit in fleet.units.values()],
        "missing": list(judged_fleet.missing),
        "left_out": list(fleet.left_out),
        "remarks": list(judged_fleet.fit.remarks),
        "slow": [_slow_record(why) for why in judged_fleet.why],
        "gathered": list(judged_fleet.gathered),
        "failed": _records(judged_fleet.failed),
        "spreads": [
            {"kind": s.kind, "class": s.klass, "together": s.together, "units": s.units}
            | {"sd": s.sd, "own_sd": s.own_sd, "heavy": s.null.is_heavy}
            for s in judged_fleet.fit.spreads
        ],
        "synchronous": costs(judged_fleet),
        "effects": _records(judged_fleet.fit.effects),
        "nodes": _records(judged_fleet.fit.nodes),
        "reached": [dataclasses.asdict(row) for row in judged_fleet.reached],
    }
    return json.dumps(report, indent=1, allow_nan=False)


def _slow_record(why: Why) -> dict[str, Any]:
    slow = dataclasses.asdict(why.slow)
    slow["class"] = slow.pop("klass")
    of_why = {"cause": why.cause, "why": why.sentence, "clock_share": why.clock_share}
    return {**slow, "time_ratio": why.slow.ratio, **of_why}


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    plain = frame.astype(object)
    records: list[dict[str, Any]] = plain.where(plain.notna(), None).to_dict("records")  # type: ignore[assignment]
    return records
