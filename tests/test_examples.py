"""What `pytest bench` checks: every implementation that runs here, at a few examples of its operator."""

import subprocess
import sys
from pathlib import Path

from tests.drawing import is_deep


def test_examples() -> None:
    words = ["bench", "-q", "-p", "no:cacheprovider", *["--bench-all-examples"] * is_deep()]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
