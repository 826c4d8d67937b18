"""Whom our kernels race: a library at least, and the strongest that is known, by name."""

import importlib.util
import re
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

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


@pytest.mark.parametrize("broken", [False, True])
def test_a_missing_package_is_named(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("bitsandbytes") if broken else None  # one that lacks what is asked of it
    monkeypatch.setitem(sys.modules, "bitsandbytes", module)
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", module)
    bound = kernels.operator("training")
    problem = next(example for example in bound.examples if example.optimizer == "adamw")
    why = "cannot import name" if broken else "import of .* halted"
    with pytest.raises(
        Unsupported, match=f"bitsandbytes needs bitsandbytes, pip install bitsandbytes: {why}"
    ):
        bound.implementations["bitsandbytes"](problem, *bound.inputs(problem, uniform(problem, 1)))
