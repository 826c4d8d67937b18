"""The CUDA clocks on a simulated device, where the truth is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.measure.clock import CaptureError, GraphClock, HostClock, StreamClock
from tests.bench.simulated import QUEUE_S, UPLOAD_S, SimulatedCuda

Kernel = Callable[[], None]


def kernels(cuda: SimulatedCuda, count: int, seconds: float) -> list[Kernel]:
    return [lambda: cuda.launch(lambda: seconds)] * count


@pytest.mark.parametrize("make", [StreamClock, GraphClock])
@pytest.mark.parametrize("seconds", [1e-6, 20e-6, 3e-3])
@pytest.mark.parametrize("count", [1, 7, 500])
def test_measures_the_kernels_and_not_the_host(
    make: type[StreamClock] | type[GraphClock], seconds: float, count: int
) -> None:
    """1 us kernels are queued at 4 us each: only work queued behind the spin is timed rightly."""
    cuda = SimulatedCuda()
    batch = make(cuda, cuda.flush, cuda.host_now).batch(kernels(cuda, count, seconds), False)
    for _ in range(3):
        assert batch() == pytest.approx(count * seconds, abs=1.1e-6)


def test_without_the_spin_the_host_would_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    cuda = SimulatedCuda()
    monkeypatch.setattr(cuda, "_sleep", lambda cycles: cuda.run(1e-9))
    clock = StreamClock.__new__(StreamClock)
    clock.cuda, clock.flush, clock.now, clock.cycles_per_s = cuda, cuda.flush, cuda.host_now, 1.5e9
    batch = clock.batch(kernels(cuda, 100, 1e-6), False)
    assert batch() == pytest.approx(100 * QUEUE_S, rel=0.1)


@pytest.mark.parametrize("make", [StreamClock, GraphClock])
def test_the_flush_is_not_in_the_time(make: type[StreamClock] | type[GraphClock]) -> None:
    cuda = SimulatedCuda()
    batch = make(cuda, cuda.flush, cuda.host_now).batch(kernels(cuda, 10, 10e-6), True)
    assert batch() == pytest.approx(100e-6, abs=1.1e-6)
    before = cuda.flushes
    batch()
    assert cuda.flushes == before + 1


def test_the_first_replay_is_not_in_the_time() -> None:
    """It uploads the graph, milliseconds for a large one."""
    cuda = SimulatedCuda()
    batch = GraphClock(cuda, cuda.flush, cuda.host_now).batch(kernels(cuda, 10, 10e-6), False)
    before = cuda.device_s
    assert batch() == pytest.approx(100e-6, abs=1.1e-6)
    assert cuda.device_s - before < UPLOAD_S / 5  # nor does the spin of every sample last as long


def test_a_queue_too_long_is_refused() -> None:
    cuda = SimulatedCuda()
    with pytest.raises(ValueError, match="1001 launches do not fit the queue of 1000"):
        StreamClock(cuda, cuda.flush, cuda.host_now).batch(kernels(cuda, 1001, 1e-6), False)


def test_what_cannot_be_captured_says_so() -> None:
    def refuse() -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    cuda = SimulatedCuda()
    with pytest.raises(CaptureError, match=r"^operation not permitted when stream is capturing$"):
        GraphClock(cuda, cuda.flush, cuda.host_now).batch([refuse], False)


def test_enqueue_time_is_the_hosts() -> None:
    cuda = SimulatedCuda()
    (kernel,) = kernels(cuda, 1, 1e-3)
    assert StreamClock(cuda, cuda.flush, cuda.host_now).enqueue_s(kernel) == pytest.approx(QUEUE_S, rel=0.01)


def test_the_spin_rate_is_measured() -> None:
    cuda = SimulatedCuda()
    assert GraphClock(cuda, cuda.flush, cuda.host_now).cycles_per_s == pytest.approx(1.5e9, rel=0.01)


def test_host_clock_runs_every_call_in_order_and_keeps_the_last_result() -> None:
    seen: list[int] = []

    def call(i: int) -> Callable[[], int]:
        def run() -> int:
            seen.append(i)
            return i

        return run

    flushed: list[bool] = []
    batch = HostClock(lambda: flushed.append(True)).batch([call(i) for i in range(5)], True)
    assert batch() > 0
    assert seen == [0, 1, 2, 3, 4]
    assert batch.written == [4]
    assert flushed == [True]
