"""Recurrent layers: their counts, every way of a CPU and cuDNN's calls, all against formulas in float64."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch

from bench.worker.check import outputs_of
from kernels.recurrent import formulas
from kernels.recurrent.operator import OPERATOR
from kernels.recurrent.problem import Recurrent
from tests.kernels.problems import inputs_of, usual
from tests.kernels.tensors import used

PASSES = list(itertools.product(("lstm", "gru"), ("forward", "activation_gradient", "backward")))


layer = partial(usual, "recurrent")


@pytest.mark.parametrize(("cell", "direction"), PASSES)
def test_flop_are_those_of_the_products(cell: str, direction: str) -> None:
    gates = {"lstm": 4, "gru": 3}[cell]
    of_layers = 2 * gates * 9 * (6 + 9) + 2 * gates * 9 * (9 + 9)
    times = 2 if direction == "backward" else 1
    assert layer(cell=cell, direction=direction).flop == times * of_layers * 5 * 7


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_formulas_are_torchs_modules_and_autograds_gradients(cell: str, layers: int, seed: int) -> None:
    problem = layer(cell=cell, layers=layers, direction="backward", dtype="float32")
    tensors = [tensor.double().requires_grad_() for tensor in inputs_of(problem, seed)]
    x, states, weights, (dy,) = formulas.split(problem, tuple(tensors))
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](6, 9, layers, dtype=torch.float64)
    named = dict(zip(module.state_dict(), itertools.chain.from_iterable(weights), strict=True))
    y, last = torch.func.functional_call(module, named, (x, states if cell == "lstm" else states[0]))
    forward = OPERATOR.reference(problem.model_copy(update={"direction": "forward"}), *tensors[:-1])
    torch.testing.assert_close(forward, (y, *(last if cell == "lstm" else (last,))))
    wanted = torch.autograd.grad(y, tensors[:-1], dy.detach())
    with torch.no_grad():
        torch.testing.assert_close(OPERATOR.reference(problem, *tensors), wanted)


def test_weights_are_read_once_or_in_each_step() -> None:
    problem = layer(steps=100)
    handed_on = 2 * 4 * 100 * 5 * 9  # y of the first layer is written and read
    assert problem.byte_moved("cudnn") == problem.byte + handed_on
    of_states = 4 * 99 * (2 * 4 * 9 * 9)
    assert problem.byte_moved("cudnn-standard") - problem.byte_moved("cudnn") == of_states
    assert problem.byte_moved("onednn") == problem.byte_moved("cudnn-standard")
    of_inputs, stacked = 4 * 99 * 4 * 9 * (6 + 9), 2 * 4 * 2 * 100 * 5 * 9
    assert problem.byte_moved("loop") - problem.byte_moved("onednn") == of_inputs + stacked
    assert problem.moved_written("loop") == problem.byte_written + handed_on // 2 + stacked // 2
    for name in OPERATOR.implementations:
        rest = problem.byte_moved(name) - problem.byte_again(name)
        assert rest == problem.byte + problem.moved_written(name) - problem.byte_written


def test_a_gradient_reads_what_the_forward_pass_kept_and_cudnn_copies_it() -> None:
    problem = layer(direction="backward", layers=1)
    kept = 4 * 7 * 5 * 9 * (4 + 1)
    assert problem.byte_moved("cudnn") == problem.byte + 3 * kept
    assert problem.moved_written("cudnn") == problem.byte_written + kept
    assert problem.byte_moved("onednn") == problem.byte + kept + 4 * 6 * 4 * 9 * 9


@pytest.fixture
def cudnn_calls() -> Iterator[list[tuple[bool, list[int]]]]:
    """(allow_tf32, batch_sizes) of each call of cuDNN's layer or its gradient, which the formulas compute.

    torch's own schemas are kept: only kernels for the CPU are added. As cuDNN does, the gradient writes over
    the reserve, and the weights must lie in the buffer that is handed over with them.
    """
    calls = []

    def flatten(weights: list[torch.Tensor], *_: Any) -> torch.Tensor:
        flat = torch.cat([weight.reshape(-1) for weight in weights])
        begin = 0
        for weight in weights:
            weight.set_(flat[begin : begin + weight.numel()].view_as(weight))
            begin += weight.numel()
        return flat

    def problem_of(x: Any, h: Any, mode: int, hidden: int, layers: int, sizes: Any, of: str) -> Recurrent:
        steps, batch = (len(sizes), sizes[0]) if sizes else x.shape[:2]
        return layer(
            cell={2: "lstm", 3: "gru"}[mode], direction=of, batch=batch, inputs=x.shape[-1], hidden=hidden,
            steps=steps, layers=layers,
        )  # fmt: skip

    def forward(
        x: Any, weights: Any, stride: int, flat: Any, h: Any, c: Any, mode: int, hidden: int, proj: int,
        layers: int, batch_first: bool, dropout: float, train: bool, both: bool, sizes: list[int], state: Any,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        calls.append((torch.backends.cudnn.allow_tf32, list(sizes)))
        assert stride == 4 and all(w.untyped_storage().data_ptr() == flat.data_ptr() for w in weights)
        problem = problem_of(x, h, mode, hidden, layers, sizes, "forward")
        padded = x.view(problem.steps, problem.batch, -1)
        given = (padded, h, *(() if c is None else (c,)), *weights)
        y, hn, *cn = OPERATOR.reference(problem, *given)
        y = (y.flatten(0, 1) if sizes else y).to(x.dtype)
        reserve = torch.ones(4) if train else torch.ones(0)
        return y, hn.to(x.dtype), cn[0].to(x.dtype) if cn else x.new_empty(0), reserve, flat

    def backward(
        x: Any, weights: Any, stride: int, flat: Any, h: Any, c: Any, y: Any, dy: Any, dh: Any, dc: Any,
        mode: int, hidden: int, proj: int, layers: int, batch_first: bool, dropout: float, train: bool,
        both: bool, sizes: list[int], state: Any, reserve: torch.Tensor, mask: list[bool],
    ) -> tuple[Any, ...]:  # fmt: skip
        calls.append((torch.backends.cudnn.allow_tf32, list(sizes)))
        assert train and reserve.tolist() == [1.0] * 4
        reserve.zero_()
        of = "backward" if mask[3] else "activation_gradient"
        problem = problem_of(x, h, mode, hidden, layers, sizes, of)
        by_step = (problem.steps, problem.batch, -1)
        states = (h,) if c is None else (h, c)
        tensors = (x.view(by_step), *states, *weights, dy.view(by_step))
        with ThreadPoolExecutor(1) as pool:  # beneath torch's dispatcher this thread has no autograd
            made = pool.submit(OPERATOR.reference, problem, *tensors).result()
        dx, dh, *rest = (tensor.to(x.dtype) for tensor in made)
        of_c = x.new_empty(0) if c is None else rest.pop(0)
        return dx.view_as(x), dh, of_c, rest

    library = torch.library.Library("aten", "IMPL")
    library.impl("_cudnn_rnn_flatten_weight", flatten, "CPU")
    library.impl("_cudnn_rnn", forward, "CPU")
    library.impl("_cudnn_rnn_backward", backward, "CPU")
    yield calls
    library._destroy()


@pytest.mark.parametrize(("cell", "direction"), PASSES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "tf32"])
@pytest.mark.parametrize("name", ["cudnn", "cudnn-standard"])
def test_cudnn_is_called_as_torch_declares_it(
    name: str, dtype: str, cell: str, direction: str, cudnn_calls: list[tuple[bool, list[int]]], seed: int
) -> None:
    problem = layer(cell=cell, direction=direction, dtype=dtype)
    inputs = inputs_of(problem, seed)
    before = [tensor.clone() for tensor in inputs]
    launch = OPERATOR.implementations[name](problem, *inputs)
    for _ in range(2):  # the second finds the reserve as the first did
        outputs = outputs_of(launch.call())
        assert used(OPERATOR, name, problem, inputs, outputs) <= 1
    assert problem.byte_written == sum(tensor.nbytes for tensor in outputs)
    assert all(torch.equal(*pair) for pair in zip(before, inputs, strict=True))
    assert set(map(str, cudnn_calls)) == {str((dtype != "float32", [5] * 7 if "standard" in name else []))}
