"""What is missing is said in one sentence that names all of it, by every command and from every process.

Packages are hidden in fresh interpreters, by a finder that Python's start-up hook (sitecustomize) puts first.
"""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from bench.device.detect import detect
from bench.environment import dependencies
from bench.environment.dependencies import IMPORT_NAMES, ROOT, Requirement, missing, required, sentence
from bench.store.parquet import read_rows
from tests.bench.killed_runs import SWEEP
from tests.bench.several import QUICK_BENCH, QUICK_PYTEST
from tests.drawing import drawn, is_deep
from tests.processes import python

HIDING = """
import os, sys

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name in os.environ["HIDDEN"].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

if os.environ.get("HIDDEN_IN", "") in " ".join(sys.orig_argv):
    sys.meta_path.insert(0, Hiding())
"""


@pytest.fixture
def hiding(tmp_path: Path):
    """Runs Python with packages hidden, by their import names; `only` in processes started with that text."""
    (tmp_path / "sitecustomize.py").write_text(HIDING)

    def run(hidden: str, *words: str, only: str = "") -> subprocess.CompletedProcess[str]:
        variables = {"PYTHONPATH": str(tmp_path), "HIDDEN": hidden, "HIDDEN_IN": only, "COLUMNS": "400"}
        return python(*words, **variables)

    return run


def install(*requirements: str) -> str:
    words = [sys.executable, "-m", "pip", "install", "-c", str(ROOT / "constraints.txt"), *requirements]
    return shlex.join(words)


NIGHTLY = ("bench", "nightly")
PYTEST = ("-m", "pytest", "bench/", "-p", "no:cacheprovider")


@pytest.mark.parametrize(
    "words",
    drawn(
        [PYTEST, (*PYTEST, "--benchmark"), ("-m", "bench", "list"), ("-m", "plots", "nothing.parquet")],
        *(2, "commands without packages"),
    ),
    ids=" ".join,
)
def test_all_that_is_missing_is_named_at_once(hiding, words: tuple[str, ...]) -> None:
    done = hiding("pydantic,yaml,rich,ruptures,jinja2", *words)
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "these Python packages are missing: pydantic>=2.7, PyYAML, rich; install with: " in said
    assert install("pydantic>=2.7", "PyYAML", "rich") in said
    assert "Traceback" not in said and "INTERNALERROR" not in said
    assert len([line for line in said.splitlines() if line.strip()]) == 1, said


@pytest.mark.parametrize(
    "words", drawn([PYTEST, ("-m", *NIGHTLY)], 2, "commands without torch"), ids=" ".join
)
def test_what_the_worker_will_need_is_said_before_it_is_started(hiding, words: tuple[str, ...]) -> None:
    done = hiding("torch,triton", *words)
    assert done.returncode == 2
    assert "missing: torch>=2.11, triton>=3.6; install with: " in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr and "worker" not in done.stdout + done.stderr


def test_reading_results_needs_nothing_that_only_runs_need(hiding, tmp_path: Path) -> None:
    hidden = ",".join(Requirement(name, "").import_name for name in dependencies.RUNNING)
    done = hiding(hidden, "-m", "plots", str(tmp_path / "none.parquet"))
    assert "missing" not in done.stderr and "none.parquet" in done.stderr
    assert hiding(hidden, "-m", "bench", "list", "ceilings/launch").returncode == 0


MEASURING = {one.name for one in required()} - {*dependencies.AFTERWARDS}
AFTERWARDS = ",".join(one.import_name for one in required(("all",)) if one.name not in MEASURING)
REFERENCE = ROOT / "results" / "reference"
ONE_AFTER_ANOTHER = """
from bench.__main__ import app
for words in {commands}:
    assert not app(words, standalone_mode=False)
"""


def test_measuring_needs_nothing_of_what_comes_afterwards(hiding, tmp_path: Path) -> None:
    """In processes of its own, with short samples: torch's products are timed and right."""
    (tmp_path / "small.yaml").write_text(SWEEP)
    chosen = ("--bench-sweep", str(tmp_path / "small.yaml"), "-k", "small and n8 and float32")
    measuring = [("-c", QUICK_PYTEST, "bench/", "-p", "no:cacheprovider", "--benchmark", *chosen)]
    if is_deep():
        product = ("gemm", "m=n=k=8", "dtype=float32", "--implementation", "onednn")
        measuring.append(("-c", QUICK_BENCH, "run", *product))
    for number, words in enumerate(measuring):
        folder = tmp_path / str(number)
        where = ("--bench-device", "cpu", "--bench-results", str(folder), "--bench-budget", "20")
        where += ("--bench-precision", "99%")
        done = hiding(AFTERWARDS, *words, *where)
        (result,) = folder.rglob("*.parquet")
        (row,) = [row for row in read_rows(result) if row.role == "measurement"]
        # A time taken while others had the processors does not count, and is in the file.
        assert done.returncode == 0 and "of 1 case has a time" in done.stdout, done.stdout + done.stderr
        assert row.is_timed and len(row.samples_s or []) > 1
        assert row.relative_error is not None and row.tolerance is not None
        assert row.relative_error <= row.tolerance
        commands = [["table", str(result)], ["accept", str(REFERENCE / "tour")]]
        done = hiding(AFTERWARDS, "-c", ONE_AFTER_ANOTHER.format(commands=commands))
        assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
        assert result.stem in done.stdout and "PASS" in done.stdout


@pytest.mark.parametrize(
    ("words", "lacks"),
    drawn(
        [
            (("plots", "none.parquet"), "this Python package is missing: matplotlib; "),
            (
                ("bench", "predict", "softmax", "rows=1", "--on", "b200"),
                "predict: this Python package is missing: scikit-learn; ",
            ),
            (("bench", "fleet", "none.parquet"), "fleet: this Python package is missing: ruptures; "),
            (("bench", "new", "operator", "mine"), "new: this Python package is missing: jinja2; "),
            (
                ("bench", "import", "deepbench", "."),
                "import deepbench: this Python package is missing: openpyxl",
            ),
        ],
        *(2, "commands that need more"),
    ),
    ids=str,
)
def test_a_command_names_what_it_lacks_itself(hiding, words: tuple[str, ...], lacks: str) -> None:
    done = hiding(AFTERWARDS, "-m", *words)
    assert done.returncode == 2 and lacks in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_page_names_what_it_lacks_itself(hiding) -> None:
    done = hiding(AFTERWARDS.replace("matplotlib,", ""), "-m", "plots", "report", "none")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "error: report: these Python packages are missing: jinja2, ruptures" in done.stderr


def test_the_doctor_says_what_is_missing_with_nothing_but_the_standard_library() -> None:
    """`-S` leaves out the packages of this environment."""
    done = python("-S", "-m", "bench", "doctor", "--quick")
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        "error: these Python packages are missing: numpy, nvidia-ml-py, pandas, pyarrow,"
    )
    assert ", torch>=2.11, triton>=3.6, typer; install with: " in done.stderr
    assert "openpyxl" not in done.stderr and "matplotlib" not in done.stderr


def test_the_doctor_finds_a_machine_that_only_measures_in_order(hiding) -> None:
    done = hiding(AFTERWARDS, "-m", "bench", "doctor", "--quick", "--bench-device", "cpu")
    assert done.returncode < 2 and not done.stderr, done.stdout + done.stderr
    first, *lines = done.stdout.splitlines()
    assert first == f"roofbench doctor: {detect('cpu').name}"
    found = {line.split(": ")[0] for line in lines if line[:4] in ("PASS", "WARN", "FAIL")}
    assert {"PASS packages", "PASS worker"} <= found
    assert not any(line.startswith("FAIL") for line in found)  # others may keep this machine busy
    word = "degraded" if any(line.startswith("WARN") for line in found) else "healthy"
    assert lines[-1].startswith(f"{word} (exit code {done.returncode})"), done.stdout
    said = " ".join(done.stdout.split())
    assert "Measuring has every package it needs. Drawing, importing or predicting lacks matplotlib," in said


def test_what_only_the_worker_lacks_ends_the_run_at_once(hiding, tmp_path: Path) -> None:
    words = ("--benchmark", "--bench-sweep", "ceilings/launch", "--bench-results", str(tmp_path / "results"))
    done = hiding("torch", *PYTEST, *words, only="bench.worker")
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "cpu cannot be measured: the worker ended with exit code 2: error: " in said
    assert "this Python package is missing: torch>=2.11; install with: " + install("torch>=2.11") in said
    assert "Traceback" not in said and "FAILED" not in said and "ERROR" not in said


def test_every_line_of_the_project_is_understood() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    found = {one.name for one in required(extras)}
    lines = [*project["dependencies"], *(line for extra in extras.values() for line in extra)]
    assert found == {metadata_name(line) for line in lines} - {"roofbench"}
    assert not missing(("dev",)), "the environment of the tests holds what the tests need"
    assert found > {one.name for one in required(("dev",))} > {one.name for one in required(("all",))}


def metadata_name(line: str) -> str:
    """By the library that pip itself reads such lines with."""
    from packaging.requirements import Requirement as Read

    return Read(line).name


def test_a_version_that_is_too_old_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", {"torch": "2.5.1+cu124", "pydantic": "2.10"}.get)
    assert Requirement("torch", ">=2.11").too_old == "2.5.1+cu124"
    assert not Requirement("pydantic", ">=2.7").too_old
    (old,) = missing(without={one.name for one in required()} - {"torch"})
    assert "missing: torch>=2.11 (here is 2.5.1+cu124); install with" in sentence([old])


# ---- what a child process finds


def test_whatever_the_source_imports_is_declared() -> None:
    """A package that only some other package brings may be missing where a user installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {name: extra for name, extra in project["optional-dependencies"].items() if name != "dev"}
    lines = [*project["dependencies"], *itertools.chain.from_iterable(extras.values())]
    names = {re.split(r"[<>=!~; ]", line)[0] for line in lines}
    known = {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in names}
    # pydantic_core is a part of pydantic, markupsafe of jinja2.
    known |= {"bench", "kernels", "plots", "studies", "pydantic_core", "markupsafe"} | sys.stdlib_module_names
    known |= {"tests"}  # studies draw some of their machines as tests do
    unknown = {
        (module, str(path.relative_to(ROOT)))
        for folder in ("bench", "kernels", "plots", "studies")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for module in imported(node)
        if module.partition(".")[0] not in known
    }
    assert unknown == set()


def imported(node: ast.AST) -> list[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
