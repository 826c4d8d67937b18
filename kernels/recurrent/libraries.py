"""Recurrent layers by cuDNN, by oneDNN, by torch's own layer, and by a loop of its cells.

Each launch calls the operator of one library, not torch's choice among them. Outputs are allocated by each
call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bench.spec import Launch, Tensors, Unsupported
from kernels.precision import cublas_precision, cudnn_precision, sum_in_float32
from kernels.recurrent.formulas import split
from kernels.recurrent.problem import Recurrent

_ATEN: Any = torch.ops.aten

_MODE = {"lstm": 2, "gru": 3}
"""cudnnRNNMode_t, and oneDNN's kinds as torch numbers them."""


def cudnn(problem: Recurrent, *tensors: torch.Tensor) -> Launch:
    """cuDNN by the algorithm that torch chooses.

    By torch's cudnn/RNN.cpp that is, of a batch that is not packed, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H up
    to hidden 192, of gradients up to 128; of float16 CUDNN_RNN_ALGO_PERSIST_STATIC for one layer of an LSTM
    with inputs and hidden divisible by 128, hidden up to 1024, a batch divisible by 8 and up to 128, on a GPU
    of compute capability 8.0 or later, but not 8.6, with 98 SMs or more; otherwise the standard algorithm.
    The kernels' names say which one ran: RNN_blockPersist_... are persistent.
    """
    return _cudnn(problem, [], *tensors)


def cudnn_standard(problem: Recurrent, *tensors: torch.Tensor) -> Launch:
    """cuDNN by the standard algorithm, which torch takes for any packed batch.

    All sequences of this one are equally long, so packed it is the same numbers in the same order: neither
    type nor shape nor the number of layers has to differ to keep the persistent algorithm out.
    """
    return _cudnn(problem, [problem.batch] * problem.steps, *tensors)


def _cudnn(problem: Recurrent, batch_sizes: list[int], *tensors: torch.Tensor) -> Launch:
    x, states, of_layers, rest = split(problem, tensors)
    # In one allocation, as cuDNN wants weights and nn.LSTM keeps them: copies, which become views.
    weights = [weight.clone() for of_layer in of_layers for weight in of_layer]
    sizes = (_MODE[problem.cell], problem.hidden, 0, problem.layers)
    flat = _ATEN._cudnn_rnn_flatten_weight(
        weights, 4, problem.inputs, sizes[0], problem.hidden, 0, problem.layers, False, False
    )
    h, c = (*states, None)[:2]
    if batch_sizes:
        x, rest = x.flatten(0, 1), tuple(dy.flatten(0, 1) for dy in rest)
    taken = (x, weights, 4, flat, h, c)
    y_shape = (problem.steps, problem.batch, problem.hidden)
    x_shape = (problem.steps, problem.batch, problem.inputs)

    @cudnn_precision(problem.dtype)
    def forward(train: bool) -> Tensors:
        written: Tensors = _ATEN._cudnn_rnn(*taken, *sizes, False, 0.0, train, False, batch_sizes, None)
        return written

    if problem.direction == "forward":

        def call() -> Tensors:
            y, *last = forward(False)
            return y.view(y_shape), *last[: len(states)]

        return Launch(call)

    y, _, _, reserve, flat = forward(True)
    mask = [True, True, c is not None, problem.direction == "backward"]

    @cudnn_precision(problem.dtype)
    def back() -> Tensors:
        dx, dh, dc, of_weights = _ATEN._cudnn_rnn_backward(
            *(x, weights, 4, flat, h, c, y, rest[0], None, None),
            # cuDNN writes over the reserve.
            *(*sizes, False, 0.0, True, False, batch_sizes, None, reserve.clone(), mask),
        )
        of_states = (dh, dc)[: len(states)]
        return dx.view(x_shape), *of_states, *(of_weights if mask[3] else ())

    return Launch(back)


def onednn(problem: Recurrent, *tensors: torch.Tensor) -> Launch:
    """oneDNN's LSTM, called for each layer. Unsupported where torch has no oneDNN for bfloat16."""
    if problem.dtype == "bfloat16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise Unsupported("torch has no oneDNN for bfloat16 on this CPU")

    def layers(train: bool, *tensors: torch.Tensor) -> Tensors:
        x, (h, c), weights, _ = split(problem, tensors)
        last = []
        for layer, of_layer in enumerate(weights):
            x, *states, _ = _ATEN.mkldnn_rnn_layer(
                *(x, *of_layer, h[layer], c[layer], False, [], _MODE["lstm"], problem.hidden),
                *(1, True, False, False, train),
            )
            last.append(states)
        return x, *(torch.stack(state) for state in zip(*last, strict=True))

    return _launch(problem, layers, *tensors)


def aten(problem: Recurrent, *tensors: torch.Tensor) -> Launch:
    """torch's own GRU."""

    def layers(train: bool, *tensors: torch.Tensor) -> Tensors:
        x, (h,), weights, _ = split(problem, tensors)
        flat = [weight for of_layer in weights for weight in of_layer]
        written: Tensors = torch.gru(x, h, flat, True, problem.layers, 0.0, train, False, False)
        return written

    return _launch(problem, layers, *tensors)


def loop(problem: Recurrent, *tensors: torch.Tensor) -> Launch:
    """torch.lstm_cell or gru_cell for each step of each layer. Sums are float32 to the end, as in gemm."""

    def layers(train: bool, *tensors: torch.Tensor) -> Tensors:
        x, states, weights, _ = split(problem, tensors)
        last: list[Any] = []
        for layer, of_layer in enumerate(weights):
            y, state = [], [state_of[layer] for state_of in states]
            for of_step in x.unbind():
                if problem.cell == "lstm":
                    state = list(torch.lstm_cell(of_step, state, *of_layer))
                else:
                    state = [torch.gru_cell(of_step, state[0], *of_layer)]
                y.append(state[0])
            x = torch.stack(y)
            last.append(state)
        return x, *(torch.stack(state) for state in zip(*last, strict=True))

    launch = _launch(problem, layers, *tensors)
    sum_in_float32()
    if problem.dtype not in ("tf32", "float32"):
        return launch
    return Launch(cublas_precision(problem.dtype)(launch.call))


def _launch(problem: Recurrent, layers: Callable[..., Tensors], *tensors: torch.Tensor) -> Launch:
    """Forward the layers without autograd; otherwise autograd's gradients of a forward pass that ran before.

    `layers(train, *tensors)` returns y and the last states.
    """
    if problem.direction == "forward":

        def call() -> Tensors:
            with torch.no_grad():
                return layers(False, *tensors)

        return Launch(call)
    *given, dy = tensors
    states = 2 if problem.cell == "lstm" else 1
    wanted = len(given) if problem.direction == "backward" else 1 + states
    leaves = [tensor.detach().requires_grad_(number < wanted) for number, tensor in enumerate(given)]
    with torch.enable_grad():
        y = layers(True, *leaves)[0]
    return Launch(lambda: torch.autograd.grad(y, leaves[:wanted], dy, retain_graph=True))
