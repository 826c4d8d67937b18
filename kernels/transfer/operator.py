"""Copies between host and device on tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bench.spec import Dtype, Implementations, Launch, Operator, Tensors, Uniform
from kernels.excerpts import every_nth
from kernels.rounding import exact
from kernels.transfer.problem import Direction, Memory, Transfer

COPIES: Sequence[tuple[Direction, Memory]] = (
    ("host-to-device", "pinned"),
    ("device-to-host", "pinned"),
    ("both", "pinned"),
    ("host-to-device", "pageable"),
    ("device-to-host", "pageable"),
)
FLOATS: Sequence[Dtype] = ("float16", "bfloat16", "float32", "float64")


def inputs(problem: Transfer, uniform: Uniform) -> Tensors:
    """What the copies read: x `[length]` on the host and y `[length]` on the device.

    Of a copy in one direction the other tensor is empty, `[0]`, and only says where it is.
    """
    drawn = uniform(0 if problem.direction == "device-to-host" else problem.length)
    x = _on_host(problem, drawn.numel(), drawn.dtype)
    x.copy_(drawn)
    return x, uniform(0 if problem.direction == "host-to-device" else problem.length)


def _on_host(problem: Transfer, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory of the host `[length]`, not filled."""
    pinned = problem.memory == "pinned" and length > 0
    return torch.empty(length, dtype=dtype, device="cpu", pin_memory=pinned)


def reference(problem: Transfer, x: torch.Tensor, y: torch.Tensor) -> Tensors:
    """What arrives on the device, there, and what arrives on the host, there, in float64."""
    arrived = (x.double().to(y.device), y.cpu().double())
    return tuple(each for each in arrived if each.numel())


def aten(problem: Transfer, x: torch.Tensor, y: torch.Tensor) -> Launch:
    """Tensor.copy_ into memory allocated here.

    Of pageable memory the plain call, which returns when the copy is done; of pinned memory the one that only
    queues it. Copies in both directions start at the same time, and the launch ends with the later one.
    """
    on_device, on_host = torch.empty_like(x, device=y.device), _on_host(problem, y.numel(), y.dtype)
    queued = problem.memory == "pinned"
    if problem.direction == "both":
        return _both(x, y, on_device, on_host)
    to, source = (on_device, x) if x.numel() else (on_host, y)
    return Launch(lambda: to.copy_(source, non_blocking=queued), (to,), blocks=not queued)


def _both(x: torch.Tensor, y: torch.Tensor, on_device: torch.Tensor, on_host: torch.Tensor) -> Launch:
    # Streams of high priority are a pool of their own in torch: this one is not that of a graph's capture.
    back = torch.cuda.Stream(y.device, priority=-1)  # type: ignore[no-untyped-call]

    def call() -> Tensors:
        current = torch.cuda.current_stream(y.device)
        back.wait_stream(current)
        on_device.copy_(x, non_blocking=True)
        with torch.cuda.stream(back):
            on_host.copy_(y, non_blocking=True)
        current.wait_stream(back)
        return on_device, on_host

    return Launch(call, (on_device, on_host))


IMPLEMENTATIONS: Implementations = {"aten": aten}
EXAMPLES = [
    Transfer(dtype=dtype, direction=direction, memory=memory, length=length)
    for dtype in FLOATS
    for direction, memory in COPIES
    for length in (1, 7, 4099)
]
OPERATOR = Operator(Transfer, inputs, reference, IMPLEMENTATIONS, exact, EXAMPLES, every_nth)
