import itertools

import pytest
import torch
from pydantic import ValidationError

from bench.spec import Dtype
from bench.worker.check import outputs_of
from kernels import operator
from kernels.softmax.operator import OPERATOR, aten, excerpt, tolerance
from kernels.softmax.problem import Softmax
from tests.drawing import covering
from tests.kernels.tensors import FLOATS, TORCH_TYPE, relative_error, uniform


def test_operator_binds_every_declared_name() -> None:
    assert operator("softmax") is OPERATOR


def drawn(problem: Softmax, seed: int) -> tuple[torch.Tensor, ...]:
    return OPERATOR.inputs(problem, uniform(problem, seed))


def softmax(direction: str, dtype: str, rows: int = 1499, length: int = 3000) -> Softmax:
    return Softmax(direction=direction, rows=rows, length=length, dtype=dtype)  # type: ignore[arg-type]


def test_reference_is_the_formula_and_its_gradient(seed: int) -> None:
    (x,) = drawn(softmax("forward", "float64", 5, 37), seed)
    x.requires_grad_()
    y = x.exp() / x.exp().sum(1, keepdim=True)
    found = OPERATOR.reference(softmax("forward", "float64", 5, 37), x.detach())
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, y.detach())

    problem = softmax("backward", "float64", 5, 37)
    dy = drawn(problem, seed)[1]
    (want,) = torch.autograd.grad(y, x, dy)
    found = OPERATOR.reference(problem, y.detach(), dy)
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, want)


@pytest.mark.parametrize("problem", OPERATOR.examples, ids=str)
def test_bytes_are_those_of_the_tensors(problem: Softmax, seed: int) -> None:
    inputs = drawn(problem, seed)
    assert all(one.is_contiguous() for one in inputs)
    assert sum(one.nbytes for one in inputs) == problem.byte_read
    (result,) = aten(problem, *inputs).outputs
    assert result.nbytes == problem.byte_written
    assert {problem.byte_moved(i.name) for i in Softmax.implementations} == {problem.byte}


def test_impossible_problems_are_refused() -> None:
    for wrong in ({"rows": 0}, {"length": 0}, {"direction": "sideways"}, {"dtype": "int8"}):
        with pytest.raises(ValidationError):
            Softmax(**{"direction": "forward", "rows": 1, "length": 1, "dtype": "float32", **wrong})  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="a float16 softmax over 1048577 elements is mostly zeros"):
        softmax("forward", "float16", 1, 2**20 + 1)
    softmax("backward", "float16", 1, 2**20 + 1)
    softmax("forward", "bfloat16", 1, 2**20 + 1)


def test_refusals_name_what_is_too_much() -> None:
    many = softmax("forward", "float32", 2**30 + 1, 2)
    assert many.refusal("triton") == "triton takes up to 1073741824 rows, not 1073741825"
    long = softmax("forward", "float32", 2, 2**30 + 1)
    assert long.refusal("triton") == "triton takes up to 1073741824 elements in a row, not 1073741825"
    assert not many.refusal("aten") and not softmax("forward", "float32", 2**30, 2).refusal("triton")


@pytest.mark.parametrize(
    "problem",
    [
        *OPERATOR.examples,
        *(softmax(d, t, 70, 20_011) for d in ("forward", "backward") for t in FLOATS),
    ],
    ids=str,
)
def test_aten_against_the_reference(problem: Softmax, seed: int) -> None:
    inputs = drawn(problem, seed)
    before = [one.clone() for one in inputs]
    launch = aten(problem, *inputs)
    result = launch.call()
    assert result is launch.outputs[0]  # preallocated: a launch allocates nothing
    assert relative_error(OPERATOR, problem, inputs, outputs_of(result)) <= tolerance(problem, "aten")
    assert all(torch.equal(a, b) for a, b in zip(before, inputs, strict=True))


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_tolerance_is_within_twenty_times_of_what_float32_does(
    direction: str, dtype: Dtype, seed: int
) -> None:
    problem = softmax(direction, dtype, 512, 768)
    inputs = drawn(problem, seed)
    wide = problem.model_copy(update={"dtype": "float32"})
    (plain,) = outputs_of(aten(wide, *(one.float() for one in inputs)).call())
    rounded = (plain.to(TORCH_TYPE[dtype]),)
    share = relative_error(OPERATOR, problem, inputs, rounded) / tolerance(problem, "triton")
    assert 0.05 < share <= 1


def in_16_bits(terms: torch.Tensor) -> torch.Tensor:
    """The sum over the last dimension, rounded to 16 bits after each step."""
    total = torch.zeros_like(terms[:, :1])
    for i in range(terms.shape[1]):
        total += terms[:, i : i + 1]
    return total.double()


def test_plausible_bugs_would_be_noticed(seed: int) -> None:
    problem = softmax("forward", "float16", 64, 1000)
    (x,) = inputs = drawn(problem, seed)
    raised = x.double().exp()
    total = raised.sum(1, keepdim=True)
    wrongs = {
        "sum in 16 bits": raised / in_16_bits(x.exp()),
        "last element missed in the sum": raised / (total - raised[:, -1:]),
        "padding counted in the sum": raised / (total + 24),
        "power of two": (2 ** x.double()) / (2 ** x.double()).sum(1, keepdim=True),
        "sum of the neighbouring row": raised / total.roll(1, 0),
    }
    for name, wrong in wrongs.items():
        assert relative_error(OPERATOR, problem, inputs, (wrong,)) > tolerance(problem, "triton"), name

    problem = softmax("backward", "float16", 64, 1000)
    y, dy = inputs = drawn(problem, seed)
    wide, product = y.double(), y.double() * dy.double()
    total = product.sum(1, keepdim=True)
    wrongs = {
        "sum in 16 bits": wide * (dy - in_16_bits(y * dy)),
        "sum left out": product,
        "one element missed": wide * (dy - total + product[:, -1:]),
        "dy and y exchanged": dy.double() * (wide - total),
    }
    for name, wrong in wrongs.items():
        assert relative_error(OPERATOR, problem, inputs, (wrong,)) > tolerance(problem, "triton"), name


def test_a_small_problem_is_checked_whole(seed: int) -> None:
    problem = softmax("backward", "float32", 100, 100)
    inputs = drawn(problem, seed)
    assert excerpt(problem, inputs, inputs[:1])[0] is problem


LARGE = list(itertools.product(["forward", "backward"], [(1499, 3000), (70_000, 70), (40, 130_001)]))


@pytest.mark.parametrize(
    ("direction", "shape"), covering(LARGE, "excerpts of softmax", lambda case: case[0], lambda case: case[1])
)
def test_excerpt_is_part_of_the_problem_and_notices_an_error(
    direction: str, shape: tuple[int, int], seed: int
) -> None:
    """An error in every third row is met, and the last row is always there."""
    rows, length = shape
    problem = softmax(direction, "float32", rows, length)
    inputs = drawn(problem, seed)
    outputs = outputs_of(OPERATOR.reference(problem, *inputs))
    smaller, some, part = excerpt(problem, inputs, outputs)
    assert smaller.elements <= problem.elements / 2 and smaller.length == length
    (want,) = outputs_of(OPERATOR.reference(smaller, *some))
    torch.testing.assert_close(part[0], want, rtol=1e-12, atol=1e-12)
    assert torch.equal(part[0][-1], outputs[0][-1])
    wrong = outputs[0].clone()
    wrong[::3] += 0.01 * wrong.abs().max()
    assert relative_error(OPERATOR, problem, inputs, (wrong,)) > 0.005
