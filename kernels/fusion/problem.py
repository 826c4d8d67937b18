"""Chains of element-wise operators, as they follow the GEMMs of a Transformer: unfused and fused.

x, a GEMM's result, is [rows, length]: `rows` tokens of `length` features. Row-major, contiguous. The name
of a chain lists its steps in order:

    bias        + b, b [length], the same for every row
    residual    + r, r [rows, length]
    gelu        0.5 s (1 + tanh(sqrt(2/pi) (s + 0.044715 s^3))), the form of GPT-2 and Megatron
    layernorm   (h - mean) / sqrt(variance + 1e-5) * weight + shift over each row, both [length]

    bias                        y = x + b                       after any linear layer
    residual                    y = x + r                       around attention, around the MLP
    bias-gelu                   y = gelu(x + b)                 after the first GEMM of an MLP
    bias-residual               y = x + b + r                   after a block's last GEMM
    residual-layernorm          h = x + r,     y = layernorm(h)
    bias-residual-layernorm     h = x + b + r, y = layernorm(h)

A chain with layernorm writes h as well as y, [rows, length] each: the next residual is h. All tensors have
one data type; arithmetic is float32.

**Traffic.** With n = rows length elements, and rows of one element a feature left out of the table:

    chain                       fused: compulsory   one kernel a step          unfused / fused
    bias                        2 n                 2 n                        1
    residual                    3 n                 3 n                        1
    bias-gelu                   2 n                 2 + 2 = 4 n                2
    bias-residual               3 n                 2 + 3 = 5 n                1.67
    residual-layernorm          4 n                 3 + 2 = 5 n                1.25
    bias-residual-layernorm     4 n                 2 + 3 + 2 = 7 n            1.75

Dropout, which often stands before the residual, is left out: its random numbers have no float64
reference to be held against. So is working in place. It destroys its input, so a launch could not be
repeated; and it saves memory, not traffic: x += r reads x and r and writes x, the same 3 n.

Strongest known: Inductor, raced as `inductor`; it is ahead of QuACK in RMSNorm on a B200
(meta-pytorch/tritonbench#1130).
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from bench.spec import Implementation, Problem, Size, Specs, TensorSpec
from kernels.implementations import inductor, on_both, on_cuda

Chain = Literal[
    "bias", "residual", "bias-gelu", "bias-residual", "residual-layernorm", "bias-residual-layernorm"
]

LONGEST = 1 << 20
"""Most features of a row: whole rows are checked, and a check must stay short."""
SHORTEST_NORM = 256
"""Fewest features that layernorm takes here."""
EPSILON = 1e-5
"""What layernorm adds to the variance, torch's default."""
STATISTICS_BYTE = 8
"""A row's mean and reciprocal standard deviation, float32 each."""

_FLOP = {"bias": 1, "residual": 1, "gelu": 12, "layernorm": 8}


class Fusion(Problem):
    """One chain: `chain`, `rows`, `length` (features of a row), `dtype`."""

    operator: ClassVar[str] = "fusion"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("aten", "unfused: one kernel of torch a step, intermediate results in memory"),
        inductor("fused by torch.compile"),
        on_cuda("triton", "fused by us, but for layernorm: one stream (stream.py)"),
    )

    chain: Chain
    rows: Size
    length: Annotated[int, Field(ge=1, le=LONGEST)]

    @model_validator(mode="after")
    def _row_has_a_variance(self) -> "Fusion":
        if self.normalized and self.length < SHORTEST_NORM:
            raise ValueError(
                f"layernorm needs rows of at least {SHORTEST_NORM} features, not {self.length}: the variance "
                "of a shorter row may be so small that rounding explains any result"
            )
        return self

    @property
    def steps(self) -> tuple[str, ...]:
        """The chain's steps in order: of bias, residual, gelu, layernorm."""
        return tuple(self.chain.split("-"))

    @property
    def normalized(self) -> bool:
        """Whether the chain ends in layernorm, and so writes h beside y."""
        return "layernorm" in self.steps

    @property
    def sums(self) -> int:
        """How many of the inputs are added up: x and what of bias and residual there is, the first ones."""
        return 1 + sum(step in ("bias", "residual") for step in self.steps)

    @property
    def elements(self) -> int:
        """rows length: the elements of x."""
        return self.rows * self.length

    @property
    def flop(self) -> int:
        """FLOP by convention: for each element 1 for bias, 1 for residual, 12 for gelu, 8 for layernorm."""
        return sum(_FLOP[step] for step in self.steps) * self.elements

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """x and what the steps add: b, r, layernorm's weight and shift; y, before layernorm h too."""
        x, of_feature = TensorSpec((self.rows, self.length)), TensorSpec((self.length,))
        added = {
            "bias": {"bias": of_feature},
            "residual": {"residual": x},
            "layernorm": {"weight": of_feature, "shift": of_feature},
        }
        read = {"x": x}
        for step in self.steps:
            read |= added.get(step, {})
        return read, {"y": x, "h": x} if self.normalized else {"y": x}

    def byte_again(self, implementation: str) -> int:
        """Bytes that each step of `aten` but the first reads back; the other implementations are fused."""
        return (len(self.steps) - 1) * self.elements * self.item_byte if implementation == "aten" else 0

    def moved_written(self, implementation: str) -> int:
        """Bytes of the steps of `aten`, [rows, length] each, and layernorm's statistics of rows, float32."""
        if implementation != "aten":
            return self.byte_written
        statistics = STATISTICS_BYTE * self.rows if self.normalized else 0
        return len(self.steps) * self.elements * self.item_byte + statistics

    def refusal(self, implementation: str) -> str:
        """Our kernel takes elements one by one; layernorm needs sums of rows."""
        if implementation == "triton" and self.normalized:
            return f"triton fuses chains without layernorm, not {self.chain}"
        return ""


PROBLEM = Fusion
