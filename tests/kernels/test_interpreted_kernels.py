"""Our kernels, run by Triton's interpreter under the sanitizer.

Interpreting and compiling Triton exclude each other in one process, and each process takes seconds to import
torch and Triton. So an ordinary run, which draws a few cases of each file, starts one for all of them; a deep
run starts one for each file.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drawing import is_deep

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
FILES = sorted(path.relative_to(ROOT).as_posix() for path in Path(__file__).parent.glob("*_interpreted.py"))


@pytest.mark.parametrize("files", [[file] for file in FILES] if is_deep() else [FILES])
def test_kernels_interpreted(files: list[str]) -> None:
    # Its tensors are small: a second thread of torch's would only wait, which takes a processor too.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
