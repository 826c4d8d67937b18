"""A GPU of which only the name, the size and the clock exist: for what chooses among configurations."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.autotune import choices
from bench.autotune.tuning import timed_by, tuned
from bench.spec import Launch

FLUSH_S = 40e-6


class Gpu:
    """An H200 that computes nothing. It is its own clock, and at rest: see `_worked`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        """`folder` takes what is chosen."""
        self.folder = folder
        self.seconds: dict[str, float] = {}
        """How long a launch of a candidate takes at full speed, if not a microsecond."""
        self.calls: dict[str, Callable[[], object]] = {}
        """What calling the launch of a candidate of this name does."""
        self.has_ended: Callable[[], bool] = lambda: True
        """What the stream answers."""
        self.launched: list[Any] = []
        self.timed: set[str] = set()
        self.lost_per_s, self.worked_s, self.chance = 0.0, 0.0, random.Random(0)
        found = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132, major=9, minor=0)
        monkeypatch.setattr(choices, "TUNED", folder)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
        stream = SimpleNamespace(query=lambda: self.has_ended())
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
        self.start()

    def start(self) -> None:
        """As a new process would."""
        choices.choices_of.cache_clear()
        choices.sources.cache_clear()

    def tuned(self, candidates: Sequence[Any], question: str = "one", **more: Any) -> Launch:
        """The launch of the one that is chosen."""
        with timed_by(self):
            return tuned(("stream", question), list(candidates), self.launch, **more)

    def launch(self, candidate: Any) -> Launch:
        """Of one candidate."""

        def call() -> torch.Tensor:
            self.launched.append(candidate)
            self.calls.get(str(candidate), lambda: None)()
            return torch.empty(0)

        return Launch(call)

    def flush(self) -> None:
        """Of the clock."""
        self.launched.append("flush")

    def batch(self, calls: Sequence[Callable[[], Any]], flushed: bool) -> Callable[[], float]:
        """Of the clock."""
        before = len(self.launched)
        for call in calls:
            call()
        names = [str(one) for one in self.launched[before:]]
        del self.launched[before:]
        self.timed |= {*names} - {"flush"}
        return lambda: sum(
            self._worked(FLUSH_S if n == "flush" else self.seconds.get(n, 1e-6)) for n in names
        )

    def _worked(self, seconds: float) -> float:
        """What it takes: at an eighth of the speed at first, at all of it after 40 ms, then at less."""
        speed = min(1.0, 0.125 + self.worked_s / 0.04) * max(0.5, 1 - self.lost_per_s * self.worked_s)
        taken = seconds / speed * self.chance.uniform(0.99, 1.01)
        self.worked_s += taken
        return taken

    @property
    def written(self) -> Any:
        """Versions -> questions -> answers, as they are on disk."""
        (path,) = self.folder.glob("*.json")
        assert path.name == "nvidia-h200-132-sm.json"
        return json.loads(path.read_text())
