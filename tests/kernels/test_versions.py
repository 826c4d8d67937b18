"""What a choice depends on, as the real libraries say it; the driver is a library compiled here."""

import shutil
import subprocess
from pathlib import Path

import pytest

tuning = pytest.importorskip("bench.launching.tuning")
import triton  # noqa: E402


def driver(path: Path, body: str) -> Path:
    """A driver whose cuDriverGetVersion does this, without a GPU."""
    if not (compiler := shutil.which("gcc")):
        pytest.skip("no gcc to compile a driver with")
    source = path.with_suffix(".c")
    source.write_text(f"int cuDriverGetVersion(int *version) {{ {body} }}\n")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", path], check=True)
    return path


def test_the_compiler_the_assembler_and_the_driver_are_named(tmp_path: Path) -> None:
    libcuda = driver(tmp_path / "libcuda.so.1", "*version = 13010; return 0;")
    said = tuning.versions(str(libcuda))
    ptxas = triton.knobs.nvidia.ptxas.version
    assert said == f"triton {triton.__version__}, ptxas {ptxas}, CUDA driver 13.1"
    assert ptxas[0].isdigit()
    blackwells = triton.knobs.nvidia.ptxas_blackwell.version
    assert f"ptxas {blackwells}, CUDA" in tuning.versions(str(libcuda), 100)


def test_without_a_driver_that_is_said(tmp_path: Path) -> None:
    missing = tmp_path / "libcuda.so.1"
    assert tuning.versions(str(missing)).endswith(f", no CUDA driver ({missing} cannot be loaded)")


def test_a_driver_that_does_not_answer_is_no_version(tmp_path: Path) -> None:
    silent = driver(tmp_path / "silent.so", "return 3;")
    assert "unknown version (cuDriverGetVersion returns 3)" in tuning.versions(str(silent))
