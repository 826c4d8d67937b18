"""The spinning kernel behind which the host queues what is timed: how fast it counts, how long it lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Queued = TypeVar("Queued")

FACTOR = 1.5
"""A spin lasts this many times as long as the host needs to queue what follows."""
LEAST_CYCLES = 10_000
LONGEST_S = 0.5
"""Of a single spin, so that a host that is stopped for minutes does not stop the device for as long."""
TRIES = 14
"""Queueings of one sample, each behind twice the spin of the one before: from 60 us to the longest."""

FIRST_CYCLES = 1_000_000
LOOK_S = 0.01
"""Seconds of one look at the clock rate; the first, before any rate is known, may last longer."""
LOAD_S = 0.1
"""Seconds of spinning after which a clock that was idle counts as raised: by then it has left 345 MHz."""
MOST_LOAD_S = 1.0
AGREE = 0.01
"""Share by which two successive looks may differ."""


class LateError(RuntimeError):
    """However long the spin, the device had to wait for the host: there is no time for these launches."""


class Spin:
    """A kernel that counts clock cycles (`torch.cuda._sleep`), and what it hides."""

    def __init__(self, cuda: Any) -> None:
        """`cuda` is `torch.cuda`, or a simulation of it. Loads the device for 0.1 to 1 s."""
        self.cuda = cuda
        self.late = 0
        """Samples thrown away so far, since the device was done with the spin before the host was ready."""
        self.cycles_per_s = self._calibrated()

    def _calibrated(self) -> float:
        """The highest clock rate seen until the device is warm and two looks agree.

        An idle GPU counts at a fifth of its speed under load, and a spin made for that would be over before
        the host is ready. A rate that is too high only makes spins longer.
        """
        start, end = (self.cuda.Event(enable_timing=True) for _ in range(2))
        self.cuda._sleep(1)  # may be the first kernel of its process: loading it is no spinning
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


class Hiding:
    """The spin of one batch: as long as it needs to be."""

    def __init__(self, spin: Spin, queue: Callable[[], object], now: Callable[[], float]) -> None:
        self.spin = spin
        self._start, self._end = (spin.cuda.Event(enable_timing=True) for _ in range(2))
        self._was_late = False
        spin.cuda.synchronize()  # into an empty queue: this is the host's time alone
        begin = now()
        self._queue(queue)
        self.cycles = int(FACTOR * (now() - begin) * spin.cycles_per_s) + LEAST_CYCLES
        spin.cuda.synchronize()

    def _queue(self, queue: Callable[[], Queued]) -> tuple[bool, Queued]:
        """Whether the device had not yet come to it when all was queued, and what `queue` returns."""
        self._start.record()
        queued = queue()
        self._end.record()
        return not self._start.query(), queued

    def timed(
        self, before: Callable[[], object], again: Callable[[], object], queue: Callable[[], Queued]
    ) -> tuple[float, Queued]:
        """Seconds on the device of what `queue` queues, and what it returns. LateError if never in time.

        `before` is queued ahead of the spin. A sample counts if the event at its start has not passed by the
        time all is queued. Else it is taken again, `again` ahead of twice the spin, which is kept if one
        doubling was not enough or the sample before was late, too: once is a host that was interrupted, twice
        a spin that is too short.
        """
        most = int(LONGEST_S * self.spin.cycles_per_s)
        cycles = self.cycles
        for tried in range(TRIES):
            (again if tried else before)()
            self.spin.cuda._sleep(cycles)
            in_time, queued = self._queue(queue)
            self._end.synchronize()
            if in_time:
                if tried > 1 or (tried and self._was_late):
                    self.cycles = cycles
                self._was_late = tried > 0
                return float(self._start.elapsed_time(self._end)) * 1e-3, queued
            self.spin.late += 1
            cycles = min(2 * cycles, most)
        raise LateError(
            f"the host was late {TRIES} times in a row: it could not queue a sample's launches while the "
            f"device was kept busy, at last for {cycles / self.spin.cycles_per_s:.2g} s"
        )
