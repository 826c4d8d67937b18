"""Operators that exist as imported rows alone: nobody here can run them, but their rows are judged.

Each is the problem that a public table times, with the counts of FLOP and bytes that an operator of kernels/
has. One that gets a folder in kernels/ leaves this one.
"""

from collections.abc import Mapping

from bench.interop.imported_problems.engines import Collective, QuantizedLinear
from bench.interop.imported_problems.instruments import CachedRead, MultiplyAdds
from bench.interop.imported_problems.layers import Elementwise, GatedActivation, Network, Recurrence, RmsNorm
from bench.spec import Problem
from bench.sweep.load import Find

__all__ = ["PROBLEMS", "GatedActivation", "QuantizedLinear", "Recurrence", "with_imported"]

_ALL: tuple[type[Problem], ...] = (
    *(QuantizedLinear, Collective, Elementwise, RmsNorm, GatedActivation),
    *(CachedRead, MultiplyAdds, Recurrence, Network),
)
PROBLEMS: Mapping[str, type[Problem]] = {problem.operator: problem for problem in _ALL}


def with_imported(find: Find) -> Find:
    """Gives the problem class of these operators too. LookupError as `find` if there is none."""
    return lambda name: PROBLEMS[name] if name in PROBLEMS else find(name)
