"""Problem sizes: kinds of problems for one panel, an operator and, for matrix products, the size.

A matrix product whose intensity is below the ridge of the roofline streams its operands; a small one cannot
fill the device, whatever its intensity. Neither tells anything about the peak.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

LARGE_FLOP = 1e11
"""From this FLOP on the launch and the last wave are a small part of a matrix product on any device: it takes
some 100 us at the peak of an H100, 40 us at that of a B200."""
RIDGE = 200.0
"""FLOP/byte that separates streams from products: the ridges of 16-bit tensor cores lie around it (V100 139,
A100 153, H100 295, B200 281). One number for all devices keeps a case in the same panel."""

SIZES = ("memory-bound", "small", "large")


def sizes(rows: pd.DataFrame) -> pd.Series:
    """One of SIZES for each matrix product, an empty text for other rows."""
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
