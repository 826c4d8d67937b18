"""Layers and whole networks that benchmarks of frameworks and of kernels time."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bench.interop.imported_problems.counted import Counted, Counts, on_gpus
from bench.spec import Dtypes, Implementation, Size

_FLOATS: Dtypes = dict.fromkeys(("float16", "bfloat16", "float32"), (0, 0))
_NETWORKS: Dtypes = dict.fromkeys(
    ("float32", "float64", "tf32", "float16", "bfloat16", "float8_e4m3", "mxfp8", "int8"), (0, 0)
)
_LIBRARIES = (
    on_gpus("aten", "torch's own kernels, one for each step", _FLOATS),
    on_gpus("inductor", "torch.compile", _FLOATS),
    on_gpus("cudnn", "cuDNN's kernel", _FLOATS),
    on_gpus("triton", "somebody's Triton kernel", _FLOATS),
    on_gpus("vllm", "vLLM's kernel", _FLOATS),
    on_gpus("cub", "CUB's DeviceTransform", _FLOATS),
)
Word = Annotated[str, Field(pattern=r"^[\w./+-]*$")]


class Elementwise(Counted):
    """y [elements] of one tensor and a scalar, or of two tensors of its shape: one operation an element."""

    operator: ClassVar[str] = "elementwise"
    implementations: ClassVar[tuple[Implementation, ...]] = _LIBRARIES

    function: Literal["add", "multiply", "divide", "power"]
    operands: Literal["tensors", "scalar"]
    elements: Size

    @property
    def counts(self) -> Counts:
        """One operation an element, a power too; one tensor or two, and y.

        Special functions: a reciprocal, or a logarithm and an exponential. torch multiplies by a scalar's
        reciprocal.
        """
        tensors = 2 if self.operands == "tensors" else 1
        special = {"divide": tensors - 1, "power": 2}.get(self.function, 0)
        tensor = self.elements * self.item_byte
        return Counts(self.elements, tensors * tensor, tensor, special * self.elements)


class RmsNorm(Counted):
    """y = x / sqrt(mean(x^2)) * w over the rows of x [rows, length]; backward: dx and dw of dy, x and w."""

    operator: ClassVar[str] = "rms_norm"
    implementations: ClassVar[tuple[Implementation, ...]] = _LIBRARIES

    direction: Literal["forward", "backward"]
    rows: Size
    length: Size

    @property
    def counts(self) -> Counts:
        """x and w, y, 4 FLOP an element (square, sum, two products); backward dy besides, dx and dw, 10."""
        elements = self.rows * self.length
        x, w = elements * self.item_byte, self.length * self.item_byte
        if self.direction == "forward":
            return Counts(flop=4 * elements, read=x + w, written=x)
        return Counts(flop=10 * elements, read=2 * x + w, written=x + w)


class GatedActivation(Counted):
    """y [rows, length] = function(a) * b of two tensors of that shape; backward: da and db of dy, a and b."""

    operator: ClassVar[str] = "gated_activation"
    implementations: ClassVar[tuple[Implementation, ...]] = _LIBRARIES

    function: Literal["silu", "gelu", "gelu-tanh"]
    direction: Literal["forward", "backward"]
    rows: Size
    length: Size

    @property
    def counts(self) -> Counts:
        """Forward a and b, y, 5 FLOP an element with the function's 4; backward a, b and dy, da and db, 12.

        Special functions: one exponential, error function or tangent an element.
        """
        elements = self.rows * self.length
        tensor = elements * self.item_byte
        if self.direction == "forward":
            return Counts(5 * elements, 2 * tensor, tensor, elements)
        return Counts(12 * elements, 3 * tensor, 2 * tensor, elements)

    def beyond(self, implementation: str) -> Counts:
        """Counts of function(a) by `aten`, which one kernel writes and the next reads (forward)."""
        between = implementation == "aten" and self.direction == "forward"
        tensor = self.rows * self.length * self.item_byte if between else 0
        return Counts(read=tensor, written=tensor, again=tensor)


class Recurrence(Counted):
    """A recurrent layer in training whose inputs, as wide as its state, are added without a product.

    Each step multiplies the state [batch, hidden] by `gates` matrices [hidden, hidden]: 1 of a vanilla layer,
    3 of a GRU, 4 of an LSTM. What one pass leaves for the next is an output of the one and an input of the
    other: `forward` keeps gates, of an LSTM also cells; `activation_gradient` makes gradients of the gates of
    them, from which and from y `weight_gradient` takes the matrices'. Biases are not counted.
    """

    operator: ClassVar[str] = "recurrence"
    arithmetic: ClassVar[Literal["matrix", "vector"]] = "matrix"
    rate: ClassVar[Literal["flop", "byte"]] = "flop"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_gpus("cudnn-standard", "cuDNN's standard algorithm with CUDNN_SKIP_INPUT", _FLOATS),
        on_gpus("miopen", "MIOpen with miopenRNNskip", _FLOATS),
    )

    cell: Literal["vanilla", "gru", "lstm"]
    direction: Literal["forward", "activation_gradient", "weight_gradient"]
    batch: Size
    hidden: Size
    steps: Size

    @property
    def _weights(self) -> int:
        return {"vanilla": 1, "gru": 3, "lstm": 4}[self.cell] * self.hidden**2

    @property
    def counts(self) -> Counts:
        """2 gates hidden^2 batch steps FLOP in each pass; what is done element by element is not counted.

        Read are x, states, weights; dy, states' gradients, weights, what was kept; or y and gates' gradients.
        Written are y, states, what is kept; dx, states' and gates' gradients; or the weights' gradient.
        """
        of_lstm = self.cell == "lstm"
        y = self.steps * self.batch * self.hidden
        gates = self._weights // self.hidden**2 * y
        states, kept = (1 + of_lstm) * self.batch * self.hidden, gates + of_lstm * y
        read, written = {
            "forward": (y + states + self._weights, y + states + kept),
            "activation_gradient": (y + states + self._weights + kept, y + states + gates),
            "weight_gradient": (y + gates, self._weights),
        }[self.direction]
        flop = 2 * self._weights * self.batch * self.steps
        return Counts(flop, read * self.item_byte, written * self.item_byte)

    def beyond(self, implementation: str) -> Counts:
        """The weights after the first step, but for their own gradient, one product over all steps."""
        steps = 0 if self.direction == "weight_gradient" else self.steps - 1
        again = steps * self._weights * self.item_byte
        return Counts(read=again, again=again)


class Network(Counted):
    """A whole network, in training or inference: time of a `step`, or of one GPU for an `item` or a `token`.

    Such a time is good for ratios alone: of mixed precision, channels last, checkpointing, 2:4 sparsity, a
    compiler (NVIDIA's Training With Mixed Precision; the guides' checklists). `dtype` is that of the
    products; `mixed` says that the rest is in float32 where need be. `batch` is of one GPU; 0 and an empty
    word say that something is not known.
    """

    operator: ClassVar[str] = "network"
    arithmetic: ClassVar[Literal["unbounded"]] = "unbounded"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_gpus("torch", "torch, one kernel after the other", _NETWORKS),
        on_gpus("compiled", "torch.compile", _NETWORKS),
    )

    model: Word
    mode: Literal["train", "infer"]
    per: Literal["step", "item", "token"]
    batch: Annotated[int, Field(ge=0)]
    size: Annotated[int, Field(ge=0)] = 0
    gpus: Size = 1
    mixed: bool = False
    layout: Literal["", "NCHW", "NHWC"] = ""
    options: Word = ""

    @property
    def counts(self) -> Counts:
        """0: arithmetic and bytes, which depend on the network, are not counted."""
        return Counts()
