"""Which of several launches is the quickest, by what is learned within about a second.

**What is timed.** Rows are measured cold, each launch with data that it finds in memory, so candidates are
compared so too: before each launch the L2 cache is filled with other data, by reading twice its size. (A ring
of inputs, as rows have, would have to be built by each operator. Reading leaves nothing behind that a launch
would have to write back; what the launch itself writes is written back during the eviction that follows, and
counts.) Eviction and launch take turns in a CUDA graph, so no host is in the way. What evictions take alone
is measured as if it were one more candidate, and taken off. Rows that are measured warm use the same choice.

**How drift is kept out.** A GPU at rest is slow to reach its clock, and one that works hard may have to slow
down. So it works for 50 ms first. Then each candidate is looked at twice, forwards and backwards through the
list: a clock that drifts steadily is the same for all of them. The best three are looked at again, longer and
more often; these looks alone decide, since the earlier ones made them finalists by luck too.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Protocol

import torch

Call = Callable[[], object]
"""Queues a launch."""
Replay = Callable[[int], list[float]]
"""Runs what was captured so many times in a row; the seconds of each."""

WARM_UP_S = 0.05
"""Work before the first look."""
LOOK_S = 0.01
"""One look at a candidate, of two; or one replay, where that takes longer."""
FINAL_LOOK_S = 0.02
"""One look at a finalist, of FINAL_LOOKS."""
FINALISTS = 3
FINAL_LOOKS = 4
REPLAY_S = 1e-3
"""About what a graph's launches take together, as far as MOST_LAUNCHES allow."""
MOST_LAUNCHES = 16


class Clock(Protocol):
    """What is asked of a device."""

    def once_s(self, call: Call) -> float:
        """Seconds of one call, roughly."""
        ...

    def captured(self, call: Call, launches: int) -> Replay:
        """So many calls, each with a cold cache, as one piece of work; the seconds are of all of them."""
        ...


def quickest(calls: Sequence[Call], clock: Clock | None = None) -> tuple[int, float]:
    """(place in the list, seconds of one launch) of the quickest; each has been called before.

    `clock` stands for the current CUDA device. Raises what calling, capturing or replaying raises.
    """
    clock = clock or GraphClock(torch.cuda, torch.device("cuda", torch.cuda.current_device()))
    least_s = max(1e-6, min(clock.once_s(call) for call in calls))
    launches = max(
        1, min(MOST_LAUNCHES, int(REPLAY_S / least_s))
    )  # as many of each: what a graph adds is equal
    looks = _Looks([clock.captured(call, launches) for call in (_nothing, *calls)])
    everything = range(len(calls) + 1)
    medians = looks.medians(everything, LOOK_S, rounds=2)
    finalists = sorted(everything[1:], key=medians.__getitem__)[:FINALISTS]
    medians = looks.medians([0, *finalists], FINAL_LOOK_S, rounds=FINAL_LOOKS)
    best = min(finalists, key=medians.__getitem__)
    return best - 1, max(0.0, medians[best] - medians[0]) / launches


def _nothing() -> None:
    """Called in a launch's place: what is left is eviction."""


class _Looks:
    """Replays of each candidate, and what one took when last seen."""

    def __init__(self, replays: Sequence[Replay]) -> None:
        """Replays all of them until the device has worked for WARM_UP_S."""
        self._replays = replays
        self._replay_s = [0.0] * len(replays)
        spent_s = 0.0
        while spent_s < WARM_UP_S:
            for place, replay in enumerate(replays):
                (self._replay_s[place],) = replay(1)
            spent_s += sum(self._replay_s)

    def medians(self, places: Sequence[int], look_s: float, rounds: int) -> dict[int, float]:
        """Seconds of a replay by place: of each round's looks the medians, and of these the median.

        Every other round goes backwards.
        """
        seen: dict[int, list[float]] = {place: [] for place in places}
        for turn in range(rounds):
            for place in places if turn % 2 == 0 else reversed(places):
                count = max(1, round(look_s / self._replay_s[place]))
                seen[place].append(statistics.median(self._replays[place](count)))
        return {place: statistics.median(medians) for place, medians in seen.items()}


class GraphClock:
    """CUDA graphs of evictions and launches, replayed between events on the current stream."""

    def __init__(self, cuda: Any, device: torch.device) -> None:
        """`cuda` is `torch.cuda`, or a stand-in for it; `device` is its current one."""
        self._cuda = cuda
        byte = 2 * cuda.get_device_properties(device).L2_cache_size
        self._others = torch.zeros(max(1, byte // 4), dtype=torch.float32, device=device)
        self._sum = self._others.new_empty(())
        self._stream = cuda.Stream()
        self.evict()  # so that nothing of it is loaded for the first time in a capture
        cuda.synchronize()

    def evict(self) -> None:
        """Fill the L2 cache with data of no launch, unmodified."""
        torch.sum(self._others, 0, out=self._sum)

    def once_s(self, call: Call) -> float:
        """Seconds of one call, with what the host takes to queue it."""
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        self._cuda.synchronize()
        start.record()
        call()
        end.record()
        end.synchronize()
        return 1e-3 * float(start.elapsed_time(end))

    def captured(self, call: Call, launches: int) -> Replay:
        """A graph of an eviction and a call, so many times."""
        graph = self._cuda.CUDAGraph()
        self._cuda.synchronize()
        # By hand, since torch.cuda.graph gives the stream back only if the end of a capture succeeds.
        with self._cuda.stream(self._stream), _no_collector():
            graph.capture_begin()
            try:
                for _ in range(launches):
                    self.evict()
                    call()
            finally:
                graph.capture_end()

        def replay(count: int) -> list[float]:
            events = [self._cuda.Event(enable_timing=True) for _ in range(count + 1)]
            for _ in range(2):
                self.evict()  # the host queues the first replay meanwhile
            events[0].record()
            for event in events[1:]:
                graph.replay()
                event.record()
            self._cuda.synchronize()
            return [1e-3 * float(start.elapsed_time(end)) for start, end in pairwise(events)]

        return replay


@contextmanager
def _no_collector() -> Iterator[None]:
    """No garbage collection: a finaliser that frees device memory would break a capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
