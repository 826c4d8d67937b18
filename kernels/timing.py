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

**What it costs in memory.** A launch brings its outputs, which may take up much of the device. So for each
look it is made and captured anew, some milliseconds, and given back.
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


def quickest(makers: Sequence[Callable[[], Call]], clock: Clock | None = None) -> tuple[int, float]:
    """(place in the list, seconds of one launch) of the quickest.

    Each of `makers` makes a launch whose like has been called before. `clock` stands for the current CUDA
    device. Raises what making, calling, capturing or replaying raises.
    """
    clock = clock or GraphClock(torch.cuda, torch.device("cuda", torch.cuda.current_device()))
    least_s = max(1e-6, min(clock.once_s(make()) for make in makers))
    launches = max(1, min(MOST_LAUNCHES, int(REPLAY_S / least_s)))
    _warm_up(clock.captured(makers[0](), launches))
    makers = [_none, *makers]
    everything = range(len(makers))
    medians = _medians(clock, makers, everything, launches, LOOK_S, rounds=2)
    finalists = sorted(everything[1:], key=medians.__getitem__)[:FINALISTS]
    medians = _medians(clock, makers, [0, *finalists], launches, FINAL_LOOK_S, rounds=FINAL_LOOKS)
    best = min(finalists, key=medians.__getitem__)
    return best - 1, max(0.0, medians[best] - medians[0]) / launches


def _none() -> Call:
    """Makes no launch: what is left is eviction."""
    return lambda: None


def _warm_up(replay: Replay) -> None:
    spent_s = 0.0
    while spent_s < WARM_UP_S:
        spent_s += sum(replay(1))


def _medians(
    clock: Clock,
    makers: Sequence[Callable[[], Call]],
    places: Sequence[int],
    launches: int,
    look_s: float,
    rounds: int,
) -> dict[int, float]:
    """Seconds of so many launches by place: of each round's looks the medians, and of these the median.

    Every other round goes backwards.
    """
    seen: dict[int, list[float]] = {place: [] for place in places}
    for turn in range(rounds):
        for place in places if turn % 2 == 0 else reversed(places):
            seen[place].append(_look(clock.captured(makers[place](), launches), look_s))
    return {place: statistics.median(medians) for place, medians in seen.items()}


def _look(replay: Replay, look_s: float) -> float:
    """The median of as many replays as take `look_s`, after one that brings the graph to the device."""
    first_s = max(1e-6, sum(replay(1)))
    return statistics.median(replay(max(1, round(look_s / first_s))))


class GraphClock:
    """CUDA graphs of evictions and launches, replayed between events on the current stream."""

    def __init__(self, cuda: Any, device: torch.device) -> None:
        """`cuda` is `torch.cuda`, or a stand-in for it; `device` is its current one."""
        self._cuda = cuda
        byte = 2 * cuda.get_device_properties(device).L2_cache_size
        # In so many rows that the sums need no memory besides: a capture would have to provide it.
        self._others = torch.zeros(max(1, byte // 4096), 1024, dtype=torch.float32, device=device)
        self._sums = self._others.new_empty(len(self._others))
        self._stream = cuda.Stream()
        self.evict()  # so that nothing of it is loaded for the first time in a capture
        cuda.synchronize()

    def evict(self) -> None:
        """Fill the L2 cache with data of no launch, unmodified."""
        torch.sum(self._others, 1, out=self._sums)

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

        kept = graph, call  # the graph writes to memory that the launch holds

        def replay(count: int) -> list[float]:
            events = [self._cuda.Event(enable_timing=True) for _ in range(count + 1)]
            for _ in range(2):
                self.evict()  # the host queues the first replay meanwhile
            events[0].record()
            for event in events[1:]:
                kept[0].replay()
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
