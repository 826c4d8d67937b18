"""Recurrent layers: LSTM and GRU, one after the other, over all steps of a batch of sequences.

    lstm  i, f, o = sigmoid(z_i), sigmoid(z_f), sigmoid(z_o), g = tanh(z_g), with z = w x + b + r h + d
          c' = f c + i g;  h' = o tanh(c')
    gru   s, u = sigmoid(z_s), sigmoid(z_u), with z as above;  n = tanh(w_n x + b_n + s (r_n h + d_n))
          h' = (1 - u) n + u h

x [steps, batch, inputs] is the input of the first layer, y [steps, batch, hidden] are the h' of one layer and
the input of the next. A layer of g gates (4 of an LSTM, 3 of a GRU, stacked in this order) has w [g hidden,
inputs or hidden], r [g hidden, hidden], b and d [g hidden]. It starts from h, and an LSTM also from c, both
[batch, hidden]. These are the formulas and the tensors of torch.nn.LSTM and GRU.

    forward              y and the last h (and c) of each layer; nothing is kept for a backward pass
    activation_gradient  dx and the gradients of the first h (and c), from dy
    backward             these and the gradients of all weights and biases, from dy

What a forward pass keeps for the other two is computed before they are timed. There is no weight_gradient:
libraries take it from what the gradient of the activations leaves behind.

The products of a layer with its inputs do not depend on each other and can be one, of M = g hidden, N = steps
batch, K = inputs. Those with the state are `steps` of them one after the other, each of M = g hidden,
N = batch, K = hidden. Such a chain is no single product, so a layer has no `product`: the model of tiles and
waves does not speak of it, the roofline does.

Strongest known: cuDNN, which keeps the recurrent weights on chip where it can; measured as `cudnn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from bench.spec import DeviceKind, Dtypes, Implementation, MatrixProblem, Size, Specs, TensorSpec
from kernels.implementations import AMPERE, ANY, FLOATS, on_both, on_cpu, on_cuda

Cell = Literal["lstm", "gru"]
Direction = Literal["forward", "activation_gradient", "backward"]

GATES: Mapping[Cell, int] = {"lstm": 4, "gru": 3}
"""Products of each input and each state with a hidden x inputs or hidden x hidden matrix."""
STATES: Mapping[Cell, int] = {"lstm": 2, "gru": 1}
"""h and c, or h alone."""

_CUDA: Dtypes = {"float16": ANY, "bfloat16": AMPERE, "tf32": AMPERE, "float32": ANY}


class Recurrent(MatrixProblem):
    """One pass: `cell`, `direction`, `batch`, `inputs`, `hidden`, `steps`, `layers`, `dtype`."""

    operator: ClassVar[str] = "recurrent"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_cuda("cudnn", "what nn.LSTM and nn.GRU call: _cudnn_rnn, persistent if torch chooses so", _CUDA),
        on_cuda("cudnn-standard", "that of a packed batch, for which torch takes the standard one", _CUDA),
        on_cpu(
            "onednn", "what nn.LSTM calls: mkldnn_rnn_layer for each layer", {"float32": ANY, "bfloat16": ANY}
        ),
        on_cpu("aten", "what nn.GRU calls: a product for all inputs, then one for each step", FLOATS),
        on_both("loop", "a loop of torch.lstm_cell or gru_cell: two products for each step", _CUDA),
    )

    cell: Cell
    direction: Direction
    batch: Size
    inputs: Size
    hidden: Size
    steps: Size
    layers: Size = 1

    @property
    def gates(self) -> int:
        """4 of an LSTM, 3 of a GRU."""
        return GATES[self.cell]

    @property
    def widths(self) -> tuple[int, ...]:
        """The input features of each layer."""
        return self.inputs, *(self.hidden for _ in range(1, self.layers))

    @property
    def flop(self) -> int:
        """2 gates (inputs + hidden) hidden batch steps of each layer; backward twice.

        Gates and states, element by element, are not counted.
        """
        products = sum(2 * self.gates * (width + self.hidden) * self.hidden for width in self.widths)
        return products * self.batch * self.steps * (2 if self.direction == "backward" else 1)

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """x, the first h (and c), w, r, b, d of each layer, and dy but for the forward pass.

        And y or dx, the last h (and c) or the first ones' gradients, backward also the weights' gradients.
        What a forward pass kept for a gradient is no input: see `read_once`.
        """
        x = TensorSpec((self.steps, self.batch, self.inputs))
        y = TensorSpec((self.steps, self.batch, self.hidden))
        states = dict.fromkeys(("h", "c")[: STATES[self.cell]], TensorSpec((self.layers, *y.shape[1:])))
        weights: dict[str, TensorSpec] = {}
        rows = self.gates * self.hidden
        for layer, width in enumerate(self.widths):
            shapes = {"w": (rows, width), "r": (rows, self.hidden), "b": (rows,), "d": (rows,)}
            weights |= {f"{name}_{layer}": TensorSpec(shape) for name, shape in shapes.items()}
        read = {"x": x, **states, **weights}
        if self.direction == "forward":
            return read, {"y": y, **states}
        return read | {"dy": y}, {"dx": x, **states} | (weights if self.direction == "backward" else {})

    def read_once(self, implementation: str) -> int:
        """The inputs; of a gradient the gates that the forward pass kept, of an LSTM also the cells."""
        return self.byte_read + (0 if self.direction == "forward" else self._kept * self.item_byte)

    def byte_again(self, implementation: str) -> int:
        """What was written before it is read, and the weights after the first step.

        `cudnn` reads its weights once, as the persistent algorithm does. All others read the recurrent
        weights in each step, a loop those of the inputs too. Results that live no longer than a step are not
        counted: a cache holds them.
        """
        written_more = self.moved_written(implementation) - self.byte_written
        return written_more + (self.steps - 1) * self._weights_of_step(implementation) * self.item_byte

    def moved_written(self, implementation: str) -> int:
        """The outputs, what layers hand on, cuDNN's copy of what was kept, and the results of a loop.

        cuDNN writes over what was kept, so each launch begins with a copy, as in torch if a graph is
        retained. A loop copies its results to y in the end.
        """
        elements = (self.layers - 1) * self._y
        if self.direction == "forward":
            elements += self.layers * self._y if implementation == "loop" else 0
        elif implementation.startswith("cudnn"):
            elements += self._kept
        return self.byte_written + elements * self.item_byte

    def refusal(self, implementation: str) -> str:
        """torch's oneDNN has no GRU and one gradient of everything; an LSTM on a CPU is oneDNN's."""
        if implementation == "onednn" and self.cell == "gru":
            return "onednn has no gru in torch, which computes that itself: aten"
        if implementation == "onednn" and self.direction == "activation_gradient":
            return "onednn has one gradient of activations and weights together: backward"
        if implementation == "aten" and self.cell == "lstm":
            return "aten has no lstm of its own here: on a CPU torch gives that to oneDNN"
        return ""

    def missing(self, implementation: str, device: DeviceKind, capability: tuple[int, int] | None) -> str:
        """Why a device cannot run it: on a GPU no graph captures the kernels of a loop's gradient alone."""
        reason = super().missing(implementation, device, capability)
        if not reason and implementation == "loop" and device == "cuda" and self.direction != "forward":
            return "loop has no gradient on a GPU: autograd runs it outside the graph that is timed"
        return reason

    def probe(self) -> Recurrent:
        """At most 4 steps of 32 sequences, of 128 inputs and 128 hidden."""
        return self.at_most(batch=32, inputs=128, hidden=128, steps=4)

    @property
    def _y(self) -> int:
        return self.steps * self.batch * self.hidden

    @property
    def _kept(self) -> int:
        """Gates, and of an LSTM cells, of all layers and steps."""
        return (self.gates + STATES[self.cell] - 1) * self.layers * self._y

    def _weights_of_step(self, implementation: str) -> int:
        if implementation == "cudnn":
            return 0
        of_inputs = self.widths if implementation == "loop" else ()
        return self.gates * self.hidden * (self.layers * self.hidden + sum(of_inputs))


PROBLEM = Recurrent
