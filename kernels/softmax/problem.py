"""Softmax over the last dimension of `rows` rows of `length` elements each, and its gradient.

    forward    y  = exp(x - largest of the row) / sum of those over the row
    backward   dx = y (dy - sum over the row of y dy)

All tensors are [rows, length] in the problem's data type.

Strongest known: QuACK, 3.01 TB/s for 16,384 rows of 131,072 on an H100, about its copy (its README, by the
repository Dao-AILab/quack), which is not measured here: torch's own kernels are, as `aten`.
"""

from typing import ClassVar

from pydantic import model_validator

from bench.spec import Implementation, Specs, TensorSpec
from kernels.implementations import WITH_FLOAT64, inductor, on_both, on_cuda
from kernels.row_wise import Rows

LONGEST_IN_REGISTERS = 16384
"""Longest row that our kernels hold in registers; twice as much spills."""
LONGEST_FLOAT16 = 2**20
"""Longest row of a float16 softmax: y is about 1 / length, and float16 ends at 6e-8."""


class Softmax(Rows):
    """One softmax or its gradient: `direction`, `rows`, `length` of a row, `dtype`."""

    operator: ClassVar[str] = "softmax"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("aten", "torch's own kernels: _softmax and _softmax_backward_data with out=", WITH_FLOAT64),
        inductor("what torch.compile makes of it"),
        on_cuda("triton", "ours: rows of up to 16,384 elements, in registers"),
    )

    @model_validator(mode="after")
    def _fits_float16(self) -> "Softmax":
        if self.dtype == "float16" and self.direction == "forward" and self.length > LONGEST_FLOAT16:
            raise ValueError(
                f"a float16 softmax over {self.length} elements is mostly zeros: at most {LONGEST_FLOAT16}"
            )
        return self

    @property
    def longest(self) -> int:
        """The longest row that our kernels hold in registers."""
        return LONGEST_IN_REGISTERS

    @property
    def flop(self) -> int:
        """FLOP by convention: 5 an element forward (maximum, difference, exp, sum, division), 4 backward."""
        return {"forward": 5, "backward": 4}[self.direction] * self.elements

    @property
    def special_functions(self) -> int:
        """An exponential for each element, forward; the gradient has none."""
        return self.elements if self.direction == "forward" else 0

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """Forward: x and y. Backward: y and dy, and dx."""
        rows = TensorSpec((self.rows, self.length))
        if self.direction == "forward":
            return {"x": rows}, {"y": rows}
        return {"y": rows, "dy": rows}, {"dx": rows}


PROBLEM = Softmax
