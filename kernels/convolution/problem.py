"""Convolution of a batch of images, and the two gradients that training takes of it.

    forward               y  [n, k, p, q] = x * w + bias     x [n, c, h, w], w [k, c / groups, r, s]
    activation_gradient   dx [n, c, h, w]                    from dy [n, k, p, q] and w
    weight_gradient       dw [k, c / groups, r, s]           from dy and x; with bias also db [k]

r x s is the window (`window_h` x `window_w`), p x q the size of the output. `stride`, `padding` and
`dilation` hold for rows and columns alike. `groups` cuts the channels into groups that are convolved
separately; with groups = c the convolution is depthwise. `layout` says how x, y, w and their gradients lie in
memory: NCHW is torch's contiguous (weights KCRS), NHWC its channels_last (weights KRSC). db, the gradient of
the bias, is the sums of dy.

The guide maps each pass to a matrix product ("implicit GEMM"):

    direction             M        N      K
    forward               n p q    k      c r s
    activation_gradient   n h w    c      k r s
    weight_gradient       c r s    k      n p q

Two additions are ours. Groups are as many smaller products, of c / groups and k / groups channels; they are
stacked along M. And where p q is less than h w, as with a stride, a point of dx has fewer terms than k r s: K
is then their mean, so that 2 M N K stays the FLOP of the pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from bench.spec import DeviceKind, Dtype, Implementation, Problem

Size = Annotated[int, Field(ge=1)]
Direction = Literal["forward", "activation_gradient", "weight_gradient"]
Layout = Literal["NCHW", "NHWC"]

MOST_32_BIT = 2**31 - 2**16
"""What a 32-bit number counts, with a tile to spare."""
FIRST_LAYER_CHANNELS = 3
"""Channels up to which oneDNN reads x as NCHW has it."""

_ANY = (0, 0)
_AMPERE = (8, 0)
_CUDA: Mapping[Dtype, tuple[int, int]] = {
    "float16": (5, 3),
    "bfloat16": _AMPERE,
    "tf32": _AMPERE,
    "float32": _ANY,
}
_CPU: Mapping[Dtype, tuple[int, int]] = {"float16": _ANY, "bfloat16": _ANY, "float32": _ANY}
_GPU: tuple[DeviceKind, ...] = ("cuda",)


class Axis(NamedTuple):
    """One of the two axes of the image, or of the window: the numbers that decide which points meet."""

    size: int
    window: int
    stride: int
    padding: int
    dilation: int

    @property
    def extent(self) -> int:
        """Points from the first tap of a window to its last."""
        return (self.window - 1) * self.dilation + 1

    @property
    def windows(self) -> int:
        """Number of windows, which is the output's size; below 1 if none fits."""
        return (self.size + 2 * self.padding - self.extent) // self.stride + 1

    def meetings(self, tap: int) -> tuple[range, range]:
        """Windows whose tap number `tap` lies in the image, and the points there, in pairs."""
        start = tap * self.dilation - self.padding
        first = max(0, -(start // self.stride))
        end = max(first, min(self.windows, (self.size - 1 - start) // self.stride + 1))
        points = range(start + first * self.stride, start + end * self.stride, self.stride)
        return range(first, end), points

    @property
    def meets_image(self) -> bool:
        """Whether any window has a tap in the image."""
        return any(self.meetings(tap)[0] for tap in range(self.window))

    @property
    def covered(self) -> int:
        """Number of points that lie in any window."""
        return len(set().union(*(self.meetings(tap)[1] for tap in range(self.window))))


class Convolution(Problem):
    """One pass: `direction`, the sizes above, `layout`, `dtype`; `bias` only forward and for weights.

    Raises ValueError where no window fits, where groups do not divide the channels, and where no window
    meets the image.
    """

    operator: ClassVar[str] = "convolution"
    arithmetic: ClassVar[Literal["matrix", "vector"]] = "matrix"
    rate: ClassVar[Literal["flop", "byte"]] = "flop"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation(
            "cudnn",
            "cuDNN through torch, the quickest of the algorithms that it tries (cudnn.benchmark on)",
            devices=_GPU,
            dtypes=_CUDA,
        ),
        Implementation(
            "cudnn-heuristic",
            "cuDNN through torch, the algorithm that its heuristic puts first (cudnn.benchmark off)",
            devices=_GPU,
            dtypes=_CUDA,
        ),
        Implementation(
            "inductor",
            "torch.compile in mode max-autotune: the quicker of cuDNN and its own templates, bias fused",
            devices=_GPU,
            dtypes={**_CUDA, "float16": (7, 0), "float32": (7, 0)},
        ),
        Implementation(
            "onednn",
            "oneDNN through torch on a CPU; outputs are allocated by each call, which torch cannot avoid",
            devices=("cpu",),
            dtypes=_CPU,
        ),
        Implementation(
            "triton",
            "our implicit GEMM, forward in NHWC, a bias added as y is stored; tuned on the device",
            devices=_GPU,
            dtypes=dict.fromkeys(_CUDA, _AMPERE),
        ),
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

    @property
    def x_byte(self) -> int:
        """Bytes of x, and of dx."""
        return self.n * self.c * self.h * self.w * self.item_byte

    @property
    def w_byte(self) -> int:
        """Bytes of w, and of dw."""
        return self.k * (self.c // self.groups) * self.window_h * self.window_w * self.item_byte

    @property
    def y_byte(self) -> int:
        """Bytes of y, and of dy."""
        return self.n * self.k * self.p * self.q * self.item_byte

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

    @property
    def byte_read(self) -> int:
        """x and w, dy and w, or dy and x, once; the bias too."""
        read = {
            "forward": self.x_byte + self.w_byte + self.adds_bias * self._bias_byte,
            "activation_gradient": self.y_byte + self.w_byte,
            "weight_gradient": self.y_byte + self.x_byte,
        }
        return read[self.direction]

    @property
    def byte_written(self) -> int:
        """y, dx, or dw and with bias db, once."""
        written = {
            "forward": self.y_byte,
            "activation_gradient": self.x_byte,
            "weight_gradient": self.w_byte + self.sums_bias_gradient * self._bias_byte,
        }
        return written[self.direction]

    @property
    def _bias_byte(self) -> int:
        return self.k * self.item_byte

    def byte_moved(self, implementation: str) -> int:
        """`byte`, with what a layout forces to be copied and a bias to be passed over, less what is not read.

        A point of x that no window covers need not be read: three of four with a 1 x 1 window and stride 2.
        That is a lower bound, since memory moves whole sectors. Copies are written and read once more: see
        `_copied_byte`. cuDNN's bias is a kernel of torch's own that reads y and writes it again, and its
        gradient one that reads dy.
        """
        return (
            self.byte
            - self._uncovered_byte
            + 2 * sum(self._copied_byte(implementation))
            + self._bias_moved(implementation)
        )

    def byte_again(self, implementation: str) -> int:
        """The copies, which are read soon after they are written, and y or dy for the bias."""
        again = self._bias_moved(implementation) // (2 if self.adds_bias else 1)
        return sum(self._copied_byte(implementation)) + again

    def moved_written(self, implementation: str) -> int:
        """The outputs and the copies; y twice where a kernel of its own adds the bias."""
        twice = self._bias_moved(implementation) // 2 if self.adds_bias else 0
        return self.byte_written + sum(self._copied_byte(implementation)) + twice

    def _bias_moved(self, implementation: str) -> int:
        if not implementation.startswith("cudnn"):
            return 0
        return 2 * self.y_byte if self.adds_bias else self.y_byte if self.sums_bias_gradient else 0

    def _copied_byte(self, implementation: str) -> tuple[int, ...]:
        """Bytes of the tensors that a library copies to a layout of its own, or from it.

        cuDNN: x, w and y as NCHW for tensor cores, whose kernels take NHWC (the guide, Tensor Layouts; its
        float32 kernels take either). oneDNN, by its verbose log: w always; as NCHW x and y too, but for an x
        of at most three channels that it only reads.
        """
        if implementation == "onednn":
            if self.layout == "NHWC":
                return (self.w_byte,)
            as_it_is = self.c <= FIRST_LAYER_CHANNELS and self.direction != "activation_gradient"
            return (self.w_byte, self.y_byte, 0 if as_it_is and self.groups == 1 else self.x_byte)
        if implementation.startswith("cudnn") and self.layout == "NCHW" and self.dtype != "float32":
            return (self.w_byte, self.y_byte, self.x_byte)
        return ()

    @property
    def _uncovered_byte(self) -> int:
        if self.direction == "activation_gradient":
            return 0
        uncovered = self.h * self.w - self.rows.covered * self.columns.covered
        return self.n * self.c * uncovered * self.item_byte

    def refusal(self, implementation: str) -> str:
        """`triton` does the forward pass in NHWC, with 32 bits for pixels and within an image."""
        if implementation != "triton":
            return ""
        if self.direction != "forward" or self.layout != "NHWC":
            return f"triton does forward in NHWC, not {self.direction} in {self.layout}"
        largest = max(self.n * self.p * self.q, self.h * self.w * self.c)
        if largest > MOST_32_BIT:
            return f"triton counts pixels and the elements of an image with 32 bits, too few for {largest}"
        return ""

    def probe(self) -> Convolution:
        """2 images, 64 channels in and out, 32 windows a side, and no groups.

        One probe's rate serves all problems of an operator, and that of few channels or of a depthwise
        convolution would be far too low for the others.
        """
        high, wide = (31 * self.stride + axis.extent for axis in (self.rows, self.columns))
        return self.model_copy(update={"n": 2, "c": 64, "k": 64, "h": high, "w": wide, "groups": 1})


PROBLEM = Convolution
