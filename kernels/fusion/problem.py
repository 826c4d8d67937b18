"""Chains of element-wise operators, as they follow the GEMMs of a Transformer: unfused and fused.

x, a GEMM's result, is [rows, length]: `rows` tokens of `length` features. Row-major, contiguous. The name
of a chain lists its steps in order:

    bias        + b, b [length], the same for every row
    residual    + r, r [rows, length]
    gelu        0.5 s (1 + tanh(sqrt(2/pi) (s + 0.044715 s^3))), the form of GPT-2 and Megatron

    bias                        y = x + b                       after any linear layer
    residual                    y = x + r                       around attention, around the MLP
    bias-gelu                   y = gelu(x + b)                 after the first GEMM of an MLP
    bias-residual               y = x + b + r                   after a block's last GEMM

All tensors have one data type; arithmetic is float32.

**Traffic.** With n = rows length elements, and rows of one element a feature left out of the table:

    chain                       fused: compulsory   one kernel a step          unfused / fused
    bias                        2 n                 2 n                        1
    residual                    3 n                 3 n                        1
    bias-gelu                   2 n                 2 + 2 = 4 n                2
    bias-residual               3 n                 2 + 3 = 5 n                1.67

Dropout, which often stands before the residual, is left out: its random numbers have no float64
reference to be compared with. So is working in place. It destroys its input, so a launch could not be
repeated; and it saves memory, not traffic: x += r reads x and r and writes x, the same 3 n.

Strongest known: Inductor, measured as `inductor`; it is ahead of QuACK in RMSNorm on a B200
(meta-pytorch/tritonbench#1130).
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bench.spec import Implementation, Problem, Size, Specs, TensorSpec
from kernels.implementations import inductor, on_both, on_cuda

Chain = Literal["bias", "residual", "bias-gelu", "bias-residual"]

LONGEST = 1 << 20
"""Most features of a row: whole rows are checked, and a check must stay short."""

_FLOP = {"bias": 1, "residual": 1, "gelu": 12}


class Fusion(Problem):
    """One chain: `chain`, `rows`, `length` (features of a row), `dtype`."""

    operator: ClassVar[str] = "fusion"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("aten", "unfused: one kernel of torch a step, intermediate results in memory"),
        inductor("fused by torch.compile"),
        on_cuda("triton", "fused by us: one stream (stream.py)"),
    )

    chain: Chain
    rows: Size
    length: Annotated[int, Field(ge=1, le=LONGEST)]

    @property
    def steps(self) -> tuple[str, ...]:
        """The chain's steps in order: of bias, residual, gelu."""
        return tuple(self.chain.split("-"))

    @property
    def elements(self) -> int:
        """rows length: the elements of x."""
        return self.rows * self.length

    @property
    def flop(self) -> int:
        """FLOP by convention: for each element 1 for bias, 1 for residual, 12 for gelu."""
        return sum(_FLOP[step] for step in self.steps) * self.elements

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """x and what the steps add, b and r; y."""
        x = TensorSpec((self.rows, self.length))
        added = {"bias": TensorSpec((self.length,)), "residual": x}
        return {"x": x} | {step: added[step] for step in self.steps if step in added}, {"y": x}

    def byte_again(self, implementation: str) -> int:
        """Bytes that each step of `aten` but the first reads back; the other implementations are fused."""
        return (len(self.steps) - 1) * self.elements * self.item_byte if implementation == "aten" else 0

    def moved_written(self, implementation: str) -> int:
        """Bytes of the steps of `aten`, [rows, length] each."""
        return self.byte_written * (len(self.steps) if implementation == "aten" else 1)


PROBLEM = Fusion
