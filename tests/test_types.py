"""Mypy's strict verdict on the whole checkout, as long as many tests: it begins early (slowest.txt)."""

import subprocess
import sys
from pathlib import Path


def test_types() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=Path(__file__).parents[1], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
