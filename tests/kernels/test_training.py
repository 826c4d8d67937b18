"""Training steps: right on a CPU, the same in every launch, counted as they run, their memory predicted."""

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.worker.check import outputs_of, poison
from bench.worker.memory import HostMemory
from kernels.training.operator import OPERATOR
from kernels.training.problem import Training
from tests.drawing import drawn
from tests.kernels.problems import inputs_of, usual
from tests.kernels.tensors import used

step = partial(usual, "training")


def written(problem: Training, name: str, inputs: Any, times: int = 1) -> tuple[torch.Tensor, ...]:
    """What the last of so many launches wrote."""
    with torch.no_grad():  # as in the worker
        launch = OPERATOR.implementations[name](problem, *inputs)
        for _ in range(times - 1):
            poison(outputs_of(launch.call()))
        return outputs_of(launch.call())


def counted(problem: Training, name: str, seed: int = 0) -> int:
    """`peak_byte` as the harness counts it."""
    inputs, memory = inputs_of(problem, seed), HostMemory()
    with torch.no_grad():
        launch, kept = memory.kept_by(lambda: OPERATOR.implementations[name](problem, *inputs))
        launch.call()
        return kept + memory.raised_by(launch.call)


REPEATED = list(itertools.product(("sgd", "adamw"), ("eager", "foreach", "fused")))


@pytest.mark.parametrize(("optimizer", "name"), drawn(REPEATED, 2, "repeated steps"))
def test_a_step_repeats_however_often_it_is_called_and_its_outputs_poisoned(
    optimizer: str, name: str, seed: int
) -> None:
    problem = step(optimizer=optimizer, segments=3, micro_batches=2)
    inputs = inputs_of(problem, seed)
    kept = [tensor.clone() for tensor in inputs]
    first, later = (written(problem, name, inputs, times) for times in (1, 300))
    for one, other in zip(first, later, strict=True):
        assert float((one - other).abs().max()) <= 1e-5 * float(one.abs().max())
    assert all(map(torch.equal, inputs, kept))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_weight_that_is_not_updated_shows(optimizer: str, seed: int) -> None:
    problem = step(optimizer=optimizer)
    inputs = inputs_of(problem, seed)
    outputs = written(problem, "eager", inputs)
    before = (*outputs[: problem.layers], *inputs[2:])
    assert used(OPERATOR, "eager", problem, inputs, before) > 1


def test_micro_batches_add_up_to_the_gradients_of_the_batch(seed: int) -> None:
    inputs = inputs_of(step(), seed)
    whole = written(step(), "eager", inputs)
    for count in (2, 3, 12):
        for one, other in zip(whole, written(step(micro_batches=count), "eager", inputs), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5 * float(one.abs().max()))


@pytest.mark.parametrize("segments", [2, 3, 7])
def test_what_checkpoints_compute_again_changes_no_bit(segments: int, seed: int) -> None:
    problem = step(layers=7)
    inputs = inputs_of(problem, seed)
    kept = written(problem, "eager", inputs)
    assert all(map(torch.equal, kept, written(step(layers=7, segments=segments), "eager", inputs)))


@pytest.mark.parametrize("lora_rank", [0, 3])
@pytest.mark.parametrize("segments", [1, 2, 5])
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_operations_are_those_that_torch_runs(lora_rank: int, segments: int, micro_batches: int) -> None:
    problem = step(layers=7, segments=segments, micro_batches=micro_batches, lora_rank=lora_rank)
    inputs = inputs_of(problem, 0)
    launch = OPERATOR.implementations["eager"](problem, *inputs)
    with FlopCounterMode(display=False) as counter:
        launch.call()
    assert problem.flop == counter.get_total_flops()


def test_memory_of_a_chain_counted_by_hand() -> None:
    """Four layers of 1000 x 10: their results, and backward the gradients of the last result and its tanh."""
    problem = step(layers=4, width=10, batch=1000)
    scalar = 2 * 4  # the loss, and the gradient it begins with
    assert abs(counted(problem, "eager") - 6 * 40_000) <= scalar
    # Of two segments: the first one's result, and the two results of the last.
    assert abs(counted(step(layers=4, width=10, batch=1000, segments=2), "eager") - 5 * 40_000) <= scalar
    # Few rows: weights, gradients and two moments, and a number of steps for each parameter.
    problem = step(layers=4, width=100, batch=1, optimizer="adamw")
    assert abs(counted(problem, "fused") - 4 * 10_000 * 16) <= 4 * 4 + 8 * 400
    assert abs(counted(problem, "foreach") - 4 * 10_000 * 20) <= 4 * 4 + 8 * 400


def test_bytes_moved_are_at_least_those_that_must_be() -> None:
    for problem in OPERATOR.examples:
        for each in problem.implementations:
            if not problem.refusal(each.name):
                moved = problem.byte_moved(each.name)
                assert moved >= problem.byte
                assert 0 <= problem.byte_again(each.name) <= moved - problem.moved_written(each.name)
