"""The operators, one folder each: `operator: NAME` in a sweep means kernels/NAME/. No registry."""

from importlib import import_module
from pathlib import Path

from bench.spec import Operator, Problem, Unknown


def names() -> list[str]:
    """Every operator there is: the folders that hold a problem.py."""
    return sorted(p.parent.name for p in Path(__file__).parent.glob("*/problem.py"))


def problem(name: str) -> type[Problem]:
    """The problem that kernels/NAME/problem.py exports as PROBLEM. Needs no torch.

    LookupError, naming the operators there are, if there is no such folder.
    """
    if not (Path(__file__).parent / name / "problem.py").is_file():
        raise Unknown("operator", name, "kernels/", names())
    declared: type[Problem] = import_module(f"kernels.{name}.problem").PROBLEM
    assert issubclass(declared, Problem) and declared.operator == name
    return declared


def operator(name: str) -> Operator:
    """The functions that kernels/NAME/operator.py exports as OPERATOR. Imports torch."""
    declared = problem(name)
    exported = import_module(f"kernels.{name}.operator").OPERATOR
    assert isinstance(exported, Operator) and exported.problem is declared
    return exported
