"""Convolution of a batch of images, and the two gradients that training takes of it.

    forward               y  [n, k, p, q] = x * w + bias     x [n, c, h, w], w [k, c / groups, r, s]
    activation_gradient   dx [n, c, h, w]                    from dy [n, k, p, q] and w
    weight_gradient       dw [k, c / groups, r, s]           from dy and x; with bias also db [k]

r x s is the window (`window_h` x `window_w`), p x q the size of the output. `stride`, `padding` and
`dilation` hold for rows and columns alike. `groups` cuts the channels into groups that are convolved
separately; with groups = c the convolution is depthwise. `layout` says how x, y, w and their gradients lie in
memory: NCHW is torch's contiguous (weights KCRS), NHWC its channels_last (weights KRSC). db, the gradient of
the bias, is the sums of dy. int8 is forward only, in NHWC without a bias: x and w are int8, y, the integer
sums, is float32.

The guide maps each pass to a matrix product ("implicit GEMM"):

    direction             M        N      K
    forward               n p q    k      c r s
    activation_gradient   n h w    c      k r s
    weight_gradient       c r s    k      n p q

Two additions are ours. Groups are as many smaller products, of c / groups and k / groups channels; they are
stacked along M. And where p q is less than h w, as with a stride, a point of dx has fewer terms than k r s: K
is then their mean, so that 2 M N K stays the FLOP of the pass.

Strongest known: cuDNN, measured as `cudnn`.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from bench.spec import Implementation, MatrixProblem, Size, Specs, TensorSpec
from kernels.implementations import ANY, FLOATS, LIBRARY, PRODUCTS, inductor, on_cpu, on_cuda

Direction = Literal["forward", "activation_gradient", "weight_gradient"]
Layout = Literal["NCHW", "NHWC"]

FIRST_LAYER_CHANNELS = 3
"""Channels up to which oneDNN reads x as NCHW has it."""


class Axis(NamedTuple):
    """One of the two axes of the image, or of the window: the numbers that decide which points meet."""

    size: int
    window: int
    stride: int
    padding: int
    dilation: int = 1

    @property
    def extent(self) -> int:
        """Points from the first tap of a window to its last."""
        return (self.window - 1) * self.dilation + 1

    @property
    def windows(self) -> int:
        """Number of windows, which is the output's size; below 1 if none fits."""
        return (self.size + 2 * self.padding - self.extent) // self.stride + 1

    @property
    def taps(self) -> list[int]:
        """How many points each window covers, padding left out; in order, and without dilation."""
        starts = (i * self.stride - self.padding for i in range(self.windows))
        return [min(start + self.window, self.size) - max(start, 0) for start in starts]

    @property
    def overlap(self) -> int:
        """The most windows that hold one point, without dilation."""
        return -(-self.window // self.stride)

    def meetings(self, tap: int) -> tuple[range, range]:
        """Windows whose tap number `tap` lies in the image, and the points there, in pairs."""
        start = tap * self.dilation - self.padding
        first = max(0, -(start // self.stride))
        end = max(first, min(self.windows, (self.size - 1 - start) // self.stride + 1))
        points = range(start + first * self.stride, start + end * self.stride, self.stride)
        return range(first, end), points

    def counts(self, side: int) -> list[int]:
        """Taps of each window (side 0), or windows that hold each point (1), none of 0."""
        meetings = (self.meetings(tap)[side] for tap in range(self.window))
        return list(Counter(chain(*meetings)).values())

    @property
    def meets_image(self) -> bool:
        """Whether any window has a tap in the image."""
        return any(self.meetings(tap)[0] for tap in range(self.window))

    @property
    def covered(self) -> int:
        """Number of points that lie in any window."""
        return len(set().union(*(self.meetings(tap)[1] for tap in range(self.window))))


class Convolution(MatrixProblem):
    """One pass: `direction`, the sizes above, `layout`, `dtype`; `bias` only forward and for weights.

    Raises ValueError where no window fits, where groups do not divide the channels, and where no window
    meets the image.
    """

    operator: ClassVar[str] = "convolution"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_cuda("cudnn", "cuDNN through torch, the quickest algorithm that cudnn.benchmark finds", LIBRARY),
        on_cuda("cudnn-heuristic", "cuDNN through torch, the algorithm that its heuristic names", LIBRARY),
        inductor("torch.compile; on a GPU the quicker of cuDNN and its templates", {**LIBRARY, **PRODUCTS}),
        on_cpu("onednn", "oneDNN through torch, each call of which allocates", {**FLOATS, "int8": ANY}),
    )

    direction: Direction
    n: Size
    c: Size
    h: Size
    w: Size
    k: Size
    window_h: Size
    window_w: Size
    stride: Size = 1
    padding: Annotated[int, Field(ge=0)] = 0
    dilation: Size = 1
    groups: Size = 1
    bias: bool = False
    layout: Layout

    @model_validator(mode="after")
    def _possible(self) -> Convolution:
        for name, channels in (("c", self.c), ("k", self.k)):
            if channels % self.groups:
                raise ValueError(f"groups {self.groups} does not divide {name} = {channels}")
        if self.rows.windows < 1 or self.columns.windows < 1:
            extent = f"{self.rows.extent} x {self.columns.extent}"
            padded = f"{self.h + 2 * self.padding} x {self.w + 2 * self.padding}"
            dilated = f" (dilation {self.dilation})" if self.dilation > 1 else ""
            raise ValueError(
                f"the output is empty: no window of {extent}{dilated} fits into the padded input of {padded}"
            )
        if self.dtype == "int8" and (self.direction != "forward" or self.layout != "NHWC" or self.bias):
            raise ValueError("int8 is for inference: forward, in NHWC, without a bias")
        if self.bias and self.direction == "activation_gradient":
            raise ValueError("an activation gradient knows no bias")
        if not (self.rows.meets_image and self.columns.meets_image):
            raise ValueError(
                f"with padding {self.padding} and stride {self.stride} no window meets the image"
            )
        return self

    @property
    def rows(self) -> Axis:
        """The vertical axis."""
        return Axis(self.h, self.window_h, self.stride, self.padding, self.dilation)

    @property
    def columns(self) -> Axis:
        """The horizontal axis."""
        return Axis(self.w, self.window_w, self.stride, self.padding, self.dilation)

    @property
    def p(self) -> int:
        """Rows of the output."""
        return self.rows.windows

    @property
    def q(self) -> int:
        """Columns of the output."""
        return self.columns.windows

    def tensor(self, name: str) -> TensorSpec:
        """x, w, y or the bias, or the gradient of one. Sums of int8 are float32."""
        if name == "b":
            return TensorSpec((self.k,))
        shape = {
            "x": (self.n, self.c, self.h, self.w),
            "w": (self.k, self.c // self.groups, self.window_h, self.window_w),
            "y": (self.n, self.k, self.p, self.q),
        }[name]
        dtype = "float32" if name == "y" and self.dtype == "int8" else None
        return TensorSpec(shape, dtype, channels_last=self.layout == "NHWC")

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """Both operands, forward a bias too; y, dx, or dw and perhaps db, named x, w, y, b as well."""
        names = {"forward": ("xwb", "y"), "activation_gradient": ("yw", "x"), "weight_gradient": ("yx", "wb")}
        read, written = (
            {name: self.tensor(name) for name in letters if name != "b" or self.bias}
            for letters in names[self.direction]
        )
        return read, written

    @property
    def x_byte(self) -> int:
        """Bytes of x, and of dx."""
        return self.byte_of(self.tensor("x"))

    @property
    def w_byte(self) -> int:
        """Bytes of w, and of dw."""
        return self.byte_of(self.tensor("w"))

    @property
    def y_byte(self) -> int:
        """Bytes of y, and of dy."""
        return self.byte_of(self.tensor("y"))

    @property
    def adds_bias(self) -> bool:
        """Whether y has a bias added."""
        return self.bias and self.direction == "forward"

    @property
    def sums_bias_gradient(self) -> bool:
        """Whether db is an output."""
        return self.bias and self.direction == "weight_gradient"

    @property
    def flop(self) -> int:
        """2 n p q k (c / groups) r s in each direction; taps in the padding count, a bias does not."""
        window = self.window_h * self.window_w
        return 2 * self.n * self.p * self.q * self.k * (self.c // self.groups) * window

    @property
    def product(self) -> tuple[int, int, int]:
        """m, n, k of the product by the table above."""
        c, k, window = self.c // self.groups, self.k // self.groups, self.window_h * self.window_w
        if self.direction == "forward":
            return self.groups * self.n * self.p * self.q, k, c * window
        if self.direction == "weight_gradient":
            return self.groups * c * window, k, self.n * self.p * self.q
        of_point = math.ceil(k * window * self.p * self.q / (self.h * self.w))
        return self.groups * self.n * self.h * self.w, c, of_point

    def read_once(self, implementation: str) -> int:
        """The inputs, but for points of x that no window covers.

        Those are three of four with a 1 x 1 window and stride 2. It is a lower bound, since memory moves
        whole sectors.
        """
        if self.direction == "activation_gradient":
            return self.byte_read
        uncovered = self.h * self.w - self.rows.covered * self.columns.covered
        return self.byte_read - self.n * self.c * uncovered * self.item_byte

    def byte_again(self, implementation: str) -> int:
        """Copies, read soon after they are written (`_intermediate_byte`); y or dy for the bias.

        cuDNN's bias is a kernel of torch's own that reads y and writes it again. db is a kernel of its own
        that reads dy, of torch beside `cudnn`.
        """
        again = self._bias_moved(implementation) // (2 if self.adds_bias else 1)
        return sum(self._intermediate_byte(implementation)) + again

    def moved_written(self, implementation: str) -> int:
        """The outputs and the copies; y twice where a kernel of its own adds the bias."""
        twice = self._bias_moved(implementation) // 2 if self.adds_bias else 0
        return self.byte_written + sum(self._intermediate_byte(implementation)) + twice

    def _bias_moved(self, implementation: str) -> int:
        by_cudnn = implementation.startswith("cudnn")
        if self.adds_bias:
            return 2 * self.y_byte if by_cudnn else 0
        return self.y_byte if self.sums_bias_gradient and by_cudnn else 0

    def _intermediate_byte(self, implementation: str) -> tuple[int, ...]:
        """Bytes of what is written and read again: a library's copies to or from its layout.

        cuDNN: x, w and y as NCHW for tensor cores, whose kernels take NHWC (the guide, Tensor Layouts; its
        float32 kernels take either). oneDNN, by its verbose log: w always, but for int8, whose w torch packs
        beforehand; as NCHW x and y too, but for an x of at most three channels that it only reads.
        """
        if self.dtype == "int8":
            return ()
        if implementation == "onednn":
            if self.layout == "NHWC":
                return (self.w_byte,)
            as_it_is = self.c <= FIRST_LAYER_CHANNELS and self.direction != "activation_gradient"
            return (self.w_byte, self.y_byte, 0 if as_it_is and self.groups == 1 else self.x_byte)
        if implementation.startswith("cudnn") and self.layout == "NCHW" and self.dtype != "float32":
            return (self.w_byte, self.y_byte, self.x_byte)
        return ()

    def probe(self) -> Convolution:
        """2 images, 64 channels in and out, 32 windows a side, and no groups.

        One probe's rate serves all problems of an operator, and that of few channels or of a depthwise
        convolution would be far too low for the others.
        """
        high, wide = (31 * self.stride + axis.extent for axis in (self.rows, self.columns))
        return self.model_copy(update={"n": 2, "c": 64, "k": 64, "h": high, "w": wide, "groups": 1})


PROBLEM = Convolution
