"""The parts of a layer, kernel by kernel, with their operations and bytes: what torch runs one after the
other.

Classes are those of Ivanov et al. 2020 (Data Movement Is All You Need, table 1): `contraction` are products
and convolutions, `normalization` is what reduces and scales (norms and softmax), `elementwise` the rest:
activation functions, biases' gradients, sums of residuals, casts, and copies from one order of elements to
another.

Bytes are those of elements that are read and written, each once in each kernel; a norm's mean and
deviation, which are few, are left out. A step that `joins` is computed by a compiler in a kernel before or
after it, whose bytes are counted there. Operations of a class other than the contractions are a count of
additions, products, roots and exponentials by the textbook formulas.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from kernels.attention.problem import Attention
from kernels.convolution.problem import Convolution
from kernels.linear.problem import Linear

if TYPE_CHECKING:
    from kernels.layer.problem import Layer

Work = Literal["contraction", "normalization", "elementwise"]
WORKS: tuple[Work, ...] = ("contraction", "normalization", "elementwise")


class Part(NamedTuple):
    """One kernel, or several of which only the sum is of interest."""

    work: Work
    flop: int
    read: int
    """Bytes."""
    written: int
    joins: bool = False

    @property
    def byte(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


@cache  # needed for every count of a layer
def parts(layer: Layer, implementation: str) -> tuple[Part, ...]:
    """The parts of the forward pass, of a step the others too."""
    fused = implementation in ("sdpa", "inductor")
    of_kind = _transformer(layer, fused) if layer.kind == "transformer" else _bottleneck(layer)
    launched = [part for part in of_kind if implementation != "inductor" or not part.joins]
    if layer.direction == "step" and layer.dtype == "float16":
        count = layer.weight_count
        launched.append(Part("elementwise", 2 * count, 4 * count, 4 * count))  # unscaled and checked
    return tuple(launched)


def _point(layer: Layer, count: int, forward: str, backward: str, flop: int = 1) -> Iterator[Part]:
    """An element-wise step of so many elements.

    Passes are written as what is read and written: `4i>i` reads a float32 and an element of the product's
    type and writes one such. Empty: nothing is run.
    """
    sizes = {"4": 4, "i": layer.item_byte}
    for passes, here in ((forward, True), (backward, layer.direction == "step")):
        if passes and here:
            read, written = (sum(sizes[each] for each in side) * count for side in passes.split(">"))
            yield Part("elementwise", flop * count, read, written, joins=True)


def _linear(layer: Layer, inputs: int, outputs: int) -> Iterator[Part]:
    """One linear layer with bias, in mixed precision its weights rounded first, gradients converted last."""
    sizes = {"batch": layer.tokens, "inputs": inputs, "outputs": outputs, "dtype": layer.dtype}
    yield from _rounded(layer, (inputs + 1) * outputs)
    y = Linear.model_validate({"direction": "forward", "bias": True, **sizes})
    yield Part("contraction", y.flop, y.byte_read, y.byte_written)
    if layer.direction == "forward":
        return
    for direction in ("activation_gradient", "weight_gradient"):
        gradient = Linear.model_validate({"direction": direction, **sizes})
        yield Part("contraction", gradient.flop, gradient.byte_read, gradient.byte_written)
    of_y = layer.tokens * outputs
    yield Part("elementwise", of_y, layer.item_byte * of_y, layer.item_byte * outputs, joins=True)


def _rounded(layer: Layer, weights: int) -> Iterator[Part]:
    if layer.mixed:
        yield Part("elementwise", 0, 4 * weights, 2 * weights)
        if layer.direction == "step":
            yield Part("elementwise", 0, 2 * weights, 4 * weights)


def _norm(layer: Layer) -> Iterator[Part]:
    """LayerNorm of float32 rows; backward a kernel for dx and one for the weights."""
    count = layer.tokens * layer.width
    yield Part("normalization", 7 * count, 4 * count, 4 * count)
    if layer.direction == "step":
        yield Part("normalization", 9 * count, 8 * count, 4 * count)
        yield Part("normalization", 4 * count, 8 * count, 8 * layer.width)


def _transformer(layer: Layer, fused: bool) -> Iterator[Part]:
    count, inner = layer.tokens * layer.width, layer.tokens * layer.inner
    cast = ("4>i", "i>4") if layer.mixed else ("", "")
    for _ in range(2):  # the halves: norm, what the products take, the sum with the residual
        yield from _norm(layer)
        yield from _point(layer, count, *cast, flop=0)
        yield from _point(layer, count, "4i>4", "44>4")
        if layer.mixed:  # the gradient of the half's result
            yield from _point(layer, count, "", "4>i", flop=0)
    yield from _linear(layer, layer.width, 3 * layer.width)
    yield from (_fused_attention if fused else _attention)(layer, count)
    yield from _linear(layer, layer.width, layer.width)
    yield from _linear(layer, layer.width, layer.inner)
    yield from _point(layer, inner, "i>i", "ii>i", flop=8)
    yield from _linear(layer, layer.inner, layer.width)


def _attention(layer: Layer, count: int) -> Iterator[Part]:
    """Scores and p in memory, p in float32 until it is multiplied: 2 products forward, 4 backward.

    `count` are the elements of q, as of k and of v.
    """
    i, step = layer.item_byte, layer.direction == "step"
    pairs = layer.tokens * layer.length * layer.heads
    product = 2 * pairs * layer.head_width
    yield from _point(layer, 3 * count, "i>i", "i>i", flop=0)  # heads apart
    yield from _point(layer, count, "i>i", "i>i")  # q scaled
    yield Part("contraction", product, 2 * i * count, i * pairs)
    yield Part("normalization", 5 * pairs, i * pairs, 4 * pairs)
    if layer.mixed:
        yield from _point(layer, pairs, "4>i", "i>4", flop=0)
    yield Part("contraction", product, i * (pairs + count), i * count)
    yield from _point(layer, count, "i>i", "i>i", flop=0)  # heads together
    if step:
        yield Part("contraction", product, 2 * i * count, i * pairs)  # dp
        yield Part("normalization", 4 * pairs, 8 * pairs, i * pairs)
        yield Part("contraction", product, i * (pairs + count), i * count)  # dq
        for _ in range(2):  # dk, dv
            yield Part("contraction", product, i * (pairs + count), i * count)


def _fused_attention(layer: Layer, count: int) -> Iterator[Part]:
    """Traffic of kernels.attention; products as if p were kept: the scores again are not counted."""
    pairs = layer.tokens * layer.length * layer.heads
    sizes = {
        "batch": layer.batch, "heads": layer.heads, "kv_heads": layer.heads, "q_length": layer.length,
        "head_width": layer.head_width, "dtype": "float32" if layer.dtype == "tf32" else layer.dtype,
    }  # fmt: skip
    directions = {"forward": 2, "backward": 4} if layer.direction == "step" else {"forward": 2}
    for direction, products in directions.items():
        of = Attention.model_validate({"direction": direction, **sizes})
        written = of.byte_written + (of.lse_byte if direction == "forward" else 0)
        yield Part("contraction", products * 2 * pairs * layer.head_width, of.byte_read, written)
    yield from _point(layer, 3 * count, "", "i>i", flop=0)  # dq, dk, dv side by side


def _bottleneck(layer: Layer) -> Iterator[Part]:
    wide, narrow, i = layer.width, layer.inner, layer.item_byte
    for c, k, window in ((wide, narrow, 1), (narrow, narrow, 3), (narrow, wide, 1)):
        yield from _rounded(layer, c * k * window**2)
        sizes = {
            "n": layer.batch, "h": layer.length, "w": layer.length, "c": c, "k": k, "window_h": window,
            "window_w": window, "padding": window // 2, "layout": "NHWC", "dtype": layer.dtype,
        }  # fmt: skip
        step = ("forward", "activation_gradient", "weight_gradient")
        for direction in step if layer.direction == "step" else step[:1]:
            of = Convolution.model_validate({"direction": direction, **sizes})
            yield Part("contraction", of.flop, of.byte_read, of.byte_written)
        count = layer.tokens * k
        yield Part("normalization", 3 * count, i * count, 0)  # statistics
        yield Part("normalization", 4 * count, i * count, i * count)
        if layer.direction == "step":
            yield Part("normalization", 4 * count, 2 * i * count, 0)
            yield Part("normalization", 5 * count, 2 * i * count, i * count)
        yield from _point(layer, count, "i>i", "ii>i")  # ReLU
    yield from _point(layer, layer.tokens * wide, "ii>i", "ii>i")  # the sum with x
