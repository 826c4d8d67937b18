"""Result files for tests of exports: nights of a few series, with whatever goes wrong in a night."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import Result
from typer.testing import CliRunner

from bench.__main__ import app
from bench.store import parquet
from bench.store.schema import Measurement
from tests.bench.rows import row

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
"""Of today; nights are of other days, and far from midnight."""


def night(chance: np.random.Generator, days_ago: int, m: int, **facts: Any) -> Measurement:
    """A GEMM's row of that many days ago: from 100 ns to 10 s, interval of up to 10 %."""
    when = NOON - timedelta(days=days_ago, seconds=m)
    median_s = float(10 ** chance.uniform(-7, 1))
    low, high = 1 + np.array([-1, 1]) * chance.uniform(0.001, 0.05, 2)
    values: dict[str, Any] = {
        **{"run_id": f"{when:%Y%m%d}T020000Z-0123456789ab", "utc": when.isoformat(timespec="milliseconds")},
        **{"device": "nvidia-h200", "device_name": "NVIDIA H200", "device_kind": "cuda"},
        **{"device_id": "1f3c9a02b4d5", "implementation": "triton", "dtype": "bfloat16", "cache": "cold"},
        **{"sweep": "gemm/square", "median_s": median_s, "samples_s": [median_s] * 9},
        **{"parameters": f'{{"dtype":"bfloat16","k":3,"layout":"NN","m":{m},"n":2}}'},
        **{"low_s": median_s * float(low), "high_s": median_s * float(high)},
    }
    return row(**(values | facts))


def written(folder: Path, *rows: Measurement) -> Path:
    """One result file a run, in the order of their first rows."""
    for run_id in dict.fromkeys(one.run_id for one in rows):
        path = folder / f"{len(list(folder.glob('*.parquet')))}-{run_id}.parquet"
        parquet.write(path, [one for one in rows if one.run_id == run_id])
    return folder


def export(*words: str | Path) -> Result:
    """`python -m bench export ...`; what it raises is no refusal, and fails the test."""
    done = CliRunner().invoke(app, ["export", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done
