"""The pointer chase, run by the repaired interpreter under the sanitizer."""

import pytest
import torch

from kernels.latency.chasing import chase, launch
from kernels.latency.operator import OPERATOR
from kernels.latency.problem import Latency
from tests.kernels.interpreted import check
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import watched
from tests.kernels.tensors import uniform


@pytest.mark.parametrize("problem", OPERATOR.examples, ids=str)
def test_examples(problem: Latency, seed: int) -> None:
    """In bounds, a load for each step, all cells visited where there are steps enough, and the right end."""
    table, begin = OPERATOR.inputs(problem, uniform(problem, seed))
    done = check(OPERATOR, problem, (table, begin), launch(problem, table, begin))
    of_table = done.watch.loads.within(table)
    assert of_table.byte == 4 * problem.steps * problem.chains
    assert of_table.distinct_byte == 4 * min(problem.lines, problem.steps * problem.chains)
    assert done.byte == (of_table.byte + 4 * problem.chains, 4 * problem.chains, 0)


def test_beyond_two_to_the_31_bytes() -> None:
    """From the first cell to the last and back, in pages of which no others are touched."""
    problem = Latency(dtype="float32", footprint_byte=2**32, steps=3)
    table = torch.empty(problem.lines, 32, dtype=torch.int32)
    last = (problem.lines - 1) * 32
    table[0, 0], table[-1, 0] = last, 0
    begin, end = torch.zeros(1, dtype=torch.int32), torch.full((1,), -1, dtype=torch.int32)
    with repaired(), watched():
        chase[(1,)](table, begin, end, problem.steps)
    assert end.item() == last
