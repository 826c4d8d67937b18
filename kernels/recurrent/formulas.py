"""The float64 reference of recurrent layers: the formulas of problem.py, and autograd through them."""

from __future__ import annotations

import torch

from bench.spec import Tensors
from kernels.recurrent.problem import STATES, Recurrent


def split(problem: Recurrent, tensors: Tensors) -> tuple[torch.Tensor, Tensors, list[Tensors], Tensors]:
    """x; first h, and c; w, r, b and d of each layer; dy, if there is one."""
    count = STATES[problem.cell]
    x, states, rest = tensors[0], tensors[1 : 1 + count], tensors[1 + count :]
    of_layers = [rest[4 * layer : 4 * layer + 4] for layer in range(problem.layers)]
    return x, states, of_layers, rest[4 * problem.layers :]


def forward(problem: Recurrent, *tensors: torch.Tensor) -> Tensors:
    """y [steps, batch, hidden], the last h and c, or h, [layers, batch, hidden]."""
    x, states, weights, _ = split(problem, tensors)
    last = []
    for layer, of_layer in enumerate(weights):
        x, *state = _pass(problem, x, tuple(state[layer] for state in states), *of_layer)
        last.append(state)
    return x, *(torch.stack(state) for state in zip(*last, strict=True))


def gradients(problem: Recurrent, *tensors: torch.Tensor) -> Tensors:
    """dx, the gradients of the first h and c, or h; backward also of w, r, b, d of each layer in turn.

    By autograd through these formulas.
    """
    *given, dy = (tensor.detach() for tensor in tensors)
    wanted = len(given) if problem.direction == "backward" else 1 + STATES[problem.cell]
    with torch.enable_grad():
        leaves = [tensor.requires_grad_(place < wanted) for place, tensor in enumerate(given)]
        y, *_ = forward(problem, *leaves)
        return torch.autograd.grad(y, leaves[:wanted], dy)


def _pass(
    problem: Recurrent,
    x: torch.Tensor,
    states: Tensors,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
) -> Tensors:
    """h of every step, [steps, batch, hidden], and the last h and c, or h."""
    of_inputs = x @ w.t() + b
    h, c, every = states[0], states[-1], []
    for step in range(problem.steps):
        z, s = of_inputs[step].chunk(problem.gates, -1), (h @ r.t() + d).chunk(problem.gates, -1)
        if problem.cell == "lstm":
            i, f, o = (torch.sigmoid(z[n] + s[n]) for n in (0, 1, 3))
            c = f * c + i * torch.tanh(z[2] + s[2])
            h = o * torch.tanh(c)
        else:
            reset, update = torch.sigmoid(z[0] + s[0]), torch.sigmoid(z[1] + s[1])
            h = (1 - update) * torch.tanh(z[2] + reset * s[2]) + update * h
        every.append(h)
    return torch.stack(every), *((h, c) if problem.cell == "lstm" else (h,))
