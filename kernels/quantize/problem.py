"""Quantisation: a matrix x [rows, length] as 8-bit numbers y and scales, x being about y times its scale.

`scaling` says which elements share a scale:

    tensor   all of them: one scale                          float32, largest |x| / largest number of y's type
    row      each row: scales [rows]                         float32, likewise
    mx       each 32 elements of a row: [rows, length / 32]  powers of two, as OCP's microscaling formats have

y = x / scale, rounded to nearest. A power of two is that of the largest |x| over that of the largest number,
so that some quotients lie beyond the largest number and become it; stored is its exponent plus 127, 8 bits.

Strongest known: what torch.compile fuses into one kernel, measured as `inductor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from bench.spec import DeviceKind, Implementation, Problem, Size, Specs, TensorSpec
from kernels.implementations import ADA, FROM_AMPERE, inductor, on_both, on_cuda

Eight = Literal["float8_e4m3", "float8_e5m2", "int8"]

MX_BLOCK = 32
"""Elements that share a scale of a microscaling format."""
LARGEST: Mapping[Eight, float] = {"float8_e4m3": 448.0, "float8_e5m2": 57344.0, "int8": 127.0}
"""The largest number of each type that is used."""
LONGEST_IN_REGISTERS = 16384
"""Longest row that our kernel holds in registers."""
MOST = 2**30
"""Most rows, or blocks, that our kernels count."""


class Quantize(Problem):
    """One quantisation: `rows`, `length` of a row, `dtype` of x, `to` which type, `scaling`."""

    operator: ClassVar[str] = "quantize"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("aten", "torch's own kernels: largest, division, rounding or clamping, cast"),
        inductor("what torch.compile makes of them"),
        on_cuda("triton", "ours: rows and blocks in registers; a whole tensor is read twice", FROM_AMPERE),
    )

    rows: Size
    length: Size
    to: Eight
    scaling: Literal["tensor", "row", "mx"]

    @model_validator(mode="after")
    def _has_whole_blocks(self) -> Quantize:
        if self.scaling == "mx" and self.length % MX_BLOCK:
            raise ValueError(f"scaling mx takes rows of whole blocks of {MX_BLOCK}, not length={self.length}")
        if self.scaling == "mx" and self.to == "int8":
            raise ValueError("scaling mx is for 8-bit floating point, not for to=int8")
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

        They are float32; rounding or clamping them is one more pass. Its work on scales is not counted.
        """
        second = implementation == "aten" or self.scaling == "tensor"
        return second * self.byte_read + self._quotients_written(implementation)

    def moved_written(self, implementation: str) -> int:
        """y, the scales, and the quotients each time they are written."""
        return self.byte_written + self._quotients_written(implementation)

    def _quotients_written(self, implementation: str) -> int:
        if implementation != "aten":
            return 0
        return 4 * self.elements * (2 if self.scaling == "mx" or self.to == "int8" else 1)

    def refusal(self, implementation: str) -> str:
        """Our kernels hold rows in registers and number rows and places in 32 bits."""
        if implementation == "triton":
            if self.scaling == "row" and self.length > LONGEST_IN_REGISTERS:
                return f"triton takes rows of up to {LONGEST_IN_REGISTERS} elements, not {self.length}"
            if max(self.rows, self.elements // MX_BLOCK) > MOST:
                given = f"given {self.rows} x {self.length}"
                return f"triton takes up to {MOST} rows and blocks of {MX_BLOCK}; {given}"
        return ""

    def missing(self, implementation: str, device: DeviceKind, capability: tuple[int, int] | None) -> str:
        """Also: below compute capability 8.9 Triton does not round to float8_e4m3."""
        reason = super().missing(implementation, device, capability)
        if not reason and implementation == "triton" and self.to == "float8_e4m3":
            if (capability or ADA) < ADA:
                return "Triton rounds to float8_e4m3 from compute capability 8.9"
        return reason


PROBLEM = Quantize
