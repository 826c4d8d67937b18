"""A GPU of which only the name, the size and the driver exist: for what chooses among kernels."""

import ctypes
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.spec import Launch

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


class Tuner:
    """Choosing on that GPU: what calling a candidate does, the clock, and the folder of what was chosen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.tuning = pytest.importorskip("bench.launching.tuning")
        self.monkeypatch, self.folder = monkeypatch, folder
        self.events: list[Any] = []
        """Candidates that were launched, `waited` for the stream, and `time` where the clock was asked."""
        self.calls: dict[str, Callable[[], object]] = {}
        """What calling the launch of a candidate of this name does."""
        self.seconds: dict[str, float] = {}
        """How long a launch takes; of candidates that are not here the first is the quickest."""
        self.timed: list[str] = []
        self.has_ended: Callable[[], bool] = lambda: True
        """What the stream answers."""
        monkeypatch.setattr(self.tuning.timing, "quickest", self._quickest)
        self.start()

    def start(self, driver: int = 13_000) -> None:
        """As a new process with this driver would."""
        new_process(self.monkeypatch, driver)
        self.tuning._source.cache_clear()
        self.monkeypatch.setattr(self.tuning, "TUNED", self.folder)
        self.monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(query=self._query))

    def tuned(self, candidates: Sequence[Any], question: str = "one", operator: str = "stream") -> Launch:
        """The launch of the one that is chosen."""
        made: Launch = self.tuning.tuned((operator, question), list(candidates), self.launch)
        return made

    def launch(self, candidate: Any) -> Launch:
        """Of one candidate."""

        def call() -> torch.Tensor:
            self.events.append(candidate)
            self.calls.get(str(candidate), lambda: None)()
            return torch.empty(0)

        return Launch(call)

    @property
    def launched(self) -> list[Any]:
        """All candidates that were."""
        return [event for event in self.events if event not in ("waited", "time")]

    @property
    def path(self) -> Path:
        """Of the file of what was chosen."""
        return self.folder / FILE

    @property
    def written(self) -> Any:
        """What is in that file."""
        return json.loads(self.path.read_text())

    def _query(self) -> bool:
        self.events.append("waited")
        return self.has_ended()

    def _quickest(self, makers: list[Any]) -> tuple[int, float]:
        self.events.append("time")
        taken = []
        for make in makers:
            make()()
            self.timed.append(self.launched[-1])
            taken.append(self.seconds.get(str(self.launched[-1]), 1e-6))
        return taken.index(min(taken)), min(taken)
