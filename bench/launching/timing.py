"""Finds the quickest of several launches within about a second.

**What is timed.** Rows are measured cold: each launch finds its data in memory. So candidates are compared
cold too. Before each launch the L2 cache is filled with other data by reading twice its size. (A ring of
inputs, as rows use, would have to be built by each operator. Reading leaves nothing in the cache that a
launch would have to write back. What the launch itself writes is written back during the next eviction, and
is part of its time.) Evictions and launches alternate in a CUDA graph, so the host is not part of the time.
Evictions alone are timed like one more candidate and subtracted. Rows that are measured warm use the same
choice.

**How drift is kept out.** A GPU at rest takes a while to reach its clock rate, and one that works hard may
have to lower it. So it works for 50 ms first. Then each candidate is timed twice, once in a walk forwards
through the list and once in a walk backwards: a steady drift affects all of them equally. The best three are
timed again, more often. Only these last times decide, because luck helped to make them finalists.
Of three candidates all are finalists from the start.

**What it costs in memory.** A launch holds its outputs, which may take up much of the device. So for each
look the launch is built and captured anew, which takes some milliseconds, and released.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, Protocol

import torch

from bench.spec import cause

Call = Callable[[], object]
"""Queues a launch."""
Replay = Callable[[int], list[float]]
"""Replays a graph this many times in a row; returns the seconds of each replay."""

WARM_UP_S = 0.05
"""Seconds of work before the first look."""
LOOK_S = 0.01
"""Seconds of a look, of which there are two at each candidate; a single replay may take longer."""
FINALISTS = 3
FINAL_LOOKS = 4
"""Looks at each finalist."""
REPLAY_S = 1e-3
"""About how long the launches of one graph take together, unless they would be more than MOST_LAUNCHES."""
MOST_LAUNCHES = 16


class Uncaptured(RuntimeError):
    """A launch cannot be captured in a CUDA graph; the text says why."""

    place: int | None = None
    """The place of its maker in the list that `quickest` was given."""


class Clock(Protocol):
    """What `quickest` asks of a device."""

    def once_s(self, call: Call) -> float:
        """Seconds of one call, roughly."""
        ...

    def captured(self, call: Call, launches: int) -> Replay:
        """This many calls, each with a cold cache, captured in one graph. Uncaptured if they cannot be."""
        ...


def quickest(makers: Sequence[Callable[[], Call]], clock: Clock | None = None) -> tuple[int, float]:
    """(place in the list, seconds of one launch) of the quickest.

    Each of `makers` builds a launch and returns its call. The same launch must have run before, because a
    capture must neither compile nor load anything. `clock` defaults to the current CUDA device. Raises what
    building, calling or replaying a launch raises; Uncaptured, with the place, where one cannot be captured.
    """
    clock = clock or GraphClock(torch.cuda, torch.device("cuda", torch.cuda.current_device()))
    least_s = max(1e-6, min(clock.once_s(make()) for make in makers))
    launches = max(1, min(MOST_LAUNCHES, int(REPLAY_S / least_s)))
    makers = [_none, *makers]
    _warm_up(_captured(clock, makers, 1, launches))
    finalists = list(range(1, len(makers)))
    if len(finalists) > FINALISTS:
        medians = _medians(clock, makers, range(len(makers)), launches, rounds=2)
        finalists = sorted(finalists, key=medians.__getitem__)[:FINALISTS]
    medians = _medians(clock, makers, [0, *finalists], launches, rounds=FINAL_LOOKS)
    best = min(finalists, key=medians.__getitem__)
    return best - 1, max(0.0, medians[best] - medians[0]) / launches


def _none() -> Call:
    """No launch: only the eviction is left to be timed."""
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
    rounds: int,
) -> dict[int, float]:
    """Seconds of a replay by place in `makers`: the median over the rounds of each look's median.

    Every other round walks backwards through `places`.
    """
    seen: dict[int, list[float]] = {place: [] for place in places}
    for turn in range(rounds):
        for place in places if turn % 2 == 0 else reversed(places):
            seen[place].append(_look(_captured(clock, makers, place, launches)))
    return {place: statistics.median(medians) for place, medians in seen.items()}


def _captured(clock: Clock, makers: Sequence[Callable[[], Call]], place: int, launches: int) -> Replay:
    try:
        return clock.captured(makers[place](), launches)
    except Uncaptured as error:
        if makers[place] is not _none:
            error.place = place - 1  # without `_none`, which stands before them
        raise


def _look(replay: Replay) -> float:
    """Median seconds of as many replays as take LOOK_S, after a first one that uploads the graph."""
    first_s = max(1e-6, sum(replay(1)))
    return statistics.median(replay(max(1, round(LOOK_S / first_s))))


class GraphClock:
    """CUDA graphs of evictions and launches, replayed between events on the current stream."""

    def __init__(self, cuda: Any, device: torch.device) -> None:
        """`cuda` is `torch.cuda`, or a stand-in for it; `device` is its current one."""
        self._cuda = cuda
        byte = 2 * cuda.get_device_properties(device).L2_cache_size
        # Many rows, so that summing them needs no temporary memory, which a capture would have to provide.
        self._others = torch.zeros(max(1, byte // 4096), 1024, dtype=torch.float32, device=device)
        self._sums = self._others.new_empty(len(self._others))
        self._stream = cuda.Stream()
        self.evict()  # loads its kernel, which a capture must not do
        cuda.synchronize()

    def evict(self) -> None:
        """Replace what is in the L2 cache by reading data that no launch uses."""
        torch.sum(self._others, 1, out=self._sums)

    def once_s(self, call: Call) -> float:
        """Seconds of one call, including the host's time to queue it."""
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        self._cuda.synchronize()
        start.record()
        call()
        end.record()
        end.synchronize()
        return 1e-3 * float(start.elapsed_time(end))

    def captured(self, call: Call, launches: int) -> Replay:
        """A graph of `launches` times an eviction and a call; Uncaptured if that fails, unless for memory."""
        graph = self._cuda.CUDAGraph()
        self._cuda.synchronize()
        # By hand, since torch.cuda.graph gives the stream back only if the end of a capture succeeds.
        with self._cuda.stream(self._stream), _no_collector():
            self._cuda.empty_cache()  # during a capture the allocator gives nothing back
            graph.capture_begin()
            try:
                try:
                    for _ in range(launches):
                        self.evict()
                        call()
                except BaseException:
                    with suppress(RuntimeError):  # the end of a broken capture says less than what broke it
                        graph.capture_end()
                    raise
                graph.capture_end()
            except RuntimeError as error:
                if "out of memory" in str(error):  # no fault of the launch: of what else is on the device
                    raise
                raise Uncaptured(cause(error)) from error

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
