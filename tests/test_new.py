"""`python -m bench new`: what it writes into a copy of the checkout passes the tests there, and runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import python

ROOT = Path(__file__).parents[1]
FILES = "bench kernels plots studies sweeps tests docs conftest.py pyproject.toml .gitignore".split()
WRITTEN = [*(f"kernels/rms_tail/{name}.py" for name in ("__init__", "problem", "operator"))]
WRITTEN += ["sweeps/rms_tail/rows.yaml"]
HOLDING = ["tests/kernels/test_every_operator.py", "tests/test_promises.py", "tests/bench/test_our_sweeps.py"]
HOLDING += ["tests/plots/test_parameter_words.py", "-k", "rms_tail or promises or words or some_sweep"]
"""Tests that go over all operators and sweeps and take little time."""


def run(folder: Path, *words: str, cwd: str = ".", given: str = "") -> subprocess.CompletedProcess[str]:
    return python(*words, cwd=folder / cwd, given=given, PYTHONPATH=str(folder), CUDA_VISIBLE_DEVICES="")


ASK = """
import json, sys
from typer.testing import CliRunner
from bench.__main__ import app
answers = [CliRunner().invoke(app, ["new", *words]) for words in json.load(sys.stdin)]
json.dump([[answer.exit_code, answer.stdout, answer.stderr] for answer in answers], sys.stdout)
"""


def new(folder: Path, *commands: tuple[str, ...], cwd: str = ".") -> list[tuple[int, str, str]]:
    """Exit code, output and errors of `bench new` with the words of each command, all of one process."""
    done = run(folder, "-c", ASK, cwd=cwd, given=json.dumps(commands))
    assert done.returncode == 0, done.stderr
    return [(code, output, errors) for code, output, errors in json.loads(done.stdout)]


def files(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in paths}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in FILES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    (folder / "results").mkdir()
    shutil.copy(ROOT / "results" / "README.md", folder / "results")
    (folder / "results" / "reference").symlink_to(ROOT / "results" / "reference")
    return folder


@pytest.fixture(scope="module")
def added(checkout: Path) -> Path:
    """The copy with an operator added; it says what it wrote, which marks what is to be filled in."""
    before = files(checkout)
    ((code, output, errors),) = new(checkout, ("operator", "rms_tail"))
    assert code == 0, errors
    lines = output.splitlines()
    assert [line.removeprefix("written: ") for line in lines if "written: " in line] == WRITTEN
    assert sum("Fill in: " in (checkout / path).read_text() for path in WRITTEN) >= 3
    assert files(checkout) - before == {*WRITTEN}
    return checkout


def test_what_it_writes_passes_the_linter_and_the_tests_at_once(added: Path) -> None:
    for words in (["check"], ["format", "--check"]):
        done = run(added, "-m", "ruff", *words, *(name for name in WRITTEN if name.endswith(".py")))
        assert done.returncode == 0, done.stdout
    done = run(added, "-m", "pytest", "-q", "-p", "no:cacheprovider", *HOLDING)
    assert done.returncode == 0, done.stdout


REFUSED = {
    ("operator", "gemm"): "new operator gemm: kernels/gemm exists; give another name",
    ("operator", "rounding"): "new operator rounding: kernels/rounding.py exists",
    ("operator", "rms-norm"): "new operator rms-norm: give lower-case letters, digits and _, such as",
    ("operator", "lambda"): "new operator lambda: Python or bench/spec.py has this name already",
    ("operator", "problem"): "new operator problem: Python or bench/spec.py has this name already",
}


def test_what_cannot_work_is_refused_in_one_sentence_and_leaves_nothing(added: Path) -> None:
    before = files(added)
    for (code, output, errors), sentence in zip(new(added, *REFUSED), REFUSED.values(), strict=True):
        assert code == 2 and not output
        assert errors.startswith(f"error: {sentence}") and errors.count("\n") == 1
    assert files(added) == before
