"""Whole layers: right on a CPU, repeatable, and counted as their kernels run."""

from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import torch

from bench.spec import Dtype, Operator
from bench.worker.check import outputs_of
from kernels.layer import formula
from kernels.layer.kernel_counts import WORKS
from kernels.layer.operator import OPERATOR, excerpt
from kernels.layer.problem import LOSS_SCALE, Layer
from tests.kernels.problems import inputs_of
from tests.kernels.tensors import Dispatches, used

aten = torch.ops.aten
PRODUCTS = (aten.mm, aten.addmm, aten.bmm, aten.convolution, aten.convolution_backward)
SIZES: dict[str, dict[str, Any]] = {
    "transformer": {"batch": 2, "length": 16, "width": 64, "head_width": 32},
    "bottleneck": {"batch": 2, "length": 8, "width": 32},
}


def layer(kind: str, **given: Any) -> Layer:
    """A small step in float32, but for what is given."""
    usual = {"kind": kind, "direction": "step", "dtype": "float32"}
    return Layer.model_validate(usual | SIZES[kind] | given)


def written(of: Operator, name: str, problem: Layer, inputs: Any) -> tuple[torch.Tensor, ...]:
    return outputs_of(of.implementations[name](problem, *inputs).call())


@pytest.mark.parametrize("kind", SIZES)
def test_mixed_precision_has_float32_weights_and_16_bit_products(kind: str, seed: int) -> None:
    """What autocast multiplies is bfloat16, what comes out of it for the weights float32."""
    problem = layer(kind, dtype="bfloat16")
    inputs = inputs_of(problem, seed)
    assert {tensor.dtype for tensor in inputs[1:-1]} == {torch.float32}
    launch = OPERATOR.implementations["amp"](problem, *inputs)
    with Dispatches() as dispatches:
        outputs = outputs_of(launch.call())
    products = [call for call in dispatches.calls if call.operator in PRODUCTS]
    factors = {tensor.dtype for call in products for tensor in call.read}
    assert factors == {torch.bfloat16}
    assert {tensor.dtype for tensor in outputs[2 : 2 + len(problem.weights)]} == {torch.float32}
    x = torch.float32 if problem.kind == "transformer" else torch.bfloat16
    assert outputs[0].dtype == outputs[1].dtype == inputs[0].dtype == inputs[-1].dtype == x


def test_a_float16_step_unscales_its_gradients_as_gradscaler_does(seed: int) -> None:
    """Whatever GradScaler's own functions make of the same scaled gradients, bit by bit."""
    problem = layer("transformer", dtype="float16")
    inputs = inputs_of(problem, seed)
    _, _, *gradients = written(OPERATOR, "amp", problem, inputs)
    scaler = torch.amp.GradScaler("cpu", init_scale=LOSS_SCALE)  # type: ignore[attr-defined]
    with patch("kernels.layer.operator._unscale", lambda gradients: None):
        _, _, *scaled = written(OPERATOR, "amp", problem, inputs)
    weights = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in scaled]
    for weight, gradient in zip(weights, scaled, strict=True):
        weight.grad = gradient
    scaler.scale(torch.zeros(()))
    scaler.unscale_(torch.optim.SGD(weights))
    for weight, gradient in zip(weights, gradients, strict=True):
        assert weight.grad is not None and torch.equal(weight.grad, gradient)
        assert float(gradient.abs().max()) < 1


def test_masks_of_a_bottleneck_are_those_of_its_outputs(seed: int) -> None:
    problem = layer("bottleneck")
    inputs = inputs_of(problem, seed)
    outputs = written(OPERATOR, "eager", problem, inputs)
    _, with_masks, same = excerpt(problem, inputs, outputs)
    assert all(one is other for one, other in zip(outputs, same, strict=True))
    first, second, last = with_masks[len(inputs) :]
    assert torch.equal(first, outputs[-2] > 0) and torch.equal(second, outputs[-1] > 0)
    assert torch.equal(last, outputs[0] > 0)
    # A mask that hides what a ReLU should have kept shows in the values of that ReLU.
    hidden = torch.where(outputs[-1] == outputs[-1].max(), 0.0, outputs[-1])
    assert used(OPERATOR, "eager", problem, inputs, (*outputs[:-1], hidden)) > 1


def test_what_does_not_repeat_every_bit_is_no_deterministic_step(seed: int) -> None:
    problem = layer("bottleneck")
    inputs = inputs_of(problem, seed)
    build = OPERATOR.implementations["cudnn-deterministic"]
    usual = formula.forward
    with patch("kernels.layer.operator._settings", lambda *_, **__: nullcontext()):
        build(problem, *inputs)
        with (
            patch.object(formula, "forward", lambda *given: (usual(*given)[0] + torch.rand(()),)),
            pytest.raises(RuntimeError, match="differ in some bit"),
        ):
            build(problem, *inputs)


@pytest.mark.parametrize("kind", SIZES)
def test_counts_are_sums_over_classes_and_a_step_is_three_passes(kind: str) -> None:
    step, forward = layer(kind), layer(kind, direction="forward")
    assert step.flop == 3 * forward.flop == step.flop_of("contraction")
    for name in ("eager", "sdpa", "inductor"):
        parts = step.parts(name)
        assert {part.work for part in parts} <= set(WORKS)
        assert step.byte_moved(name) == sum(part.read + part.written for part in parts)
        assert step.byte_moved(name) >= step.byte
    assert step.byte_moved("inductor") < step.byte_moved("eager")


def test_the_layer_of_bert_large_has_the_operations_that_are_published() -> None:
    """Ivanov et al. 2020, table 1: 99.80 % of the operations are contractions, 0.17 % normalization."""
    bert = layer("transformer", batch=8, length=512, width=1024, head_width=64, dtype="float16")
    count = {work: bert.flop_of(work) for work in WORKS}
    assert bert.flop == 3 * (2 * 4096 * 12 * 1024**2 + 4 * 4096 * 512 * 1024)
    assert count["contraction"] / sum(count.values()) == pytest.approx(0.998, abs=0.001)
    assert count["normalization"] / sum(count.values()) == pytest.approx(0.0017, abs=0.0005)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", SIZES)
def test_the_parts_are_the_kernels_that_torch_runs(kind: str, dtype: Dtype) -> None:
    """As many contractions as the profiler sees, each of which is one operator of torch's."""
    problem = layer(kind, dtype=dtype)
    name = "eager" if dtype == "float32" else "amp"
    inputs = inputs_of(problem, 1)
    launch = OPERATOR.implementations[name](problem, *inputs)
    with torch.profiler.profile() as profile:
        launch.call()
    names = [event.name for event in profile.events() or ()]
    count = sum(names.count(f"aten::{each}") for each in ("mm", "addmm", "bmm", "convolution"))
    count += 2 * names.count("aten::convolution_backward")
    assert count == sum(part.work == "contraction" for part in problem.parts(name))
