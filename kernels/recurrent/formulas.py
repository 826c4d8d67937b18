"""The float64 reference of recurrent layers: the formulas of problem.py and their derivatives."""

from __future__ import annotations

import torch

from bench.spec import Tensors
from kernels.recurrent.problem import Recurrent


def split(problem: Recurrent, tensors: Tensors) -> tuple[torch.Tensor, Tensors, list[Tensors], Tensors]:
    """x; first h, and c; w, r, b and d of each layer; dy, if there is one."""
    count = 2 if problem.cell == "lstm" else 1
    x, states, rest = tensors[0], tensors[1 : 1 + count], tensors[1 + count :]
    of_layers = [rest[4 * layer : 4 * layer + 4] for layer in range(problem.layers)]
    return x, states, of_layers, rest[4 * problem.layers :]


def forward(problem: Recurrent, *tensors: torch.Tensor) -> Tensors:
    """y [steps, batch, hidden], the last h and c, or h, [layers, batch, hidden]."""
    x, states, weights, _ = split(problem, tensors)
    last = []
    for layer, of_layer in enumerate(weights):
        kept = _pass(problem, x, tuple(state[layer] for state in states), *of_layer)
        x = kept["h"][1:]
        last.append([kept[name][-1] for name in ("h", "c")[: len(states)]])
    return x, *(torch.stack(state) for state in zip(*last, strict=True))


def gradients(problem: Recurrent, *tensors: torch.Tensor) -> Tensors:
    """dx, the gradients of the first h and c, or h; backward also of w, r, b, d of each layer in turn."""
    x, states, weights, (dy,) = split(problem, tensors)
    inputs, kept = [], []
    for layer, of_layer in enumerate(weights):
        inputs.append(x)
        kept.append(_pass(problem, x, tuple(state[layer] for state in states), *of_layer))
        x = kept[-1]["h"][1:]
    of_states: list[Tensors] = []
    of_weights: list[torch.Tensor] = []
    step_back = _lstm_back if problem.cell == "lstm" else _gru_back
    for layer in reversed(range(problem.layers)):
        w, r, _, _ = weights[layer]
        through = torch.zeros_like(kept[layer]["h"][0]), torch.zeros_like(kept[layer]["h"][0])
        # Gradients of what x and what h are multiplied to: the same, but for n of a GRU.
        dz, ds = [], []
        for step in reversed(range(problem.steps)):
            dh, dc = dy[step] + through[0], through[1]
            through, of_inputs, of_state = step_back(kept[layer], step, dh, dc, r)
            dz.append(of_inputs)
            ds.append(of_state)
        z, s = torch.stack(dz[::-1]), torch.stack(ds[::-1])
        of_states.insert(0, through[: len(states)])
        dw = z.flatten(0, 1).t() @ inputs[layer].flatten(0, 1)
        dr = s.flatten(0, 1).t() @ kept[layer]["h"][:-1].flatten(0, 1)
        of_weights[:0] = [dw, dr, z.sum((0, 1)), s.sum((0, 1))]
        dy = z @ w
    first = tuple(torch.stack(state) for state in zip(*of_states, strict=True))
    return dy, *first, *(of_weights if problem.direction == "backward" else ())


def _pass(
    problem: Recurrent,
    x: torch.Tensor,
    states: Tensors,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """Gates of each step, [steps, batch, hidden], and states before and after, [steps + 1, batch, hidden]."""
    of_inputs = x @ w.t() + b
    kept: dict[str, list[torch.Tensor]] = {"h": [states[0]], "c": [states[-1]]}
    for step in range(problem.steps):
        h, c = kept["h"][-1], kept["c"][-1]
        z, s = of_inputs[step].chunk(problem.gates, -1), (h @ r.t() + d).chunk(problem.gates, -1)
        if problem.cell == "lstm":
            gates = {name: torch.sigmoid(z[n] + s[n]) for n, name in ((0, "i"), (1, "f"), (3, "o"))}
            gates["g"] = torch.tanh(z[2] + s[2])
            c = gates["f"] * c + gates["i"] * gates["g"]
            h = gates["o"] * torch.tanh(c)
        else:
            gates = {"s": torch.sigmoid(z[0] + s[0]), "u": torch.sigmoid(z[1] + s[1]), "r_n": s[2]}
            gates["n"] = torch.tanh(z[2] + gates["s"] * s[2])
            h = (1 - gates["u"]) * gates["n"] + gates["u"] * h
        for name, value in {**gates, "h": h, "c": c}.items():
            kept.setdefault(name, []).append(value)
    return {name: torch.stack(values) for name, values in kept.items()}


_Back = tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor, torch.Tensor]
"""Gradients of h and c before the step, of w x + b [batch, gates hidden] and of r h + d."""


def _lstm_back(
    kept: dict[str, torch.Tensor], step: int, dh: torch.Tensor, dc: torch.Tensor, r: torch.Tensor
) -> _Back:
    i, f, o, g = (kept[name][step] for name in "ifog")
    t = torch.tanh(kept["c"][step + 1])
    dc = dc + dh * o * (1 - t**2)
    of_f = dc * kept["c"][step] * f * (1 - f)
    dz = torch.cat([dc * g * i * (1 - i), of_f, dc * i * (1 - g**2), dh * t * o * (1 - o)], -1)
    return (dz @ r, dc * f), dz, dz


def _gru_back(
    kept: dict[str, torch.Tensor], step: int, dh: torch.Tensor, _: torch.Tensor, r: torch.Tensor
) -> _Back:
    s, u, n = (kept[name][step] for name in "sun")
    dn = dh * (1 - u) * (1 - n**2)
    du = dh * (kept["h"][step] - n) * u * (1 - u)
    ds = dn * kept["r_n"][step] * s * (1 - s)
    of_state = torch.cat([ds, du, dn * s], -1)
    return (dh * u + of_state @ r, _), torch.cat([ds, du, dn], -1), of_state
