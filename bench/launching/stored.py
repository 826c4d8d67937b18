"""The torch types that hold our data types."""

import torch

STORED_AS = {
    "tf32": torch.float32,
    "float8_e4m3": torch.float8_e4m3fn,
    "mxfp8": torch.float8_e4m3fn,
    "nvfp4": torch.int8,
}
"""Data types whose torch type has another name."""


def stored_dtype(dtype: str) -> torch.dtype:
    """The torch type that holds numbers of this data type."""
    stored = STORED_AS.get(dtype) or getattr(torch, dtype)
    assert isinstance(stored, torch.dtype)
    return stored
