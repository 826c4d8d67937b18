"""What rounding explains of the errors of attention, of values uniform in [-1, 1]."""

from __future__ import annotations

import math

from kernels.attention.problem import Attention
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY, high, low

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
