"""Which torch `make setup` installs: decided by the driver, before pip fetches anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.test_dependencies import HIDING

ROOT = Path(__file__).parents[2]

FAKE_PYTHON = """#!/bin/sh
echo "$@" >> "{log}"
case "$*" in "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python ;; esac
"""
OF_CUDA_12 = "--extra-index-url https://download.pytorch.org/whl/cu126"


def make(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`make` in a folder with the Makefile and what it starts."""
    (folder / "bench" / "environment").mkdir(parents=True, exist_ok=True)
    names = (
        "Makefile",
        "pyproject.toml",
        "constraints.txt",
        "bench/__init__.py",
        "bench/errors.py",
        "bench/environment/__init__.py",
        "bench/environment/dependencies.py",
    )
    for name in names:
        shutil.copy(ROOT / name, folder / name)
    environment = {**os.environ, **variables}
    return subprocess.run(["make", *words], cwd=folder, env=environment, capture_output=True, text=True)


def set_up(folder: Path, listed: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """`make setup` where nvidia-smi prints this, and what it asked of Python."""
    (checkout := folder / "checkout").mkdir()
    log = folder / "log"
    for name, text in {
        "python": FAKE_PYTHON.format(log=log),
        "nvidia-smi": f"#!/bin/sh\nprintf '{listed}'\n",
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (checkout / ".d").touch()  # what the shell could take `.[dev]` for
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = make(checkout, "setup", f"PYTHON={folder / 'python'}", PATH=path)
    return done, [line for line in log.read_text().splitlines() if line.startswith("-m")]


@pytest.mark.parametrize(
    ("listed", "torch", "said"),
    [
        (
            "No devices were found\n",
            "torch --extra-index-url https://download.pytorch.org/whl/cpu",
            "lists no GPU",
        ),
        (
            "",
            "torch --extra-index-url https://download.pytorch.org/whl/cpu",
            "torch without CUDA is installed",
        ),
        *(
            (f"{driver}, {gpu}\n", "torch nvmath-python", "")
            for driver, gpu in (("580.65.06", "7.5"), ("580.65.06", "9.0"), ("590.1", "12.1"))
        ),
        ("525.60, 9.0\n", f"torch nvmath-python {OF_CUDA_12}", "here are 525.6 and 9: that of CUDA 12.6"),
        ("575.1, 9.0\n575.1, 7.0\n", f"torch nvmath-python {OF_CUDA_12}", "needs driver 580"),
        ("580.1, 7.0\n", f"torch nvmath-python {OF_CUDA_12}", "needs driver 580 and compute capability 7.5"),
    ],
)
def test_the_driver_chooses_the_build_of_torch_before_pip(
    tmp_path: Path, listed: str, torch: str, said: str
) -> None:
    done, asked = set_up(tmp_path, listed)
    assert done.returncode == 0 and said in done.stderr and bool(said) == bool(done.stderr), done.stderr
    assert asked == [
        "-m venv .venv",
        "-m pip install --quiet --upgrade pip",
        f"-m pip install --quiet --constraint constraints.txt --quiet --retries 1 {torch}",
        "-m pip install --quiet --constraint constraints.txt .[dev]",
        "-m bench.environment.search_path",
    ]
    assert (tmp_path / "checkout" / ".venv" / ".ready").exists()


@pytest.mark.parametrize("listed", ["570.1, 10.0\n", "470.82, 9.0\n", "580.1, 7.0\n580.1, 12.0\n"])
def test_where_no_build_runs_nothing_is_downloaded(tmp_path: Path, listed: str) -> None:
    done, asked = set_up(tmp_path, listed)
    assert done.returncode == 2 and asked == ["-m venv .venv"]
    assert f"error: no build of torch runs on driver {listed[:3]}" in done.stderr
    assert "has a torch of its own: make bench PYTHON_AS_IS=/usr/bin/python3" in done.stderr
    assert not (tmp_path / "checkout" / ".venv" / ".ready").exists()


def test_after_setup_the_environment_has_our_commands_in_any_folder(tmp_path: Path) -> None:
    """A real environment, but for pip, which is a package that does nothing."""
    folder, python = tmp_path / "a checkout", tmp_path / "python"
    for name in ("bench", "pip", "bench/cli", "bench/environment"):
        (folder / name).mkdir(parents=True)
    shutil.copy(ROOT / "bench/environment/search_path.py", folder / "bench/environment")
    (folder / "pip/__main__.py").touch()
    (folder / "bench/__main__.py").write_text("import sys; print('ours', *sys.argv[1:])\n")
    python.write_text(f"#!/bin/sh\n[ $1 = -c ] || exec {sys.executable} -m venv --without-pip .venv\n")
    python.chmod(0o755)
    done = make(folder, "setup", f"PYTHON={python}")
    assert done.returncode == 0, done.stderr
    for words in ([folder / ".venv/bin/python", "-m", "bench"], [folder / ".venv/bin/roofbench"]):
        done = subprocess.run([*words, "a b"], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout == "ours a b\n", done.stderr


@pytest.mark.parametrize("target", ["bench", "test", "public"])
def test_a_python_as_it_is_gets_nothing_installed(tmp_path: Path, target: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    folder = tmp_path / "checkout"
    folder.mkdir()
    hidden = {"PYTHONPATH": str(tmp_path), "HIDDEN": "rich,ruptures,xdist", "HIDDEN_IN": ""}
    done = make(folder, target, f"PYTHON_AS_IS={sys.executable}", **hidden)
    assert done.returncode == 2
    lacks = {
        "bench": "package is missing: rich;",
        "test": "packages are missing: rich, pytest-xdist, ruptures;",
    }
    assert (
        lacks.get(target, "packages are missing: rich, ruptures;") in done.stderr
        and "Traceback" not in done.stderr
    )
    assert not (folder / ".venv").exists() and "pip install" not in done.stdout


def test_a_misspelt_sweep_shows_no_figures_of_an_earlier_run(tmp_path: Path) -> None:
    folder, log, python = tmp_path / "checkout", tmp_path / "log", tmp_path / "python"
    earlier = folder / "results" / "a-device" / "20261101T000000Z-a.parquet"
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    python.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\ncase "$*" in *"-m pytest"*) exit 2;; esac\n')
    python.chmod(0o755)
    done = make(folder, "bench", "SWEEP=gemm/sqare", f"PYTHON_AS_IS={python}")
    asked = log.read_text()
    assert done.returncode == 2 and "--bench-sweep gemm/sqare" in asked
    assert "plots" not in asked and "figures" not in done.stdout and not (folder / "figures").exists()
