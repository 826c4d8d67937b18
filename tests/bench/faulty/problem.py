"""Negate a vector, and do something that a kernel should not do."""

from typing import ClassVar

from bench.spec import Implementation
from bench.worker.fault import Fault

FAULTS = ("good", "chatty", "scribble", "segfault", "kill", "raise", "huge", "wrong")
"""What they do: operator.py, called functions.py where it lies in tests/."""


class Faulty(Fault):
    """y = -x of `length` values."""

    operator: ClassVar[str] = "faulty"
    implementations: ClassVar[tuple[Implementation, ...]] = tuple(
        Implementation(name, "misbehaves", devices=("cpu",), dtypes={"float32": (0, 0)}) for name in FAULTS
    )


PROBLEM = Faulty
