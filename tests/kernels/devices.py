"""A GPU of which only the name, the size and the driver exist: for what chooses among kernels."""

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

FILE = "nvidia-h200-132-sm.json"
"""Where its choices lie in the folder of choices."""
_INDICES = itertools.count(1000)
_LOAD = ctypes.CDLL


def new_process(monkeypatch: pytest.MonkeyPatch, driver: int = 13_000) -> None:
    """From now on torch has an H200 that nothing in this process has asked about before, as in a new process.

    `driver` is its version as cuDriverGetVersion says it: 13000 for CUDA 13.0.
    """
    index = next(_INDICES)
    found = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: index)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(query=lambda: True))

    def get_version(into: Any) -> int:
        into._obj.value = driver
        return 0

    library = SimpleNamespace(cuDriverGetVersion=get_version)

    def load(name: Any, *more: Any, **named: Any) -> Any:
        return library if name == "libcuda.so.1" else _LOAD(name, *more, **named)

    monkeypatch.setattr(ctypes, "CDLL", load)
