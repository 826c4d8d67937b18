from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import get_args

import pytest
import torch
from torch.nn import functional

from bench.worker.check import outputs_of
from kernels.convolution_block.operator import OPERATOR
from kernels.convolution_block.problem import EPSILON, Function, Norm
from tests.kernels.problems import inputs_of, usual
from tests.kernels.tensors import relative_error, used

block = partial(usual, "convolution_block")


@pytest.fixture
def relu_calls() -> Iterator[list[tuple[bool, bool]]]:
    """torch.backends.cudnn's (benchmark, allow_tf32) in each call of a convolution with ReLU.

    torch's own schemas of cuDNN's convolutions are kept: only kernels for the CPU are added.
    """
    calls = []

    def convolve(
        x: torch.Tensor, w: torch.Tensor, padding: list[int], stride: list[int], dilation: list[int],
        groups: int, benchmark: bool, deterministic: bool, allow_tf32: bool, *, out: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        return out.copy_(functional.conv2d(x.double(), w.double(), None, stride, padding, dilation, groups))

    def with_relu(
        x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, stride: list[int], padding: list[int],
        dilation: list[int], groups: int,
    ) -> torch.Tensor:  # fmt: skip
        calls.append((torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32))
        addend = None if bias is None else bias.double()
        y = functional.conv2d(x.double(), w.double(), addend, stride, padding, dilation, groups)
        return y.relu().to(x.dtype)

    library = torch.library.Library("aten", "IMPL")
    library.impl("cudnn_convolution.out", convolve, "CPU")
    library.impl("cudnn_convolution_relu", with_relu, "CPU")
    yield calls
    library._destroy()


@pytest.mark.parametrize("norm", get_args(Norm))
@pytest.mark.parametrize(("dtype", "tensor_cores"), [("float16", True), ("float32", False)])
def test_every_way_of_cudnn_is_called_as_torch_declares_it(
    dtype: str, tensor_cores: bool, norm: Norm, relu_calls: list[tuple[bool, bool]], seed: int
) -> None:
    problem = block(dtype=dtype, norm=norm, stride=2, padding=3, window=5)
    inputs = inputs_of(problem, seed)
    ways = [name for name in OPERATOR.implementations if name.startswith("cudnn")]
    for name in (name for name in ways if not problem.refusal(name)):
        launch = OPERATOR.implementations[name](problem, *inputs)
        assert used(OPERATOR, name, problem, inputs, outputs_of(launch.call())) <= 1
    assert relu_calls == ([] if norm == "layernorm" else [(True, tensor_cores)])


@pytest.mark.parametrize(("norm", "activation"), [*product(get_args(Norm), get_args(Function))])
def test_the_reference_is_torchs_block(norm: Norm, activation: Function, seed: int) -> None:
    problem = block(norm=norm, activation=activation)
    x, w, *of = (tensor.double() for tensor in inputs_of(problem, seed))
    z = functional.conv2d(x, w, padding=1)
    assert 0.5 < z.var() < 2
    if norm == "batchnorm":
        weight, shift, mean, variance = (tensor[:, None, None] for tensor in of)
        z = (z - mean) / torch.sqrt(variance + EPSILON) * weight + shift
    elif norm == "layernorm":
        weight, shift = (tensor[:, None, None] for tensor in of)
        centred = z - z.mean(1, keepdim=True)
        z = centred / torch.sqrt(centred.square().mean(1, keepdim=True) + EPSILON) * weight + shift
    y = {
        "relu": z.clamp(min=0), "gelu": z * (1 + torch.erf(z / 2**0.5)) / 2,
        "silu": z / (1 + torch.exp(-z)), "sigmoid": 1 / (1 + torch.exp(-z)),
    }[activation]  # fmt: skip
    assert relative_error(OPERATOR, problem, inputs_of(problem, seed), (y,)) < 1e-12


def test_bytes_are_those_of_each_pass() -> None:
    problem = block(c=64, k=64, h=56, w=56, n=32, dtype="float16")
    y, w = problem.byte_written, 64 * 64 * 9 * 2
    x = 32 * 64 * 56 * 56 * 2
    parameters, bias = 4 * 4 * 64, 2 * 64
    moved = {
        "cudnn": x + w + parameters + 5 * y,
        "cudnn-folded": x + w + bias + 5 * y,
        "cudnn-relu": x + w + bias + y,
        "onednn": x + 3 * w + parameters + 5 * y,
        "onednn-folded": x + 3 * w + bias + 3 * y,
        "onednn-fused": x + 3 * w + bias + y,
        "inductor": x + w + parameters + 3 * y,
    }
    assert {i.name: problem.byte_moved(i.name) for i in problem.implementations} == moved
    assert problem.byte == x + w + parameters + y
    assert problem.byte_again("cudnn") == 2 * y and problem.moved_written("cudnn") == 3 * y
    layernorm = block(c=64, k=64, h=56, w=56, n=32, dtype="float16", norm="layernorm")
    statistics = 8 * 32 * 56 * 56
    assert layernorm.byte_moved("cudnn") == x + w + 2 * 2 * 64 + 5 * y + statistics
    assert layernorm.moved_written("onednn") == 3 * y + w + statistics
    plain = block(norm="none")
    assert plain.byte_moved("inductor") == plain.byte + 2 * plain.byte_written
    assert (plain.flop, plain.product) == (plain.convolution().flop, plain.convolution().product)
