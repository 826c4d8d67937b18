"""Quantisation: a matrix x [rows, length] as numbers y of 8 bits and scales, x being about y times its scale.

`scaling` says which elements share a scale:

    tensor   all of them: one scale                          float32, largest |x| / largest number of y's type
    row      each row: scales [rows]                         float32, likewise
    mx       each 32 elements of a row: [rows, length / 32]  powers of two, as OCP's microscaling formats have

y = x / scale, rounded to nearest. A power of two is that of the largest |x| over that of the largest number,
so that some quotients lie beyond the largest number and become it; stored is its exponent plus 127, 8 bits.

Strongest known: what torch.compile fuses into one kernel, measured as `inductor`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from bench.spec import Dtypes, Implementation, Problem, Size, Specs, TensorSpec
from kernels.implementations import ADA, FLOATS, inductor, on_both, on_cuda

_TRITON: Dtypes = dict.fromkeys(FLOATS, ADA)
"""Triton rounds to float8_e4m3 from there on."""

MX_BLOCK = 32
"""Elements that share a scale of a microscaling format."""
LARGEST = 448.0
"""The largest number of float8_e4m3."""
LONGEST_IN_REGISTERS = 16384
"""Longest row that our kernel holds in registers."""


class Quantize(Problem):
    """One quantisation: `rows`, `length` of a row, `dtype` of x, `to` which type, `scaling`.

    Rows and names of cases carry `to`, which has one value.
    """

    operator: ClassVar[str] = "quantize"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("aten", "torch's own kernels: largest, division, rounding or clamping, cast"),
        inductor("what torch.compile makes of them"),
        on_cuda("triton", "ours: rows and blocks in registers; a whole tensor is read twice", _TRITON),
    )

    rows: Size
    length: Size
    to: Literal["float8_e4m3"]
    scaling: Literal["tensor", "row", "mx"]

    @model_validator(mode="after")
    def _has_whole_blocks(self) -> Quantize:
        if self.scaling == "mx" and self.length % MX_BLOCK:
            raise ValueError(f"scaling mx takes rows of whole blocks of {MX_BLOCK}, not length={self.length}")
        return self

    @property
    def elements(self) -> int:
        """rows x length."""
        return self.rows * self.length

    @property
    def scales(self) -> int:
        """How many scales there are."""
        return {"tensor": 1, "row": self.rows, "mx": self.elements // MX_BLOCK}[self.scaling]

    @property
    def flop(self) -> int:
        """None by convention, as for a copy: comparing and scaling never limit it."""
        return 0

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """x, and y and its scales."""
        x = (self.rows, self.length)
        mx = TensorSpec((self.rows, self.length // MX_BLOCK), "uint8")
        scales = mx if self.scaling == "mx" else TensorSpec((self.scales,), "float32")
        return {"x": TensorSpec(x)}, {"y": TensorSpec(x, self.to), "scales": scales}

    def byte_again(self, implementation: str) -> int:
        """x where all elements share a scale, or by `aten`; and the quotients each time `aten` reads them.

        They are float32; clamping them is one more pass. Its work on scales is not counted.
        """
        second = implementation == "aten" or self.scaling == "tensor"
        return second * self.byte_read + self._quotients_written(implementation)

    def moved_written(self, implementation: str) -> int:
        """y, the scales, and the quotients each time they are written."""
        return self.byte_written + self._quotients_written(implementation)

    def _quotients_written(self, implementation: str) -> int:
        if implementation != "aten":
            return 0
        return 4 * self.elements * (2 if self.scaling == "mx" else 1)

    def refusal(self, implementation: str) -> str:
        """Our kernel holds rows in registers."""
        if implementation == "triton" and self.scaling == "row" and self.length > LONGEST_IN_REGISTERS:
            return f"triton takes rows of up to {LONGEST_IN_REGISTERS} elements, not {self.length}"
        return ""


PROBLEM = Quantize
