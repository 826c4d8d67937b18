"""Memory bandwidth, after McCalpin's STREAM: four passes over arrays of `length` elements.

    read   s = sum x            every byte read, next to nothing written
    write  y = constant         every byte written
    copy   y = x
    triad  y = x + alpha z

Bytes are counted as STREAM counts them: what the program names, not what a cache moves beside it
(a CPU that reads a line before overwriting it moves more).
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bench.spec import Implementation, Problem

Kind = Literal["copy", "triad", "read", "write"]

_READ = {"copy": 1, "triad": 2, "read": 1, "write": 0}
_WRITTEN = {"copy": 1, "triad": 1, "read": 0, "write": 1}
_ANY = (0, 0)


class Stream(Problem):
    """One pass over memory: `kind`, `length` (elements of each array), `dtype`."""

    operator: ClassVar[str] = "stream"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation(
            "aten",
            "torch's own element-wise and reduction kernels",
            devices=("cpu", "cuda"),
            dtypes={"float16": _ANY, "bfloat16": _ANY, "float32": _ANY, "float64": _ANY},
        ),
    )

    kind: Kind
    length: Annotated[int, Field(ge=1)]

    @property
    def flop(self) -> int:
        """0: the additions of read and triad are not what is measured."""
        return 0

    @property
    def byte_read(self) -> int:
        """`length` elements of x (copy, read), of x and z (triad), of nothing (write)."""
        return _READ[self.kind] * self.length * self.item_byte

    @property
    def byte_written(self) -> int:
        """`length` elements of y; read writes a single sum, not counted."""
        return _WRITTEN[self.kind] * self.length * self.item_byte


PROBLEM = Stream
