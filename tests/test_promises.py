"""What docs/extending.md promises to those who add an operator: the harness need not be edited.

tests/test_new.py adds one and runs it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import kernels

ROOT = Path(__file__).parents[1]
WAY = ("spec.py", "test_benchmark.py", "sweep", "device", "sampling", "store", "worker", "runner")
"""Below bench/: what a case goes through from its sweep to its row."""
OPERATORS = {"activations", "batchnorm", "fusion", "gemm", "layernorm", "linear", "pooling", "softmax"}
"""Names that mean nothing but an operator. Others (`stream`, `launch`; `attention`, if it is added) are words
that the harness uses for other things."""


def texts(source: str) -> Iterator[str]:
    """Texts of a program that are no docstrings."""
    tree = ast.parse(source)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def naming_operators(source: str) -> set[str]:
    """Operators and sweeps of operators (`gemm/square`) that these texts name."""
    return {text for text in texts(source) if text.split("/")[0] in OPERATORS}


def test_from_a_sweep_to_its_row_no_module_names_an_operator() -> None:
    """bench/__init__.py says so."""
    rooms = [ROOT / "bench" / name for name in WAY]
    paths = [ROOT / "conftest.py", *(room for room in rooms if room.is_file())]
    paths += [path for room in rooms for path in sorted(room.rglob("*.py"))]
    assert len(paths) > 40 and set(kernels.names()) >= OPERATORS
    named = {path.relative_to(ROOT).as_posix(): naming_operators(path.read_text()) for path in paths}
    assert {path: names for path, names in named.items() if names} == {}
