"""Pytest within a test, in its process: the exit code and what a person would read.

A process of its own is for what only that shows: signals, threads, the packages of another folder.
"""

from __future__ import annotations

import gc
import io
from contextlib import redirect_stderr, redirect_stdout

import pytest

QUIETLY = ("-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Nothing is left behind, and the modules that the outer run has imported are no matter."""


def pytested(*words: str) -> tuple[int, str]:
    """Exit code and output of `python -m pytest WORDS...`, in lines of 200 columns."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as said, redirect_stderr(said):
        patch.setenv("COLUMNS", "200")
        code = pytest.main([*words, *QUIETLY])
    gc.enable()  # which tests/conftest.py has rest until everything is collected
    return int(code), said.getvalue()
