"""What `python -m bench fleet` prints of a fleet: one screen, or JSON; and its exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bench.cli.table import table_lines
from bench.fleet.judge import ALL, TOGETHER, JudgedFleet, Slow, failed
from bench.fleet.observed import missing
from bench.format import change_cells, count_text, share_text


def exit_code(judged: JudgedFleet) -> int:
    """1: something is slow, missing, or fails what others can do; 3: none was judged."""
    if judged.slow or any(missing(judged.fleet)) or len(failed(judged.fleet)):
        return 1
    return 0 if judged.spread else 3


def lines(judged: JudgedFleet) -> Iterator[str]:
    """The report."""
    yield measured(judged)
    yield from table_lines(("slow", "kind of work", ">time", "95 %"), list(map(slow_cells, judged.slow)))
    if judged.spread and not judged.slow:
        yield "No unit is slow beyond what healthy units differ by."
    yield from sentences(judged)


def sentences(judged: JudgedFleet) -> Iterator[str]:
    """What is said besides the slow: missing, left out, failed, how far healthy units differ."""
    yield from missing(judged.fleet)
    yield from (f"left out: {sentence}" for sentence in judged.fleet.left_out)
    yield from judged.remarks
    for (unit, status), cases in failed(judged.fleet).groupby(["unit", "status"], observed=True)["name"]:
        name = judged.fleet.units[str(unit)].name
        yield f"FAILED {name}: {len(cases)} {status} ({cases.min()}), which most others pass"
    for kind, spread in judged.spread.items():
        parts = (f"{work} ±{share_text(of, 1)}" for work, of in spread.items())
        yield f"{kind}: healthy units differ by (68 % lie within) {', '.join(parts)}"


def measured(judged: JudgedFleet) -> str:
    """What was measured on how many units, and when."""
    fleet, days = judged.fleet, sorted(judged.fleet.times["utc"].str[:10])
    kinds = ", ".join(f"{count} {kind}" for kind, count in fleet.kinds.items())
    nodes = count_text(len({unit.node for unit in fleet.units.values()}), "node")
    cases = count_text(fleet.times["case"].nunique(), "case")
    span = " to ".join(dict.fromkeys(days[:: max(len(days) - 1, 1)]))
    return f"{count_text(len(fleet.units), 'unit')} ({kinds}) on {nodes}, {cases}, {span}"


def slow_cells(slow: Slow) -> tuple[str, str, str, str]:
    """Who is slow, in what, by how much, and between what ends."""
    others = {work.removesuffix(TOGETHER) for work in slow.slow_in} - {slow.work.removesuffix(TOGETHER), ALL}
    work = "all kinds" if slow.work == ALL else slow.work + (f" +{len(others)}" if others else "")
    by, ends = change_cells(slow.change.ratio, slow.change.low, slow.change.high)
    return slow.name + ("" if slow.unit else " (whole node)"), work, by, ends


def as_json(judged: JudgedFleet) -> str:
    """Everything, with the keys that docs/fleet.md lists."""
    report = {
        "exit_code": exit_code(judged),
        "units": [vars(unit) for unit in judged.fleet.units.values()],
        "slow": [_record(each) for each in judged.slow],
        "missing": list(missing(judged.fleet)),
        "failed": failed(judged.fleet)[["unit", "name", "status"]].to_dict("records"),
        "left_out": judged.fleet.left_out,
        "remarks": judged.remarks,
        "spread": {kind: spread.to_dict() for kind, spread in judged.spread.items()},
    }
    return json.dumps(report, indent=1, allow_nan=False)


def _record(slow: Slow) -> dict[str, object]:
    change, (unit, slot) = slow.change, (slow.unit.id, slow.unit.slot) if slow.unit else (None, None)
    ends = {"time_ratio": change.ratio, "low": change.low, "high": change.high, "p": change.p}
    place = {"kind": slow.kind, "node": slow.node, "slot": slot, "unit": unit, "name": slow.name}
    return {**place, "work": slow.work, "slow_in": slow.slow_in, **ends}
