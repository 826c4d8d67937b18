"""Problem of faulty kernels, with which `python -m bench doctor` checks that a run survives them.

The worker treats it as any other operator, so rows, deaths and restarts are those of a run. It is no folder
of kernels/, where every sweep and every test would find it. Like every Problem it is numbers only; the
implementations are in fault_operator.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bench.spec import DeviceKind, Dtype, Implementation, Problem, Specs, TensorSpec

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
    )
    length: int

    @property
    def flop(self) -> int:
        """One for each value."""
        return self.length

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """x and y."""
        values = TensorSpec((self.length,))
        return {"x": values}, {"y": values}
