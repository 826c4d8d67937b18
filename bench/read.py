"""Result files as one table, for pandas, Polars, DuckDB or a notebook: `read_frame(["results"])`.

Needs neither torch nor a GPU, only the packages of the dependency group `read` (docs/queries.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.device.datasheet import find_datasheet
from bench.judge import read_runs
from bench.store import parquet

if TYPE_CHECKING:
    import pandas as pd


def read_frame(paths: Iterable[str | Path], derived: bool = True) -> pd.DataFrame:
    """Every row of these result files, packs, or folders of them.

    With all columns of results/README.md, one for each parameter, and those that are `derived` as by the
    commands: rate, intensity, predicted seconds, share of the roof, what bounds it, flags and whether one of
    them makes its time suspect (bench/judge/frame.py lists them). UserError for what cannot be read.
    """
    import pandas as pd

    files = [Path(path) for path in paths]
    if not derived:
        return parquet.read_frame(files)
    runs = [replace(run, datasheet=find_datasheet(run.device_name)) for run in read_runs.read(files)]
    return pd.concat([run.frame for run in runs], ignore_index=True)
