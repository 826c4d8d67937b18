"""Layer normalization, and softmax, whose rows are alike."""

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
