"""The unit in which the numbers of one axis or one caption read well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd


def scaled(values: pd.Series, unit: str) -> tuple[float, str]:
    """The number to multiply these SI values by, and the unit for people, so that most read well.

    `unit` is `s`, `flop/s` or `byte/s`. Times span decades and go by their median, rates by the largest.
    """
    typical = float(values.median() if unit == "s" else values.max()) if values.notna().any() else 0.0
    for least, factor, name in _UNITS[unit]:
        if typical >= least:
            return factor, name
    raise AssertionError(f"{typical} {unit} is negative")


_UNITS: Mapping[str, Sequence[tuple[float, float, str]]] = {
    "s": ((2.0, 1.0, "s"), (2e-3, 1e3, "ms"), (2e-6, 1e6, "µs"), (2e-9, 1e9, "ns"), (0.0, 1e12, "ps")),
    "flop/s": ((2e12, 1e-12, "TFLOP/s"), (1e9, 1e-9, "GFLOP/s"), (0.0, 1e-6, "MFLOP/s")),
    "byte/s": ((1e9, 1e-9, "GB/s"), (0.0, 1e-6, "MB/s")),
}
