"""Who may import whom: folders import from the floors below them, and torch stays in the worker."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import networkx as nx

from studies.rooms import described, draw, graph, imported, modules, room
from tests.processes import python

ROOT = Path(__file__).parents[1]

USE_KERNELS = {
    *("kernels", "bench/worker", "bench/judge", "bench/cli", "bench/fleet", "bench/nightly", "bench/accept"),
    *("bench/doctor", "bench/pytest_plugin.py"),
}
"""Who may import operators: what runs in a process of its own, and the commands that hand them on."""

KERNELS_USE = {"kernels", "bench/spec.py", "bench/causes.py", "bench/autotune"}
"""What operators may import."""

NEED_TORCH = ("bench.autotune", "bench.worker")
"""Rooms and modules that a process of its own imports; no other imports torch, however indirectly."""
NO_TORCH_THOUGH_THERE = {"bench.worker.lifeline", "bench.worker.fault", "bench.worker.visit"}
"""Modules of those rooms that the parent imports."""


def breaches(module: str, source: str) -> set[str]:
    """What a module imports of kernels/, or a kernel of bench/, and must not."""
    here = room(module)
    return {
        name
        for name in imported(source)
        if (here == "kernels" and room(name) not in KERNELS_USE)
        or (room(name) == "kernels" and here not in USE_KERNELS)
    }


def test_kernels_and_their_users_keep_to_themselves() -> None:
    found = {name: breaches(name, path.read_text()) for name, path in modules().items()}
    assert not {name: wrong for name, wrong in found.items() if wrong}
    assert breaches("kernels.gemm.operator", "from bench.store.parquet import read") == {
        "bench.store.parquet"
    }
    assert breaches("bench.model.roofline", "def f():\n    import kernels.gemm") == {"kernels.gemm"}
    assert breaches("bench.runner.run", "from kernels import names") == {"kernels"}
    assert breaches("bench.runner.new", "from bench.judge import flags") == set()


def test_imports_go_downwards_as_the_page_on_architecture_draws_them(tmp_path: Path) -> None:
    """A circle has no order to draw; another arrow is a picture to draw again: `python -m studies rooms`."""
    drawn = description(ROOT / "docs" / "figures" / "rooms.svg")
    assert drawn == described(nx.transitive_reduction(graph()))
    draw(tmp_path / "rooms.svg")
    assert description(tmp_path / "rooms.svg") == drawn and "bench/runner -> bench/judge" in drawn


def description(picture: Path) -> str:
    """What an SVG file says of itself."""
    text = next(ElementTree.parse(picture).iter("{http://purl.org/dc/elements/1.1/}description")).text
    return text or ""


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
