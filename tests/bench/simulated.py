"""A simulated CUDA device with the interface of torch.cuda that the clocks use.

The host queues, the device runs what is queued in order, both on one simulated time axis. Kernels take
longer when their slot is not in the simulated cache (least recently used, by bytes). Nothing sleeps.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from bench.autotune.ending import Stuck, trusted
from bench.sampling.protocol import Protocol
from bench.spec import Implementation, Launch, Operator, Problem, Unsupported
from bench.worker.__main__ import alive
from bench.worker.clock import GraphClock, StreamClock
from bench.worker.measure_case import Bench

QUEUE_S = 4e-6
"""Host time to queue one operation."""
REPLAY_S = 20e-6
"""Host time to queue a graph that has been uploaded."""
UPLOAD_S = 5e-3
"""Host time of a graph's first replay."""
COLD_S, WARM_S = 100e-6, 25e-6
"""Seconds of the kernel. What is simulated takes as long as there are launches: shorter ones cost more."""
CLOCK_HZ = 1.5e9
IDLE_AFTER_S = 5e-3
"""Without work for this long the device's clock falls back."""

ADVICE = "CUDA kernel errors might be asynchronously reported at some other API call."
"""How real messages end (c10/cuda/CUDAException.cpp of torch)."""


class Event:
    def __init__(self, cuda: SimulatedCuda) -> None:
        self.cuda, self.at_s = cuda, 0.0

    def record(self) -> None:
        self.at_s = self.cuda.run(self.cuda.event_s)

    def synchronize(self) -> None:
        self.cuda.host_s = max(self.cuda.host_s, self.at_s)

    def query(self) -> bool:
        """Whether the device has passed it by now: cudaEventQuery."""
        return self.at_s <= self.cuda.host_s

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds, in steps of half a microsecond."""
        return round((end.at_s - self.at_s) / 0.5e-6) * 0.5e-3


class Graph:
    def __init__(self, cuda: SimulatedCuda) -> None:
        self.cuda, self.uploaded = cuda, False
        self.operations: list[Callable[[], float]] = []

    def capture_end(self) -> None:
        """CUDAGraph.cpp: what cudaStreamEndCapture refuses is raised before anything is put back."""
        broken, self.cuda.broken = self.cuda.broken, ""
        self.cuda.capturing = None
        if broken:
            raise RuntimeError(f"CUDA error: {broken}\nCUDA kernel errors might be reported later")
        self.cuda.generator_capturing = False

    def replay(self) -> None:
        self.cuda.host_s += REPLAY_S if self.uploaded else UPLOAD_S
        self.uploaded = True
        self.cuda.advance(lambda: self.cuda.graph_start_s)
        for operation in self.operations:
            self.cuda.advance(lambda run=operation: self.cuda.node_s + run())


class SimulatedCuda:
    def __init__(self, cache_byte: int = 1 << 14) -> None:
        self.host_s = self.device_s = 0.0
        self.busy_s = 0.0
        """For how long it has been loaded."""
        self.idle_hz, self.rise_s = CLOCK_HZ, 0.0
        """The clock of an idle device, and the load after which it runs at CLOCK_HZ."""
        self.stall: Callable[[], float] = lambda: 0.0
        """Host seconds lost while an operation is queued."""
        self.graph_start_s = self.node_s = self.event_s = 0.0
        """Device seconds before the first kernel of a graph, before each, and to record an event."""
        self.cache_byte = cache_byte
        self.cached: OrderedDict[object, int] = OrderedDict()
        self.capturing: Graph | None = None
        self.broken = ""
        """Why the capture that is going on cannot be ended."""
        self.broken_by_shortage = ""
        """The same, should memory run out in it."""
        self.generator_capturing = False
        self.stream = "default"
        self.keeps_graphs = False
        self.faulty = False
        """Whether a kernel wrote to an illegal address: every later call fails, in this process."""
        self.cached_byte = 0
        self.slow_after_s = float("inf")
        self.flushes = 0
        self.largest = 0
        """Elements of the largest slow kernel that ran."""

    # ---- what the clocks call

    def host_now(self) -> float:
        return self.host_s

    def Event(self, enable_timing: bool) -> Event:
        assert enable_timing
        return Event(self)

    def CUDAGraph(self, keep_graph: bool = False) -> Graph:
        if keep_graph and not self.keeps_graphs:
            raise TypeError("as of a torch whose graphs cannot be looked into")
        return Graph(self)

    @contextlib.contextmanager
    def graph(self, graph: Graph) -> Iterator[None]:
        """As torch/cuda/graphs.py: `__exit__` restores the stream only after `capture_end` has succeeded."""
        before, self.stream = self.stream, "capture"
        self.capturing, self.generator_capturing = graph, True
        try:
            yield
        finally:
            graph.capture_end()
            self.stream = before

    def current_stream(self) -> str:
        return self.stream

    def default_stream(self) -> str:
        return "default"

    def refuse(self) -> None:
        """What a call does that is not permitted in a capture: it fails, and so does the capture's end."""
        self.broken = "operation failed due to a previous error during capture"
        raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing\n{ADVICE}")

    def uniform_(self) -> None:
        """A draw from the default generator; the sentence is that of torch 2.11's libtorch_cuda.so."""
        if self.generator_capturing:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
        self.launch(lambda: 1e-6)

    def _sleep(self, cycles: int) -> None:
        """A kernel that counts the device's own clock, which rises while the device is loaded."""

        def spin() -> float:
            left, seconds = float(cycles), 0.0
            while left >= 1:
                risen = min(1.0, (self.busy_s + seconds) / self.rise_s) if self.rise_s else 1.0
                rate = self.idle_hz + risen * (CLOCK_HZ - self.idle_hz)
                step_s = min(left / rate, 1e-3)
                left, seconds = left - step_s * rate, seconds + step_s
            return seconds

        self.launch(spin)

    def synchronize(self) -> None:
        if self.faulty:
            raise torch.AcceleratorError(f"CUDA error: an illegal memory access was encountered\n{ADVICE}")
        self.host_s = max(self.host_s, self.device_s)

    # ---- what kernels do

    def advance(self, operation: Callable[[], float]) -> float:
        """Let the device do what was queued by now; the time at which it will have ended."""
        begin = max(self.device_s, self.host_s)
        if begin - self.device_s > IDLE_AFTER_S:
            self.busy_s = 0.0
        seconds = operation()
        self.device_s = begin + seconds
        self.busy_s += seconds
        return self.device_s

    def run(self, seconds: float) -> float:
        """Queue one operation of this length; the time at which it will have ended."""
        return self.queue(lambda: seconds)

    def queue(self, operation: Callable[[], float]) -> float:
        self.host_s += QUEUE_S + self.stall()
        return self.advance(operation)

    def launch(self, operation: Callable[[], float]) -> None:
        """Queue a kernel, or capture it. `operation` does its work and says how long it takes."""
        if self.capturing is not None:
            self.capturing.operations.append(operation)
        else:
            self.queue(operation)

    def touch(self, slot: object, byte: int) -> bool:
        """Whether the slot was cached; it is now."""
        found = slot in self.cached
        self.cached_byte += 0 if found else byte
        self.cached[slot] = byte
        self.cached.move_to_end(slot)
        while self.cached_byte > self.cache_byte and len(self.cached) > 1:
            self.cached_byte -= self.cached.popitem(last=False)[1]
        return found

    def flush(self) -> None:
        def evict() -> float:
            self.cached.clear()
            self.cached_byte = 0
            self.flushes += 1
            return 50e-6

        self.launch(evict)


class Doubling(Problem):
    """y = 2 x: a kernel for the simulated device."""

    operator = "doubling"
    implementations = tuple(
        Implementation(name, "", ("cuda",), {"float32": (0, 0)})
        for name in (
            *("good", "escaping", "uncapturable", "wrong", "breaking", "allocating", "slow", "exhausting"),
            *("raising", "faulting", "blocking", "stuck", "stuck_at_first"),
        )
    )
    size: int
    seconds_each: float = 0.0
    """Added to the kernel's time for each element: what makes a large one hopeless."""

    def probe(self) -> Doubling:
        return self.model_copy(update={"size": min(self.size, 64)})

    @property
    def flop(self) -> int:
        return self.size

    @property
    def byte_read(self) -> int:
        return 4 * self.size

    @property
    def byte_written(self) -> int:
        return 4 * self.size


Run = Callable[[Doubling, torch.Tensor, torch.Tensor], None]
"""What each call of a launch does, of its problem, x and y."""


class Kernels:
    """Implementations of the operator on a simulated device, most of which misbehave."""

    of_calls = ("good", "wrong", "breaking", "slow", "escaping", "uncapturable", "exhausting")
    """Those of which a method is what each call does; the others build their launch."""
    whole = ("allocating", "raising", "faulting", "stuck", "stuck_at_first", "declining")

    def __init__(self, cuda: SimulatedCuda, cold_s: float, warm_s: float) -> None:
        self.cuda, self.cold_s, self.warm_s = cuda, cold_s, warm_s
        self.runs = itertools.count(1)

    def implementations(self) -> dict[str, Any]:
        """Name -> what builds a launch."""
        built = {name: self.built(getattr(self, name)) for name in self.of_calls}
        whole = {name: getattr(self, name) for name in self.whole}
        return built | whole | {"blocking": self.built(self.blocking, blocks=True)}

    def kernel(self, x: torch.Tensor, y: torch.Tensor, factor: float = 2.0) -> Callable[[], float]:
        def operation() -> float:
            torch.mul(x, factor, out=y)
            slow = 1.3 if self.cuda.device_s > self.cuda.slow_after_s else 1.0
            return slow * (self.warm_s if self.cuda.touch(x.data_ptr(), 2 * x.nbytes) else self.cold_s)

        return operation

    def built(self, run: Run, **facts: Any) -> Any:
        """The implementation of which each call is `run`."""

        def build(problem: Doubling, x: torch.Tensor) -> Launch:
            y = torch.empty_like(x)

            def call() -> torch.Tensor:
                run(problem, x, y)
                return y

            return Launch(call, (y,), **facts)

        return build

    def good(self, _: Doubling, x: torch.Tensor, y: torch.Tensor) -> None:
        self.cuda.launch(self.kernel(x, y))

    def wrong(self, _: Doubling, x: torch.Tensor, y: torch.Tensor) -> None:
        self.cuda.launch(self.kernel(x, y, 2.001))

    def breaking(self, _: Doubling, x: torch.Tensor, y: torch.Tensor) -> None:
        """Right at first, wrong once it has run a while."""
        self.cuda.launch(lambda: self.kernel(x, y, 2.0 if next(self.runs) < 50 else 3.0)())

    def slow(self, problem: Doubling, x: torch.Tensor, y: torch.Tensor) -> None:
        """A fixed time for each element, as where a type has no fast path."""

        def operation() -> float:
            self.cuda.largest = max(self.cuda.largest, x.numel())
            torch.mul(x, 2, out=y)
            return problem.seconds_each * x.numel()

        self.cuda.launch(operation)

    def escaping(self, problem: Doubling, x: torch.Tensor, y: torch.Tensor) -> None:
        """Runs on another stream, which a capture does not see."""
        if self.cuda.capturing is None:
            self.good(problem, x, y)

    def uncapturable(self, problem: Doubling, x: torch.Tensor, y: torch.Tensor) -> None:
        if self.cuda.capturing is not None:
            self.cuda.refuse()
        self.good(problem, x, y)

    def blocking(self, problem: Doubling, x: torch.Tensor, y: torch.Tensor) -> None:
        """The host waits until it is done, as for a copy of pageable memory; in a capture it may not."""
        self.uncapturable(problem, x, y)
        self.cuda.synchronize()

    def exhausting(self, problem: Doubling, x: torch.Tensor, y: torch.Tensor) -> None:
        """Memory runs out while it is captured; whether that breaks the capture, too, is up to the device."""
        if self.cuda.capturing is not None:
            self.cuda.broken = self.cuda.broken_by_shortage
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate 2.00 GiB.\n{ADVICE}")
        self.good(problem, x, y)

    def allocating(self, problem: Doubling, x: torch.Tensor) -> Launch:
        """Each call writes memory of its own."""

        def call() -> torch.Tensor:
            y = torch.empty_like(x)
            self.good(problem, x, y)
            return y

        return Launch(call)

    def raising(self, problem: Doubling, x: torch.Tensor) -> Launch:
        raise RuntimeError("no tile fits")

    def faulting(self, problem: Doubling, x: torch.Tensor) -> Launch:
        def call() -> torch.Tensor:
            self.cuda.faulty = True
            return x

        return Launch(call, (x,))

    def stuck(self, problem: Doubling, x: torch.Tensor, kernels: Sequence[str] = ("young",)) -> Launch:
        """As the tuner does with kernels of these names, of which only `old` ever ends."""
        (name, *_), given_up = trusted([SimpleNamespace(kernel=kernel) for kernel in kernels])
        if name.kernel != "old":
            self.cuda.faulty = True
            raise Stuck(name.kernel, f"{name.kernel} has not ended after 30 s", "timeout")
        return replace(self.built(self.good)(problem, x), passed_over=tuple(given_up))

    def stuck_at_first(self, problem: Doubling, x: torch.Tensor) -> Launch:
        return self.stuck(problem, x, ("young", "new", "old"))

    def declining(self, problem: Doubling, x: torch.Tensor) -> Launch:
        raise Unsupported(f"the library takes no {problem.size} elements")


def doubling(cuda: SimulatedCuda, cold_s: float = COLD_S, warm_s: float = WARM_S) -> Operator:
    """The operator, its kernels on this simulated device."""
    return Operator(
        problem=Doubling,
        inputs=lambda problem, uniform: (uniform(problem.size),),
        reference=lambda problem, x: 2 * x.double(),
        implementations=Kernels(cuda, cold_s, warm_s).implementations(),
        tolerance=lambda problem, implementation: 1e-6,
        examples=[],
    )


class NoTelemetry:
    def light(self) -> bool:
        return False

    def clock_hz(self) -> float | None:
        return None

    def start(self) -> None:
        pass

    def stop(self) -> dict[str, Any]:
        return {}


def simulated_bench(cuda: SimulatedCuda, protocol: Protocol | None = None) -> Bench:
    return Bench(
        device=torch.device("cpu"),
        cache_byte=cuda.cache_byte,
        protocol=protocol or Protocol(),
        clock=GraphClock(cuda, cuda.flush, cuda.host_now),
        spare_clock=StreamClock(cuda, cuda.flush, cuda.host_now),
        alive=partial(alive, cuda, cuda),
        telemetry=NoTelemetry(),
        synchronize=cuda.synchronize,
        free_byte=lambda: 1 << 30,
        seed=1,
        now=cuda.host_now,
    )
