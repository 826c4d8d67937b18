"""The precision in which torch's libraries multiply: flags of the process, which count while it calls them.

A graph is captured with the flags of its capture. So each launch sets its own, whatever else runs: these
contexts decorate its call.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def sum_in_float32() -> None:
    """Let cuBLAS neither sum in 16 bits nor, when it splits a sum, add the parts in 16 bits."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_fp16_accumulation = False
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False


@contextmanager
def cublas_precision(dtype: str) -> Iterator[None]:
    """A context in which cuBLAS multiplies tf32 on tensor cores, and float32 not."""
    matmul = torch.backends.cuda.matmul
    matmul.fp32_precision = "tf32" if dtype == "tf32" else "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = "ieee"  # left at tf32, it would contradict torch's older flags


@contextmanager
def cudnn_precision(dtype: str, search: bool = False, deterministic: bool = False) -> Iterator[None]:
    """A context in which torch calls cuDNN, TF32 off for float32; with `search` algorithms are tried first.

    Of 16-bit types, too, torch keeps off tensor cores unless TF32 is allowed.
    """
    flags = {"benchmark": search, "deterministic": deterministic, "allow_tf32": dtype != "float32"}
    with torch.backends.cudnn.flags(enabled=True, **flags):
        yield
