"""How far each level is off on public attention: prompts, new tokens and encoders apart.

    python -m bench import aiconfigurator --table attention
    python -m studies.attention_phases results/imported

Calibrated by results/reference/public, as `python -m plots score` does it; the table of docs/predictions.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from bench.device.datasheet import find_datasheet
from bench.judge.frame import load
from bench.judge.score import LEVELS

PUBLIC = Path(__file__).parents[1] / "results" / "reference" / "public"


def errors(results: Path) -> pd.DataFrame:
    """Mean error in percent of each level, and L2's median, a row for each phase and device."""
    runs = load(
        sorted(results.rglob("*-attention-*.parquet")),
        find_datasheet,
        calibrate_by=sorted(PUBLIC.rglob("*.parquet")),
    )
    rows = pd.concat([run.frame[~run.frame["calibrating"]] for run in runs])
    many = np.where(rows["causal"].eq(True), "prefill", "encoder")
    # A length of keys is stored where it is not that of the queries.
    rows["phase"] = np.where(rows["kv_length"].notna(), "decode", many)
    by = rows.groupby(["phase", "device"])
    off = {
        level: (100 * (rows[column] / rows["median_s"] - 1).abs()).groupby([rows["phase"], rows["device"]])
        for level, column in LEVELS.items()
    }
    means = pd.DataFrame({level: error.mean() for level, error in off.items() if level != "L3"})
    return means.assign(median=off["L2"].median(), rows=by.size())


if __name__ == "__main__":
    print(errors(Path(sys.argv[1])).round(1).to_string())
