"""Pooling: the maximum or the average of every window of an image, and the gradient of either.

x and dx are [n, c, h, w], y and dy [n, c, high, wide]; `layout` says how both lie in memory: NCHW is torch's
contiguous, NHWC its channels_last. Windows are square, `window` x `window`, `stride` apart, over an image
with `padding` rows and columns on each side, which count as minus infinity for a maximum and as zero for an
average. Sizes, divisors and the choice among equal maxima (the first; a NaN before all, of these the last)
are PyTorch's.

The maximum's place is kept for the backward pass: how is each implementation's own affair.

cuDNN, which the documents measured, is not here, since torch calls none for pooling. Nor is oneDNN, the
CPU's library: torch reaches it only through tensors in oneDNN's own opaque format, in which no result can be
allocated beforehand.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from bench.spec import Dtype, Implementation, Problem

Size = Annotated[int, Field(ge=1)]
Kind = Literal["max", "average"]
Direction = Literal["forward", "backward"]
Layout = Literal["NCHW", "NHWC"]

MOST_32_BIT = 2**31 - 2**16
"""Elements that a 32-bit offset reaches, with a tile to spare."""
MOST_CODE_WINDOW = 16
"""The widest window whose taps can be numbered in one byte."""

INDEX_BYTE = 8
CODE_BYTE = 1

_ANY = (0, 0)
_CPU_AND_CUDA: Mapping[Dtype, tuple[int, int]] = {"float16": _ANY, "bfloat16": _ANY, "float32": _ANY}
_TRITON: Mapping[Dtype, tuple[int, int]] = {"float16": (7, 0), "bfloat16": (7, 0), "float32": (7, 0)}


class Pooling(Problem):
    """One pass: `kind`, `direction`, `n`, `c`, `h`, `w`, `window`, `stride`, `padding`, `layout`, `dtype`.

    `ceil_mode` adds a last, overhanging window; `count_include_pad` says whether an average divides by what
    it covers of the padding too. Raises ValueError where PyTorch would refuse the window or has no output.
    """

    operator: ClassVar[str] = "pooling"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation(
            "aten",
            "torch's own kernels, max_pool2d_with_indices, avg_pool2d and their backward; int64 indices",
            devices=("cpu", "cuda"),
            dtypes=_CPU_AND_CUDA,
        ),
        Implementation(
            "inductor",
            "the same functions by torch.compile; not on a CPU, where each shape costs seconds of compiling",
            devices=("cuda",),
            dtypes=_TRITON,
        ),
        Implementation(
            "triton",
            "our kernels, with PyTorch's int64 indices; backward gathers, no atomics; tuned on the device",
            devices=("cuda",),
            dtypes=_TRITON,
        ),
        Implementation(
            "triton-codes",
            "max only: our kernels with one byte for the place of a maximum, its tap in the window",
            devices=("cuda",),
            dtypes=_TRITON,
        ),
    )

    kind: Kind
    direction: Direction
    n: Size
    c: Size
    h: Size
    w: Size
    window: Size
    stride: Size
    padding: Annotated[int, Field(ge=0)] = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    layout: Layout

    @model_validator(mode="after")
    def _possible(self) -> "Pooling":
        if self.padding > self.window // 2:
            raise ValueError(
                f"padding {self.padding} is more than half of window {self.window}; "
                f"{self.window // 2} is the most"
            )
        if self.high < 1 or self.wide < 1:
            height, width = (size + 2 * self.padding for size in (self.h, self.w))
            raise ValueError(f"no window of {self.window} fits into the padded input of {height} x {width}")
        if self.kind == "max" and not self.count_include_pad:
            raise ValueError("count_include_pad: false is for kind: average; a maximum divides by nothing")
        return self

    @property
    def high(self) -> int:
        """Rows of the output."""
        return self._windows(self.h)

    @property
    def wide(self) -> int:
        """Columns of the output."""
        return self._windows(self.w)

    def _windows(self, size: int) -> int:
        """PyTorch's rule: with ceil_mode one more, unless it would start in the padding at the end."""
        room = size + 2 * self.padding - self.window
        count = (room + (self.stride - 1 if self.ceil_mode else 0)) // self.stride + 1
        if self.ceil_mode and (count - 1) * self.stride >= size + self.padding:
            count -= 1
        return count

    def taps(self, size: int) -> list[int]:
        """How many of `size` rows (columns) each window covers, padding left out; in order."""
        starts = (i * self.stride - self.padding for i in range(self._windows(size)))
        return [min(start + self.window, size) - max(start, 0) for start in starts]

    def extents(self, size: int) -> list[int]:
        """What each window counts as its length when an average divides; their product is the divisor."""
        if not self.count_include_pad:
            return self.taps(size)
        starts = (i * self.stride - self.padding for i in range(self._windows(size)))
        return [min(start + self.window, size + self.padding) - start for start in starts]

    def read(self, size: int) -> int:
        """How many of `size` rows (columns) are in any window: a gap or a remainder is never read."""
        if self.stride >= self.window:
            return sum(self.taps(size))
        return min(size, (self._windows(size) - 1) * self.stride - self.padding + self.window)

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
        """window^2 an output, a comparison or an addition for each tap, as the documents count.

        Backward of max: one addition an output. Nominal: taps in the padding and divisions are not told
        apart.
        """
        if self.kind == "max" and self.direction == "backward":
            return self.output_elements
        return self.window**2 * self.output_elements

    @property
    def byte_read(self) -> int:
        """Forward: x. Backward: dy; where a maximum was is not counted, it depends on the implementation."""
        forward = self.direction == "forward"
        return (self.input_elements if forward else self.output_elements) * self.item_byte

    @property
    def byte_written(self) -> int:
        """Forward: y. Backward: dx, zeros included."""
        forward = self.direction == "forward"
        return (self.output_elements if forward else self.input_elements) * self.item_byte

    def byte_moved(self, implementation: str) -> int:
        """`byte`, with the places of the maxima, and without what no window holds.

        Places are written forward and read backward: 8 bytes an output as int64 indices, which PyTorch always
        makes; 1 byte as `triton-codes`. Of x only rows and columns in some window need be read: 36 of 49
        points for 2x2 windows on 7x7, fewer where the stride exceeds the window. That makes it less than
        `byte` there, and it is a lower bound: memory moves whole sectors.
        """
        unread = 0
        if self.direction == "forward":
            unread = self.input_elements - self.n * self.c * self.read(self.h) * self.read(self.w)
        return self.byte - unread * self.item_byte + self._places_byte(implementation)

    def moved_written(self, implementation: str) -> int:
        """y and, of max, the places; backward dx."""
        places = self._places_byte(implementation) if self.direction == "forward" else 0
        return self.byte_written + places

    def _places_byte(self, implementation: str) -> int:
        """Bytes that say where the maxima were."""
        if self.kind != "max":
            return 0
        return (CODE_BYTE if implementation == "triton-codes" else INDEX_BYTE) * self.output_elements

    def refusal(self, implementation: str) -> str:
        """`triton-codes` needs a maximum and at most 256 taps; ours need 32 bits to suffice in an image."""
        if not implementation.startswith("triton"):
            return ""
        if implementation == "triton-codes":
            if self.kind == "average":
                return "triton-codes keeps where a maximum was, and an average has none"
            if self.window > MOST_CODE_WINDOW:
                return f"triton-codes numbers up to 16 x 16 taps in a byte, not {self.window} x {self.window}"
        largest = max(self.h * self.w, self.high * self.wide) * (self.c if self.layout == "NHWC" else 1)
        if largest > MOST_32_BIT:
            what = "an image" if self.layout == "NHWC" else "a plane"
            return f"{implementation} addresses {what} with 32 bits, too few for {largest} elements"
        return ""

    def __str__(self) -> str:
        """`float16 max forward n=32 c=64 h=56 w=56 window=3 stride=2 padding=1 layout=NHWC`.

        ceil_mode and count_include_pad are named where they are not PyTorch's defaults.
        """
        named = ("n", "c", "h", "w", "window", "stride", "padding", "layout")
        words = [self.dtype, self.kind, self.direction, *(f"{name}={getattr(self, name)}" for name in named)]
        words += ["ceil_mode=True"] if self.ceil_mode else []
        words += [] if self.count_include_pad else ["count_include_pad=False"]
        return " ".join(words)


PROBLEM = Pooling
