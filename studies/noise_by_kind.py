"""Real runs of one commit against each other, by kind of work: `python -m studies.noise_by_kind DIR...`.

Nothing changed between the runs, so every FASTER and SLOWER is a false alarm, and UNDECIDED says nothing.
Then the measurements (not the ceilings) of the second run are multiplied by a known factor: how many of
these slowdowns are found. Intervals are made from the samples by the rule of this checkout
(bench/judge/noise.py), not as published. Its constants were chosen on every second pair of the committed
nights and tours; LEAST_INTENSITY on all tours.

All of it twice: each run as the first of its folder, and with the noise that the ten before it tell.

Then how often the interval within a run holds the visit that is left out when it is made, and last how far
two runs of a measurement are apart where most visits of either had not settled, and elsewhere.

Columns: pairs; the share whose ratio lies within its 95 % interval; UNDECIDED and false among the pairs;
median and 90th percentile of the half-width of the ratio's interval; the share found of each slowdown; the
share of 1.1 found by an oracle that knows by how much the cases of each pair of runs differ, and calls one in
a thousand falsely.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

from bench.cli.table import table_lines
from bench.judge.compare import compare
from bench.judge.comparison import JUDGED, Compared
from bench.judge.frame import DeviceRun
from bench.judge.noise import history, published
from bench.judge.read_runs import runs
from bench.judge.within_run import within_run
from bench.judge.work_class import WorkClass, work_of
from bench.sampling.publish import median_of
from bench.store.parquet import read_rows
from bench.store.schema import Measurement
from studies.peers import without

SLOWDOWNS = (1.05, 1.1, 1.2, 1.5, 2.0)
ORACLE = 3.29
"""Standard deviations beyond which one in a thousand lies."""
MANY_S = 1e-3
"""Products from so many seconds on have a line of their own."""


def unpublished(row: Measurement) -> Measurement:
    """The row as if no interval had been published, so that it is made anew from its samples."""
    return replace(row, run_half=None, noise_runs=None) if row.samples_s else row


def slower(run: DeviceRun, factor: float) -> DeviceRun:
    """The run with every measurement that takes so many times as long."""

    def of(row: Measurement) -> Measurement:
        if row.role != "measurement" or row.median_s is None:
            return row
        low_s, high_s = (factor * end if end else end for end in (row.low_s, row.high_s))
        samples_s = [factor * each for each in row.samples_s or []]
        return replace(row, median_s=factor * row.median_s, low_s=low_s, high_s=high_s, samples_s=samples_s)

    return replace(run, rows=[of(row) for row in run.rows])


def judged(before: DeviceRun, after: DeviceRun) -> Iterator[tuple[str, Compared]]:
    """(kind of work, verdict) of every comparable measurement."""
    by_case = {row.case: row for row in before.rows}
    kinds = {
        (row.sweep, row.operator, row.implementation, row.parameters, row.cache): row
        for row in by_case.values()
    }
    for each in compare([before], [after]).cases:
        if each.verdict in JUDGED and each.role == "measurement":
            row = kinds[each.case[:5]]
            yield work_of(row), each
            if work_of(row) is WorkClass.COMPUTE and (row.median_s or 0) >= MANY_S:
                yield "products of 1 ms and more", each


def lines(pairs: Sequence[tuple[DeviceRun, DeviceRun]]) -> Iterator[str]:
    """The table of these pairs of runs."""
    found: dict[str, list[Compared]] = defaultdict(list)
    power: dict[str, dict[float, list[bool]]] = defaultdict(lambda: defaultdict(list))
    oracle: dict[str, list[bool]] = defaultdict(list)
    for before, after in pairs:
        apart: dict[str, list[float]] = defaultdict(list)
        for kind, each in judged(before, after):
            for name in (kind, "all") if "products of" not in kind else (kind,):
                found[name].append(each)
                apart[name] += [each.effect.log] if each.effect else []
        for name, logs in apart.items():
            bar = ORACLE * float(np.sqrt(np.mean(np.square(logs))))
            oracle[name] += [log + np.log(1.1) > bar for log in logs]
        for factor in SLOWDOWNS:
            for kind, each in judged(before, slower(after, factor)):
                for name in (kind, "all") if "products of" not in kind else (kind,):
                    power[name][factor].append(each.verdict == "SLOWER")
    changes = (f">x {factor:g}" for factor in SLOWDOWNS)
    columns = (
        "kind",
        ">pairs",
        ">covered",
        ">UNDECIDED",
        ">false",
        ">half-width",
        ">90th",
        *changes,
        ">oracle",
    )
    rows: list[tuple[str, ...]] = []
    for name, of in sorted(found.items(), key=lambda item: (item[0] == "all", item[0])):
        effects = [each.effect for each in of if each.effect is not None]
        halves = [np.expm1(np.log(e.high / e.low) / 2) for e in effects]
        share = {word: np.mean([each.verdict == word for each in of]) for word in JUDGED}
        rows.append(
            (
                *(name, str(len(of)), f"{100 * np.mean([e.low <= 1 <= e.high for e in effects]):.1f}"),
                *(f"{100 * share['UNDECIDED']:.1f}", f"{100 * (share['FASTER'] + share['SLOWER']):.2f}"),
                *(f"{100 * float(np.median(halves)):.1f}", f"{100 * float(np.quantile(halves, 0.9)):.1f}"),
                *(f"{100 * np.mean(power[name][factor]):.0f}" for factor in SLOWDOWNS),
                f"{100 * np.mean(oracle[name]):.0f}",
            )
        )
    yield from table_lines(columns, rows)


def settled_lines(pairs: Sequence[tuple[DeviceRun, DeviceRun]]) -> Iterator[str]:
    """The effect, |ln|, of measurements with and without visits that had settled, median and 95 in 100."""
    apart: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for before, after in pairs:
        rows = {row.case: row for row in after.rows if row.is_timed and row.role == "measurement"}
        for row in before.rows:
            other = rows.get(row.case)
            if other is not None and row.median_s and other.median_s:
                settled = row.settled is not False and other.settled is not False
                apart[work_of(row), settled].append(abs(np.log(other.median_s / row.median_s)))
    for (kind, settled), of in sorted(apart.items()):
        middle, most = (100 * float(each) for each in np.quantile(of, (0.5, 0.95)))
        word = "settled" if settled else "not settled"
        yield f"{kind}, {word}: {len(of)} pairs, {middle:.1f} % apart (median), 95 in 100 by {most:.0f} %"


def next_visit_lines(every: Sequence[tuple[str, DeviceRun]]) -> Iterator[str]:
    """Of each folder how often the interval within the run holds a visit that it was made without."""
    held: dict[str, list[bool]] = defaultdict(list)
    for folder, run in every:
        for left_out in range(3):
            cut = [without(row, left_out) if len(row.visit_samples_s) > 2 else row for row in run.rows]
            for row, other, within in zip(run.rows, cut, within_run(cut), strict=True):
                if other is not row and within and within.by == "visits" and row.role == "measurement":
                    off = np.log(median_of(row.visit_samples_s[left_out]) / other.median_s)
                    held[folder].append(abs(off) <= within.visit)
                    held["all"].append(abs(off) <= within.visit)
    for folder, of in held.items():
        yield f"{folder}: {100 * np.mean(of):.1f} % of {len(of)} visits are in the interval made without them"


def with_history(of_device: Sequence[DeviceRun]) -> list[DeviceRun]:
    """Runs in time order, each published with what the ten before it tell."""
    told: list[DeviceRun] = []
    for run in of_device:
        tell = history(before.rows for before in told[-10:])
        rows = [published(row, within, tell) for row, within in zip(run.rows, run.within, strict=True)]
        told.append(replace(run, rows=rows))
    return told


def main(folders: Sequence[Path]) -> None:
    """Of each folder all pairs of runs of one commit: every second one of all, then the others."""
    every: list[tuple[str, DeviceRun]] = []
    pairs: dict[str, list[tuple[Path, tuple[DeviceRun, DeviceRun]]]] = {"first runs": [], "with history": []}
    for folder in folders:
        of_device: dict[str, list[DeviceRun]] = defaultdict(list)
        for path in sorted(folder.rglob("*.parquet")):
            for run in runs([unpublished(row) for row in read_rows(path)]):
                of_device[run.device].append(run)
                every.append((folder.name, run))
        for of in of_device.values():
            for name, these in (("first runs", of), ("with history", with_history(of))):
                alike = [
                    pair for pair in combinations(these, 2) if len({r.rows[0].commit for r in pair}) == 1
                ]
                pairs[name] += [(folder, pair) for pair in alike]
    for name, those in pairs.items():
        for half in range(2):
            for folder in folders:
                chosen = [pair for of, pair in those[half::2] if of == folder]
                print(f"\n{folder}, {name}, half {half + 1} of them: {len(chosen)} pairs")
                for line in lines(chosen):
                    print(line)
    for line in (*next_visit_lines(every), *settled_lines([pair for _, pair in pairs["first runs"]])):
        print(line)


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
