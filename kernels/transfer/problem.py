"""Copies of `length` elements over the link between host and device (PCIe, or NVLink-C2C).

    host-to-device    y on the device = x on the host
    device-to-host    x on the host = y on the device
    both              one of each at the same time, on two streams

Bytes are those that cross the link, as the device sees them: read from the host, written to the host. The
bandwidth of the device's own memory is no roof of such a copy, and no other is known: rows of this operator
have no prediction.

Pinned (page-locked) memory is copied by the device while the host goes on; pageable memory is first staged by
the driver, and the host waits until the copy is done.

Strongest known: none, for this measures the link.
"""

from typing import ClassVar, Literal

from bench.spec import DeviceKind, Implementation, Problem, Size, Specs, TensorSpec
from kernels.implementations import WITH_FLOAT64, on_cuda

Direction = Literal["host-to-device", "device-to-host", "both"]
Memory = Literal["pinned", "pageable"]


class Transfer(Problem):
    """Copies of `length` elements each: one in one `direction`, or two; `memory` is that of the host."""

    operator: ClassVar[str] = "transfer"
    arithmetic: ClassVar[Literal["link"]] = "link"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_cuda("aten", "Tensor.copy_, non_blocking for pinned memory: cudaMemcpyAsync", WITH_FLOAT64),
    )

    direction: Direction
    memory: Memory
    length: Size

    @property
    def flop(self) -> int:
        """0."""
        return 0

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """What the device reads from the host, x, and what it writes to the host, y."""
        line = TensorSpec((self.length,))
        read, written = self.direction != "device-to-host", self.direction != "host-to-device"
        return ({"x": line} if read else {}), ({"y": line} if written else {})

    @property
    def byte_stored(self) -> int:
        """The device's random numbers that the inputs are made of, for each copy `length` elements."""
        return self.byte

    def missing(self, implementation: str, device: DeviceKind, capability: tuple[int, int] | None) -> str:
        """A CPU computes in the host's memory: nothing has to cross a link."""
        if device == "cpu":
            return "a CPU has no link to cross: its memory is the host's"
        return super().missing(implementation, device, capability)

    def refusal(self, implementation: str) -> str:
        """Copies of pageable memory make the host wait, so one thread has one of them at a time."""
        if self.direction == "both" and self.memory == "pageable":
            return "a copy of pageable memory blocks the host, so two of them do not overlap"
        return ""


PROBLEM = Transfer
