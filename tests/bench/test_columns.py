"""Rows as arrays: which of them agree, and what they lack."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from bench.judge.columns import Columns


def test_rows_are_told_apart_by_each_of_many_columns() -> None:
    """With the one that lacks a value 256 values in each of 9 columns: more than 64 bits tell apart."""
    values = np.append(np.arange(255.0), math.nan)
    table = {f"c{number}": np.append(values, [0.0, 0.0]) for number in range(9)}
    table["c0"][-1] = 1.0
    rows = Columns.of(pd.DataFrame(table))
    assert rows.numbered(table).tolist() == [*range(256), 0, 256]
    assert rows.numbered(table, np.array([257, 255, 257])).tolist() == [0, 1, 0]


def test_what_one_run_lacks_is_missing_in_the_rows_of_all() -> None:
    with_bias = pd.DataFrame({"bias": [True, False], "k": [8, 9], "layout": ["NN", None]})
    rows = Columns.joined([Columns.of(with_bias), Columns.of(pd.DataFrame({"k": [8]}))])
    assert rows["bias"].tolist() == [True, False, None] and rows["layout"].tolist() == ["NN", None, None]
    assert rows["bias"].are(True).tolist() == [True, False, False]
    assert rows.missing("layout").tolist() == [False, True, True]
    assert rows.numbered(["k", "layout"]).tolist() == [0, 1, 2]
