"""A result is right everywhere, or it is wrong: poison, excerpts, what float64 says."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch

import kernels
from bench.spec import Problem
from bench.worker.check import escaped, judged, outputs_of, poison, relative_errors, within
from kernels.gemm.problem import Gemm
from tests.bench.simulated import Doubling, SimulatedCuda, doubling
from tests.kernels.tensors import relative_error


def product(problem: Problem) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    operator = kernels.operator("gemm")
    inputs = operator.inputs(problem, lambda *shape, dtype=None: torch.rand(*shape) * 2 - 1)
    return inputs, operator.reference(problem, *inputs).float()


BIG = Gemm(dtype="float32", m=600, n=700, k=300, layout="NT")
"""Large enough to be checked by an excerpt."""


def test_a_tile_computed_wrong_is_found_wherever_it_is() -> None:
    operator = kernels.operator("gemm")
    inputs, c = product(BIG)
    assert 0 < relative_error(operator, BIG, inputs, (c,)) < operator.tolerance(BIG, "onednn")
    row, column = random.randrange(700 - 63), random.randrange(600 - 63)
    c[row : row + 63, column : column + 63] *= 1.01
    assert relative_error(operator, BIG, inputs, (c,)) > operator.tolerance(BIG, "onednn")


def test_one_value_never_written_is_found_wherever_it_is() -> None:
    operator = kernels.operator("gemm")
    inputs, c = product(BIG)
    for bad in (float("nan"), float("inf"), -float("inf")):
        hole = c.clone()
        hole[random.randrange(700), random.randrange(600)] = bad
        assert relative_error(operator, BIG, inputs, (hole,)) == math.inf


def test_the_wrong_shape_or_number_of_outputs_is_no_comparison() -> None:
    operator = kernels.operator("gemm")
    small = Gemm(dtype="float32", m=3, n=4, k=5)
    inputs, c = product(small)
    with pytest.raises(ValueError, match=r"output \(3, 4\) for a reference of \(4, 3\)"):
        relative_error(operator, small, inputs, (c.t(),))
    with pytest.raises(ValueError, match="2 outputs for a reference of 1"):
        relative_error(operator, small, inputs, (c, c))


def test_each_output_is_held_to_its_own_tolerance() -> None:
    """A loose one, of a sum near 0, does not make room for an error of another output."""
    problem, x, allowed = Doubling(dtype="float32", size=3), torch.tensor([1.0, 2.0, -4.0]), [1e-2, 1e-5]
    operator = replace(
        doubling(SimulatedCuda()),
        reference=lambda problem, x: (2 * x.double(), x.double()),
        tolerance=lambda problem, implementation: allowed,
    )

    def found(*outputs: torch.Tensor) -> tuple[float, float]:
        return judged(operator, "good", problem, (x,), outputs)

    assert found(2 * x * 1.001, x) == pytest.approx((1e-3, 1e-2), rel=1e-3)
    assert found(2 * x, x * 1.001) == pytest.approx((1e-3, 1e-5), rel=1e-3)
    assert found(2 * x, x)[0] == 0 and found(2 * x, x * math.nan)[0] == math.inf
    allowed[1] = 0.0
    assert found(2 * x * 1.001, x * 1.000001)[1] == 0
    for wrong in ([1e-2, math.nan], [1e-2, math.inf], [1e-2, 1e-5, 1.0]):
        allowed[:] = wrong
        with pytest.raises(ValueError, match=r"says nothing about the result|longer"):
            found(2 * x, x)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_result_is_right_against_a_reference_that_is_not_finite(bad: float) -> None:
    """Its error is NaN, which is not larger than any tolerance."""
    problem, (x,) = Doubling(dtype="float32", size=3), (torch.rand(3),)
    broken = 2 * x.double()
    broken[random.randrange(3)] = bad
    operator = replace(doubling(SimulatedCuda()), reference=lambda problem, x: broken)
    with pytest.raises(ValueError, match="the reference of output 0 is not finite"):
        relative_errors(operator, problem, (x,), (2 * x,))


def test_where_the_right_answer_is_zero_the_error_is_absolute() -> None:
    operator = replace(doubling(SimulatedCuda()), reference=lambda problem, x: torch.zeros(3).double())
    problem, x = Doubling(dtype="float32", size=3), torch.zeros(3)
    assert relative_errors(operator, problem, (x,), (x,)) == [0.0]
    assert relative_errors(operator, problem, (x,), (x - 1e-3,)) == pytest.approx([1e-3])


def test_an_error_that_is_no_number_is_not_within_a_tolerance() -> None:
    assert within(0.0, 0.0) and within(1e-3, 1e-3) and not within(2e-3, 1e-3)
    assert not within(math.nan, 1e-3) and not within(1e-3, math.nan) and not within(math.inf, 1e-3)


def test_only_a_problem_that_writes_nothing_may_return_nothing() -> None:
    launch = kernels.operator("launch")
    assert relative_error(launch, launch.examples[0], (torch.ones(1),), ()) == 0
    small = Gemm(dtype="float32", m=3, n=4, k=5)
    with pytest.raises(ValueError, match="0 outputs for a reference of 1"):
        relative_error(kernels.operator("gemm"), small, product(small)[0], ())


EVERY_OUTPUT_TYPE = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int8, torch.uint8, torch.int32, torch.int64),
]


@pytest.mark.parametrize("dtype", EVERY_OUTPUT_TYPE)
@pytest.mark.parametrize("shape", [(), (1,), (5, 7), (2, 3, 7, 7)])
def test_poison_is_seen_until_it_is_overwritten(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    sets = [outputs_of(torch.zeros(shape, dtype=dtype)) for _ in range(4)]
    for outputs in sets:
        poison(outputs)
    assert escaped(sets) == 4
    sets[1][0].fill_(1)
    assert escaped(sets) == 3
    assert escaped([outputs_of(torch.zeros(0, dtype=dtype))]) == 0


@pytest.mark.parametrize("place", range(3))
def test_every_output_of_a_launch_is_looked_at(place: int) -> None:
    """Of a gradient's dx, dweight and dbias one may be a kernel's that escaped."""
    sets = [(torch.zeros(4, 5), torch.zeros(5, dtype=torch.int8), torch.zeros(0)) for _ in range(3)]
    assert escaped(sets) == 0
    poison(sets[1][place : place + 1])
    assert escaped(sets) == (place < 2), "an output without elements cannot be unwritten"


def test_a_byte_whose_every_value_may_be_right_is_poison_only_throughout() -> None:
    """A window of 16 x 16 taps has its last tap, 255, as the place of a maximum."""
    codes = torch.full((3, 4), 255, dtype=torch.uint8)
    assert escaped([(codes,)]) == 1
    codes[0, 0] = 254
    assert escaped([(codes,)]) == 0
