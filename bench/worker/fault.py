"""An operator that does what kernels should not do, for `python -m bench doctor`: does a run outlive it?

It goes the way of every other operator (worker.py, run.py), so the rows, the deaths and the new worker are
those of a run. It is no folder of kernels/, where every sweep and every test would find it. Numbers only, as
every Problem; fault_operator.py has what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bench.spec import DeviceKind, Dtype, Implementation, Problem

ANYWHERE: tuple[DeviceKind, ...] = ("cpu", "cuda")
FLOAT32: Mapping[Dtype, tuple[int, int]] = {"float32": (0, 0)}


class Fault(Problem):
    """y = -x of `length` float32 values, and then a fault named by the implementation."""

    operator: ClassVar[str] = "fault"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation("good", "no fault", ANYWHERE, FLOAT32),
        Implementation("illegal", "touches memory that is not there", ANYWHERE, FLOAT32),
        Implementation("hang", "never ends", ANYWHERE, FLOAT32),
        Implementation("kill", "is killed from outside", ANYWHERE, FLOAT32),
        Implementation("uncapturable", "queries its stream, which ends a capture", ("cuda",), FLOAT32),
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
