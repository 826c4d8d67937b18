"""Pointer chases on tensors: a random cycle, and where its chains end."""

from __future__ import annotations

import torch

from bench.spec import Implementations, Operator, Tensors, Uniform
from kernels.latency.problem import LINE_BYTE, Latency
from kernels.optional import launched_by
from kernels.rounding import exact

_CELLS = LINE_BYTE // 4
"""Elements from one cell to the next."""


def inputs(problem: Latency, uniform: Uniform) -> Tensors:
    """The table `[lines, 32]`, whose column 0 is one random cycle, and the first cells `[chains]`; int32.

    A cell is named by its index in the table as one row. The chains begin evenly spaced along the cycle.
    """
    order = uniform(problem.lines, dtype=torch.float32).argsort() * _CELLS
    table = torch.zeros(problem.lines * _CELLS, dtype=torch.int32, device=order.device)
    table[order] = order.roll(-1).to(torch.int32)
    chains = torch.arange(problem.chains, device=order.device) * problem.lines // problem.chains
    return table.view(problem.lines, _CELLS), order[chains].to(torch.int32)


def reference(problem: Latency, table: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
    """The end of each chain `[chains]`, in float64: the cycle is squared for each bit of the steps."""
    ahead, at = table[:, 0].long() // _CELLS, begin.long() // _CELLS
    for bit in range(problem.steps.bit_length()):
        if problem.steps >> bit & 1:
            at = ahead[at]
        ahead = ahead[ahead]
    return (at * _CELLS).double()


IMPLEMENTATIONS: Implementations = {"triton": launched_by("latency.chasing")}
EXAMPLES = [
    # Two cells, more steps than cells, an odd number of cells, and several chains.
    Latency(dtype="float32", footprint_byte=LINE_BYTE * lines, steps=steps)
    for lines, steps in ((2, 1), (8, 100), (37, 36), (37, 7), (1024, 256))
]
OPERATOR = Operator(Latency, inputs, reference, IMPLEMENTATIONS, exact, EXAMPLES)
