"""Layer normalization of `rows` rows of `length` elements each, as a training step computes it.

    mean, variance of each row (variance: divided by length, as torch does)
    rstd     = 1 / sqrt(variance + 1e-5)
    y        = (x - mean) rstd weight + bias
    backward: with h = (x - mean) rstd and g = dy weight,
    dx       = rstd (g - mean of g - h mean of (g h)), means over the row
    dweight  = sum over rows of dy h,  dbias = sum over rows of dy

x, dy, y, dx are [rows, length]; weight, bias and their gradients [length], all in the problem's data type,
as nn.LayerNorm of that type holds them. mean and rstd, [rows, 1], are float32 as on a GPU; float64 counts
them 8 bytes each. (torch on a CPU keeps them in 16 bits where x has 16: four bytes a row fewer.)

Strongest known: QuACK up to rows of 128 Ki and beyond, through clusters of SMs, which is not measured
here: torch's own kernels are, as `aten`.
"""

from typing import ClassVar

from bench.spec import Implementation, Specs, TensorSpec
from kernels.implementations import WITH_FLOAT64, inductor, on_both, on_cuda
from kernels.row_wise import Rows

EPSILON = 1e-5
"""Added to the variance: torch's default."""
LONGEST_IN_REGISTERS = {"forward": 16384, "backward": 8192}
"""Longest row that our kernels hold in registers, by direction; twice as much spills. Half of it for
a gradient whose rows are no multiple of 16 bytes: narrow loads take more registers."""


class LayerNorm(Rows):
    """One layer normalization or its gradient: `direction`, `rows`, `length` of a row, `dtype`."""

    operator: ClassVar[str] = "layernorm"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("aten", "torch's own kernels; on a GPU backward reads x and dy twice", WITH_FLOAT64),
        inductor("what torch.compile makes of it"),
        on_cuda("triton", "ours: rows of up to 16,384 elements, backward 8,192, in registers"),
    )

    @property
    def longest(self) -> int:
        """The longest row that our kernels hold in registers."""
        narrow = self.direction == "backward" and self.length * self.item_byte % 16 != 0
        return LONGEST_IN_REGISTERS[self.direction] // (2 if narrow else 1)

    @property
    def flop(self) -> int:
        """FLOP by convention: 8 an element forward and 14 backward; no device is bound by them.

        Forward: mean 1, centring 1, the mean's correction 1, variance 2, scaling 1, weight and bias 2.
        Backward: h 2, g 1, its two means 3, dx 4, dweight 2, dbias 1, and 1 for the row's own numbers.
        """
        return {"forward": 8, "backward": 14}[self.direction] * self.elements

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """Forward: x, weight, bias, and y, mean, rstd. Backward: x, dy, weight, mean, rstd, and gradients."""
        x, of_column = TensorSpec((self.rows, self.length)), TensorSpec((self.length,))
        of_row = TensorSpec((self.rows, 1), "float64" if self.dtype == "float64" else "float32")
        statistics = {"mean": of_row, "rstd": of_row}
        if self.direction == "forward":
            return {"x": x, "weight": of_column, "bias": of_column}, {"y": x} | statistics
        read = {"x": x, "dy": x, "weight": of_column} | statistics
        return read, {"dx": x, "dweight": of_column, "dbias": of_column}


PROBLEM = LayerNorm
