"""Kinds of problems that one panel can hold: an operator, and of matrix products the size.

A matrix product whose intensity is below the ridge of the roofline is a stream of its operands; a small one
cannot fill the device, whatever its intensity. Neither says anything about the peak.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

LARGE_FLOP = 1e11
"""From here the launch and the last wave are a small part of a matrix product on any device: some 100 us at
the peak of an H100, 40 us of a B200."""
RIDGE = 200.0
"""FLOP/byte that tells streams from products: the ridges of 16-bit tensor cores lie about it (V100 139,
A100 153, H100 295, B200 281). One number for all devices, for a case must not change its panel with them."""

SIZES = ("memory-bound", "small", "large")


def sizes(rows: pd.DataFrame) -> pd.Series:
    """Of matrix products one of SIZES, of other rows an empty text."""
    by_count = np.where(rows["flop"] >= LARGE_FLOP, "large", "small")
    named = np.where(rows["intensity"] < RIDGE, "memory-bound", by_count)
    return pd.Series(np.where(rows["arithmetic"] == "matrix", named, ""), index=rows.index, dtype=str)


def panels(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(`softmax` or `gemm, large`, its rows), by operator; only those that have rows."""
    size = sizes(rows)
    for operator in sorted(rows["operator"].unique()):
        here = rows["operator"] == operator
        for name in (*SIZES, ""):
            of_size = rows[here & (size == name)]
            if len(of_size):
                yield f"{operator}, {name}" if name else str(operator), of_size
