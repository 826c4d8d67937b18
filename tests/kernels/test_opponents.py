"""Whom our kernels race: a library at least, and the strongest that is known, by name."""

import importlib.util
import re
import sys
from functools import partial
from pathlib import Path

import pytest

import kernels
from bench.spec import Unsupported
from kernels.optional import _launched
from tests.kernels.tensors import uniform


@pytest.mark.parametrize("name", kernels.names())
def test_kernels_that_are_imported_by_name_are_there(name: str) -> None:
    for function in kernels.operator(name).implementations.values():
        if isinstance(function, partial) and function.func is _launched:
            found = importlib.util.find_spec(f"kernels.{function.args[0]}")
            assert found and found.origin and "\ndef launch(" in Path(found.origin).read_text()


@pytest.mark.parametrize("name", kernels.names())
def test_every_operator_names_the_strongest_known_and_races_a_library(name: str) -> None:
    described = importlib.import_module(f"kernels.{name}.problem").__doc__ or ""
    strongest = re.search(r"^Strongest known: (.+?)(?:\n\n|\n?\Z)", described, re.DOTALL | re.MULTILINE)
    assert strongest, f"kernels/{name}/problem.py does not name the strongest known implementation"
    implementations = {i.name for i in kernels.problem(name).implementations}
    if strongest[1].startswith("none"):
        return
    assert any(not implementation.startswith("triton") for implementation in implementations)
    raced = set(re.findall(r"`([\w-]+)`", strongest[1]))
    assert raced and raced <= implementations


PACKAGES = ("flash_attn", "quack", "liger_kernel")


class Broken:
    """Finds each of these packages, and an error without a text in it."""

    def find_spec(self, name: str, *_: object) -> None:
        if name in PACKAGES:
            raise ImportError


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize(
    ("operator", "implementation", "package"),
    [
        ("attention", "flash-4", "flash-attn-4"),
        ("softmax", "quack", "quack-kernels"),
        ("layernorm", "quack", "quack-kernels"),
        ("layernorm", "liger", "liger-kernel"),
    ],
)
def test_a_missing_package_is_named(
    operator: str, implementation: str, package: str, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in PACKAGES:
        monkeypatch.setitem(sys.modules, module, None)
        if broken:
            monkeypatch.delitem(sys.modules, module)
    if broken:
        monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    bound = kernels.operator(operator)
    problem = bound.examples[0]
    why = "ImportError$" if broken else "No module named"
    with pytest.raises(Unsupported, match=f"{implementation} needs {package}, pip install {package}: {why}"):
        bound.implementations[implementation](problem, *bound.inputs(problem, uniform(problem, 1)))
