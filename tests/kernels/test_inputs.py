"""Inputs are views of random memory that all cases of a worker share, so no operator may write to it."""

from __future__ import annotations

import pytest
import torch

import kernels
from bench.spec import Problem
from bench.worker.__main__ import make_bench
from bench.worker.cache_ring import Arena
from bench.worker.measure_case import Bench, check, stored_dtype

CACHE_BYTE = 1 << 20


def able(problem: Problem) -> list[str]:
    """The implementations that run here without compiling for seconds; or any, for which inputs are made."""
    found = [i.name for i in problem.implementations if not i.cpp_on_cpu]
    return [name for name in found if not problem.missing(name, "cpu", None)] or found[:1]


def shared(bench: Bench, dtype: torch.dtype, elements: int) -> torch.Tensor:
    """The first bytes of the memory that inputs of this type are views of."""
    return bench.arena(dtype, elements * dtype.itemsize).view((elements,)).view(torch.uint8)


@pytest.mark.parametrize("operator", kernels.names())
def test_random_memory_is_the_same_whatever_ran_before(operator: str, seed: int) -> None:
    """As in a worker that has measured nothing yet: no call in place changes it, and no size of a case."""
    bound = kernels.operator(operator)
    used = make_bench("cpu", CACHE_BYTE, seed)
    with torch.no_grad():
        for problem in bound.examples:
            for implementation in able(problem):
                check(used, bound, implementation, problem)
    for dtype in {stored_dtype(problem.dtype) for problem in bound.examples}:
        fresh = make_bench("cpu", CACHE_BYTE, seed)
        elements = used.arena(dtype, 0).byte // dtype.itemsize - Arena.drawn  # more would be drawn anew
        assert torch.equal(shared(used, dtype, elements), shared(fresh, dtype, elements)), dtype
