"""Three GPUs that do not exist: Triton's own driver runs on a stub of libcuda, with tensors of the CPU.

All of Triton is real: the JIT, ptxas, and the compiled launcher that unpacks arguments, encodes descriptors
and asks for scratch. The stub (libcuda_stub.c) accepts the launch and runs nothing. Only PyTorch's part is
replaced here, because PyTorch finds no GPU: the functions that `triton.backends.driver.GPUDriver.__init__`
takes from torch.cuda (the same in Triton 3.6.0 and 3.7.1), and what our own host code asks torch.cuda for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch


@dataclass(frozen=True)
class Gpu:
    """A device of the stub: its ordinal there, compute capability, SMs and name."""

    ordinal: int
    capability: tuple[int, int]
    sm_count: int
    name: str

    def __str__(self) -> str:
        """`sm_90`."""
        return f"sm_{10 * self.capability[0] + self.capability[1]}"


GPUS = (
    Gpu(0, (8, 0), 108, "NVIDIA A100-SXM4-80GB"),
    Gpu(1, (9, 0), 132, "NVIDIA H100 80GB HBM3"),
    Gpu(2, (10, 0), 148, "NVIDIA B200"),
)


def launches() -> int:
    """How many launches the stub has accepted in this process."""
    count = ctypes.CDLL("libcuda.so.1").roofbench_stub_launches
    count.restype = ctypes.c_ulonglong
    return int(count())


def _make_current(gpu: Gpu) -> None:
    """What torch.cuda.set_device does: the device's primary context becomes this thread's."""
    libcuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert libcuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu.ordinal) == 0
    assert libcuda.cuCtxSetCurrent(context) == 0


@contextmanager
def torch_cuda(gpu: Gpu) -> Iterator[None]:
    """torch.cuda's answers about the current device are this GPU's."""
    properties = SimpleNamespace(
        name=gpu.name, major=gpu.capability[0], minor=gpu.capability[1], multi_processor_count=gpu.sm_count
    )
    for name in vars(properties):
        assert hasattr(torch._C._CudaDeviceProperties, name), name
    answers: dict[str, Any] = {
        "current_device": lambda: gpu.ordinal,
        "get_device_capability": lambda device=None: gpu.capability,
        "get_device_properties": lambda device=None: properties,
        "current_stream": lambda device=None: SimpleNamespace(cuda_stream=0, query=lambda: True),
    }
    with mock.patch.multiple(torch.cuda, **answers):
        yield


@contextmanager
def triton_driver(gpu: Gpu) -> Iterator[None]:
    """Triton compiles for this GPU, and launches on it."""
    import triton
    from triton.backends.nvidia.driver import CudaDriver

    with torch_cuda(gpu):
        _make_current(gpu)
        driver = CudaDriver()
        replaced = {
            "get_current_device": lambda: gpu.ordinal,
            "get_current_stream": lambda device: 0,
            "get_device_capability": lambda device: gpu.capability,
        }
        for name, function in replaced.items():
            assert hasattr(driver, name), name
            setattr(driver, name, function)
        triton.runtime.driver.set_active(driver)
        yield
