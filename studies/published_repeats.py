"""Published runs of the same launches against each other: `python -m studies published_repeats FOLDER`.

FOLDER holds clones of Vidur and LLMServingSim, `vidur` and `llmservingsim`. A run is what one file says of a
model that so many workers share. Two runs repeat one another where their models are equally wide, and in
Vidur have as many workers, so that a launch follows the same ones. Nothing changed between them but the
moment and, since several cards may have worked in turns, the card: every FASTER and SLOWER is a false alarm.

The first table tells how far CHOSEN's pairs are apart, by which USUAL["cuda"] of bench/judge/noise.py was
chosen: between runs, and within one where a file holds a launch twice. The second says of the other devices,
which were not looked at for that, how often intervals cover no change and how often `compare` is wrong, with
ASSUMED and with USUAL. Times below LEAST_S are left out: Vidur's are whole microseconds.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd

import kernels
from bench.cli.table import table_lines
from bench.errors import UserError
from bench.interop.import_source import imported
from bench.interop.imported_problems import with_imported
from bench.interop.source_file import described
from bench.judge.compare import Compared, compare
from bench.judge.frame import runs
from bench.judge.noise import USUAL, Spread
from bench.judge.work_class import WorkClass, work_of
from bench.store.schema import Measurement

CHOSEN = "nvidia-a100-sxm4-80gb"
LEAST_S = 2e-5
ASSUMED: Mapping[WorkClass, Spread] = {
    WorkClass.COMPUTE: Spread(0.006, 0.003),
    WorkClass.MEMORY: Spread(0.005, 0.002),
    WorkClass.SMALL: Spread(0.01, 0.005),
    WorkClass.CACHE: Spread(0.006, 0.003),
}
"""What USUAL["cuda"] was while nothing was known of a GPU."""
FILES = {
    "vidur": ("data/profiling/compute/*/*/*/mlp.csv*", "num_tensor_parallel_workers", ["num_tokens"]),
    "llmservingsim": ("profiler/v0/perf_models/*/*/*/*/layers.csv*", "tp_size", ["layer_name", "input"]),
}
"""Source -> its files, their column of workers, and those that say a launch."""
EVERY = 16
"""Of LLMServingSim, which has every number of tokens up to 2048, only multiples of so many are read."""


class Run(NamedTuple):
    """What a file says of a model that so many workers share."""

    alike: tuple[str, ...]
    """The device first. Runs in which this is equal repeat one another."""
    rows: Sequence[Measurement]
    again: Sequence[Measurement]
    """Of the launches that it holds once more."""


def published(folder: Path) -> Iterator[Run]:
    """Every run; UserError where there is none."""
    found = [
        (source, path) for source, (files, *_) in FILES.items() for path in (folder / source).glob(files)
    ]
    if not found:
        raise UserError(f"{folder}: holds no {' and no '.join(f'{at}/{of[0]}' for at, of in FILES.items())}")
    for source, path in sorted(found):
        every = pd.read_csv(path)
        if source == "llmservingsim":
            every = every[every["input"] % EVERY == 0]
        _, column, launch = FILES[source]
        for workers, lines in every.groupby(column):
            twice = lines.duplicated(launch)
            place = path.relative_to(folder / source)
            rows, again = (_rows(source, place, part) for part in (lines[~twice], lines[twice]))
            norms = (json.loads(row.parameters) for row in rows if "norm" in row.operator)
            width = next((str(norm["length"]) for norm in norms), str(path))
            alike = rows[0].device, source, width, str(workers) if source == "vidur" else ""
            yield Run(alike, [replace(row, run_id=f"{path.parent}-{workers}") for row in rows], again)


def _rows(source: str, place: Path, lines: pd.DataFrame) -> list[Measurement]:
    """The rows that the importer makes of these lines of a file at this place in its clone."""
    if lines.empty:
        return []
    with TemporaryDirectory() as name:
        path = Path(name) / str(place).removesuffix(".gz")
        path.parent.mkdir(parents=True)
        lines.to_csv(path, index=False)
        outcome = imported(described(source), Path(name), Path(name), with_imported(kernels.problem))
        every = [row for device in outcome.rows for row in device.rows]
    return [row for row in every if row.median_s and row.median_s >= LEAST_S]


def apart(before: Sequence[Measurement], after: Sequence[Measurement]) -> Iterator[tuple[WorkClass, float]]:
    """(kind of work, |ln| of the times' ratio) of every launch that both hold."""
    other = {(row.operator, row.implementation, row.parameters): row.median_s for row in after}
    for row in before:
        if seconds := other.get((row.operator, row.implementation, row.parameters)):
            yield work_of(row), abs(math.log(seconds / (row.median_s or math.nan)))


def with_spread(rows: Sequence[Measurement], spreads: Mapping[WorkClass, Spread]) -> list[Measurement]:
    """The rows as one visit publishes them on a device of these spreads, whose samples do not scatter."""
    made = []
    for row in rows:
        spread, median_s = spreads[work_of(row)], row.median_s or math.nan
        visit = spread.visits / math.sqrt(2)  # of the two visits that a step is between
        factor = math.exp(math.hypot(visit, spread.runs))
        ends = replace(row, low_s=median_s / factor, high_s=median_s * factor)
        made.append(replace(ends, run_half=visit, noise_visits=visit, noise_runs=spread.runs))
    return made


def judged(pair: tuple[Run, Run], spreads: Mapping[WorkClass, Spread]) -> Iterator[tuple[str, Compared]]:
    """(kind of work, verdict) of every launch of a pair."""
    before, after = (runs(with_spread(run.rows, spreads)) for run in pair)
    works = {(row.operator, row.implementation, row.parameters): work_of(row) for row in pair[0].rows}
    for each in compare(before, after).cases:
        if each.effect is not None:
            yield works[each.case[1:4]].text, each


def chosen_lines(every: Sequence[Run], pairs: Sequence[tuple[Run, Run]]) -> Iterator[str]:
    """The table by which the spreads were chosen."""
    between, within = defaultdict[WorkClass, list[float]](list), defaultdict[WorkClass, list[float]](list)
    for found, of in (
        *((between, (one.rows, other.rows)) for one, other in pairs),
        *((within, (run.rows, run.again)) for run in every),
    ):
        for work, step in apart(*of):
            found[work].append(step)
    lines = []
    for work, steps in sorted(between.items()):
        most, visits = (float(np.quantile(of, 0.95)) for of in (steps, within[work] or [math.nan]))
        # A pair of runs differs by both, twice: the part of one run, beyond its visit, is what is left.
        left = math.sqrt(max(most**2 - visits**2, 0.0) / 2)
        cells = (f"{100 * share:.1f} %" for share in (np.median(steps), most, visits, left))
        lines.append((work.text, str(len(steps)), *cells, str(len(within[work]))))
    names = ("kind", ">pairs", ">apart", ">95 of 100", ">visits", ">runs", ">launches held twice")
    yield from table_lines(names, lines)


def unseen_lines(pairs: Sequence[tuple[Run, Run]]) -> Iterator[str]:
    """The table of how often `compare` is wrong, by device and kind of work."""
    found: dict[tuple[str, str], tuple[list[Compared], list[Compared]]] = defaultdict(lambda: ([], []))
    for pair in pairs:
        for place, spreads in enumerate((ASSUMED, USUAL["cuda"])):
            for kind, each in judged(pair, spreads):
                found[pair[0].alike[0], kind][place].append(each)
    lines = []
    for (device, kind), both in sorted(found.items()):
        moves = [abs(math.log(each.effect.ratio)) for each in both[0] if each.effect]
        cells = [f"{100 * float(np.quantile(moves, share)):.1f} %" for share in (0.5, 0.95)]
        for of in both:
            covered = np.mean([each.effect.low <= 1 <= each.effect.high for each in of if each.effect])
            false = np.mean([each.verdict in ("SLOWER", "FASTER") for each in of])
            cells += [f"{100 * covered:.0f} %", f"{100 * false:.1f} %"]
        lines.append((device, kind, str(len(moves)), *cells))
    names = (
        "device",
        "kind",
        ">pairs",
        ">apart",
        ">95 of 100",
        ">covered before",
        ">false",
        ">covered now",
        ">false",
    )
    yield from table_lines(names, lines)


def repeats_lines(folder: Path) -> Iterator[str]:
    """Both tables."""
    every = list(published(folder))
    pairs = [pair for pair in combinations(every, 2) if pair[0].alike == pair[1].alike]
    seen = [run for run in every if run.alike[0] == CHOSEN]
    yield from chosen_lines(seen, [pair for pair in pairs if pair[0].alike[0] == CHOSEN])
    yield from unseen_lines([pair for pair in pairs if pair[0].alike[0] != CHOSEN])
