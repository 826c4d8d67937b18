"""`python -m bench claims`: the verdicts on the documents' claims, as a table, as Markdown or as JSON."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.markup import escape

from bench.cli.table import lines_of, table
from bench.device.datasheet import find_datasheet
from bench.errors import UserError
from bench.interop.imported_rows import CLAIMS
from bench.judge.claim_tests import Effect
from bench.judge.claims import Declared, Judged, judge
from bench.judge.frame import read
from bench.store.parquet import read_sweeps
from bench.sweep.claims import Claim
from bench.sweep.experiments import RULES
from bench.sweep.load import SWEEPS, Find, load_all, table_claims

Say = Callable[[str], object]


def verdicts(results: Sequence[Path], find: Find, left_out: Say, remark: Say) -> list[Judged]:
    """Every verdict on every device of these result files. UserError if none can be read."""
    runs = [replace(run, datasheet=find_datasheet(run.device_name)) for run in read(results, left_out)]
    own = read_sweeps(results)
    tables = [table_claims(path, find) for path in sorted(CLAIMS.glob("*.yaml"))]
    imported = [Declared(each.rows[0], each.rows, each.claims) for each in tables]
    judged: list[Judged] = []
    key = lambda run: (run.device, run.imported)  # noqa: E731 - sorts and groups
    for (_, is_imported), group in itertools.groupby(sorted(runs, key=key), key):
        of_device = list(group)
        there = {row.sweep for run in of_device for row in run.rows}
        declared = _sweeps(of_device[0].rows[0].sm_count, find)
        known = {each.name for each in declared}
        if is_imported:  # somebody else's table lacks most of our cases, and nobody expects them of it
            declared = [each._replace(cases=()) for each in declared if each.name in there]
            declared += [each for each in imported if there & set(each.rows)]
        for run in of_device:
            for name, kept in sorted(own.get((run.device, run.run_id), {}).items()):
                if name not in known and (claims := _claims_of(kept, name, remark)):
                    known.add(name)
                    declared.append(Declared(name, (name,), claims, by_result=True))
        judged += judge(of_device, declared)
    return judged


def _sweeps(sm_count: int, find: Find) -> list[Declared]:
    return [
        Declared(each.name, (each.name,), each.sweep.claims, each.cases)
        for each in load_all(SWEEPS, find, sm_count)
    ]


def _claims_of(kept: Any, name: str, remark: Say) -> list[Claim]:
    """The claims that a result file keeps of a sweep; none if they are of a form that was never judged."""
    try:
        return [Claim.model_validate(claim) for claim in kept.get("claims", ())]
    except ValidationError:
        remark(f"{name}: no sweep of this checkout, and the result's own claims have no test")
        return []


def chosen(judged: Iterable[Judged], rule: int | None) -> list[Judged]:
    """Those that speak to this rule, all if None, by rule and experiment. UserError if it is no rule."""
    if rule is not None and rule not in RULES:
        raise UserError(f"--rule {rule}: there are rules 1 to {max(RULES)}")
    mine = [each for each in judged if rule is None or rule in each.claim.rules]
    return sorted(mine, key=lambda each: (each.claim.rules or (99,), each.claim.id, each.declared.name))


def claim_lines(judged: Sequence[Judged], rule: int | None, markdown: bool) -> Iterator[str]:
    """The table: of one device with every number, of several side by side; then what is left to say."""
    devices = list(dict.fromkeys(_device(each) for each in judged))
    header, lines = _one(judged) if len(devices) == 1 else _several(judged, devices)
    if markdown and lines:
        yield from (f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *lines))
    elif lines:
        shown = table(*header)
        for cells in lines:
            shown.add_row(*map(escape, cells))
        yield from lines_of(shown)
    yield ""
    for device in devices:
        mine = [each for each in judged if _device(each) == device]
        words = Counter(each.verdict for each in mine)
        suspect = sum(each.suspect for each in mine)
        yield f"{device}: " + ", ".join(f"{n} {word}" for word, n in words.items()) + (
            f"; {suspect} times a row was left out since a flag makes its time suspect" if suspect else ""
        )
    yield from _remarks(judged, rule)


def _remarks(judged: Sequence[Judged], rule: int | None) -> Iterator[str]:
    yield "Bars, selections and least numbers are those of the sweeps of this checkout."
    if by_result := sorted({each.declared.name for each in judged if each.declared.by_result}):
        yield f"Not in this checkout, so by the result's own claims: {', '.join(by_result)}."
    if any(each.imported for each in judged):
        yield (
            "(imported): measured by others, without intervals: theirs follow from how the pairs differ; "
            "times over roofs are over the datasheet's."
        )
    spoken = {number for each in judged for number in each.claim.rules}
    if silent := [number for number in ([rule] if rule else RULES) if number not in spoken]:
        yield "No claim about these results speaks to: " + "; ".join(f"{n} {RULES[n]}" for n in silent) + "."


def _device(each: Judged) -> str:
    return each.device + (" (imported)" if each.imported else "")


def _one(judged: Sequence[Judged]) -> tuple[list[str], list[list[str]]]:
    header = ["rules", "claim", "sweep", "verdict", "effect", "95 %", "n", "pairs", "left out", "expected", "says"]
    return header, [
        [
            *_named(each), each.declared.name, each.verdict, *_numbers(each.effect), str(each.suspect or ""),
            each.claim.expect, each.claim.says + (f" ({each.reason})" if each.reason else ""),
        ]
        for each in judged
    ]  # fmt: skip


def _several(judged: Sequence[Judged], devices: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    by_claim: dict[tuple[str, str], dict[str, Judged]] = {}
    for each in judged:
        by_claim.setdefault((each.declared.name, each.claim.id), {})[_device(each)] = each
    lines = []
    for (sweep, _), on in by_claim.items():
        first = next(iter(on.values()))
        cells = [_cell(on[device]) if device in on else "" for device in devices]
        lines.append([*_named(first), sweep, first.claim.says, first.claim.expect, *cells])
    return ["rules", "claim", "sweep", "says", "expected", *devices], lines


def _named(each: Judged) -> list[str]:
    return [", ".join(map(str, each.claim.rules)), each.claim.id]


def _cell(each: Judged) -> str:
    """The verdict with its numbers, or with how many there are too few of."""
    if each.verdict == "TOO FEW":
        return f"TOO FEW, {each.reason.split(';')[0]}"
    if each.effect is None:
        return each.verdict
    value, interval, clusters, _ = _numbers(each.effect)
    return f"{each.verdict} {value} {interval} n={clusters}"


def _numbers(effect: Effect | None) -> list[str]:
    if effect is None:
        return [""] * 4
    interval = f"[{effect.low:.3f}, {effect.high:.3f}]"
    return [f"{effect.value:.3f}", interval, str(effect.clusters), str(effect.pairs)]


def as_json(judged: Iterable[Judged]) -> str:
    """Every verdict with its claim, one object each."""
    listed = []
    for each in judged:
        claim, effect = each.claim, each.effect
        numbers = {name: getattr(effect, name, None) for name in ("value", "low", "high", "clusters", "pairs")}
        listed.append(
            {"device": each.device, "imported": each.imported, "sweep": each.declared.name, "claim": claim.id}
            | {"rules": list(claim.rules), "says": claim.says, "expect": claim.expect, "bar": claim.bar}
            | {"least": claim.least, "verdict": each.verdict, "reason": each.reason, "effect": numbers.pop("value")}
            | numbers
            | {"suspect": each.suspect, "claims_of": "result" if each.declared.by_result else "checkout"}
        )
    return json.dumps(listed, indent=1)


_PLACE = ("device", "imported", "sweep", "claim")


def differing(judged: Iterable[Judged], expected: Path) -> list[str]:
    """A sentence for each verdict that is not the one in a file that `--json` wrote. UserError if it is none."""
    try:
        wanted = {tuple(each[name] for name in _PLACE): each["verdict"] for each in json.loads(expected.read_text())}
    except OSError as error:
        raise UserError(f"--expect {expected}: cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, UnicodeDecodeError) as error:
        raise UserError(f"--expect {expected}: holds no verdicts as `claims --json` writes them") from error
    have = {tuple(each[name] for name in _PLACE): each["verdict"] for each in json.loads(as_json(judged))}
    return [
        f"{device}{' (imported)' if imported else ''}: {claim} of {sweep} is {have.get(key, 'not judged')}, "
        f"expected {verdict}"
        for key, verdict in wanted.items()
        for device, imported, sweep, claim in (key,)
        if have.get(key) != verdict
    ]

