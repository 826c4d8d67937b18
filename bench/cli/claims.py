"""`python -m bench claims`: the verdicts on the documents' claims, as a table, as Markdown or as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import filter as matching
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import kernels
from bench.cli.guide_tables import device, experiments, rules, rules_by_device
from bench.device.datasheet import find_datasheet
from bench.errors import UserError
from bench.format import count_text
from bench.interop.imported_problems import with_imported
from bench.interop.imported_rows import CLAIMS
from bench.judge.claim_lines import ClaimEffect, sizes
from bench.judge.claims import VERDICTS, WITH_EFFECT, Declared, JudgedClaim, Verdict, Written, judge, kept
from bench.judge.frame import DeviceRun
from bench.judge.noise import PUBLISHED, is_published
from bench.judge.read_runs import read
from bench.processes import byte_count, in_processes
from bench.store.parquet import Sweeps, tables
from bench.sweep.experiments import RULES
from bench.sweep.grammar import TableClaims
from bench.sweep.load import SWEEPS, Find, Loaded, load_all, table_claims

SHOWN: tuple[Verdict, ...] = (*WITH_EFFECT, "TOO FEW")
"""Verdicts that are listed, in this order; the others are counted, unless --all is given."""
OPEN = SHOWN[-2:]
"""Verdicts that more rows or visits may change."""
MOST_LINES = 28
MOST_SWEEPS = 3
"""Visits that narrow an interval, and most sweeps of a command to be copied."""
_RUN = ("device", "run_id")
Say = Callable[[str], object]
By = Literal["claim", "rule", "experiment"]


def verdicts(results: Sequence[Path], find: Find, left_out: Say, remark: Say) -> list[JudgedClaim]:
    """Every verdict on every device of these result files. UserError if none can be read."""
    import pandas  # noqa: F401  once, and not in each process
    import scipy.spatial
    import scipy.stats  # noqa: F401

    parts = _apart(results, left_out)
    found = dict(in_processes(partial(_verdicts, find), parts, byte_count))
    for place in range(len(parts)):
        for text in found[place][1]:
            remark(text)
    return [each for place in range(len(parts)) for each in found[place][0]]


def _verdicts(find: Find, paths: Sequence[Path]) -> tuple[list[JudgedClaim], list[str]]:
    """(every verdict, every remark) on files that are judged apart from others."""
    remarks: list[str] = []
    runs = [replace(run, datasheet=find_datasheet(run.device_name)) for run in read(paths)]
    return list(judged_together(runs, find, remarks.append)), remarks


def _apart(results: Sequence[Path], left_out: Say) -> list[list[Path]]:
    """The files in parts that are judged apart (`_together`): all rows of all sources fill the memory."""
    parts: dict[tuple[str, ...], list[Path]] = {}
    apart = True
    for path, table in tables(results, left_out, (*_RUN, "source", "timed_by")):
        runs = table.group_by(list(_RUN), use_threads=False).aggregate([]).to_pylist()
        apart = apart and len({run["device"] for run in runs}) == 1
        alone = len(runs) == 1 and not table["source"].null_count and not table["timed_by"].null_count
        parts.setdefault((runs[0]["device"], runs[0]["run_id"] if alone else ""), []).append(path)
    if apart:
        return [parts[key] for key in sorted(parts)]
    # A file of several devices is one part with all that is not judged alone.
    together = [path for (_, run_id), paths in parts.items() if not run_id for path in paths]
    return [together, *(parts[key] for key in sorted(parts) if key[1])]


def judged_rows(runs: Sequence[DeviceRun], remark: Say) -> list[JudgedClaim]:
    """`judged_together` by the operators of this checkout, on the sweeps that have rows: for pages."""
    return list(judged_together(runs, kernels.problem, remark, only_measured=True))


def judged_together(
    runs: Sequence[DeviceRun], find: Find, remark: Say, only_measured: bool = False
) -> Iterator[JudgedClaim]:
    """The verdicts on runs that have their datasheets; `only_measured`: on the sweeps that have rows."""
    loaded = cache(partial(load_all, SWEEPS, find))
    for is_imported in (False, True):
        for of_device in _together([run for run in runs if run.imported == is_imported]):
            there = frozenset(name for run in of_device for name in run.columns["sweep"].unique())
            only = there if is_imported or only_measured else None
            own = [
                {name: each for name, each in run.sweeps.items() if only is None or name in only}
                for run in of_device
            ]
            if only is not None:  # imported files' sweeps are none of ours, and looking for them takes long
                only = frozenset(name for name in only if not name.startswith("imported/"))
            # Of sweeps that imported rows are judged by, no case is looked at: those of any device will do.
            sm_count = max(run.first.sm_count for run in (runs if is_imported else of_device)) or 1
            declared = _of_checkout(loaded(sm_count, only=only), own)
            declared += _of_results({each.name for each in declared}, own, remark)
            if is_imported:  # a table of others need not have our cases
                declared = [each._replace(cases=()) for each in declared]
                for each in _of_tables(find):
                    if rows := [name for pattern in each.rows for name in matching(sorted(there), pattern)]:
                        declared.append(Declared(rows[0], tuple(rows), each.claims))
            yield from judge(of_device, declared)


@cache
def _of_tables(find: Find) -> list[TableClaims]:
    """The claims about imported tables."""
    return [table_claims(path, with_imported(find)) for path in sorted(CLAIMS.glob("*.yaml"))]


def _together(runs: Sequence[DeviceRun]) -> list[list[DeviceRun]]:
    """Runs that are judged together: those of a device; those whose source says how it timed, each alone.

    Times of several sources may be of several kinds: with launches or without, of a cold cache or a warm one.
    """
    groups: dict[tuple[str, ...], list[DeviceRun]] = {}
    for run in sorted(runs, key=lambda run: run.device):
        groups.setdefault((run.device, run.run_id) if run.is_alone else (run.device,), []).append(run)
    return list(groups.values())


def _of_checkout(loaded: Iterable[Loaded], own: Sequence[Sweeps]) -> list[Declared]:
    """The claims of the checkout's sweeps, each marked whether the runs' own files have the same."""
    declared = []
    for each in loaded:
        own_claims = [sweeps[each.name].get("claims") for sweeps in own if each.name in sweeps]
        same = all(claims == each.sweep.declared.get("claims") for claims in own_claims)
        written: Written = "before the run" if same and own_claims else "after the run"
        declared.append(Declared(each.name, (each.name,), each.sweep.claims, each.cases, written))
    return declared


def _of_results(known: set[str], own: Sequence[Sweeps], remark: Say) -> list[Declared]:
    """The claims that only the runs' own files have."""
    declared = {}
    for name, sweep in ((name, sweep) for sweeps in own for name, sweep in sweeps.items()):
        if name in known:
            continue
        if (claims := kept(name, sweep)) is None:
            remark(f"{name}: no sweep of this checkout, and the claims in the result have no test")
        else:
            declared[name] = claims
    return list(declared.values())


def chosen(judged: Iterable[JudgedClaim], rule: int | None) -> list[JudgedClaim]:
    """The claims on this rule, all if None, by rule and experiment. UserError if it is no rule."""
    if rule is not None and rule not in RULES:
        raise UserError(f"--rule {rule}: there are rules 1 to {max(RULES)}")
    mine = [each for each in judged if rule is None or rule in each.claim.rules]
    return sorted(
        mine, key=lambda each: (each.claim.rules or (99,), each.claim.id, each.declared.name, each.device)
    )


def table_lines(judged: Sequence[JudgedClaim], by: By, rule: int | None = None) -> Iterator[str]:
    """A line of Markdown for each claim, the devices side by side, or for each rule or experiment."""
    devices = list(dict.fromkeys(device(each) for each in judged))
    if by == "rule":
        header, lines = rules(judged, devices, rule)
    elif by == "experiment":
        header, lines = experiments(judged)
    else:
        header, lines = _side_by_side(judged, devices)
    yield from (f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *lines))


def decided_lines(judged: Sequence[JudgedClaim], every: bool = False) -> Iterator[str]:
    """What the rows decide, then what they might; all else is counted, with `every` listed with its reason.

    A line for each claim and verdict: devices that agree share it.
    """
    groups: dict[tuple[Verdict, str, str], list[JudgedClaim]] = {}
    for each in judged:
        groups.setdefault((each.verdict, each.declared.name, each.claim.id), []).append(each)
    order = VERDICTS if every else SHOWN
    listed = [of for verdict in order for (word, *_), of in groups.items() if word == verdict]
    several = len({device(each) for each in judged}) > 1
    for of in listed if every else listed[:MOST_LINES]:
        where = "" if not several else f"{device(of[0])}: " if len(of) == 1 else f"{len(of)} devices: "
        claim, verdict = of[0].claim, of[0].verdict
        says = "; ".join(filter(None, (f"{where}{claim.says}", _effects(of))))
        which = f"{claim.id} of {of[0].declared.name}"
        if claim.rules:
            which = f"rule{'s' * (len(claim.rules) > 1)} {', '.join(map(str, claim.rules))}: {which}"
        why = f"; {'; '.join(dict.fromkeys(each.reason for each in of))}" if every and of[0].reason else ""
        yield f"{verdict:<14} {says} ({which}; expected {claim.expect}){why}"
    if not every and len(listed) > MOST_LINES:
        yield f"... and {len(listed) - MOST_LINES} more"


def _effects(of: Sequence[JudgedClaim]) -> str:
    """The effect, or its range over several devices; or how few lines."""
    if of[0].verdict == "TOO FEW":
        return " or ".join(dict.fromkeys(each.reason.split(";")[0] for each in of))
    effects = [each.effect for each in of if each.effect is not None]
    return str(effects[0]) if len(effects) == 1 else sizes(effects) if effects else ""


def next_lines(judged: Sequence[JudgedClaim], results: Sequence[Path]) -> Iterator[str]:
    """Whose noise each device has, and what measures more for its open claims."""
    own = [path for path, table in tables(results, lambda _: None, ("source",)) if table["source"].null_count]
    for run in {run.device: run for run in (read(own) if own else ()) if not run.imported}.values():
        if published := sum(row.is_timed and is_published(row) for row in run.rows):
            yield f"{run.device}: noise between runs of {count_text(published, 'time')}: {PUBLISHED}"
        mine = [each for each in judged if not each.imported and each.device == run.device]
        sweeps = Counter(each.declared.name for each in mine if each.verdict in OPEN)
        if chosen_sweeps := [name for name, _ in sweeps.most_common(MOST_SWEEPS)]:
            words = " ".join(f"--bench-sweep {name}" for name in chosen_sweeps)
            open_claims = count_text(sweeps.total(), "open claim")
            command = f"pytest bench/ --benchmark --bench-budget inf {words}"
            yield f"next: {command}   (on {run.device}, which has {open_claims})"


def report_lines(judged: Sequence[JudgedClaim], lines: Iterable[str], rule: int | None) -> Iterator[str]:
    """These lines after the rule that they are about, if one was asked for; then the counts of each device,
    and what the verdicts rest on."""
    yield from () if rule is None else (f"Rule {rule}: {RULES[rule]}",)
    yield from lines
    yield ""
    for name in dict.fromkeys(device(each) for each in judged):
        mine = [each for each in judged if device(each) == name]
        words = Counter(each.verdict for each in mine)
        counts = ", ".join(f"{words[word]} {word}" for word in VERDICTS if word in words)
        suspect = sum(each.suspect for each in mine)
        left_out = f"; {suspect} times a row was left out since a flag makes its time suspect"
        yield f"{name}: {counts}{left_out if suspect else ''}"
    later = sum(each.declared.written == "after the run" and each.effect is not None for each in judged)
    yield (
        "Thresholds, selections and minimum numbers are those of this checkout's sweeps; "
        f"{later} of {len(judged)} verdicts use some that were written or changed after the run."
    )
    if own := sorted({each.declared.name for each in judged if each.declared.written == "in the result"}):
        yield f"Not in this checkout, so by the result's own claims: {', '.join(own)}."
    if any(each.imported for each in judged):
        yield (
            "(imported): measured by others, without intervals. The usual spread of each kind of work is "
            "assumed, or how much a claim's lines differ where that is less. Roofs are the datasheet's."
        )


def _side_by_side(judged: Sequence[JudgedClaim], devices: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The header and a line for each claim, a column for each device."""
    by_claim: dict[tuple[str, str], dict[str, JudgedClaim]] = {}
    for each in judged:
        by_claim.setdefault((each.declared.name, each.claim.id), {})[device(each)] = each
    lines = []
    for (sweep, _), on in by_claim.items():
        first = next(iter(on.values()))
        cells = [_cell(on[name]) if name in on else "" for name in devices]
        number = ", ".join(map(str, first.claim.rules))
        lines.append([number, first.claim.id, sweep, first.claim.says, first.claim.expect, *cells])
    return ["rules", "claim", "sweep", "says", "expected", *devices], lines


def _cell(each: JudgedClaim) -> str:
    """The verdict with its numbers, or with how many there are too few of."""
    if each.verdict == "TOO FEW":
        return f"TOO FEW, {each.reason.split(';')[0]}"
    if each.effect is None:
        return each.verdict
    return f"{each.verdict} {each.effect}"


def as_json(judged: Sequence[JudgedClaim], by: str = "") -> str:
    """Every verdict with its claim, one object each; by rule what has an effect, with what is judged."""
    if by:
        return json.dumps(rules_by_device(judged), indent=0, ensure_ascii=False)
    return json.dumps([entry(each) for each in judged], indent=1)


def entry(judged: JudgedClaim) -> dict[str, Any]:
    """A verdict with its claim, for JSON."""
    numbers = {f.name: getattr(judged.effect, f.name, None) for f in dataclasses.fields(ClaimEffect)}
    return {
        "device": judged.device,
        "imported": judged.imported,
        "runs": judged.runs,
        "sweep": judged.declared.name,
        "claim": judged.claim.id,
        **judged.claim.model_dump(mode="json", include={"rules", "says", "expect", "bar", "least"}),
        "verdict": judged.verdict,
        "reason": judged.reason,
        **numbers,
        "suspect": judged.suspect,
        "written": judged.declared.written,
    }
