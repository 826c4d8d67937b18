"""Failures: the status and reason of a row for an exception. Out of memory is often a plain RuntimeError."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from bench.autotune.ending import Stuck
from bench.causes import cause, first_line
from bench.spec import Unsupported
from bench.worker.custom_kernel import BadKernel, place

MESSAGES = ("CUDA error: out of memory", "Triton Error [CUDA]: out of memory", "can't allocate memory")
"""Messages of the CUDA runtime (for a graph), of Triton (loading a kernel), and of torch on a CPU."""


def chain(error: BaseException) -> Iterator[BaseException]:
    """This exception, its cause or context, and so on."""
    before: BaseException | None = error
    while before is not None:
        yield before
        before = before.__cause__ or (None if before.__suppress_context__ else before.__context__)


def out_of_memory(error: BaseException) -> BaseException | None:
    """The exception of this one's chain that reports a lack of memory; None if none does."""
    for link in chain(error):
        if isinstance(link, MemoryError | torch.OutOfMemoryError):
            return link
        if isinstance(link, RuntimeError) and any(message in str(link) for message in MESSAGES):
            return link
    return None


def failure(error: Exception) -> dict[str, Any]:
    """Columns status (unsupported, out_of_memory, error or timeout) and reason for an exception.

    The key `stuck` is added, with the kernel's name, after a launch that this process cannot survive.
    """
    if isinstance(error, Unsupported):
        return {"status": "unsupported", "reason": str(error)}
    if isinstance(error, Stuck):
        return {"status": error.status, "reason": str(error), "stuck": error.kernel}
    if short := out_of_memory(error):
        return {"status": "out_of_memory", "reason": first_line(short)}
    reason = str(error) if isinstance(error, BadKernel) else place(error) + cause(error)
    if type(error).__name__ == "FailOnRecompileLimitHit":
        reason = "torch.compile made too many variants of it and would have run it in eager mode"
    return {"status": "error", "reason": reason}
