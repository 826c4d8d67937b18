"""Parent and worker start with these libraries: all modules, the lists, a run, a GPU that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.plugin import ROOT

MODULES = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
    for folder in ("bench", "kernels", "plots")
    for path in (ROOT / folder).rglob("*.py")
    if path.name != "__main__.py"
)


def python(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """This interpreter, from the root, as a person types it."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_every_module_imports() -> None:
    code = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
    done = python("-c", code, *MODULES)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:1", "cuda:2"])
def test_cases_are_listed(device: str) -> None:
    done = python("-m", "bench", "list", "--bench-device", device, ROOFBENCH_STUB_GPUS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    *_, whole, hint = done.stdout.strip().splitlines()
    assert "cases run here" in whole and not whole.startswith("0 of") and "--cases" in hint


def measured(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One sweep of a few cases, timed."""
    asked = ["--bench-sweep", "ceilings/launch", "--bench-results", str(folder), "--bench-budget", "30"]
    return python(
        "-m", "pytest", "bench/", "-q", "-p", "no:cacheprovider", "--benchmark", *asked, *words, **variables
    )


def test_a_cpu_is_measured(tmp_path: Path) -> None:
    done = measured(tmp_path, "--bench-device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.rglob("*.parquet"))


def test_a_gpu_that_torch_cannot_use_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """The driver shows a GPU, PyTorch fails on it: one sentence, exit code 2."""
    done = measured(tmp_path, "--bench-device", "cuda:1", ROOFBENCH_STUB_GPUS="1")
    text = done.stdout + done.stderr
    assert "INTERNALERROR" not in text and "Traceback" not in text, text
    assert "NVIDIA H100 80GB HBM3) cannot be measured: " in text and done.returncode == 2, text
