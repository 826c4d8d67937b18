"""Negate a vector, and do something that a kernel should not do."""

from typing import ClassVar

from bench.spec import Implementation, Problem

_FAULTS = (
    *("good", "chatty", "scribble", "segfault", "far", "near", "abort", "leave", "exit", "kill"),
    *("raise", "recursion", "huge", "wrong", "later", "nan", "nothing", "hang"),
)
"""What each does beside its work: functions.py."""


class Faulty(Problem):
    """y = -x of `length` values."""

    operator: ClassVar[str] = "faulty"
    implementations: ClassVar[tuple[Implementation, ...]] = tuple(
        Implementation(name, f"faulty: {name}", devices=("cpu",), dtypes={"float32": (0, 0)})
        for name in _FAULTS
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
