"""What an operator computes, and how its FLOP and bytes are counted, in the words of its problem."""

from __future__ import annotations

import inspect
import sys
from typing import NamedTuple

import kernels


class Facts(NamedTuple):
    """The facts of one operator; paragraphs as its docstrings have them."""

    says: str
    """Its first sentence."""
    formula: str
    """What it computes; empty if its first sentence says it all."""
    flop: str
    byte: str
    rate: str
    """flop or byte: what people quote."""


def facts(operator: str) -> Facts | None:
    """The facts of an operator of kernels/; None of an imported table's, which has no docstring."""
    if operator not in kernels.names():
        return None
    problem = kernels.problem(operator)
    says, *more = (inspect.getdoc(sys.modules[problem.__module__]) or "").split("\n\n")
    counted = [_doc(problem, name) for name in ("byte_read", "byte_written")]
    byte = "\n".join(filter(None, counted)) or _doc(problem, "tensors")
    formula = "\n\n".join(text for text in more if text.startswith("    "))
    return Facts(" ".join(says.split()), formula, _doc(problem, "flop"), byte, problem.rate)


def _doc(problem: type, name: str) -> str:
    """The docstring of a property that this problem, or its family, defines itself."""
    owner = next(cls for cls in problem.__mro__ if name in vars(cls))
    return "" if owner.__module__ == "bench.spec" else inspect.getdoc(vars(owner)[name]) or ""
