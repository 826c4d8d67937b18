"""Whole layers: the forward pass alone, or a training step of forward and backward pass.

    kind                 layer
    transformer          BERT's encoder layer, normalized after each sum (post-norm): attention of heads that
                         are `head_width` wide, linear layers to 4 width and back with GELU between them, all
                         with bias; BERT-large has width 1024 and heads of 64
    bottleneck           ResNet's: convolutions 1x1 to width / 4 channels, 3x3, 1x1 back to width, each with
                         batch normalization and ReLU, the last ReLU after the sum with the input; NHWC

    direction            outputs
    forward              y, computed as the forward pass of a step
    step                 y, dx and the gradient of each weight, of a given dy

There is no dropout, no mask, no rotary embedding, no optimizer and no running mean of batch normalization.
Tensors are [batch, length, width]; of a bottleneck images [batch, width, length, length].

**Data types.** `dtype` is that in which products are computed. float32 and tf32: everything is float32.
float16 and bfloat16 are mixed precision, as torch.amp.autocast does it: weights stay float32 and are
rounded at each use, and their gradients come out in float32. In a Transformer x, y, dy, sums of residuals
and normalization are float32, in a bottleneck of the 16-bit type.

**Loss scaling** (float16). dy is taken to come from a loss that was multiplied by 2^16, GradScaler's first
scale; that is one product of two numbers in a model and nothing here. The step then divides the gradients
of the weights by it and looks for infinities in them, as GradScaler.unscale_ does: `LOSS_SCALE`. That the
scale is adapted, and a step left out, is the optimizer's part.

**Counts** are sums over the parts of kernels/layer/kernel_counts.py. `flop` are those of the contractions
(products and convolutions), which the documents count: a step has 3 times those of the forward pass.

Strongest known: torch.compile with fused attention, measured as `inductor`; on a GPU Transformer Engine's
layers, which are not measured here.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal, NamedTuple

from pydantic import model_validator

from bench.spec import Dtypes, Implementation, MatrixProblem, Size, Specs, TensorSpec
from kernels.implementations import AMPERE, ANY, PRODUCTS, inductor, on_both, on_cuda
from kernels.layer import kernel_counts
from kernels.layer.kernel_counts import Part, Work

Kind = Literal["transformer", "bottleneck"]
Direction = Literal["forward", "step"]

LOSS_SCALE = 2.0**16
"""What the loss of a float16 step was multiplied by; GradScaler begins with it."""

_WHOLE: Dtypes = {"float32": ANY, "tf32": AMPERE}
_MIXED: Dtypes = {"float16": (5, 3), "bfloat16": AMPERE}


class Weight(NamedTuple):
    """One of the layer's weights."""

    role: Literal["matrix", "factor", "shift"]
    """factor: of a norm; shift: of a norm or, behind a matrix, a bias."""
    shape: tuple[int, ...]


def _linear(inputs: int, outputs: int) -> tuple[Weight, ...]:
    return Weight("matrix", (outputs, inputs)), Weight("shift", (outputs,))


def _norm(width: int) -> tuple[Weight, ...]:
    return Weight("factor", (width,)), Weight("shift", (width,))


class Layer(MatrixProblem):
    """One layer: `kind`, `direction`, `batch`, `length`, `width`, a Transformer's `head_width`, `dtype`.

    Raises ValueError for a head_width that does not divide the width, for one of a bottleneck, and for a
    bottleneck whose width 4 does not divide.
    """

    operator: ClassVar[str] = "layer"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("eager", "torch's operators one after the other, scores of attention kept in memory", _WHOLE),
        on_both("amp", "eager under torch.amp.autocast, float16 with a scaled loss", _MIXED),
        on_both("sdpa", "as eager or amp, with torch's fused attention", {**_WHOLE, **_MIXED}),
        on_cuda("cudnn-deterministic", "as eager or amp, with cudnn.deterministic", {**_WHOLE, **_MIXED}),
        inductor("torch.compile of sdpa", {**_WHOLE, **PRODUCTS}),
    )

    kind: Kind
    direction: Direction
    batch: Size
    length: Size
    width: Size
    head_width: Size = 1

    @model_validator(mode="after")
    def _possible(self) -> Layer:
        if self.kind == "bottleneck" and self.head_width != 1:
            raise ValueError(f"a layer of kind bottleneck has no head_width; given {self.head_width}")
        if self.width % self.head_width:
            raise ValueError(f"head_width {self.head_width} does not divide width {self.width}")
        if self.kind == "bottleneck" and self.width % 4:
            raise ValueError(f"4 does not divide width {self.width} of a bottleneck")
        return self

    def parameters(self) -> dict[str, int | float | bool | str]:
        """The parameters that the kind has."""
        given = super().parameters()
        return {n: v for n, v in given.items() if n != "head_width" or self.kind == "transformer"}

    # ---- sizes

    @property
    def mixed(self) -> bool:
        """Whether it is in mixed precision, of float32 weights."""
        return self.item_byte == 2

    @property
    def x_byte(self) -> int:
        """Bytes of an element of x, y, dx and dy."""
        return 4 if self.kind == "transformer" else self.item_byte

    @property
    def tokens(self) -> int:
        """Rows of the linear layers; of a bottleneck, pixels."""
        return self.batch * self.length ** (2 if self.kind == "bottleneck" else 1)

    @property
    def heads(self) -> int:
        """Heads of attention."""
        return self.width // self.head_width

    @property
    def inner(self) -> int:
        """Width between the two halves of a feed-forward network; channels of a 3x3 convolution."""
        return 4 * self.width if self.kind == "transformer" else self.width // 4

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Every weight, in the order of the inputs."""
        w, inner = self.width, self.inner
        if self.kind == "transformer":
            return (
                *(*_linear(w, 3 * w), *_linear(w, w), *_norm(w)),
                *(*_linear(w, inner), *_linear(inner, w), *_norm(w)),
            )
        matrices_of = ((inner, w, 1, 1), (inner, inner, 3, 3), (w, inner, 1, 1))
        return tuple(each for shape in matrices_of for each in (Weight("matrix", shape), *_norm(shape[0])))

    @property
    def weight_count(self) -> int:
        """Numbers that all weights hold."""
        return sum(math.prod(weight.shape) for weight in self.weights)

    # ---- counts

    def parts(self, implementation: str) -> tuple[Part, ...]:
        """What one launch does, kernel by kernel, as this implementation does it."""
        return kernel_counts.parts(self, implementation)

    def flop_of(self, work: Work) -> int:
        """Operations of the parts of one class."""
        return sum(part.flop for part in self.parts("eager") if part.work == work)

    @property
    def flop(self) -> int:
        """FLOP of products and convolutions. The others' few are not counted, as they run on other units."""
        return self.flop_of("contraction")

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """x, the weights in float32, for a step dy; y, for a step dx and the gradients of the weights."""
        x = TensorSpec((self.batch, self.length, self.width), "float32" if self.x_byte == 4 else None)
        if self.kind == "bottleneck":
            image = (self.batch, self.width, self.length, self.length)
            x = x._replace(shape=image, channels_last=True)
        weights = {f"w_{i}": TensorSpec(weight.shape, "float32") for i, weight in enumerate(self.weights)}
        if self.direction == "forward":
            return {"x": x, **weights}, {"y": x}
        return {"x": x, **weights, "dy": x}, {"y": x, "dx": x, **weights}

    def byte_moved(self, implementation: str) -> int:
        """What all parts read and write."""
        return sum(part.byte for part in self.parts(implementation))

    def byte_again(self, implementation: str) -> int:
        """What they read beyond the inputs: intermediate results, and inputs for the second time."""
        read = sum(part.read for part in self.parts(implementation))
        return max(0, read - self.byte_read)

    def moved_written(self, implementation: str) -> int:
        """What they write."""
        return sum(part.written for part in self.parts(implementation))

    def byte_beside(self, implementation: str) -> int:
        """Bytes that the parts other than the contractions move."""
        return sum(part.byte for part in self.parts(implementation) if part.work != "contraction")

    def refusal(self, implementation: str) -> str:
        """Only a Transformer has attention to fuse, only a bottleneck has cuDNN's algorithms."""
        if implementation == "sdpa" and self.kind == "bottleneck":
            return "sdpa fuses attention, of which a layer of kind bottleneck has none"
        if implementation == "cudnn-deterministic" and self.kind == "transformer":
            return "cudnn-deterministic chooses cuDNN's convolutions, of which kind transformer has none"
        return ""

    def probe(self) -> Layer:
        """The same layer for one sequence or image, of up to 64 tokens or 14 pixels a side."""
        return self.at_most(batch=1, length=14 if self.kind == "bottleneck" else 64)


PROBLEM = Layer
