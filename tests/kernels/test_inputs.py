"""What inputs an operator gets depends on no case before: they are views of memory that all cases share."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
import torch

import kernels
from bench.spec import Launch, Operator, Problem
from bench.worker.__main__ import make_bench
from bench.worker.buffer_ring import BufferRing
from bench.worker.cache_ring import Arena
from bench.worker.measure_case import Bench, check
from kernels.tensors import stored_dtype
from tests.drawing import covering

CACHE_BYTE = 1 << 20


def able(problem: Problem) -> list[str]:
    """The implementations that run here without compiling for seconds."""
    found = [i.name for i in problem.implementations if not i.cpp_on_cpu]
    return [name for name in found if not problem.missing(name, "cpu", None)]


def drawn(bench: Bench, operator: Operator, problem: Problem) -> list[bytes]:
    """The bits of a problem's inputs; of none if they lie in pinned memory, which needs a GPU."""
    drawing = replace(operator, implementations={"none": lambda *_: Launch(tuple)})
    with suppress(RuntimeError):
        (inputs,) = BufferRing(bench, drawing, "none", problem, 1).inputs
        return [tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() for tensor in inputs]
    return []


def shared(bench: Bench, dtype: torch.dtype, elements: int) -> torch.Tensor:
    """The first bytes of the memory that inputs of this type are views of."""
    return bench.arena(dtype, elements * dtype.itemsize).view((elements,)).view(torch.uint8)


@pytest.mark.parametrize("name", kernels.names())
def test_inputs_are_the_same_whatever_ran_before(name: str, seed: int) -> None:
    """No call in place changes the shared memory, no size of a case, and no draw of another."""
    operator = kernels.operator(name)
    examples = covering(operator.examples, f"inputs of {name}", lambda problem: problem.dtype)
    used, other, fresh = (make_bench("cpu", CACHE_BYTE, seed) for _ in range(3))
    before = {}
    with torch.no_grad():
        for problem in examples:
            before[problem] = drawn(used, operator, problem)
            for implementation in able(problem):
                check(used, operator, implementation, problem)
        for problem in reversed(examples):
            assert drawn(other, operator, problem) == before[problem], problem
    assert any(before.values())
    for dtype in {stored_dtype(problem.dtype) for problem in examples}:
        elements = used.arena(dtype, 0).byte // dtype.itemsize - Arena.drawn  # more would be drawn anew
        assert torch.equal(shared(used, dtype, elements), shared(fresh, dtype, elements)), dtype
