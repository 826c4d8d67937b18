"""`python -m plots score`: how far predictions are off."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.markup import escape

from bench.cli.application import Results
from bench.cli.table import table_lines
from bench.errors import write_text
from bench.judge.score import SCORED, Score, Scorecard, scorecard
from bench.judge.timings import read_pool, with_learned
from plots.cli.arguments import by_device, load_runs


def score(
    results: Results,
    to: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the scores here, too.")
    ] = None,
) -> None:
    """How far predictions are from what was measured, by operator, device and level of the model.

    L0: the datasheet's roofline. L1: with ceilings of the same run. L2: with tiles, waves and caches. L3: as
    learned from timings, a GPU's own and those of others. A row each: n rows, mean, median and 90th
    percentile of |predicted / measured - 1| in percent, and the geometric mean of predicted / measured.
    """
    known = read_pool(results, lambda _: None)
    parts, _ = by_device(results)
    runs = (run for files in parts for run in load_runs(files))
    card = scorecard(pd.concat([with_learned(run, known)[[*SCORED]] for run in runs], ignore_index=True))
    for line in score_lines(card):
        typer.echo(line)
    if to is not None:
        write_text(to, json.dumps([asdict(each) for each in card.scores], indent=1) + "\n")


def score_lines(card: Scorecard) -> Iterator[str]:
    """The table, what is in it and what is not."""
    yield from _table(card.scores)
    yield (
        f"Scored: {card.scored} of {card.rows} rows, by |predicted / measured - 1|; "
        "ratio: geometric mean of predicted / measured. Not scored: what has no time, is suspect, calibrates "
        "the model, or has no number of some level."
    )


def _table(scored: Sequence[Score]) -> Iterator[str]:
    rows = []
    several = len({score.regime for score in scored}) > 1
    for score in scored:
        marks = [f"imported: {score.source.split(';')[0]}"] if score.source else []
        marks += [score.regime or "regime unknown"] if several else []
        marks += [] if score.coverage is None else [f"90 % interval holds {score.coverage:.0f} %"]
        numbers = (f"{score.mape:.1f}", f"{score.median:.1f}", f"{score.p90:.1f}", f"{score.ratio:.3f}")
        words = map(escape, (score.operator, score.device, score.level))
        rows.append((*words, str(score.n), *numbers, escape(", ".join(marks))))
    names = ("operator", "device", "level", ">n", ">MAPE %", ">median %", ">p90 %", ">ratio", "")
    yield from table_lines(names, rows)
