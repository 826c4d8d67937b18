"""Negate a vector, and do something that a kernel should not do."""

from typing import ClassVar

from bench.spec import Implementation, Problem

_FAULTS = {
    "good": "nothing else",
    "chatty": "prints what looks like answers",
    "scribble": "writes into every pipe it finds",
    "segfault": "reads where there is nothing",
    "far": "writes far behind its output",
    "near": "writes just behind its output",
    "abort": "calls abort",
    "leave": "ends the process without a word",
    "exit": "raises SystemExit",
    "kill": "is killed from outside, as by the kernel when memory runs out",
    "raise": "raises",
    "recursion": "calls itself without end",
    "huge": "asks for 10^15 bytes",
    "wrong": "gets its last value wrong",
    "later": "gets it wrong only once it has been called often",
    "nan": "makes one value NaN",
    "nothing": "writes no output",
    "hang": "never returns",
}


class Faulty(Problem):
    """y = -x of `length` values."""

    operator: ClassVar[str] = "faulty"
    implementations: ClassVar[tuple[Implementation, ...]] = tuple(
        Implementation(name, summary, devices=("cpu",), dtypes={"float32": (0, 0)})
        for name, summary in _FAULTS.items()
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
