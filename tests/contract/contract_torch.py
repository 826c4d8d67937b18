"""PyTorch's operators as we call them, in its CUDA build, with tensors that have no memory.

FakeTensorMode propagates shapes, types and the device `cuda`, and matches every call against the real
schemas: an overload, an argument or a number of arguments that does not exist fails as on a GPU. Nothing is
computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedOperatorException
from torch.utils._python_dispatch import TorchDispatchMode

import kernels
from bench.spec import Problem
from kernels.attention.problem import Attention
from kernels.batchnorm.problem import BatchNorm
from tests.contract.stand_in import GPUS, torch_cuda
from tests.kernels.tensors import uniform

BY_TORCH = ("cublas", "cudnn", "cudnn-standard", "aten", "inductor", "flash", "efficient", "unfused")
"""Implementations that are PyTorch's operators; the others have contracts of their own."""


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what is called on the device."""

    supports_higher_order_operators = True  # flex_attention is one

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(str(func))
        kwargs = dict(kwargs or {})
        # torch asks cuDNN on the device how long the weights of a recurrent layer are, and knows no shapes of
        # its gradient. Their arguments have been matched against the schemas.
        packet: Any = getattr(func, "overloadpacket", None)  # flex_attention has none
        if packet is torch.ops.aten._cudnn_rnn_flatten_weight:
            return torch.cat([weight.flatten() for weight in args[0]])
        if packet is torch.ops.aten._cudnn_rnn_backward:
            x, weights, _, _, h, c = args[:6]
            of_c = torch.empty_like(h) if c is not None else h.new_empty(0)
            return torch.empty_like(x), torch.empty_like(h), of_c, list(map(torch.empty_like, weights))
        try:
            return func(*args, **kwargs)
        except UnsupportedOperatorException:
            # Its arguments fit the schema, but only another form or operator knows shapes without a device.
            if packet is torch.ops.aten.cudnn_convolution:
                x, w, padding, stride, dilation, groups = args[:6]
                made = torch.convolution(x, w, None, stride, padding, dilation, False, [0, 0], groups)
            elif func._overloadname == "out":
                without = {name: value for name, value in kwargs.items() if name != "out"}
                made = packet.default(*args, **without)
            else:
                raise
            assert made.shape == kwargs.get("out", made).shape
            return kwargs.get("out", made)


def cases() -> Iterator[tuple[str, str, Problem]]:
    """(operator, implementation, problem): one for each data type, direction, layout, function and addend."""
    for name in kernels.names():
        operator = kernels.operator(name)
        for implementation in operator.implementations:
            kinds = set()
            for problem in operator.examples if implementation in BY_TORCH else ():
                kind = tuple(
                    v
                    for n, v in problem.parameters().items()
                    if isinstance(v, str) or n in ("beta", "bias", "causal") or (name, n) == ("gemm", "batch")
                )
                if needs_a_driver(name, implementation, kind):
                    continue
                if kind not in kinds and not problem.missing(implementation, "cuda", (9, 0)):
                    kinds.add(kind)
                    yield name, implementation, problem


def needs_a_driver(operator: str, implementation: str, kind: tuple[object, ...]) -> bool:
    """Whether torch asks the driver for memory or a context where nothing can stand in for it.

    Pinned memory is the driver's. A compiled step of a layer is differentiated by autograd, whose engine has
    a thread for each device, with its context.
    """
    return "pinned" in kind or (operator, implementation, "step" in kind) == ("layer", "inductor", True)


def on_no_device(tensor: torch.Tensor) -> torch.Tensor:
    """The like of it on cuda:0, without values: to be called inside FakeTensorMode."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")


def in_float16(value: Any) -> Any:
    """A bfloat16 tensor as float16; anything else as it is."""
    return value.half() if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 else value


def run(name: str, implementation: str, problem: Problem) -> tuple[set[str], tuple[torch.Tensor, ...]]:
    """The operators that one launch calls, and what it returns."""
    operator = kernels.operator(name)
    made = operator.inputs(problem, uniform(problem, 1))
    # torch.compile compiles for a real device: what it is given is called as it is.
    as_it_is = mock.patch.object(torch, "compile", lambda function, **_: function)
    # Before it gives bfloat16 to cuDNN torch asks the device, in C++, whether that is of Ampere or later.
    chooses = torch._C._select_conv_backend
    as_float16 = mock.patch.object(
        torch._C,
        "_select_conv_backend",
        lambda *args, **named: chooses(
            *map(in_float16, args), **{name: in_float16(value) for name, value in named.items()}
        ),
    )
    # Without a GPU torch.autocast("cuda") would do nothing, with a warning, and refuse bfloat16.
    casts = mock.patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    in_bfloat16 = mock.patch.object(torch.cuda, "is_bf16_supported", lambda: True)
    with (
        torch_cuda(GPUS[1]),
        casts,
        in_bfloat16,
        as_it_is,
        as_float16,
        torch.no_grad(),
        FakeTensorMode(allow_fallback_kernels=False),
        Operators() as called,
    ):
        inputs = tuple(map(on_no_device, made))
        launch = operator.implementations[implementation](problem, *inputs)
        called.seen.clear()
        written = launch.call()
        outputs = written if isinstance(written, tuple) else (written,)
        seen = set(called.seen)
    # On the CPU: a reference may be differentiated, and autograd has a thread for each real device.
    expected = operator.reference(problem, *made)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert [tuple(one.shape) for one in outputs] == [tuple(one.shape) for one in expected]
    assert name == "transfer" or {one.device.type for one in (*inputs, *outputs)} == {"cuda"}
    return seen, outputs


@pytest.mark.parametrize(("name", "implementation", "problem"), list(cases()), ids=str)
def test_operators_of_torch(name: str, implementation: str, problem: Problem) -> None:
    seen, _ = run(name, implementation, problem)
    assert seen


def test_the_operators_that_the_names_promise() -> None:
    norm = BatchNorm(n=2, c=16, h=8, w=8, direction="backward", dtype="float16", layout="NHWC")
    assert "aten.cudnn_batch_norm_backward.default" in run("batchnorm", "cudnn", norm)[0]
    sizes = {"batch": 2, "heads": 4, "kv_heads": 4, "q_length": 65, "head_width": 64, "dtype": "float16"}
    for library in ("flash", "cudnn", "efficient"):
        for direction, ending in (("forward", ""), ("backward", "_backward")):
            problem = Attention.model_validate({**sizes, "direction": direction})
            called = f"aten._scaled_dot_product_{library}_attention{ending}.default"
            assert called in run("attention", library, problem)[0]
