"""Pooling: the maximum or the average of every window of an image, and the gradient of either.

x and dx are [n, c, h, w], y and dy [n, c, high, wide]; `layout` says how both lie in memory: NCHW is torch's
contiguous, NHWC its channels_last. Windows are `window` x `window_w`, `stride` and `stride_w` apart, over an
image with `padding` rows above and below and `padding_w` columns at either side, which count as minus
infinity for a maximum and as zero for an average, which divides by all points of its window. Where the
width's are not given they are the height's. Sizes and the choice among equal maxima (the first; a NaN before
all, of these the last) are PyTorch's.

The maximum's place is kept for the backward pass: how is each implementation's own affair.

cuDNN, which the documents measured, is not here, since torch calls none for pooling. Nor is oneDNN, the
CPU's library: torch reaches it only through tensors in oneDNN's own opaque format, in which no result can be
allocated beforehand.

Strongest known: torch's own kernels, measured as `aten`; no faster ones are published.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from bench.spec import Implementation, Problem, Size, Specs, TensorSpec
from kernels.convolution.problem import Axis
from kernels.implementations import inductor, on_both, on_cuda

Padding = Annotated[int, Field(ge=0)]
Kind = Literal["max", "average"]
Direction = Literal["forward", "backward"]
Layout = Literal["NCHW", "NHWC"]

MOST_32_BIT = 2**31 - 2**16
"""Elements that a 32-bit offset reaches, with a tile to spare."""

_OF_EITHER_AXIS = ("window", "stride", "padding")

INDEX_BYTE = 8


class Pooling(Problem):
    """One pass: `kind`, `direction`, `n`, `c`, `h`, `w`, `window`, `stride`, `padding`, `layout`, `dtype`.

    `window_w`, `stride_w` and `padding_w` are the width's where they differ from the height's. PyTorch's
    `ceil_mode` and `count_include_pad` have one value each, which rows and names of cases carry. Raises
    ValueError where PyTorch would refuse the window or has no output.
    """

    operator: ClassVar[str] = "pooling"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("aten", "max_pool2d_with_indices, avg_pool2d and their backward; int64 indices"),
        inductor("the same functions by torch.compile"),
        on_cuda("triton", "our kernels, with PyTorch's int64 indices; backward gathers, no atomics"),
    )

    kind: Kind
    direction: Direction
    n: Size
    c: Size
    h: Size
    w: Size
    window: Size
    window_w: Size = 1
    stride: Size
    stride_w: Size = 1
    padding: Padding = 0
    padding_w: Padding = 0
    ceil_mode: Literal[False] = False
    count_include_pad: Literal[True] = True
    layout: Layout

    @model_validator(mode="before")
    @classmethod
    def _square_unless_given(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {f"{name}_w": given[name] for name in _OF_EITHER_AXIS if name in given} | given

    @model_validator(mode="after")
    def _possible(self) -> "Pooling":
        for axis, width in ((self.down, ""), (self.across, "_w")):
            if axis.padding > axis.window // 2:
                raise ValueError(
                    f"padding{width} {axis.padding} is more than half of window{width} {axis.window}; "
                    f"{axis.window // 2} is the most"
                )
        if self.high < 1 or self.wide < 1:
            h, w = (axis.size + 2 * axis.padding for axis in (self.down, self.across))
            window = f"{self.window}" if self.window == self.window_w else f"{self.window} x {self.window_w}"
            raise ValueError(f"no window of {window} fits into the padded input of {h} x {w}")
        return self

    def parameters(self) -> dict[str, int | float | bool | str]:
        """The width's only where they differ from the height's: a square window is named as it always was."""
        given = super().parameters()
        alike = [f"{name}_w" for name in _OF_EITHER_AXIS if given[name] == given[f"{name}_w"]]
        return {name: value for name, value in given.items() if name not in alike}

    @property
    def down(self) -> Axis:
        """The rows."""
        return Axis(self.h, self.window, self.stride, self.padding)

    @property
    def across(self) -> Axis:
        """The columns."""
        return Axis(self.w, self.window_w, self.stride_w, self.padding_w)

    @property
    def high(self) -> int:
        """Rows of the output."""
        return self.down.windows

    @property
    def wide(self) -> int:
        """Columns of the output."""
        return self.across.windows

    @property
    def window_taps(self) -> int:
        """Points of a whole window."""
        return self.window * self.window_w

    @property
    def input_elements(self) -> int:
        """Elements of x, and of dx."""
        return self.n * self.c * self.h * self.w

    @property
    def output_elements(self) -> int:
        """Elements of y, and of dy."""
        return self.n * self.c * self.high * self.wide

    @property
    def flop(self) -> int:
        """The window's taps for each output, a comparison or an addition each, as the documents count.

        Backward of max: one addition an output. Nominal: taps in the padding and divisions are not told
        apart.
        """
        if self.kind == "max" and self.direction == "backward":
            return self.output_elements
        return self.window_taps * self.output_elements

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """x and y; or dy and dx. Where a maximum was is left out, it depends on the implementation."""
        x = TensorSpec((self.n, self.c, self.h, self.w), channels_last=self.layout == "NHWC")
        y = x._replace(shape=(self.n, self.c, self.high, self.wide))
        return ({"x": x}, {"y": y}) if self.direction == "forward" else ({"dy": y}, {"dx": x})

    def read_once(self, implementation: str) -> int:
        """The inputs, backward with the places of the maxima, forward without what no window holds.

        Places are written forward and read backward: 8 bytes an output as int64 indices, which PyTorch always
        makes. Of x only rows and columns in some window need be read: 36 of 49
        points for 2x2 windows on 7x7, fewer where the stride exceeds the window. That is a lower bound:
        memory moves whole sectors.
        """
        if self.direction == "forward":
            return self.n * self.c * self.down.covered * self.across.covered * self.item_byte
        return self.byte_read + self._places_byte

    def moved_written(self, implementation: str) -> int:
        """y and, of max, the places; backward dx."""
        places = self._places_byte if self.direction == "forward" else 0
        return self.byte_written + places

    @property
    def _places_byte(self) -> int:
        """Bytes that say where the maxima were."""
        return INDEX_BYTE * self.output_elements if self.kind == "max" else 0

    def refusal(self, implementation: str) -> str:
        """Ours need 32 bits to suffice in an image."""
        if implementation != "triton":
            return ""
        largest = max(self.h * self.w, self.high * self.wide) * (self.c if self.layout == "NHWC" else 1)
        if largest > MOST_32_BIT:
            what = "an image" if self.layout == "NHWC" else "a plane"
            return f"triton addresses {what} with 32 bits, too few for {largest} elements"
        return ""


PROBLEM = Pooling
