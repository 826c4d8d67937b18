"""A result is right everywhere, or it is wrong: poison, excerpts, what float64 says."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch

import kernels
from bench.spec import Problem
from bench.worker.check import escaped, judged, outputs_of, poison
from kernels.gemm.problem import Gemm
from tests.bench.simulated import Doubling, SimulatedCuda, doubling
from tests.kernels.tensors import relative_error


@pytest.fixture(autouse=True)
def seeded(seed: int) -> None:
    torch.manual_seed(seed)


def product(problem: Problem) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    operator = kernels.operator("gemm")
    inputs = operator.inputs(problem, lambda *shape, dtype=None: torch.rand(*shape) * 2 - 1)
    return inputs, operator.reference(problem, *inputs).float()


BIG = Gemm(dtype="float32", m=600, n=700, k=300, layout="NT")
"""Large enough to be checked by an excerpt."""


def test_a_right_result_has_a_small_error(seed: int) -> None:
    operator = kernels.operator("gemm")
    inputs, c = product(BIG)
    assert 0 < relative_error(operator, BIG, inputs, (c,)) < operator.tolerance(BIG, "onednn")


def test_one_value_never_written_is_found_wherever_it_is(seed: int) -> None:
    operator = kernels.operator("gemm")
    inputs, c = product(BIG)
    for bad in (float("nan"), float("inf"), -float("inf")):
        hole = c.clone()
        hole[random.randrange(700), random.randrange(600)] = bad
        assert relative_error(operator, BIG, inputs, (hole,)) == math.inf


def test_a_tile_computed_wrong_is_found_wherever_it_is(seed: int) -> None:
    operator = kernels.operator("gemm")
    inputs, c = product(BIG)
    row, column = random.randrange(700 - 63), random.randrange(600 - 63)
    c[row : row + 63, column : column + 63] *= 1.01
    assert relative_error(operator, BIG, inputs, (c,)) > operator.tolerance(BIG, "onednn")


def test_the_wrong_shape_or_number_of_outputs_is_no_comparison(seed: int) -> None:
    operator = kernels.operator("gemm")
    small = Gemm(dtype="float32", m=3, n=4, k=5)
    inputs, c = product(small)
    with pytest.raises(ValueError, match=r"output \(3, 4\) for a reference of \(4, 3\)"):
        relative_error(operator, small, inputs, (c.t(),))
    with pytest.raises(ValueError, match="2 outputs for a reference of 1"):
        relative_error(operator, small, inputs, (c, c))


def test_each_output_is_held_to_its_own_tolerance() -> None:
    """A loose one, of a sum near 0, does not make room for an error of another output."""
    problem = Doubling(dtype="float32", size=3)
    inputs, allowed = (torch.tensor([1.0, 2.0, -4.0]),), [1e-2, 1e-5]
    operator = replace(
        doubling(SimulatedCuda()),
        reference=lambda problem, x: (2 * x.double(), x.double()),
        tolerance=lambda problem, implementation: allowed,
    )
    x = inputs[0]
    assert judged(operator, "good", problem, inputs, (2 * x * 1.001, x)) == pytest.approx(
        (1e-3, 1e-2), rel=1e-3
    )
    assert judged(operator, "good", problem, inputs, (2 * x, x * 1.001)) == pytest.approx(
        (1e-3, 1e-5), rel=1e-3
    )
    assert judged(operator, "good", problem, inputs, (2 * x, x))[0] == 0
    error, _ = judged(operator, "good", problem, inputs, (2 * x, x * math.nan))
    assert error == math.inf
    allowed[1] = 0.0
    assert judged(operator, "good", problem, inputs, (2 * x * 1.001, x * 1.000001))[1] == 0
    allowed.append(1.0)
    with pytest.raises(ValueError, match="3 tolerances for 2 outputs"):
        judged(operator, "good", problem, inputs, (2 * x, x))


def test_only_a_problem_that_writes_nothing_may_return_nothing() -> None:
    launch = kernels.operator("launch")
    assert relative_error(launch, launch.examples[0], (torch.ones(1),), ()) == 0
    small = Gemm(dtype="float32", m=3, n=4, k=5)
    with pytest.raises(ValueError, match="0 outputs for a reference of 1"):
        relative_error(kernels.operator("gemm"), small, product(small)[0], ())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64])
def test_poison_is_seen_until_it_is_overwritten(dtype: torch.dtype) -> None:
    sets = [outputs_of(torch.zeros(5, 7, dtype=dtype)) for _ in range(4)]
    for outputs in sets:
        poison(outputs)
    assert escaped(sets) == 4
    sets[1][0].fill_(1)
    assert escaped(sets) == 3
    assert escaped([outputs_of(torch.zeros(0, dtype=dtype))]) == 0
