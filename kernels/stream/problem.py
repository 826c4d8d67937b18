"""Memory bandwidth, after McCalpin's STREAM: four passes over arrays of `length` elements.

    read   s = sum x            every byte read, next to nothing written
    write  y = constant         every byte written
    copy   y = x
    triad  y = x + alpha z

Bytes are counted as STREAM counts them: what the program names, not what a cache moves in addition
(a CPU that reads a line before overwriting it moves more).

`programs` asks our copy to be done by so few programs of the GPU, each on an SM of its own as long as there
are SMs: what one SM can draw from memory. 0 is one for each SM.

Strongest known: none, for this measures the device; `aten` and ours are here to be compared with each other.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bench.spec import Implementation, Problem, Size, Specs, TensorSpec
from kernels.implementations import VOLTA, WITH_FLOAT64, on_both, on_cuda

Kind = Literal["copy", "triad", "read", "write"]

_TENSORS = {"copy": ("x", "y"), "triad": ("xz", "y"), "read": ("x", ""), "write": ("", "y")}

MOST_PROGRAMS = 65_536
"""Far more than any device has SMs."""


class Stream(Problem):
    """One pass over memory: `kind`, `length` (elements of each array), `dtype`; and `programs`."""

    operator: ClassVar[str] = "stream"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("aten", "torch's own element-wise and reduction kernels", WITH_FLOAT64),
        on_cuda("triton", "our copy, by a given number of programs", dict.fromkeys(WITH_FLOAT64, VOLTA)),
    )

    kind: Kind
    length: Size
    programs: Annotated[int, Field(ge=0, le=MOST_PROGRAMS)] = 0

    @property
    def flop(self) -> int:
        """0: the additions of read and triad are not what is measured."""
        return 0

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """x and z as far as they are read, y where it is written; read's single sum is not counted."""
        read, written = _TENSORS[self.kind]
        line = TensorSpec((self.length,))
        return dict.fromkeys(read, line), dict.fromkeys(written, line)

    def parameters(self) -> dict[str, int | float | bool | str]:
        """Without `programs` where that is 0: a pass is what it was before one could ask for them."""
        return {name: value for name, value in super().parameters().items() if name != "programs" or value}

    def refusal(self, implementation: str) -> str:
        """Only `triton` takes a number of programs, and it only copies."""
        if implementation == "triton" and self.kind != "copy":
            return f"triton does kind=copy, not {self.kind}"
        if implementation != "triton" and self.programs:
            return f"{implementation} fills the device; programs={self.programs} is for triton"
        return ""


PROBLEM = Stream
