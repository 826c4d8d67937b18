"""Regions of shapes of a GEMM, each with goals of its own (bench/judge/goals.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

Region = Literal[
    "16-bit large",
    "16-bit large, short K",
    "16-bit middle",
    "16-bit small",
    "16-bit decode",
    "16-bit other",
    "float8 TN large",
    "float8 other",
    "int8 TN large",
    "int8 other",
    "tf32 TN large",
    "tf32 other",
    "float32 large",
    "float32 other",
    "float64",
    "mxfp8 large",
    "mxfp8 other",
    "nvfp4 large",
    "nvfp4 other",
    "unaligned",
    "batched",
]
"""Regions of shapes, each with a goal of its own, and the rest of each data type."""
REGIONS: tuple[Region, ...] = get_args(Region)
_IN_16_BYTES = {
    "float16": (8, 8),
    "bfloat16": (8, 8),
    "tf32": (4, 4),
    "float32": (4, 4),
    "float64": (2, 2),
    "float8_e4m3": (16, 8),
    "float8_e5m2": (16, 8),
    "mxfp8": (16, 8),
    "nvfp4": (32, 8),
    "int8": (16, 4),
}
"""Elements of an operand, and of the result, in 16 bytes: the alignment that a load or bulk copy needs."""


def region(parameters: Mapping[str, Any]) -> Region:
    """The region of a GEMM with these `m`, `n`, `k`, `layout`, `dtype`, and `pitch` and `batch` if given."""
    if parameters.get("batch", 1) > 1:
        return "batched"
    m, n, k = parameters["m"], parameters["n"], parameters["k"]
    dtype, layout = parameters["dtype"], parameters["layout"]
    if not _aligned(parameters):
        return "unaligned"
    all_long = min(m, n) >= 4096
    large = all_long and k >= 1024
    if dtype in ("float16", "bfloat16"):
        if min(m, n) <= 64 and max(m, n) >= 4096 and k >= 4096:
            return "16-bit decode"
        if large:
            return "16-bit large"
        if all_long and k <= 512:
            return "16-bit large, short K"
        if max(m, n) <= 1024:
            return "16-bit small"
        if min(m, n) > 1024 and max(m, n) < 4096:
            return "16-bit middle"
        return "16-bit other"
    if dtype in ("float8_e4m3", "float8_e5m2"):
        return "float8 TN large" if large and layout == "TN" else "float8 other"
    if dtype == "mxfp8":
        return "mxfp8 large" if large else "mxfp8 other"
    if dtype == "nvfp4":
        return "nvfp4 large" if large else "nvfp4 other"
    if dtype == "int8":
        return "int8 TN large" if large and layout == "TN" else "int8 other"
    if dtype == "tf32":
        return "tf32 TN large" if large and layout == "TN" else "tf32 other"
    if dtype == "float32":
        return "float32 large" if large else "float32 other"
    return "float64"


def _aligned(parameters: Mapping[str, Any]) -> bool:
    """Whether every row of A, B and D begins at a multiple of 16 bytes."""
    if parameters.get("pitch") == "padded":
        return True
    m, n, k, layout = (parameters[name] for name in ("m", "n", "k", "layout"))
    of_operand, of_result = _IN_16_BYTES[parameters["dtype"]]
    row_a, row_b = m if layout[0] == "N" else k, k if layout[1] == "N" else n
    return not (row_a % of_operand or row_b % of_operand or m % of_result)
