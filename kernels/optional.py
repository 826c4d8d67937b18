"""What need not be installed: Triton, and libraries that an implementation says how to install."""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

from bench.causes import first_line
from bench.spec import Launch, Unsupported


def launched_by(module: str) -> Callable[..., Launch]:
    """The `launch` of kernels/`module`, such as `softmax.launch`, which is imported when it is called.

    Triton is not everywhere, and a run on a CPU needs none.
    """
    return functools.partial(_launched, module)


def _launched(module: str, *problem_and_tensors: Any) -> Launch:
    launch: Launch = import_module(f"kernels.{module}").launch(*problem_and_tensors)
    return launch


def lacking(implementation: str, package: str, error: Exception) -> Unsupported:
    """The error where importing `package` failed: which to install, and what was missing."""
    return Unsupported(f"{implementation} needs {package}, pip install {package}: {first_line(error)}")
