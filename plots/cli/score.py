"""`python -m plots score`: how far predictions are off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from bench.cli.score import score_lines
from bench.judge import score as judge
from bench.judge.frame import read
from bench.judge.timings import pool_of_runs, with_learned
from plots.cli.arguments import CalibrateBy, Results, load_runs, writing


def score(
    results: Results,
    to: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the scores here, too.")
    ] = None,
    most: Annotated[
        int, typer.Option("--worst", metavar="N", min=0, help="List the N cases farthest off.")
    ] = 5,
    calibrate_by: CalibrateBy = None,
) -> None:
    """How far predictions are from what was measured, by operator, device and level of the model.

    L0: the datasheet's roofline. L1: with ceilings of the same run. L2: with tiles, waves and caches. L3: as
    learned from timings, a GPU's own and those of others. A row each: n rows, mean, median and 90th
    percentile of |predicted / measured - 1| in percent, and the geometric mean of predicted / measured.
    """
    runs = load_runs(results, calibrate_by)
    known = pool_of_runs([*runs, *(read(calibrate_by) if calibrate_by else ())])
    card = judge.scorecard(pd.concat([with_learned(run, known) for run in runs], ignore_index=True))
    for line in score_lines(card, most):
        typer.echo(line)
    if to is not None:
        with writing("scores"):
            scores = [errors.as_json() for errors in judge.scores(card)]
            to.write_text(json.dumps(scores, indent=1) + "\n", "utf-8")
