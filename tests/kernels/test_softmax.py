import torch

from kernels.softmax.operator import OPERATOR, tolerance
from kernels.softmax.problem import Softmax
from tests.kernels.problems import inputs_of
from tests.kernels.tensors import relative_error


def softmax(direction: str, dtype: str, rows: int = 1499, length: int = 3000) -> Softmax:
    return Softmax(direction=direction, rows=rows, length=length, dtype=dtype)  # type: ignore[arg-type]


def test_reference_is_the_formula_and_its_gradient(seed: int) -> None:
    (x,) = inputs_of(softmax("forward", "float64", 5, 37), seed)
    x.requires_grad_()
    y = x.exp() / x.exp().sum(1, keepdim=True)
    found = OPERATOR.reference(softmax("forward", "float64", 5, 37), x.detach())
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, y.detach())

    problem = softmax("backward", "float64", 5, 37)
    dy = inputs_of(problem, seed)[1]
    (want,) = torch.autograd.grad(y, x, dy)
    found = OPERATOR.reference(problem, y.detach(), dy)
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, want)


def test_no_implementation_moves_more_than_it_must() -> None:
    for problem in OPERATOR.examples:
        assert {problem.byte_moved(way.name) for way in Softmax.implementations} == {problem.byte}


def in_16_bits(terms: torch.Tensor) -> torch.Tensor:
    """The sum over the last dimension, rounded to 16 bits after each step."""
    total = torch.zeros_like(terms[:, :1])
    for i in range(terms.shape[1]):
        total += terms[:, i : i + 1]
    return total.double()


def test_plausible_bugs_would_be_noticed(seed: int) -> None:
    problem = softmax("forward", "float16", 64, 1000)
    (x,) = inputs = inputs_of(problem, seed)
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
    y, dy = inputs = inputs_of(problem, seed)
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
