"""Blocking kernel, behind which the host queues the launches that are timed: its clock rate and length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Queued = TypeVar("Queued")

FACTOR = 1.5
"""A blocking kernel lasts this many times as long as the host needs to queue the launches."""
LEAST_CYCLES = 10_000
LONGEST_S = 0.5
"""Longest blocking kernel: a host that is stopped for minutes must not stop the device for as long."""
TRIES = 14
"""Attempts at one sample, each behind a kernel twice as long as the one before: from 60 us to the longest."""

FIRST_CYCLES = 1_000_000
LOOK_S = 0.01
"""Seconds of one reading of the clock rate; the first, before any rate is known, may last longer."""
LOAD_S = 0.1
"""Seconds of load after which an idle clock has risen: by then it has left 345 MHz."""
MOST_LOAD_S = 1.0
AGREE = 0.01
"""Share by which two successive readings may differ."""


class LateError(RuntimeError):
    """The device waited for the host however long it was blocked: these launches cannot be timed."""


class BlockingKernel:
    """A kernel that counts clock cycles (`torch.cuda._sleep`), calibrated."""

    def __init__(self, cuda: Any) -> None:
        """`cuda` is `torch.cuda`, or a simulation of it. Loads the device for 0.1 to 1 s."""
        self.cuda = cuda
        self.late = 0
        """Number of samples discarded so far because the kernel ended before all launches were queued."""
        self.cycles_per_s = self._calibrated()

    def _calibrated(self) -> float:
        """The highest clock rate read until the device is warm and two readings agree.

        An idle GPU counts at a fifth of its rate under load, and a kernel calibrated then would end before
        the host is ready. A rate that is too high only makes it longer.
        """
        start, end = (self.cuda.Event(enable_timing=True) for _ in range(2))
        self.cuda._sleep(1)  # may be the first kernel of its process: loading it is no time of its own
        self.cuda.synchronize()
        cycles, loaded_s = FIRST_CYCLES, 0.0
        rates: list[float] = []
        while loaded_s < MOST_LOAD_S:
            start.record()
            self.cuda._sleep(cycles)
            end.record()
            end.synchronize()
            took_s = max(float(start.elapsed_time(end)) * 1e-3, 1e-6)
            loaded_s += took_s
            rates.append(cycles / took_s)
            if loaded_s >= LOAD_S and len(rates) > 1 and abs(rates[-1] - rates[-2]) <= AGREE * rates[-1]:
                break
            cycles = int(LOOK_S * rates[-1]) + 1
        return max(rates)


class BlockedBatch:
    """One batch behind a blocking kernel as long as its queueing needs."""

    def __init__(self, kernel: BlockingKernel, queue: Callable[[], object], now: Callable[[], float]) -> None:
        self.kernel = kernel
        self._start, self._end = (kernel.cuda.Event(enable_timing=True) for _ in range(2))
        self._was_late = False
        kernel.cuda.synchronize()  # into an empty queue: this is the host's time alone
        begin = now()
        self._queue(queue)
        self.cycles = int(FACTOR * (now() - begin) * kernel.cycles_per_s) + LEAST_CYCLES
        kernel.cuda.synchronize()

    def _queue(self, queue: Callable[[], Queued]) -> tuple[bool, Queued]:
        """(whether all was queued before the device reached it, what `queue` returns)."""
        self._start.record()
        queued = queue()
        self._end.record()
        return not self._start.query(), queued

    def timed(
        self, before: Callable[[], object], again: Callable[[], object], queue: Callable[[], Queued]
    ) -> tuple[float, Queued]:
        """(device seconds of what `queue` queues, what it returns). LateError if the host is never in time.

        `before` is queued ahead of the kernel. A sample counts if the event at its start has not passed by
        the time all is queued. Otherwise it is retaken, with `again` ahead of one twice as long. The longer
        one is kept if one doubling was not enough or the sample before was late, too: a single late sample
        means an interrupted host, a second one that the blocking kernel is too short.
        """
        most = int(LONGEST_S * self.kernel.cycles_per_s)
        cycles = self.cycles
        for tried in range(TRIES):
            (again if tried else before)()
            self.kernel.cuda._sleep(cycles)
            in_time, queued = self._queue(queue)
            self._end.synchronize()
            if in_time:
                if tried > 1 or (tried and self._was_late):
                    self.cycles = cycles
                self._was_late = tried > 0
                return float(self._start.elapsed_time(self._end)) * 1e-3, queued
            self.kernel.late += 1
            cycles = min(2 * cycles, most)
        raise LateError(
            f"the host was late {TRIES} times in a row: it could not queue a sample's launches while the "
            f"device was kept busy, at last for {cycles / self.kernel.cycles_per_s:.2g} s"
        )
