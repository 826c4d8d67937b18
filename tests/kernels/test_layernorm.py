"""Layer normalization, and softmax, whose rows are alike."""

import math

import pytest
import torch

from bench.spec import Unsupported
from bench.worker.check import outputs_of
from kernels.layernorm.operator import OPERATOR as LAYERNORM
from kernels.layernorm.operator import tolerance
from kernels.layernorm.problem import EPSILON, LayerNorm
from kernels.softmax.operator import OPERATOR as SOFTMAX
from kernels.softmax.problem import Softmax
from tests.kernels.problems import inputs_of
from tests.kernels.tensors import uniform, used


def layernorm(direction: str, dtype: str, rows: int = 1499, length: int = 3000) -> LayerNorm:
    return LayerNorm(direction=direction, rows=rows, length=length, dtype=dtype)  # type: ignore[arg-type]


def softmax(direction: str, dtype: str, rows: int, length: int) -> Softmax:
    return Softmax(direction=direction, rows=rows, length=length, dtype=dtype)  # type: ignore[arg-type]


def test_reference_is_torchs_layer_norm_and_its_gradient(seed: int) -> None:
    problem = layernorm("forward", "float64", 5, 37)
    x, weight, bias = (one.requires_grad_() for one in inputs_of(problem, seed))
    y = torch.nn.functional.layer_norm(x, [37], weight, bias)
    expected = LAYERNORM.reference(problem, x.detach(), weight.detach(), bias.detach())
    torch.testing.assert_close(expected[0], y.detach())
    torch.testing.assert_close(expected[1], x.detach().mean(1, keepdim=True))
    rstd = 1 / (x.detach().var(1, keepdim=True, unbiased=False) + EPSILON).sqrt()
    torch.testing.assert_close(expected[2], rstd)

    dy = uniform(problem, seed + 1)(5, 37)
    wanted = torch.autograd.grad(y, (x, weight, bias), dy)
    backward = problem.model_copy(update={"direction": "backward"})
    found = LAYERNORM.reference(backward, x.detach(), dy, weight.detach(), expected[1], expected[2])
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "direction, dtype, length, fits",
    [
        ("forward", "float32", 16384, True),
        ("forward", "float16", 16383, True),
        ("forward", "float32", 16385, False),
        ("backward", "float16", 8192, True),
        ("backward", "float16", 8193, False),
        ("backward", "float16", 8184, True),
        ("backward", "float16", 8188, False),
        ("backward", "float32", 8188, True),
        ("backward", "float16", 4095, True),
        ("backward", "float16", 4097, False),
    ],
)
def test_our_kernels_take_rows_that_registers_hold(
    direction: str, dtype: str, length: int, fits: bool
) -> None:
    refusal = layernorm(direction, dtype, 1, length).refusal("triton")
    assert (not refusal) is fits and (fits or f"not {length}" in refusal)


def test_torch_on_a_cpu_sums_16_bit_gradients_in_16_bits(seed: int) -> None:
    """Hence aten's own tolerance and its refusal beyond some rows; if this fails, torch is mended."""
    problem = layernorm("backward", "float16", 4096, 64)
    inputs = inputs_of(problem, seed)
    outputs = outputs_of(LAYERNORM.implementations["aten"](problem, *inputs).call())
    assert used(LAYERNORM, "aten", problem, inputs, outputs) <= 1
    assert used(LAYERNORM, "triton", problem, inputs, outputs) > 1
    assert max(tolerance(problem, "aten")) <= 0.25
    assert tolerance(problem, "aten")[0] == tolerance(problem, "triton")[0]  # dx is as good as ours

    far = layernorm("backward", "bfloat16", 2**18, 64)
    few = layernorm("backward", "bfloat16", 2, 64)
    with pytest.raises(Unsupported, match="sums dweight and dbias in bfloat16: over 262144 rows"):
        LAYERNORM.implementations["aten"](far, *inputs_of(few, seed))
    assert tolerance(far, "aten") == tolerance(far, "triton")


def in_16_bits(terms: torch.Tensor) -> torch.Tensor:
    """The sum over the first dimension, rounded to 16 bits after each step."""
    total = torch.zeros_like(terms[0])
    for term in terms:
        total += term
    return total


def test_plausible_bugs_of_layer_normalization_would_be_noticed(seed: int) -> None:
    """Each is beyond the tolerance of the data type in which it is hardest to see."""
    problem = layernorm("forward", "float16", 64, 1000)
    x, weight, bias = inputs = inputs_of(problem, seed)
    y, mean, rstd = LAYERNORM.reference(problem, *inputs)
    sum_in_16_bits = in_16_bits(x.t())[:, None] / 1000
    unbiased = rstd * math.sqrt(999 / 1000)
    wrongs = {
        "mean summed in 16 bits": (y, sum_in_16_bits, rstd),
        "bias left out": (y - bias, mean, rstd),
        "one element of a row missed": (y, mean - x[:, -1:] / 1000, rstd),
        "variance over length - 1": (y, mean, unbiased),
        "weight of the neighbour": ((x - mean) * rstd * weight.roll(1) + bias, mean, rstd),
    }
    for name, wrong in wrongs.items():
        assert used(LAYERNORM, "triton", problem, inputs, wrong) > 1, name

    single = layernorm("forward", "float32", 64, 1000)
    inputs = inputs_of(single, seed)
    y, mean, rstd = LAYERNORM.reference(single, *inputs)
    without_epsilon = (y, mean, (rstd**-2 - EPSILON) ** -0.5)
    assert used(LAYERNORM, "triton", single, inputs, without_epsilon) > 1

    gradient = layernorm("backward", "float16", 512, 200)
    inputs = inputs_of(gradient, seed)
    x, dy, weight, mean, rstd = inputs
    dx, dweight, dbias = LAYERNORM.reference(gradient, *inputs)
    standard, scaled = (x.double() - mean) * rstd, (dy * weight).double()
    slope = (scaled * standard).mean(1, keepdim=True)
    row = int(rstd.abs().argmax())  # it may be any number, and where it is none a row counts for nothing
    wrongs = {
        "mean of g left out": (rstd * (scaled - standard * slope), dweight, dbias),
        "slope left out": (rstd * (scaled - scaled.mean(1, keepdim=True)), dweight, dbias),
        "a row left out of dbias": (dx, dweight, dbias - dy[row]),
        "a row left out of dweight": (dx, dweight - dy[row] * standard[row], dbias),
        "dbias summed in 16 bits": (dx, dweight, in_16_bits(dy)),
    }
    for name, wrong in wrongs.items():
        assert used(LAYERNORM, "triton", gradient, inputs, wrong) > 1, name


def test_reference_is_the_formula_and_its_gradient(seed: int) -> None:
    (x,) = inputs_of(softmax("forward", "float64", 5, 37), seed)
    x.requires_grad_()
    y = x.exp() / x.exp().sum(1, keepdim=True)
    found = SOFTMAX.reference(softmax("forward", "float64", 5, 37), x.detach())
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, y.detach())

    problem = softmax("backward", "float64", 5, 37)
    dy = inputs_of(problem, seed)[1]
    (want,) = torch.autograd.grad(y, x, dy)
    found = SOFTMAX.reference(problem, y.detach(), dy)
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, want)


def test_plausible_bugs_of_softmax_would_be_noticed(seed: int) -> None:
    problem = softmax("forward", "float16", 64, 1000)
    (x,) = inputs = inputs_of(problem, seed)
    raised = x.double().exp()
    total = raised.sum(1, keepdim=True)
    wrongs = {
        "sum in 16 bits": raised / in_16_bits(x.exp().t())[:, None].double(),
        "last element missed in the sum": raised / (total - raised[:, -1:]),
        "padding counted in the sum": raised / (total + 24),
        "power of two": (2 ** x.double()) / (2 ** x.double()).sum(1, keepdim=True),
        "sum of the neighbouring row": raised / total.roll(1, 0),
    }
    for name, wrong in wrongs.items():
        assert used(SOFTMAX, "triton", problem, inputs, (wrong,)) > 1, name

    problem = softmax("backward", "float16", 64, 1000)
    y, dy = inputs = inputs_of(problem, seed)
    wide, product = y.double(), y.double() * dy.double()
    total = product.sum(1, keepdim=True)
    wrongs = {
        "sum in 16 bits": wide * (dy - in_16_bits((y * dy).t())[:, None].double()),
        "sum left out": product,
        "one element missed": wide * (dy - total + product[:, -1:]),
        "dy and y exchanged": dy.double() * (wide - total),
    }
    for name, wrong in wrongs.items():
        assert used(SOFTMAX, "triton", problem, inputs, (wrong,)) > 1, name
