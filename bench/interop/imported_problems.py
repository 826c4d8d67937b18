"""Operators that exist as imported rows alone: nobody here can run them, but their rows are judged.

Each is the problem that a public table times, with the counts of FLOP and bytes that an operator of kernels/
has. One that gets a folder in kernels/ leaves this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bench.spec import ITEM_BYTE, PACKED, Implementation, Problem
from bench.sweep.load import Find

Count = Annotated[int, Field(ge=1)]
_HALF: dict[Any, tuple[int, int]] = {"bfloat16": (8, 0)}
_FLOAT8: dict[Any, tuple[int, int]] = {"float8_e4m3": (8, 9)}
_NVFP4: dict[Any, tuple[int, int]] = {"nvfp4": (10, 0)}


def _on_gpus(name: str, summary: str, dtypes: dict[Any, tuple[int, int]]) -> Implementation:
    return Implementation(name, summary, ("cuda",), dtypes)


class QuantizedLinear(Problem):
    """y [batch, outputs] = x [batch, inputs] w' as an inference engine runs it: x and y are bfloat16.

    `dtype` is what is multiplied. Each launch quantises x to it; the weights are quantised beforehand.
    `scaling` says what has a scale of its own: all of x (`tensor`) or a `row` of it (the weights have one); a
    `block`, 128 elements of a row of x and 128 x 128 of the weights, in float32; a `group` of 16 elements of
    a row, in 8 bits, beside one for the tensor (nvfp4).
    """

    operator: ClassVar[str] = "quantized_linear"
    arithmetic: ClassVar[Literal["matrix", "vector"]] = "matrix"
    rate: ClassVar[Literal["flop", "byte"]] = "flop"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        _on_gpus("torch.nn.functional.linear", "not quantised: what the others are compared with", _HALF),
        _on_gpus("CutlassFP8ScaledMMLinearKernel", "vLLM's CUTLASS kernel, a scale for each row", _FLOAT8),
        *(
            _on_gpus(f"{name}Fp8BlockScaledMMKernel", f"vLLM's choice of {name}, scales for blocks", _FLOAT8)
            for name in ("Cutlass", "DeepGemm", "FlashInfer", "Triton")
        ),
        *(
            _on_gpus(f"FlashInfer{name}NvFp4LinearKernel", f"FlashInfer's {name} kernel", _NVFP4)
            for name in ("CuteDsl", "Cutlass")
        ),
    )

    scaling: Literal["none", "tensor", "row", "block", "group"]
    batch: Count
    inputs: Count
    outputs: Count

    def _quantized_byte(self, elements: int) -> int:
        return elements * ITEM_BYTE[self.dtype] // PACKED.get(self.dtype, 1)

    @property
    def flop(self) -> int:
        """2 batch inputs outputs; quantising x is not counted."""
        return 2 * self.batch * self.inputs * self.outputs

    @property
    def byte_read(self) -> int:
        """x in bfloat16, the weights as they are multiplied, and the weights' scales."""
        weights = self.inputs * self.outputs
        of_weights = self._quantized_byte(weights)
        blocks = -(-self.inputs // 128) * -(-self.outputs // 128)
        groups = -(-self.inputs // 16) * self.outputs
        scales = {"none": 0, "tensor": 4, "row": 4, "block": 4 * blocks, "group": groups + 4}[self.scaling]
        return 2 * self.batch * self.inputs + of_weights + scales

    @property
    def byte_written(self) -> int:
        """y."""
        return 2 * self.batch * self.outputs

    @property
    def product(self) -> tuple[int, int, int]:
        """In BLAS's order: outputs x batch, each a sum over the inputs."""
        return self.outputs, self.batch, self.inputs

    def byte_moved(self, implementation: str) -> int:
        """`byte`, and x again: read for a scale of the whole tensor, written quantised, read.

        Whether the quantised x goes through memory or a cache, the tables do not say.
        """
        if self.scaling == "none":
            return self.byte
        elements = self.batch * self.inputs
        return (
            self.byte + 2 * self._quantized_byte(elements) + (2 * elements if self.scaling == "tensor" else 0)
        )

    def moved_written(self, implementation: str) -> int:
        """y and the quantised x."""
        x = self.byte_moved(implementation) - self.byte
        return self.byte_written + (x // 4 if self.scaling == "tensor" else x // 2)


class Collective(Problem):
    """An operation that `gpus` GPUs do together; counts are those of one of them.

    `elements` is the larger of a GPU's two buffers: for all_gather its output, else its input. What goes from
    GPU to GPU is not counted, and no datasheet here has the rate of that.
    """

    operator: ClassVar[str] = "collective"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        _on_gpus("NCCL", "NCCL, by nccl-tests", {"float16": (7, 0), "int8": (7, 0), "float32": (0, 0)}),
        _on_gpus("vLLM_custom_graph", "vLLM's tensor_model_parallel_all_reduce in a CUDA graph", _HALF),
    )

    operation: Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall"]
    gpus: Annotated[int, Field(ge=2)]
    elements: Count

    @property
    def flop(self) -> int:
        """The sums that fall to one GPU: gpus - 1 additions for each element of its share."""
        sums = self.operation in ("all_reduce", "reduce_scatter")
        return self.elements * (self.gpus - 1) // self.gpus if sums else 0

    @property
    def byte_read(self) -> int:
        """This GPU's input."""
        return self.elements * self.item_byte // (self.gpus if self.operation == "all_gather" else 1)

    @property
    def byte_written(self) -> int:
        """This GPU's output."""
        return self.elements * self.item_byte // (self.gpus if self.operation == "reduce_scatter" else 1)


_FLOATS: dict[Any, tuple[int, int]] = dict.fromkeys(("float16", "bfloat16", "float32"), (0, 0))
_LIBRARIES = tuple(
    _on_gpus(name, summary, _FLOATS)
    for name, summary in (
        ("aten", "torch's own kernels, one for each step"),
        ("inductor", "torch.compile"),
        ("cudnn", "cuDNN's kernel"),
        ("triton", "somebody's Triton kernel"),
        ("vllm", "vLLM's kernel"),
        ("cub", "CUB's DeviceTransform"),
    )
)


class Elementwise(Problem):
    """y [elements] of one tensor and a scalar, or of two tensors of its shape: one operation an element."""

    operator: ClassVar[str] = "elementwise"
    implementations: ClassVar[tuple[Implementation, ...]] = _LIBRARIES

    function: Literal["add", "multiply", "divide", "power"]
    operands: Literal["tensors", "scalar"]
    elements: Count

    @property
    def flop(self) -> int:
        """One operation for each element, a power too."""
        return self.elements

    @property
    def byte_read(self) -> int:
        """One tensor, or two."""
        return (2 if self.operands == "tensors" else 1) * self.elements * self.item_byte

    @property
    def byte_written(self) -> int:
        """y."""
        return self.elements * self.item_byte

    @property
    def special_functions(self) -> int:
        """A reciprocal, or a logarithm and an exponential; torch multiplies by a scalar's reciprocal."""
        reciprocals = 1 if self.operands == "tensors" else 0
        return {"divide": reciprocals, "power": 2}.get(self.function, 0) * self.elements


class RmsNorm(Problem):
    """y = x / sqrt(mean(x^2)) * w over the rows of x [rows, length]; backward: dx and dw of dy, x and w."""

    operator: ClassVar[str] = "rms_norm"
    implementations: ClassVar[tuple[Implementation, ...]] = _LIBRARIES

    direction: Literal["forward", "backward"]
    rows: Count
    length: Count

    @property
    def _elements(self) -> int:
        return self.rows * self.length

    @property
    def flop(self) -> int:
        """Forward 4 an element (square, sum, two products), backward 10."""
        return (4 if self.direction == "forward" else 10) * self._elements

    @property
    def byte_read(self) -> int:
        """x and w; backward dy besides."""
        tensors = 1 if self.direction == "forward" else 2
        return (tensors * self._elements + self.length) * self.item_byte

    @property
    def byte_written(self) -> int:
        """y; backward dx and dw."""
        return (self._elements + (self.length if self.direction == "backward" else 0)) * self.item_byte


class GatedActivation(Problem):
    """y [rows, length] = function(a) * b of two tensors of that shape; backward: da and db of dy, a and b."""

    operator: ClassVar[str] = "gated_activation"
    implementations: ClassVar[tuple[Implementation, ...]] = _LIBRARIES

    function: Literal["silu", "gelu", "gelu-tanh"]
    direction: Literal["forward", "backward"]
    rows: Count
    length: Count

    @property
    def flop(self) -> int:
        """Forward 5 an element with the function's 4, backward 12."""
        return (5 if self.direction == "forward" else 12) * self.rows * self.length

    @property
    def byte_read(self) -> int:
        """a and b; backward dy besides."""
        return (2 if self.direction == "forward" else 3) * self.rows * self.length * self.item_byte

    @property
    def byte_written(self) -> int:
        """y; backward da and db."""
        return (1 if self.direction == "forward" else 2) * self.rows * self.length * self.item_byte

    @property
    def special_functions(self) -> int:
        """One exponential, error function or tangent an element."""
        return self.rows * self.length

    def byte_moved(self, implementation: str) -> int:
        """`byte`; of `aten` also function(a), which one kernel writes and the next reads (forward)."""
        return self.byte + 2 * self.byte_again(implementation)

    def byte_again(self, implementation: str) -> int:
        """function(a), for `aten`."""
        between = implementation == "aten" and self.direction == "forward"
        return self.rows * self.length * self.item_byte if between else 0

    def moved_written(self, implementation: str) -> int:
        """The outputs and, for `aten`, function(a)."""
        return self.byte_written + self.byte_again(implementation)


_MICRO: dict[Any, tuple[int, int]] = {"float32": (0, 0), "float64": (0, 0)}


class CachedRead(Problem):
    """Loads from `footprint_byte` again and again, which what holds them serves: a cache, or memory.

    `readers` says who reads what: `each` multiprocessor all of it, or all of them `together`, parts of it.
    The counts are of `footprint_byte` once: times are those of so many bytes at the rate of all
    multiprocessors. No roof is held against them, since no datasheet has the rates of caches.
    """

    operator: ClassVar[str] = "cached_read"
    arithmetic: ClassVar[Literal["unbounded"]] = "unbounded"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        _on_gpus("gpu-cache", "gpu-benches' sums of one buffer, a block of 256 threads each", _MICRO),
        _on_gpus("gpu-l2-cache", "gpu-benches' sums of parts of a buffer, blocks of 1024 threads", _MICRO),
    )

    readers: Literal["each", "together"]
    footprint_byte: Count

    @property
    def flop(self) -> int:
        """0: the sums are not what is measured."""
        return 0

    @property
    def byte_read(self) -> int:
        """The footprint."""
        return self.footprint_byte

    @property
    def byte_written(self) -> int:
        """0."""
        return 0


class MultiplyAdds(Problem):
    """`steps` dependent multiply-adds of each pair of elements of two arrays of `length`, and a few sums.

    kernels/fma writes as much as it reads; this reads alone. Both are for the intensity at which a GPU stops
    being limited by memory (NVIDIA's GPU Performance Background, "Understanding Performance").
    """

    operator: ClassVar[str] = "multiply_adds"
    rate: ClassVar[Literal["flop", "byte"]] = "flop"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        _on_gpus("gpu-roofline", "gpu-benches' kernel, blocks of 256 threads", _MICRO),
    )

    length: Count
    steps: Annotated[int, Field(ge=0)]

    @property
    def flop(self) -> int:
        """2 a step, and a difference before and a sum after all of them."""
        return 2 * (self.steps + 1) * self.length

    @property
    def byte_read(self) -> int:
        """Both arrays."""
        return 2 * self.length * self.item_byte

    @property
    def byte_written(self) -> int:
        """0: the sums of blocks are a few thousand numbers."""
        return 0


class Recurrence(Problem):
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
        _on_gpus("cudnn-standard", "cuDNN's standard algorithm with CUDNN_SKIP_INPUT", _FLOATS),
        _on_gpus("miopen", "MIOpen with miopenRNNskip", _FLOATS),
    )

    cell: Literal["vanilla", "gru", "lstm"]
    direction: Literal["forward", "activation_gradient", "weight_gradient"]
    batch: Count
    hidden: Count
    steps: Count

    @property
    def _gates(self) -> int:
        return {"vanilla": 1, "gru": 3, "lstm": 4}[self.cell]

    @property
    def _y(self) -> int:
        return self.steps * self.batch * self.hidden

    @property
    def _states(self) -> int:
        return (2 if self.cell == "lstm" else 1) * self.batch * self.hidden

    @property
    def _weights(self) -> int:
        return self._gates * self.hidden**2

    @property
    def _kept(self) -> int:
        return (self._gates + (self.cell == "lstm")) * self._y

    @property
    def flop(self) -> int:
        """2 gates hidden^2 batch steps in each pass; what is done element by element is not counted."""
        return 2 * self._weights * self.batch * self.steps

    @property
    def byte_read(self) -> int:
        """x, states, weights; dy, states' gradients, weights, what was kept; or y and gates' gradients."""
        elements = {
            "forward": self._y + self._states + self._weights,
            "activation_gradient": self._y + self._states + self._weights + self._kept,
            "weight_gradient": self._y + self._gates * self._y,
        }
        return elements[self.direction] * self.item_byte

    @property
    def byte_written(self) -> int:
        """y, states and what is kept; dx, states' and gates' gradients; or the weights' gradient."""
        elements = {
            "forward": self._y + self._states + self._kept,
            "activation_gradient": self._y + self._states + self._gates * self._y,
            "weight_gradient": self._weights,
        }
        return elements[self.direction] * self.item_byte

    def byte_moved(self, implementation: str) -> int:
        """`byte`, and the weights again in each step after the first."""
        return self.byte + self.byte_again(implementation)

    def byte_again(self, implementation: str) -> int:
        """The weights after the first step, but for their own gradient, one product over all steps."""
        again = 0 if self.direction == "weight_gradient" else self.steps - 1
        return again * self._weights * self.item_byte


_WHOLE: dict[Any, tuple[int, int]] = dict.fromkeys(
    (*_MICRO, "tf32", "float16", "bfloat16", "float8_e4m3", "mxfp8", "int8"), (0, 0)
)
Word = Annotated[str, Field(pattern=r"^[\w./+-]*$")]


class Network(Problem):
    """A whole network that is trained or asked: time of a `step`, or of one GPU for an `item` or a `token`.

    Such a time is good for ratios alone: of mixed precision, channels last, checkpointing, 2:4 sparsity, a
    compiler (NVIDIA's Training With Mixed Precision; the guides' checklists). Arithmetic and bytes, which
    depend on the network, are not counted. `dtype` is that of the products; `mixed` says that the rest is in
    float32 where need be. `batch` is of one GPU; 0 and an empty word say that something is not known.
    """

    operator: ClassVar[str] = "network"
    arithmetic: ClassVar[Literal["unbounded"]] = "unbounded"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        _on_gpus("torch", "torch, one kernel after the other", _WHOLE),
        _on_gpus("compiled", "torch.compile", _WHOLE),
    )

    model: Word
    mode: Literal["train", "infer"]
    per: Literal["step", "item", "token"]
    batch: Annotated[int, Field(ge=0)]
    size: Annotated[int, Field(ge=0)] = 0
    gpus: Count = 1
    mixed: bool = False
    layout: Literal["", "NCHW", "NHWC"] = ""
    options: Word = ""

    @property
    def flop(self) -> int:
        """0: not counted."""
        return 0

    @property
    def byte_read(self) -> int:
        """0: not counted."""
        return 0

    @property
    def byte_written(self) -> int:
        """0: not counted."""
        return 0


PROBLEMS: Mapping[str, type[Problem]] = {
    problem.operator: problem
    for problem in (
        QuantizedLinear,
        Collective,
        Elementwise,
        RmsNorm,
        GatedActivation,
        CachedRead,
        MultiplyAdds,
        Recurrence,
        Network,
    )
}


def with_imported(find: Find) -> Find:
    """Gives the problem class of these operators too. LookupError as `find` if there is none."""
    return lambda name: PROBLEMS[name] if name in PROBLEMS else find(name)
