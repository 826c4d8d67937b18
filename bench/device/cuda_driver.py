"""Calls of the CUDA driver's own functions: they need neither torch nor a context."""

from __future__ import annotations

import ctypes

LIBRARY = "libcuda.so.1"


class CudaError(Exception):
    """The driver lacks a function or returns an error. The message is a clause about `its CUDA driver`."""


def call(driver: ctypes.CDLL, function: str, *arguments: object) -> None:
    """Call a function of the driver; CudaError unless it answers with 0."""
    try:
        code = getattr(driver, function)(*arguments)
    except AttributeError as error:
        raise CudaError(f"its CUDA driver has no {function}") from error
    if code:
        raise CudaError(f"its CUDA driver answers {function} with error {code}")


def newest_cuda(driver: ctypes.CDLL) -> int:
    """Newest CUDA that the driver supports, as it says it (13000: 13.0). CudaError if it does not say."""
    version = ctypes.c_int()
    call(driver, "cuDriverGetVersion", ctypes.byref(version))
    return version.value
