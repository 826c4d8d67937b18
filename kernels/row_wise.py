"""What softmax and layer normalization share: rows that are computed each by itself, forward or backward."""

from abc import abstractmethod
from typing import Literal, TypeVar

from bench.spec import Problem, Size


class Rows(Problem):
    """`rows` rows of `length` elements each."""

    direction: Literal["forward", "backward"]
    rows: Size
    length: Size

    @property
    def elements(self) -> int:
        """rows x length."""
        return self.rows * self.length

    @property
    @abstractmethod
    def longest(self) -> int:
        """The longest row that our kernel holds in registers, and so reads once."""

    def refusal(self, implementation: str) -> str:
        """Our kernels hold whole rows in registers."""
        if implementation == "triton" and self.length > self.longest:
            return f"triton holds rows of up to {self.longest} elements in registers, not {self.length}"
        return ""


P = TypeVar("P", bound=Rows)


def examples(kind: type[P]) -> list[P]:
    """Primes, odd, 7 x 7; on, one short of and one past blocks, and past a row in registers."""
    sizes = [(13, 1), (5, 7), (49, 49), (131, 64), (17, 1000), (33, 1025), (9, 4096), (8, 16385)]
    return [
        kind(direction=direction, rows=rows, length=length, dtype=dtype)
        for rows, length in sizes
        for direction in ("forward", "backward")
        for dtype in ("float16", "bfloat16", "float32", "float64")
        if dtype != "float64" or length < 1000
    ]
