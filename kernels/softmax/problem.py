"""Softmax over the last dimension of `rows` rows of `length` elements each, and its gradient.

    forward    y  = exp(x - largest of the row) / sum of those over the row
    backward   dx = y (dy - sum over the row of y dy)

All tensors are [rows, length] in the problem's data type.

Strongest known: QuACK, 3.01 TB/s for 16,384 rows of 131,072 on an H100, about its copy (its README, by the
repository Dao-AILab/quack); raced as `quack`.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from bench.spec import Implementation, Problem

LONGEST_IN_REGISTERS = 16384
"""Longest row that our kernels hold in registers; twice as much spills."""
LONGEST_FLOAT16 = 2**20
"""Longest row of a float16 softmax: y is about 1 / length, and float16 ends at 6e-8."""
MOST = 2**30
"""Most rows, and the longest row, that our kernels address."""

_ANY = (0, 0)


class Softmax(Problem):
    """One softmax or its gradient: `direction`, `rows`, `length` of a row, `dtype`."""

    operator: ClassVar[str] = "softmax"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation(
            "aten",
            "torch's own kernels: _softmax and _softmax_backward_data with out=",
            devices=("cpu", "cuda"),
            dtypes={"float16": _ANY, "bfloat16": _ANY, "float32": _ANY, "float64": _ANY},
        ),
        Implementation(
            "inductor",
            "what torch.compile makes of it",
            devices=("cpu", "cuda"),
            dtypes={"float16": (7, 0), "bfloat16": (7, 0), "float32": (7, 0)},
            cpp_on_cpu=True,
        ),
        Implementation(
            "quack",
            "QuACK's kernels in CuTe DSL (package quack-kernels), a cluster of SMs for a long row",
            devices=("cuda",),
            dtypes=dict.fromkeys(("float16", "bfloat16", "float32"), (8, 0)),
        ),
        Implementation(
            "triton",
            "ours: rows in registers; longer ones in shared memory, also a cluster's, or in two passes",
            devices=("cuda",),
            dtypes={"float16": (7, 0), "bfloat16": (7, 0), "float32": (7, 0)},
        ),
    )

    direction: Literal["forward", "backward"]
    rows: Annotated[int, Field(ge=1)]
    length: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _fits_float16(self) -> "Softmax":
        if self.dtype == "float16" and self.direction == "forward" and self.length > LONGEST_FLOAT16:
            raise ValueError(
                f"a float16 softmax over {self.length} elements is mostly zeros: at most {LONGEST_FLOAT16}"
            )
        return self

    @property
    def elements(self) -> int:
        """rows x length."""
        return self.rows * self.length

    @property
    def in_registers(self) -> bool:
        """Whether our kernels hold a row in registers and so read it once.

        Longer rows are held in shared memory and read once too, or else twice, the second time at once and
        from L2 as far as that holds the rows under way. So `byte_moved` stays `byte`: a roof that can be
        beaten is none.
        """
        return self.length <= LONGEST_IN_REGISTERS

    @property
    def flop(self) -> int:
        """By convention 5 an element forward (maximum, difference, exp, sum, division) and 4 backward."""
        return {"forward": 5, "backward": 4}[self.direction] * self.elements

    @property
    def special_functions(self) -> int:
        """An exponential for each element, forward; the gradient has none."""
        return self.elements if self.direction == "forward" else 0

    @property
    def byte_read(self) -> int:
        """Forward: x. Backward: y and dy."""
        return {"forward": 1, "backward": 2}[self.direction] * self.elements * self.item_byte

    @property
    def byte_written(self) -> int:
        """Forward: y. Backward: dx."""
        return self.elements * self.item_byte

    def refusal(self, implementation: str) -> str:
        """Our kernels number rows and places in a row in 32 bits: up to 2^30 of each."""
        if implementation == "triton":
            for name, count in (("rows", self.rows), ("elements in a row", self.length)):
                if count > MOST:
                    return f"triton takes up to {MOST} {name}, not {count}"
        return ""


PROBLEM = Softmax
