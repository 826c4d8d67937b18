"""Shows pytest-benchmark the device times that the worker measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ReplayTimer:
    """A `timer` for pytest-benchmark that replays times measured elsewhere.

    pytest-benchmark reads it before and after a round: it returns 0, then the seconds of the round. The
    table, JSON and comparisons thus hold device times, through pytest-benchmark's public interface alone.
    """

    def __init__(self) -> None:
        self._rounds_s: list[float] | None = None
        self._running = False

    def load(self, rounds_s: list[float]) -> None:
        """Set the seconds of the next rounds."""
        self._rounds_s = list(reversed(rounds_s))
        self._running = False

    def __call__(self) -> float:
        """0 at the start of a round, its seconds at the end."""
        if self._rounds_s is None:
            raise RuntimeError("this timer only replays: it cannot time `benchmark(function)`")
        self._running = not self._running
        return 0.0 if self._running else self._rounds_s.pop()


TIMER = ReplayTimer()


def replay(benchmark: Any, samples_s: Sequence[float], launches: int) -> None:
    """Give pytest-benchmark's fixture, made with TIMER, samples of so many launches each."""
    if benchmark.enabled:
        TIMER.load([sample * launches for sample in samples_s])
    benchmark.pedantic(lambda: None, rounds=len(samples_s), iterations=launches)
