"""Clocks, which time a list of launches back to back, in seconds.

    host    the processor's own counter around the calls: for a CPU, where a launch is the work
    graph   a CUDA graph of all the launches between two events: no host in between (default on a GPU)
    stream  the launches queued behind a blocking kernel, between two events: for what cannot be captured

A clock is part of a row's identity. Times of different clocks are never compared.
"""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from bench.causes import first_line
from bench.device.cuda_driver import LIBRARY, CudaError
from bench.worker import graph_kernels
from bench.worker.blocking_kernel import BlockedBatch, BlockingKernel
from bench.worker.failure import chain, out_of_memory

Calls = Sequence[Callable[[], Any]]
"""The `call`s of some launches, in the order they run."""


class Batch:
    """A list of calls. Calling it runs them once, in order, and returns the seconds of all together."""

    def __init__(self, run: Callable[[], tuple[float, list[Any]]]) -> None:
        """`run` returns the seconds, and the outputs of the calls as far as they are kept."""
        self._run = run
        self.written: list[Any] = []

    def __call__(self) -> float:
        """Seconds of one run."""
        seconds, self.written = self._run()
        return seconds


class CaptureError(RuntimeError):
    """These launches cannot be captured in a CUDA graph. The process must not measure after this."""


class Clock(ABC):
    """Makes batches; only a clock knows how this device's time is read."""

    name: str
    whole_turns: bool
    """Whether a batch is costly to make, so that one batch must hold whole turns of the ring."""
    most_launches: int
    """Most launches of a batch."""
    distrust = ""
    """Why this process must not measure any more; empty if it may."""

    def __init__(self, flush: Callable[[], None]) -> None:
        """`flush` evicts the last-level cache: queued before the timed part, never inside it."""
        self.flush = flush

    @property
    @abstractmethod
    def resolution_s(self) -> float:
        """Seconds by which a sample may be off, whatever its length."""

    @property
    def start_s(self) -> float | None:
        """Seconds of a sample that no launch accounts for (GPU); None on a CPU, where there are none."""
        return None

    @property
    def late(self) -> int:
        """Number of samples discarded so far because they began before the host had queued all launches."""
        return 0

    @abstractmethod
    def batch(self, calls: Calls, flushed: bool, cold: bool = False) -> Batch:
        """A batch of these calls, its cache flushed before each run if `flushed`.

        `cold`: the calls are part of a ring, and find their data in memory only in their turn.
        """

    def enqueue_s(self, call: Callable[[], Any]) -> float | None:
        """Host seconds to queue one call; None on a CPU, where queueing is the work."""
        return None

    def kernels(self, call: Callable[[], Any]) -> str:
        """The kernels that one call runs; empty if unknown."""
        return ""


class HostClock(Clock):
    """`time.perf_counter_ns` around a plain loop.

    The time includes the loop's own ~30 ns a launch, as does the launch floor.
    """

    name = "host"
    whole_turns = False
    most_launches = 100_000

    @cached_property
    def resolution_s(self) -> float:
        """The smallest step of the counter."""
        read = [time.perf_counter_ns() for _ in range(1000)]
        return min((b - a for a, b in pairwise(read) if b > a), default=1) * 1e-9

    def batch(self, calls: Calls, flushed: bool, cold: bool = False) -> Batch:
        """A loop over the calls; keeps the outputs of the last one."""
        calls = tuple(calls)

        def run() -> tuple[float, list[Any]]:
            if flushed:
                self.flush()
            begin = time.perf_counter_ns()
            written = _in_order(calls)
            return (time.perf_counter_ns() - begin) * 1e-9, written

        return Batch(run)


def _in_order(calls: Calls) -> list[Any]:
    """The outputs of the last call, after all have run."""
    written = None
    for call in calls:
        written = call()
    return [written]


EVENT_STEP_S = 0.5e-6
"""cudaEventElapsedTime's documented resolution."""
STARTS = 15
"""Measurements of the time between two events that the launches do not account for; their median is taken."""
MANY = 65
"""Kernels of the larger of the two graphs whose times give `GraphClock.start_s`."""


class _CudaClock(Clock):
    """Base of the two CUDA clocks: events behind a blocking kernel, which hides the host.

    `cuda` is `torch.cuda`, or a simulation of it.
    """

    def __init__(
        self, cuda: Any, flush: Callable[[], None], now: Callable[[], float] = time.perf_counter
    ) -> None:
        """`now` is the host's clock, which times queueing. Loads the device for 0.1 s at least."""
        super().__init__(flush)
        self.cuda, self.now = cuda, now
        self._blocking = BlockingKernel(cuda)

    @property
    def late(self) -> int:
        """Number of samples discarded so far because they began before the host had queued all launches."""
        return self._blocking.late

    @property
    def resolution_s(self) -> float:
        """Seconds by which a sample may be off. `start_s` is not subtracted: a sample is long."""
        return max(EVENT_STEP_S, self.start_s or 0.0)

    def _between_events(self, queue: Callable[[], list[Any]], flushed: bool, cold: bool = False) -> Batch:
        blocked = BlockedBatch(self._blocking, queue, self.now)
        before = self.flush if flushed else _nothing
        # A sample is retaken right after it ran, out of its turn: its data would be in the cache.
        again = self.flush if flushed or cold else _nothing
        return Batch(lambda: blocked.timed(before, again, queue))

    def enqueue_s(self, call: Callable[[], Any]) -> float:
        """Host seconds to queue one call, the median of 20 into an idle queue."""
        times = []
        for _ in range(20):
            self.cuda.synchronize()
            begin = self.now()
            call()
            times.append(self.now() - begin)
        self.cuda.synchronize()
        return sorted(times)[len(times) // 2]


class StreamClock(_CudaClock):
    """The calls queued one by one on the current stream."""

    name = "stream"
    whole_turns = False
    most_launches = 300
    """The launch queue is finite (1024 on known devices): beyond it the host would wait for the device, and a
    call may be several kernels."""

    @cached_property
    def start_s(self) -> float:
        """Seconds from one event to the next with nothing in between."""
        pair = self._between_events(list, False)
        return median(pair() for _ in range(STARTS))

    def batch(self, calls: Calls, flushed: bool, cold: bool = False) -> Batch:
        """At most `most_launches` between two events; ValueError for more. Keeps the last call's outputs."""
        calls = tuple(calls)
        if len(calls) > self.most_launches:
            raise ValueError(f"{len(calls)} launches do not fit the queue of {self.most_launches}")
        return self._between_events(partial(_in_order, calls), flushed, cold)


class GraphClock(_CudaClock):
    """The calls captured once in a CUDA graph and replayed: kernels follow each other with no host."""

    name = "graph"
    whole_turns = True
    libcuda = LIBRARY
    most_launches = 16_384
    """Larger graphs are slow to build and upload, and some drivers refuse them."""

    @cached_property
    def start_s(self) -> float:
        """Seconds of starting a graph: the times of graphs of 1 and of MANY tiny kernels, extrapolated to 0.

        It is not measured when the clock is made: a failing capture would spoil each new process.
        CaptureError if it cannot be measured.
        """
        single, many = (self.batch([lambda: self.cuda._sleep(1)] * count, False) for count in (1, MANY))
        pairs = [(single(), many()) for _ in range(STARTS)]
        single_s, many_s = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
        return max(0.0, single_s - (many_s - single_s) / (MANY - 1))

    def batch(self, calls: Calls, flushed: bool, cold: bool = False) -> Batch:
        """The calls as a captured graph; keeps all outputs. CaptureError or torch.OutOfMemoryError if not.

        Calls must have run before: the first ones compile, allocate workspaces and initialise handles,
        none of which may happen during capture.
        """
        graph = self.cuda.CUDAGraph()

        def replay() -> list[Any]:
            graph.replay()
            return written

        with self._capturing():
            with self.cuda.graph(graph):
                written = [call() for call in calls]
            replay()  # the first replay uploads the graph
        batch = self._between_events(replay, flushed)  # whole turns of a ring stay cold when retaken
        batch.written = written
        return batch

    def kernels(self, call: Callable[[], Any]) -> str:
        """The kernels of the call's captured graph, with grid and block (bench/worker/graph_kernels.py)."""
        try:
            graph = self.cuda.CUDAGraph(keep_graph=True)
            with self._capturing(), self.cuda.graph(graph):
                call()
            return graph_kernels.kernels(graph.raw_cuda_graph(), self.libcuda)
        except (RuntimeError, TypeError, AttributeError, OSError, CudaError):  # an older torch or driver
            return ""  # if a capture failed, `distrust` says so

    @contextmanager
    def _capturing(self) -> Iterator[None]:
        """Turn a RuntimeError of the block into CaptureError, or torch.OutOfMemoryError if that is the cause.

        torch.cuda.graph restores the stream only if `capture_end` succeeds, and torch does not track what
        else a failed capture leaves behind (memory pools, random generators).
        """
        try:
            with no_collector():  # a finaliser that frees device memory would break the capture
                yield
        except RuntimeError as error:
            if short := out_of_memory(error):
                raise torch.OutOfMemoryError(first_line(short)) from error
            *_, broke_it = chain(error)  # ending a broken capture raises another error over it
            reason = first_line(broke_it)
            self.distrust = f"a capture failed: {reason}"
            raise CaptureError(reason) from error


@contextmanager
def no_collector() -> Iterator[None]:
    """Collect no garbage meanwhile."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _nothing() -> None:
    """Stands for the flush before a sample whose cache is not flushed."""
