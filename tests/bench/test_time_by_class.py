"""Seconds by class of work: of real layers on this CPU, of made-up kernels, and what asks for them."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]

import kernels
from bench.runner.supervisor import visit_to
from bench.sampling.protocol import protocol
from bench.sweep.load import load, select
from bench.worker import time_by_class
from kernels.layer.operator import OPERATOR
from kernels.layer.problem import Layer
from tests.kernels.tensors import uniform


def of_a_step(**given: Any) -> dict[str, Any]:
    usual = {"direction": "step", "dtype": "float32", "batch": 2, "width": 64}
    problem = Layer.model_validate(usual | given)
    launch = OPERATOR.implementations["eager"](problem, *OPERATOR.inputs(problem, uniform(problem, 1)))
    return time_by_class.seconds([launch.call] * 2, on_gpu=False)


def event(name: str, own_us: float, parent: Any = None, number: int = -1, at: float = 0.0) -> Any:
    """An operator, its own time on the GPU and on the CPU alike."""
    return SimpleNamespace(
        name=name, self_device_time_total=own_us, self_cpu_time_total=own_us, cpu_parent=parent,
        sequence_nr=number, scope=0, device_type=DeviceType.CPU, time_range=SimpleNamespace(start=at),
    )  # fmt: skip


CALL = event("roofbench: a call", 0.0, at=-1.0)


def kernel(us: float) -> Any:
    return SimpleNamespace(name="k", self_device_time_total=us, device_type=DeviceType.CUDA)


@pytest.mark.parametrize(
    "given", [{"kind": "transformer", "length": 16, "head_width": 32}, {"kind": "bottleneck", "length": 8}]
)
def test_a_step_on_a_cpu_has_the_classes_that_its_layer_has(given: Any) -> None:
    found = of_a_step(**given)
    assert set(found) == {*time_by_class.COLUMNS, "parts_by"} and "operators" in found["parts_by"]
    assert all(found[name] > 0 for name in ("contraction_s", "normalization_s", "elementwise_s"))


@pytest.mark.parametrize("kind", ["transformer", "bottleneck"])
def test_every_operator_that_a_layer_calls_has_a_class_or_only_makes_views(kind: str) -> None:
    """What is new to a version of torch would silently be left out."""
    views = {
        "view", "_unsafe_view", "chunk", "transpose", "t", "as_strided", "reshape", "_reshape_alias", "split",
        "split_with_sizes", "expand", "select", "slice", "narrow", "unsqueeze", "squeeze", "permute",
        "detach", "mT", "result_type", "resolve_conj", "resolve_neg", "is_nonzero", "to", "_to_copy",
        "type_as", "contiguous", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
        "resize_", "resize_as_", "as_strided_", "clone", "zeros", "zeros_like", "new_zeros", "ones_like",
        "full", "item", "_local_scalar_dense", "lift_fresh",
    }  # fmt: skip
    composed = {
        "linear", "matmul", "softmax", "layer_norm", "rms_norm", "batch_norm", "_batch_norm_impl_index",
        "conv2d", "convolution", "_convolution", "_nnpack_available", "scaled_dot_product_attention",
        "relu",
    }  # fmt: skip
    sizes: dict[str, Any] = {"kind": kind, "direction": "step", "batch": 2, "width": 64, "length": 8}
    sizes |= {"head_width": 32} if kind == "transformer" else {}
    for dtype, name in (("float32", "eager"), ("bfloat16", "amp"), ("float16", "amp")):
        problem = Layer.model_validate({**sizes, "dtype": dtype})
        launch = OPERATOR.implementations[name](problem, *OPERATOR.inputs(problem, uniform(problem, 1)))
        with torch.profiler.profile() as profile:
            launch.call()
        called = {each.name[6:] for each in profile.events() or () if each.name.startswith("aten::")}
        known = {*time_by_class.CONTRACTION, *time_by_class.NORMALIZATION, *time_by_class.ELEMENTWISE}
        assert sorted(called - known - views - composed) == []


def test_kernels_count_for_the_operator_that_launched_them_and_gradients_of_norms_for_norms() -> None:
    norm = event("aten::_fused_rms_norm", 1.0, number=4, at=0)
    inner = event("aten::mul", 2.0, norm, number=5, at=1)
    product = event("aten::mm", 10.0, number=6, at=2)
    activation = event("aten::mul", 3.0, number=7, at=3)
    of_norm = event("autograd::engine::evaluate_function: MulBackward0", 0.0, number=5, at=4)
    of_activation = event("autograd::engine::evaluate_function: MulBackward0", 0.0, number=7, at=5)
    gradients = [event("aten::mul", 4.0, of_norm), event("aten::mul", 5.0, of_activation)]
    events = [CALL, norm, inner, product, activation, of_norm, of_activation, *gradients, kernel(25.0)]
    found = time_by_class.by_class(events, on_gpu=True)
    assert [found[name] for name in time_by_class.COLUMNS] == pytest.approx([10e-6, 7e-6, 8e-6])
    assert "kernels" in found["parts_by"]


def test_of_several_calls_the_median_counts() -> None:
    calls = [event("roofbench: a call", 0.0, at=10.0 * number) for number in range(3)]
    products = [event("aten::mm", own, at=10.0 * number + 1) for number, own in enumerate((5.0, 900.0, 7.0))]
    found = time_by_class.by_class([*calls, *products], on_gpu=False)
    assert found["contraction_s"] == pytest.approx(7e-6) and found["elementwise_s"] == 0.0


def test_classes_of_which_too_much_is_unknown_are_no_classes() -> None:
    events = [CALL, event("aten::mm", 90.0), event("aten::something_new", 10.0), kernel(100.0)]
    assert time_by_class.by_class(events, on_gpu=True) == {}
    assert time_by_class.by_class([*events[:2], kernel(94.0)], on_gpu=True)
    compiled = [CALL, event("aten::mm", 90.0), event("Torch-Compiled Region: 0/0", 10.0)]
    assert time_by_class.by_class(compiled, on_gpu=False) == {}


def test_only_a_sweep_with_a_claim_on_shares_asks_for_them() -> None:
    asked = {}
    for name in ("layer/width", "layer/batch"):
        (path,) = select(name)
        case = load(path, kernels.problem, 132).cases[0]
        asked[name] = visit_to(case, protocol("cpu"), 1.0, None, first=True).divided
    assert asked == {"layer/width": True, "layer/batch": False}
