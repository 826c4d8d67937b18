"""Copies between host and device: their counts, what is asked of torch, and that two directions overlap.

There is no GPU here. Both sides are CPU tensors, and of torch.cuda stands in what the operator uses of it:
streams that wait for each other, and page-locked memory. As torch's source has it, `copy_` between host and
device of one type is one cudaMemcpyAsync on the current stream, after which the host waits unless it is
`non_blocking`; in a capture it refuses memory that is not pinned (ATen/native/cuda/Copy.cu). Streams of
another priority come from another pool (c10/cuda/CUDAStream.cpp).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from bench.spec import Launch
from bench.worker.check import escaped, outputs_of, poison
from kernels.transfer.operator import OPERATOR, aten, inputs
from kernels.transfer.problem import Transfer
from tests.kernels.tensors import relative_error, uniform


def transfer(
    direction: str = "host-to-device", memory: str = "pinned", length: int = 1000, dtype: str = "float32"
) -> Transfer:
    return Transfer(direction=direction, memory=memory, length=length, dtype=dtype)  # type: ignore[arg-type]


class Stream:
    def __init__(self, device: Host, priority: int = 0) -> None:
        self.device, self.priority = device, priority

    def wait_stream(self, other: Stream) -> None:
        self.device.log.append((self, "waits for", other))


class Host:
    """What the operator asks of torch: the streams and copies, in order, and the memory that is pinned."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.current = Stream(self)
        self.pinned: list[int] = []

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host()
    empty, copy = torch.empty, torch.Tensor.copy_

    def pinned_too(*size: Any, pin_memory: bool = False, **more: Any) -> torch.Tensor:
        made = empty(*size, **more)
        if pin_memory:
            assert made.numel(), "nothing is pinned of an empty tensor"
            found.pinned.append(made.data_ptr())
        return made

    def copied(to: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        found.log.append((found.current, "copies", to.data_ptr(), source.data_ptr(), non_blocking))
        return copy(to, source)

    monkeypatch.setattr(torch, "empty", pinned_too)
    monkeypatch.setattr(torch.Tensor, "copy_", copied)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device, priority: Stream(found, priority))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: found.current)
    monkeypatch.setattr(torch.cuda, "stream", found.stream)
    return found


def built(problem: Transfer, seed: int, host: Host) -> tuple[tuple[torch.Tensor, ...], Launch]:
    """The inputs and the launch, whose calls are logged from now on."""
    tensors = inputs(problem, uniform(problem, seed))
    launch = aten(problem, *tensors)
    host.log.clear()
    return tensors, launch


def test_bytes_are_those_that_cross_the_link_as_the_device_sees_them() -> None:
    there, back, both = (transfer(direction) for direction in ("host-to-device", "device-to-host", "both"))
    assert (there.byte_read, there.byte_written, there.byte) == (4000, 0, 4000)
    assert (back.byte_read, back.byte_written, back.byte) == (0, 4000, 4000)
    assert (both.byte_read, both.byte_written, both.byte) == (4000, 4000, 8000)
    assert transfer(dtype="float16").byte == 2000 and both.flop == 0


@pytest.mark.parametrize("problem", OPERATOR.examples, ids=str)
def test_every_copy_arrives_and_says_how_the_host_waits(problem: Transfer, seed: int, host: Host) -> None:
    tensors, launch = built(problem, seed, host)
    assert sum(each.nbytes for each in tensors) == problem.byte
    poison(launch.outputs)
    assert escaped([launch.outputs]) == 1

    written = outputs_of(launch.call())

    assert all(a is b for a, b in zip(written, launch.outputs, strict=True))
    assert sum(each.nbytes for each in written) == problem.byte
    assert escaped([written]) == 0
    assert relative_error(OPERATOR, problem, tensors, written) == 0
    queued = problem.memory == "pinned"
    assert launch.blocks is not queued
    assert [entry[4] for entry in host.log if entry[1] == "copies"] == [queued] * len(written)


def test_what_is_on_the_host_is_pinned_if_it_is_to_be_and_nothing_else(seed: int, host: Host) -> None:
    for direction in ("host-to-device", "device-to-host", "both"):
        tensors, launch = built(transfer(direction), seed, host)
        on_host = [each for each in tensors[:1] if each.numel()]
        on_host += [] if direction == "host-to-device" else [launch.outputs[-1]]
        assert sorted(host.pinned) == sorted(each.data_ptr() for each in on_host)
        host.pinned.clear()
    for direction in ("host-to-device", "device-to-host"):
        built(transfer(direction, "pageable"), seed, host)
    assert not host.pinned


def test_both_directions_are_on_two_streams_between_a_fork_and_a_join(seed: int, host: Host) -> None:
    """As a capture needs it: the other stream is joined to the capture's before and after."""
    (x, y), launch = built(transfer("both"), seed, host)
    launch.call()

    on_device, on_host = launch.outputs
    here, back = host.current, host.log[0][0]
    assert back is not here and back.priority < here.priority, "never the stream of a capture"
    assert host.log == [
        (back, "waits for", here),
        (here, "copies", on_device.data_ptr(), x.data_ptr(), True),
        (back, "copies", on_host.data_ptr(), y.data_ptr(), True),
        (here, "waits for", back),
    ]
    assert not torch.equal(x, y), "or a copy in the wrong direction would look right"
