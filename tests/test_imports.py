"""Who may import whom: folders import from the floors below them, and torch stays in the worker."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.processes import python

ROOT = Path(__file__).parents[1]

FLOORS = [
    {"bench.case_name", "bench.format", "bench.errors", "bench.git"},
    {"bench.spec"},
    {"bench.autotune"},
    {"bench.environment", "bench.sweep", "bench.device", "bench.sampling"},
    {"bench.store"},
    {"bench.model", "bench.worker"},
    {"bench.judge"},
    {"bench.runner", "bench.interop", "bench.read"},
    {"bench.cli", "plots.base"},
    {"bench.fleet", "bench.nightly", "plots.figures"},
    {"bench.accept"},
    {"bench.doctor", "bench.pytest_plugin", "plots.accept", "plots.buy", "plots.report"},
    {"plots.website"},
    {"plots.cli"},
    {"bench.__main__", "bench.test_benchmark", "plots.__main__", "conftest"},
    {"studies"},
]
"""From the ground up: a room imports from itself and from rooms on lower floors, not from its neighbours."""

USE_KERNELS = {
    *(
        "bench.worker",
        "bench.judge",
        "bench.cli",
        "bench.fleet",
        "bench.nightly",
        "bench.accept",
        "bench.doctor",
    ),
    "bench.pytest_plugin",
}
"""Who may import operators: what runs in a process of its own, and the commands that hand them on."""

NEED_TORCH = ("bench.autotune", "bench.worker")
"""Rooms and modules that a process of its own imports; no other imports torch, however indirectly."""
NO_TORCH_THOUGH_THERE = {"bench.worker.lifeline", "bench.worker.fault", "bench.worker.visit"}
"""Modules of those rooms that the parent imports."""


def module_name(path: Path) -> str:
    """Dotted name of a file; a package's is its folder's."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    """Every module of ours and its file."""
    folders = ("bench", "kernels", "plots")
    paths = [ROOT / "conftest.py", *(path for name in folders for path in (ROOT / name).rglob("*.py"))]
    return {module_name(path): path for path in sorted(paths)}


def room(module: str) -> str:
    """The folder, or file on the top level, that a module belongs to; kernels/ and studies/ are one each."""
    parts = module.split(".")
    return parts[0] if parts[0] in ("kernels", "studies", "conftest") else ".".join(parts[:2])


def imported(source: str) -> set[str]:
    """Modules of ours that a source text imports at run time, wherever in the file."""
    modules_found = set()
    tree = ast.parse(source)
    checking = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in checking:
            continue
        if isinstance(node, ast.Import):
            modules_found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            module = node.module or ""
            names = {f"{module}.{alias.name}" for alias in node.names}
            modules_found |= {name if is_module(name) else module for name in names}
    return {
        name
        for name in modules_found
        if name.split(".")[0] in ("bench", "kernels", "plots", "studies", "tests")
    }


def is_module(name: str) -> bool:
    """Whether a dotted name is a file or folder of this checkout."""
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def allowed(importer: str, imports: str) -> bool:
    """Whether a module may import another."""
    here, there = room(importer), room(imports)
    if here == there or imports in ("bench", "plots"):
        return True
    if here == "kernels":
        return there in ("bench.spec", "bench.autotune")
    if there == "kernels":
        return here in USE_KERNELS
    floors = {name: number for number, names in enumerate(FLOORS) for name in names}
    return floors.get(there, len(FLOORS)) < floors[here]


def breaches(module: str, source: str) -> set[str]:
    """What a module imports and must not."""
    return {name for name in imported(source) if not allowed(module, name)}


def test_every_folder_imports_from_lower_floors_only() -> None:
    found = {name: breaches(name, path.read_text()) for name, path in modules().items()}
    assert not {name: wrong for name, wrong in found.items() if wrong}


def test_the_rule_can_be_broken() -> None:
    assert breaches("kernels.gemm.operator", "from bench.store.parquet import read") == {
        "bench.store.parquet"
    }
    assert breaches("bench.model.roofline", "def f():\n    import kernels.gemm") == {"kernels.gemm"}
    assert breaches("bench.runner.run", "from kernels import names") == {"kernels"}
    assert breaches("bench.runner.new", "from bench.judge import flags") == set()
    assert breaches("bench.judge.flags", "from bench.runner import run") == {"bench.runner.run"}
    with pytest.raises(AssertionError):
        breaches("bench.store.parquet", "from . import spec")


def without_torch() -> list[str]:
    """Modules that must not import torch."""
    names = []
    for name, path in modules().items():
        in_kernels = name.startswith("kernels.")
        heavy = name.startswith(NEED_TORCH) and name not in NO_TORCH_THOUGH_THERE
        if path.name == "test_benchmark.py" or heavy or (in_kernels and path.name != "problem.py"):
            continue
        names.append(name)
    return names


REFUSING = """
import importlib, sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError(f"torch is imported while {module} is", name=name)
sys.meta_path.insert(0, Refusing())
for module in sys.argv[1:]:
    importlib.import_module(module)
"""
SEEING = """
import importlib, sys
for module in sys.argv[2:]:
    importlib.import_module(module)
    print(module, *(name for name in sys.argv[1].split(",") if name in sys.modules))
"""


def said(*words: str) -> list[str]:
    """Lines of an interpreter's output, or the last of its errors."""
    done = python("-c", *words)
    return done.stdout.splitlines() if done.returncode == 0 else done.stderr.strip().splitlines()[-1:]


def test_only_the_worker_needs_torch() -> None:
    names = without_torch()
    assert len(names) > 100 and "bench.runner.run" in names and "kernels.gemm.problem" in names
    assert said(REFUSING, *names) == []
    (refusal,) = said(REFUSING, "bench.worker.__main__")
    assert "torch is imported while bench.worker.__main__ is" in refusal


def test_what_is_slow_to_import_is_imported_where_it_is_used() -> None:
    """Each takes as long as the rest of a command's start; workers import bench.sampling."""
    slow = "scipy.stats,scipy.optimize,scipy.signal,ruptures,sklearn,matplotlib"
    starts = ["bench.pytest_plugin", "bench.runner.run", "bench.cli.closing"]
    starts += ["bench.sampling.stopping", "bench.judge.claims"]
    assert said(SEEING, slow, *starts) == starts
    assert said(SEEING, f"{slow},numpy,pyarrow,pandas", "bench.__main__") == ["bench.__main__"]
    assert said(SEEING, f"{slow},kernels,torch,triton,pynvml", "plots.__main__") == [
        "plots.__main__ matplotlib"
    ]
