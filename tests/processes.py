"""Python in a process of its own, and pytest in that of the test, with what a person would read.

A process of its own is for what only that shows: signals, threads, the packages of another folder.
"""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QUIETLY = ("-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Nothing is left behind, and the modules that the outer run has imported are no matter."""


def python(
    *words: str, cwd: Path = ROOT, given: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """`python WORDS...`, which is `given` its input; our packages are those of this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"} | variables
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=cwd, env=environment, input=given, capture_output=True, text=True, timeout=500
    )


def pytested(*words: str) -> tuple[int, str]:
    """Exit code and output of `python -m pytest WORDS...`, in lines of 200 columns."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as said, redirect_stderr(said):
        patch.setenv("COLUMNS", "200")
        code = pytest.main([*words, *QUIETLY])
    gc.enable()  # which tests/conftest.py has rest until everything is collected
    return int(code), said.getvalue()
