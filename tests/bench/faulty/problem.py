"""Negate a vector, and do something that a kernel should not do."""

from typing import ClassVar

from bench.spec import Implementation, Problem

FAULTS = (
    *("good", "chatty", "scribble", "segfault", "kill", "raise", "huge", "wrong", "later", "nan"),
    *("nothing", "hang"),
)
"""What they do: operator.py, called functions.py where it lies in tests/."""


class Faulty(Problem):
    """y = -x of `length` values."""

    operator: ClassVar[str] = "faulty"
    implementations: ClassVar[tuple[Implementation, ...]] = tuple(
        Implementation(name, "misbehaves", devices=("cpu",), dtypes={"float32": (0, 0)}) for name in FAULTS
    )

    length: int

    @property
    def flop(self) -> int:
        """One for each value."""
        return self.length

    @property
    def byte_read(self) -> int:
        """x."""
        return 4 * self.length

    @property
    def byte_written(self) -> int:
        """y."""
        return 4 * self.length


PROBLEM = Faulty
