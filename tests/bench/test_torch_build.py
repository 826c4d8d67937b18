"""Which torch is installed: decided by the driver, before pip fetches anything. Drivers are compiled here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.environment.torch_build import INDEX, Gpu, gpus_here, pip_words
from bench.errors import UserError
from tests.bench.test_dependencies import HIDING

ROOT = Path(__file__).parents[2]
H100, V100, B200 = (9, 0), (7, 0), (10, 0)


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("580.65.06, 9.0\n", [Gpu(580, H100)]),
        ("570.1, 9.0\n570.1, 12.0\n", [Gpu(570, H100), Gpu(570, (12, 0))]),
        ("No devices were found\n", []),
        ("", []),
    ],
)
def test_the_gpus_that_nvidia_smi_lists(
    listed: str, found: list[Gpu], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program := tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{listed}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert gpus_here() == found


USUAL = "torch (2.14.1)\nAvailable versions: 2.14.1, 2.13.0, 2.12.0+cpu\n"


@pytest.mark.parametrize(
    ("listed", "index"),
    [
        ({"": USUAL + "2.13.0+cpu"}, []),
        ({"": USUAL, "cpu": "2.13.0+cpu, 2.12.0+cpu"}, ["--extra-index-url", f"{INDEX}cpu"]),
    ],
)
def test_without_a_gpu_the_build_without_cuda_is_taken_wherever_it_is_and_said(
    listed: dict[str, str], index: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    words, said = pip_words("2.13.0", [], listed.__getitem__)
    assert words == [".[dev]", *index]
    assert said == "nvidia-smi lists no GPU: torch 2.13.0+cpu, which has no CUDA, is installed."


def never(tag: str) -> str:
    raise AssertionError(f"{tag} need not be looked for")


@pytest.mark.parametrize("gpu", [(7, 5), (8, 0), H100, B200, (10, 3), (12, 1)])
def test_pypis_build_is_taken_where_it_runs_and_cublaslt_with_it(gpu: tuple[int, int]) -> None:
    for driver in (580, 590):
        assert pip_words("2.13.0", [Gpu(driver, gpu)], never) == ([".[dev,cublaslt]"], "")


@pytest.mark.parametrize(
    ("here", "why"),
    [
        ([Gpu(525, H100)], "needs driver 580 or later; here is 525"),
        ([Gpu(575, H100), Gpu(575, V100)], "needs driver 580 or later; here is 575"),
        ([Gpu(580, V100)], "has no code for compute capability 7.0"),
    ],
)
def test_an_older_build_is_taken_where_only_that_runs_and_said(here: list[Gpu], why: str) -> None:
    words, said = pip_words("2.13.0", here, never)
    assert words[-2:] == ["--extra-index-url", "https://download.pytorch.org/whl/cu126"]
    assert why in said and "Instead 2.13.0+cu126 is installed" in said


@pytest.mark.parametrize("gpu", [Gpu(570, B200), Gpu(470, H100)])
def test_where_no_build_runs_nothing_is_downloaded(gpu: Gpu) -> None:
    with pytest.raises(UserError) as raised:
        pip_words("2.13.0", [gpu], never)
    said = str(raised.value)
    assert f"needs driver 580 or later; here is {gpu.driver}, and no other build does" in said
    assert said.endswith("has a torch of its own: make bench PYTHON_AS_IS=/usr/bin/python3")


# ---- the Makefile

FAKE_PYTHON = """#!/bin/sh
echo "$@" >> "{log}"
case "$*" in
    "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    "-m bench.environment.torch_build") {answer} ;;
esac
"""


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


@pytest.mark.parametrize(
    ("answer", "code"), [("echo '.[dev]' --extra-index-url U", 0), ("echo error >&2; exit 2", 2)]
)
def test_setup_asks_the_driver_before_pip(tmp_path: Path, answer: str, code: int) -> None:
    folder, log, python = tmp_path / "checkout", tmp_path / "log", tmp_path / "python"
    folder.mkdir()
    python.write_text(FAKE_PYTHON.format(log=log, answer=answer))
    python.chmod(0o755)
    (folder / ".d").touch()  # what the shell could take `.[dev]` for
    done = make(folder, "setup", f"PYTHON={python}")
    assert done.returncode == code, done.stderr
    asked = [line for line in log.read_text().splitlines() if line.startswith("-m")]
    first = ["-m venv .venv", "-m bench.environment.torch_build"]
    pip = ["-m pip install --quiet --upgrade pip"]
    pip += ["-m pip install --quiet --constraint constraints.txt .[dev] --extra-index-url U"]
    last = ["-m bench.environment.search_path"]
    assert asked == (first if code else [*first, *pip, *last])
    assert (folder / ".venv" / ".ready").exists() != bool(code)


def test_after_setup_the_environment_has_our_commands_in_any_folder(tmp_path: Path) -> None:
    """A real environment, but for pip, which is a package that does nothing."""
    folder, python = tmp_path / "a checkout", tmp_path / "python"
    for name in ("bench", "pip", "bench/cli", "bench/environment"):
        (folder / name).mkdir(parents=True)
    shutil.copy(ROOT / "bench/environment/search_path.py", folder / "bench/environment")
    for name in ("pip/__main__.py", "bench/environment/torch_build.py"):
        (folder / name).touch()
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
