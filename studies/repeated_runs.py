"""Runs of one machine and one commit, held against each other: do intervals cover, are verdicts false?

`python -m studies coverage RESULT...`. Nothing changed between such runs, so each row's interval should hold
what the other runs say of its case, every SLOWER or FASTER is false, and a slowdown that is written into one
of two files is the only one there is to be found. Simulations know what they were told; these runs know what
machines do.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from bench.cli.table import lines_of, table
from bench.errors import UserError
from bench.format import count_text, share_text
from bench.judge import frame
from bench.judge.compare import compare
from bench.judge.comparison_side import CaseInRun, side
from bench.judge.flags import FLAGS

if TYPE_CHECKING:
    from bench.store.schema import Measurement

LEAST_RUNS = 3
"""With fewer runs there is no level to compare one of them with."""


def repeated_lines(runs: Sequence[frame.DeviceRun]) -> Iterator[str]:
    """Coverage by kind of row, and verdicts over all pairs. UserError if these are no repeated runs."""
    commits = {
        (run.device, row.device_id if row.device_kind == "cuda" else "", row.commit)
        for run in runs
        for row in run.rows
    }
    if len(runs) < LEAST_RUNS or len(commits) != 1:
        several = " of several devices or commits" if len(commits) > 1 else ""
        raise UserError(
            f"coverage: {count_text(len(runs), 'run')}{several}; "
            f"give {LEAST_RUNS} runs or more of one device and one commit"
        )
    yield from lines_of(_coverage(runs))
    yield from _verdicts(runs)
    yield "how far two runs of a case are apart, where either has the flag; 1 is usual for that case:"
    yield from lines_of(_flags(runs))


def _coverage(runs: Sequence[frame.DeviceRun]) -> Table:
    """How often a row's interval holds the median of the other runs' medians."""
    looks: dict[tuple[str, ...], list[CaseInRun]] = defaultdict(list)
    for run in runs:
        for case, look in side([run], run.run_id).looks.items():
            if look.row.is_timed:
                looks[case].append(look)
    seen: dict[str, list[tuple[bool | None, float]]] = defaultdict(list)
    for of_case in looks.values():
        for look in of_case:
            others = [math.log(other.row.median_s or 0.0) for other in of_case if other is not look]
            if len(others) + 1 < LEAST_RUNS:
                continue
            off = math.log(look.row.median_s or 0.0) - statistics.median(others)
            covered = -look.up <= off <= look.down if look.has_interval else None
            kind = (
                look.row.operator
                if look.row.role == "measurement"
                else f"{look.row.role}: {look.row.operator}"
            )
            total = "all operators" if look.row.role == "measurement" else "all ceilings"
            for name in (kind, total):
                seen[name].append((covered, (look.down + look.up) / 2))
    shown = table("", ">rows", ">without interval", ">covered", ">median half-width")
    for name, rows in sorted(seen.items(), key=lambda item: (item[0].startswith("all"), item[0])):
        known = [(covered, half) for covered, half in rows if covered is not None]
        share = sum(covered for covered, _ in known) / len(known) if known else None
        half = statistics.median(half for _, half in known) if known else None
        shown.add_row(
            name, str(len(rows)), str(len(rows) - len(known)), share_text(share, 1), share_text(half, 1)
        )
    return shown


def _verdicts(runs: Sequence[frame.DeviceRun]) -> Iterator[str]:
    """False verdicts over all pairs, and how many slowdowns that are written into a file are found."""
    pairs = list(itertools.combinations(runs, 2))
    judged = false = operators = false_operators = same = 0
    for before, after in pairs:
        comparison = compare([before], [after])
        judged += comparison.comparable
        false += len(comparison.of("SLOWER", "FASTER"))
        same += len(comparison.of("SAME"))
        operators += len(comparison.means)
        false_operators += sum(mean.verdict in ("SLOWER", "FASTER") for mean in comparison.means)
    yield f"{len(pairs)} pairs, nothing changed:"
    yield f"  false verdicts on cases      {_of(false, judged)} ({_of(same, judged)} SAME)"
    yield f"  false verdicts on operators  {_of(false_operators, operators)}"
    yield "a slowdown is written into one of the two files:"
    for name, factor, everywhere in (("x 2, of the cases", 2.0, False), ("+10 % everywhere", 1.1, True)):
        cases = hits = alarms = 0
        for before, after in itertools.permutations(runs, 2):
            comparison = compare([before], frame.runs(_slowed(after.rows, factor, everywhere)))
            of_cases = [
                each for each in comparison.cases if each.role == "measurement" and each.effect is not None
            ]
            cases += len(of_cases)
            hits += sum(each.verdict == "SLOWER" for each in of_cases)
            alarms += comparison.exit_code == 1
        yield f"  {name:<18} found in {_of(hits, cases)}; exit code 1 in {_of(alarms, 2 * len(pairs))} pairs"


def _flags(runs: Sequence[frame.DeviceRun]) -> Table:
    """Whether flags predict how far two runs of a case differ, relative to all pairs of its runs."""
    looks: dict[str, list[tuple[float, Sequence[str]]]] = defaultdict(list)
    for run in runs:
        for row, flags in zip(run.rows, run.flags, strict=True):
            if row.is_timed and row.median_s and not row.visit:
                looks[row.case].append((math.log(row.median_s), flags))
    pairs: list[tuple[float, set[str]]] = []
    for of_case in looks.values():
        apart = [
            (abs(before[0] - after[0]), {*before[1], *after[1]})
            for before, after in itertools.combinations(of_case, 2)
        ]
        usual = statistics.median(by for by, _ in apart) if apart else 0.0
        pairs += [(by / usual, flags) for by, flags in apart if usual]
    rows = sum(map(len, looks.values()))
    numbers = (">pairs", ">median", ">95 in 100")
    shown = table("flag", "suspect", ">of rows", *numbers, ">pairs without", *numbers[1:])
    for flag in FLAGS:
        flagged = [by for by, flags in pairs if flag.name in flags]
        others = [by for by, flags in pairs if flag.name not in flags]
        if flagged:
            share = sum(flag.name in flags for of_case in looks.values() for _, flags in of_case) / rows
            cells = [cell for side in (flagged, others) for cell in _spread(side)]
            shown.add_row(flag.name, "yes" if flag.suspect else "", share_text(share), *cells)
    return shown


def _spread(apart: Sequence[float]) -> list[str]:
    """Their number, median and 95th percentile."""
    if not apart:
        return ["0", "", ""]
    return [f"{len(apart):,}", f"{statistics.median(apart):.2f}", f"{float(np.quantile(apart, 0.95)):.1f}"]


def _slowed(rows: Sequence[Measurement], factor: float, everywhere: bool) -> list[Measurement]:
    """These rows with the times of operators, and of ceilings too if `everywhere`, multiplied by a factor."""
    return [
        replace(
            row,
            median_s=factor * row.median_s,
            low_s=None if row.low_s is None else factor * row.low_s,
            high_s=None if row.high_s is None else factor * row.high_s,
            samples_s=None if row.samples_s is None else [factor * sample for sample in row.samples_s],
            set_aside_s=None if row.set_aside_s is None else [factor * aside for aside in row.set_aside_s],
        )
        if row.median_s is not None and (everywhere or row.role == "measurement")
        else row
        for row in rows
    ]


def _of(count: int, total: int) -> str:
    return f"{count} of {total:,} = {share_text(count / total if total else None, 1)}"
