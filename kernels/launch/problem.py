"""The launch floor: the time of a kernel that does nothing, t0 of every prediction.

triton  a kernel with an empty body
aten    the negation of one element: the least that torch can do

Strongest known: none, for this measures the device.
"""

from typing import ClassVar

from bench.spec import Implementation, Problem, Specs
from kernels.implementations import ANY, VOLTA, on_both, on_cuda


class LaunchFloor(Problem):
    """One launch of nothing. `dtype` only says which single element `aten` touches."""

    operator: ClassVar[str] = "launch"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_both("aten", "torch.neg of one element, out=", {"float32": ANY}),
        on_cuda("triton", "a Triton kernel with an empty body", {"float32": VOLTA}),
    )

    @property
    def flop(self) -> int:
        """0."""
        return 0

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """None: a single element is not counted."""
        return {}, {}


PROBLEM = LaunchFloor
