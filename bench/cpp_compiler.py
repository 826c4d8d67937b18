"""What compiling C++ needs, as Inductor does on a CPU: a compiler, and the header of Python."""

from __future__ import annotations

import os
import shutil
import sysconfig
from functools import cache
from pathlib import Path


def lacking_for_cpp() -> str:
    """The compiler that Inductor calls and the header that it includes; empty if both are there."""
    return _lacking(os.environ.get("CXX", "g++"), os.environ.get("PATH"))


@cache  # asked for each of thousands of cases
def _lacking(compiler: str, path: str | None) -> str:
    header = Path(sysconfig.get_path("include"), "Python.h")
    return "" if shutil.which(compiler, path=path) and header.exists() else f"{compiler} with {header.name}"
