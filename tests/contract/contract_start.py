"""Parent and worker start with these libraries: all modules, the lists, a run, a GPU that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.plugin import ROOT
from tests.processes import python

MODULES = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
    for folder in ("bench", "kernels", "plots")
    for path in (ROOT / folder).rglob("*.py")
    if path.name != "__main__.py"
)


def test_every_module_imports() -> None:
    code = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
    done = python("-c", code, *MODULES)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:1", "cuda:2"])
def test_cases_are_listed(device: str) -> None:
    done = python("-m", "bench", "list", "--bench-device", device, ROOFBENCH_STUB_GPUS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    whole = done.stdout.strip().splitlines()[-1]
    assert "cases run here" in whole and not whole.startswith("0 of")


def measuring(folder: Path, device: str) -> list[str]:
    """The words by which one sweep of a few cases is timed."""
    asked = ["--bench-sweep", "ceilings/launch", "--bench-results", str(folder), "--bench-budget", "30"]
    asked += ["--bench-device", device]
    return ["-m", "pytest", "bench/", "-q", "-p", "no:cacheprovider", "--benchmark", *asked]


def test_a_cpu_is_measured(tmp_path: Path) -> None:
    done = python(*measuring(tmp_path, "cpu"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.rglob("*.parquet"))


def test_a_gpu_that_torch_cannot_use_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """The driver shows a GPU, PyTorch fails on it: one sentence, exit code 2."""
    done = python(*measuring(tmp_path, "cuda:1"), ROOFBENCH_STUB_GPUS="1")
    text = done.stdout + done.stderr
    assert "INTERNALERROR" not in text and "Traceback" not in text, text
    assert "NVIDIA H100 80GB HBM3) cannot be measured: " in text and done.returncode == 2, text
