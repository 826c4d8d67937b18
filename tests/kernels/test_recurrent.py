"""Recurrent: its counts, and torch against the reference."""

import pytest

from bench.worker.check import outputs_of
from kernels.recurrent.operator import OPERATOR
from kernels.recurrent.problem import Recurrent
from tests.kernels.tensors import uniform, used


@pytest.mark.parametrize("problem", OPERATOR.examples, ids=str)
def test_bytes_are_those_of_the_tensors_and_aten_is_right(problem: Recurrent, seed: int) -> None:
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    outputs = outputs_of(OPERATOR.implementations["aten"](problem, *inputs).call())
    assert problem.byte_read == sum(tensor.nbytes for tensor in inputs)
    assert problem.byte_written == sum(tensor.nbytes for tensor in outputs)
    assert used(OPERATOR, "aten", problem, inputs, outputs) <= 1
