"""Interpreting and compiling Triton exclude each other in one process, so each test of them has its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def interpreted(*paths: str) -> None:
    """Run test files of ours with Triton's interpreter; AssertionError with their output if one fails."""
    # Its tensors are small: a second thread of torch's would only wait, which takes a processor too.
    _run(["-m", "pytest", "-q", "-p", "no:cacheprovider", *paths], TRITON_INTERPRET="1", OMP_NUM_THREADS="1")


def compiled(module: str, *options: str) -> None:
    """Run a module of ours that compiles kernels; AssertionError with its output if it fails."""
    _run(["-m", module, *options])


def _run(command: list[str], **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout[-20_000:]}"
