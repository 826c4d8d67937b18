"""Regions of shapes of a GEMM, each with goals of its own (bench/judge/goals.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REGIONS = (
    *(f"16-bit {shape}" for shape in ("large", "large, short K", "middle", "small", "decode", "other")),
    *("float8 TN large", "float8 other", "int8 TN large", "int8 other", "tf32 TN large", "tf32 other"),
    *("float32 large", "float32 other", "float64", "mxfp8 large", "mxfp8 other", "nvfp4 large"),
    *("nvfp4 other", "unaligned", "batched"),
)
"""Regions of shapes, each with a goal of its own, and the rest of each data type."""
_IN_16_BYTES = {
    **dict.fromkeys(("float16", "bfloat16"), (8, 8)),
    **dict.fromkeys(("tf32", "float32"), (4, 4)),
    **dict.fromkeys(("float8_e4m3", "float8_e5m2", "mxfp8"), (16, 8)),
    **{"float64": (2, 2), "nvfp4": (32, 8), "int8": (16, 4)},
}
"""Elements of an operand, and of the result, in 16 bytes: the alignment that a load or bulk copy needs."""
_TN_ONLY = ("float8", "int8", "tf32")
"""Data types whose large products have a goal in the layout that tensor cores read, TN, alone."""


def region(parameters: Mapping[str, Any]) -> str:
    """The region of a GEMM with these `m`, `n`, `k`, `layout`, `dtype`, and `pitch` and `batch` if given."""
    if parameters.get("batch", 1) > 1:
        return "batched"
    if not _aligned(parameters):
        return "unaligned"
    m, n, k, dtype = (parameters[name] for name in ("m", "n", "k", "dtype"))
    if dtype in ("float16", "bfloat16"):
        return f"16-bit {_shape(min(m, n), max(m, n), k)}"
    if dtype == "float64":
        return "float64"
    kind, large = dtype.partition("_")[0], min(m, n) >= 4096 and k >= 1024
    if kind in _TN_ONLY:
        return f"{kind} TN large" if large and parameters["layout"] == "TN" else f"{kind} other"
    return f"{kind} large" if large else f"{kind} other"


def _shape(short: int, long: int, k: int) -> str:
    if short <= 64 and long >= 4096 and k >= 4096:
        return "decode"
    if short >= 4096 and (k >= 1024 or k <= 512):
        return "large" if k >= 1024 else "large, short K"
    if long <= 1024:
        return "small"
    return "middle" if short > 1024 and long < 4096 else "other"


def _aligned(parameters: Mapping[str, Any]) -> bool:
    """Whether every row of A, B and D begins at a multiple of 16 bytes."""
    if parameters.get("pitch") == "padded":
        return True
    m, n, k, layout = (parameters[name] for name in ("m", "n", "k", "layout"))
    of_operand, of_result = _IN_16_BYTES[parameters["dtype"]]
    row_a, row_b = m if layout[0] == "N" else k, k if layout[1] == "N" else n
    return not (row_a % of_operand or row_b % of_operand or m % of_result)
