"""Which part of a large result is checked: random indices, ascending, as a rule the ends among them.

All are drawn by torch's own generator on the CPU, so that a seeded run repeats its choice.
"""

from __future__ import annotations

from typing import TypeVar

import torch

from bench.spec import Problem, Tensors

P = TypeVar("P", bound=Problem)

SPREAD = 1 << 20
"""Elements of a long pass that are compared, about."""


def drawn(total: int, count: int) -> torch.Tensor:
    """`count` different numbers below `total`, the ends among them if there is room for both.

    All of them if `count` is no less than `total`.
    """
    if count >= total:
        return torch.arange(total)
    if count == 1:
        return torch.randint(total, (1,))
    inner = torch.randperm(total - 2)[: count - 2] + 1
    return torch.cat([torch.tensor([0]), inner.sort().values, torch.tensor([total - 1])])


def fraction(total: int, over: float) -> torch.Tensor:
    """About total / over different numbers below `total`, the ends among them."""
    return drawn(total, max(2, round(total / max(1.0, over))))


def one_of_each_part(total: int, count: int) -> torch.Tensor:
    """`count` numbers below `total`: a random one of every equal part, but of the last its end."""
    edges = torch.arange(count + 1) * total // count
    numbers = edges[:-1] + (torch.rand(count, dtype=torch.float64) * edges.diff()).long()
    numbers[-1] = total - 1
    return numbers


def one_of_each_block(total: int, width: int) -> torch.Tensor:
    """Numbers below `total`: the ends, and a random one of every block of `width`."""
    starts = torch.arange(0, total, width)
    inside = (starts + torch.randint(width, starts.shape)).clamp(max=total - 1)
    numbers: torch.Tensor = torch.unique_consecutive(
        torch.cat([torch.tensor([0]), inside, torch.tensor([total - 1])])
    )
    return numbers


def every_nth(problem: P, tensors: Tensors, outputs: Tensors) -> tuple[P, Tensors, Tensors]:
    """About a million evenly spread elements of a pass over arrays of `length`; of a short one all."""
    step = max(1, len(outputs[0]) // SPREAD)
    parts = tuple(output[::step] for output in outputs)
    smaller = problem.model_copy(update={"length": len(parts[0])})
    return smaller, tuple(tensor[::step] for tensor in tensors), parts


def crossing(tensor: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The part of a tensor at these indices of its first dimension and those of its second."""
    return tensor[first.to(tensor.device)[:, None], second.to(tensor.device)]


def of_rows(problem: P, rows: torch.Tensor, inputs: Tensors, outputs: Tensors) -> tuple[P, Tensors, Tensors]:
    """The same problem for these rows only, and those of every matrix among its tensors."""
    rows = rows.to(outputs[0].device)

    def some(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.index_select(0, rows) if tensor.ndim == 2 else tensor

    smaller = problem.model_copy(update={"rows": len(rows)})
    return smaller, tuple(map(some, inputs)), tuple(map(some, outputs))
