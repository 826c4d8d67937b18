"""Attention on tensors: inputs, the float64 reference, and which function is which implementation.

Shapes are those of problem.py.
"""

from __future__ import annotations

import itertools
import math
from typing import get_args

import torch

from bench.spec import Implementations, Operator, Tensors, Uniform
from kernels.attention import libraries
from kernels.attention.problem import Attention, Direction
from kernels.excerpts import fraction
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY, high, low
from kernels.tensors import inputs as declared

_CHECKED_FLOP = 3e8
"""Work of the reference for an excerpt, about."""
_PREPARED = 1 << 25
"""Most scores that are held at once while o and lse are prepared."""


def inputs(problem: Attention, uniform: Uniform) -> Tensors:
    """q, k, v; backward also o, lse and do, of which o and lse are those that a forward pass leaves."""
    q, k, v, *_ = made = declared(problem, uniform)
    return made if problem.direction == "forward" else (q, k, v, *_saved(problem, q, k, v), made[-1])


def _saved(problem: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    """o in q's type and lse in float32, computed in float32, some rows at a time."""
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    keys, values = k.float(), v.float()
    at_once = max(1, _PREPARED // (problem.batch * problem.heads * problem.kv_length))
    for begin in range(0, problem.q_length, at_once):
        rows = torch.arange(begin, min(begin + at_once, problem.q_length), device=q.device)
        here = slice(begin, begin + len(rows))
        scores = _scores(problem, q[:, :, here].float(), keys, rows)
        lse[:, :, here] = scores.logsumexp(-1).flatten(1, 2)
        o[:, :, here] = (scores.softmax(-1) @ values[:, :, None]).flatten(1, 2)
    return o, lse


def _scores(
    problem: Attention, q: torch.Tensor, k: torch.Tensor, rows: torch.Tensor, keys: torch.Tensor | None = None
) -> torch.Tensor:
    """s [batch, kv_heads, group, rows, keys] of q's rows and k's, whose places in the sequence are given.

    -inf where a row does not see a key. Without `keys`, k has all of them.
    """
    s: torch.Tensor = torch.matmul(_by_group(problem, q), k[:, :, None].mT) * problem.head_width**-0.5
    if problem.causal:
        places = torch.arange(problem.kv_length, device=q.device) if keys is None else keys
        s.masked_fill_(places > rows[:, None], -math.inf)
    return s


def _by_group(problem: Attention, of_queries: torch.Tensor) -> torch.Tensor:
    """[batch, heads, ...] as [batch, kv_heads, group, ...]: a view."""
    return of_queries.view(len(of_queries), problem.kv_heads, problem.group, *of_queries.shape[2:])


def reference(problem: Attention, *tensors: torch.Tensor) -> torch.Tensor | Tensors:
    """o; or dq, dk, dv; in float64.

    With the indices of rows, and backward those of keys too, as an excerpt adds them to the inputs: only
    those, evened (see `excerpt`).
    """
    count = 3 if problem.direction == "forward" else 6
    q, k, v, *saved = (tensor.double() for tensor in tensors[:count])
    chosen = tensors[count:]
    rows = chosen[0] if chosen else torch.arange(problem.q_length, device=q.device)
    if problem.direction == "forward":
        o = (_scores(problem, q[:, :, rows], k, rows).softmax(-1) @ v[:, :, None]).flatten(1, 2)
        return o * _evening(problem, rows) if chosen else o
    keys = chosen[1] if chosen else torch.arange(problem.kv_length, device=q.device)
    everything = torch.arange(problem.q_length, device=q.device)
    scale = problem.head_width**-0.5
    _, ds = _gradient_of_scores(problem, rows, None, q[:, :, rows], k, v, *(t[:, :, rows] for t in saved))
    dq = (ds @ k[:, :, None]).flatten(1, 2) * scale
    p, ds = _gradient_of_scores(problem, everything, keys, q, k[:, :, keys], v[:, :, keys], *saved)
    dk = (ds.mT @ _by_group(problem, q)).sum(2) * scale
    dv = (p.mT @ _by_group(problem, saved[2])).sum(2)
    if not chosen:
        return dq, dk, dv
    evening = _evening(problem, keys, of_keys=True)
    return dq * _evening(problem, rows), dk * evening, dv * evening


def _gradient_of_scores(
    problem: Attention,
    rows: torch.Tensor,
    keys: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    do: torch.Tensor,
) -> Tensors:
    """p and ds [batch, kv_heads, group, rows, keys], all as given."""
    p = (_scores(problem, q, k, rows, keys) - _by_group(problem, lse)[..., None]).exp()
    of_row = _by_group(problem, (do * o).sum(-1))[..., None]
    return p, p * (_by_group(problem, do) @ v[:, :, None].mT - of_row)


_SMALLEST_FLOAT16 = 2.0**-25
"""Largest error of a float16 that is below its normal numbers."""
_CPU_KEYS = 512
"""Keys of which torch's kernel on a CPU adds up dq before it rounds it."""
_CPU_QUERIES = ((768, 256), (192, 64), (1, 32))
"""Queries of which it adds up dk and dv before it rounds them: (length from which on, their number)."""


def tolerance(problem: Attention, implementation: str) -> float | tuple[float, float, float]:
    """The largest |error| that rounding explains, as a fraction of the largest |value|; of dq, dk, dv each.

    u is the unit roundoff of the problem's type, u' that of float32, in which everybody sums. Scores have a
    standard deviation of 1/3 whatever the width, so p is nearly flat and every result a sum of K terms of
    random sign: a normal variable, of deviation S, say. Its values in different rows of one head may be all
    but equal, so the largest |value| is at least `low` S by the columns of two heads; the largest of all
    normal errors is within `high` of their deviation.

    * The result is rounded to its type: u of the largest.
    * A factor of each term is rounded by up to u of itself: over the sum a normal error of deviation
      u S / sqrt(3) for each such factor, their squares added. In o and dv it is p; in dq and dk it is ds, dp
      before it, and o, of which the sum of its row is made. Scores that are rounded move p by a third as
      much. dk and dv of a group may be added up from results of each head that are rounded themselves.
    * A float16 p is about 1 / keys, and one below 2^-14 is off by up to 2^-25 however small it is.
    * torch's kernel on a CPU adds to dq, dk and dv in their own type, n blocks one after the other: partial
      sums grow as the root of their number, and their squared errors add up to n / 2 of one.
    * Sums of K terms, as in gemm: u' sqrt(K) / 3 times ln(elements 10^4), and on tensor cores, which cut off
      every 16 terms, u' K / 16. Those over the width of a head are added.
    * The exponential, its argument and the sum of a row, all positive terms: 8 u' and u' sqrt(keys) / 3.
    """
    group_terms = 1.0 if problem.group > 1 else 0.0
    queries = problem.group * problem.q_length
    if problem.direction == "forward":
        return _error(problem, 1.0, problem.kv_length)
    added = {"dq": 0.0, "dk": 0.0}
    if implementation == "flash-cpu":
        block = next(number for length, number in _CPU_QUERIES if problem.q_length >= length)
        added = {"dq": problem.kv_length / _CPU_KEYS / 2, "dk": queries / block / 2}
    return (
        _error(problem, 3.0 + added["dq"], problem.kv_length),
        _error(problem, 3.0 + group_terms + added["dk"], queries),
        _error(problem, 1.0 + group_terms + added["dk"], queries),
    )


def _error(problem: Attention, roundings: float, terms: int) -> float:
    """The error of sums of so many terms, with so many roundings in each."""
    elements = problem.batch * problem.heads * max(problem.q_length, problem.kv_length) * problem.head_width
    columns = min(2, problem.batch * problem.kv_heads) * problem.head_width
    largest = low(columns)
    unit = UNIT_ROUNDOFF[problem.dtype]
    of_factor = max(unit, _SMALLEST_FLOAT16 * problem.kv_length if problem.dtype == "float16" else 0.0)
    error = unit + of_factor * math.sqrt((roundings + 1 / 9) / 3) * high(elements) / largest
    sums = (math.sqrt(terms) + math.sqrt(problem.head_width)) / 3 * math.log(elements / UNLIKELY) / largest
    if problem.dtype != "float32":
        sums += (terms + problem.head_width) / 16
    return error + FLOAT32 * (sums + 8 + 4 * math.sqrt(problem.kv_length) / 3)


def excerpt(problem: Attention, inputs: Tensors, outputs: Tensors) -> tuple[Attention, Tensors, Tensors]:
    """Some heads, of those some rows, and of dk and dv some keys; of a small problem all.

    Sums are over all of their terms. Under a causal mask a row is the mean of as many values as it sees keys:
    the first are a hundred times as large as the last, whose errors would not show beside them. So rows and
    keys are evened, here and in the reference.
    """
    heads = problem.batch * problem.kv_heads
    share = problem.flop / _CHECKED_FLOP
    kept = fraction(heads, math.sqrt(share))
    share /= heads / len(kept)
    rows, keys = fraction(problem.q_length, share), fraction(problem.kv_length, share)
    smaller = problem.model_copy(update={"batch": len(kept), "heads": problem.group, "kv_heads": 1})
    device = outputs[0].device
    kept, rows, keys = kept.to(device), rows.to(device), keys.to(device)

    def of_heads(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(heads, -1, *tensor.shape[2:])[kept]

    some = tuple(map(of_heads, inputs))
    of_rows = of_heads(outputs[0])[:, :, rows].double() * _evening(problem, rows)
    if problem.direction == "forward":
        return smaller, (*some, rows), (of_rows,)
    evening = _evening(problem, keys, of_keys=True)
    of_keys = (of_heads(output)[:, :, keys].double() * evening for output in outputs[1:])
    return smaller, (*some, rows, keys), (of_rows, *of_keys)


def _evening(problem: Attention, places: torch.Tensor, of_keys: bool = False) -> torch.Tensor:
    """Factors [places, 1] with which rows, or keys, are about equally large; 1 without a mask.

    Row i is a mean over i + 1 keys, as large as (i + 1)^-1/2; key j adds up rows i from j on, each with about
    1 / (i + 1).
    """
    if not problem.causal:
        return torch.ones(1, 1, dtype=torch.float64, device=places.device)
    seen = torch.arange(1, problem.q_length + 1, dtype=torch.float64, device=places.device)
    squared = 1 / seen**2
    size = squared.flip(0).cumsum(0).flip(0).sqrt() if of_keys else seen.rsqrt()
    return 1 / size[places, None]


def _examples() -> list[Attention]:
    # A single query, a single key, primes, one past a tile, groups of heads, one head of keys for all, and
    # a width that is no power of two.
    sizes = [
        {"batch": 3, "heads": 2, "kv_heads": 2, "q_length": 1, "kv_length": 37, "head_width": 32},
        {"batch": 2, "heads": 6, "kv_heads": 2, "q_length": 7, "kv_length": 130, "head_width": 64},
        {"batch": 1, "heads": 4, "kv_heads": 1, "q_length": 129, "kv_length": 37, "head_width": 16},
        {"batch": 2, "heads": 6, "kv_heads": 6, "q_length": 129, "head_width": 80},
        {"batch": 1, "heads": 4, "kv_heads": 2, "q_length": 131, "head_width": 128, "causal": True},
        {"batch": 3, "heads": 2, "kv_heads": 1, "q_length": 131, "head_width": 64, "causal": True},
        {"batch": 1, "heads": 2, "kv_heads": 2, "q_length": 7, "head_width": 256, "causal": True},
        {"batch": 2, "heads": 4, "kv_heads": 1, "q_length": 131, "kv_length": 1, "head_width": 32},
    ]
    return [
        Attention.model_validate({"direction": direction, "dtype": dtype, **size})
        for size, direction, dtype in itertools.product(
            sizes, get_args(Direction), ("float16", "bfloat16", "float32")
        )
        # p of a single key is 1 whatever its score: dq and dk are 0, and nothing is relative to that.
        if direction == "forward" or size.get("kv_length") != 1
    ]


IMPLEMENTATIONS: Implementations = {
    "flash": libraries.flash,
    "cudnn": libraries.cudnn,
    "efficient": libraries.efficient,
    "unfused": libraries.unfused,
    "inductor": libraries.inductor,
    "flash-cpu": libraries.flash_cpu,
}
OPERATOR = Operator(Attention, inputs, reference, IMPLEMENTATIONS, tolerance, _examples(), excerpt)
