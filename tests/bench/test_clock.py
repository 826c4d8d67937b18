"""The CUDA clocks on a simulated device, where the truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bench.sampling.protocol import Protocol
from bench.worker.blocking_kernel import BlockingKernel, LateError
from bench.worker.cache_ring import RingSampler, launches_per_sample
from bench.worker.clock import CaptureError, GraphClock, HostClock, StreamClock
from tests.bench.simulated import CLOCK_HZ, UPLOAD_S, SimulatedCuda

Kernel = Callable[[], None]

Make = type[StreamClock] | type[GraphClock]
BOTH = pytest.mark.parametrize("make", [StreamClock, GraphClock])


def clock_of(make: Make, **state: float) -> StreamClock | GraphClock:
    """The clock of a simulated device, `clock.cuda`, in this state."""
    cuda = SimulatedCuda()
    vars(cuda).update(state)
    return make(cuda, cuda.flush, cuda.host_now)


def kernels(cuda: SimulatedCuda, count: int, seconds: float) -> list[Kernel]:
    return [lambda: cuda.launch(lambda: seconds)] * count


@BOTH
@pytest.mark.parametrize("seconds", [1e-6, 20e-6, 3e-3])
@pytest.mark.parametrize("count", [1, 7, 300])
def test_measures_the_kernels_and_not_the_host(make: Make, seconds: float, count: int) -> None:
    """1 us kernels are queued at 4 us each: only work queued behind the blocking kernel is timed rightly."""
    clock = clock_of(make)
    batch = clock.batch(kernels(clock.cuda, count, seconds), False)
    for _ in range(3):
        assert batch() == pytest.approx(count * seconds, abs=1.1e-6)


@BOTH
def test_the_flush_is_not_in_the_time(make: Make) -> None:
    cuda = (clock := clock_of(make)).cuda
    batch = clock.batch(kernels(cuda, 10, 10e-6), True)
    assert batch() == pytest.approx(100e-6, abs=1.1e-6)
    before = cuda.flushes
    batch()
    assert cuda.flushes == before + 1


def test_the_first_replay_is_not_in_the_time() -> None:
    """It uploads the graph, milliseconds for a large one."""
    cuda = (clock := clock_of(GraphClock)).cuda
    batch = clock.batch(kernels(cuda, 10, 10e-6), False)
    before = cuda.device_s
    assert batch() == pytest.approx(100e-6, abs=1.1e-6)
    assert cuda.device_s - before < UPLOAD_S / 5  # nor does the spin of every sample last as long


def test_a_queue_too_long_is_refused() -> None:
    clock = clock_of(StreamClock)
    with pytest.raises(ValueError, match="301 launches do not fit the queue of 300"):
        clock.batch(kernels(clock.cuda, 301, 1e-6), False)


@BOTH
def test_no_sample_has_more_launches_than_the_clock_takes(make: Make) -> None:
    """Whole turns, and parts of a turn, are rounded: of a stream's 300 launches 302 became an error's row."""
    for seconds in (1e-6, 1.3e-6, 2e-6, 3.7e-6, 20e-6, 3e-3):
        clock = clock_of(make)
        # On known devices two events are up to 4 us apart, so that samples of short launches need hundreds.
        clock.cuda.event_s = 4e-6
        for ring in (1, 2, 149, 150, 151, 160, 197, 299, 300, 301, 449, 450, 599, 601, 1031, 4096):
            calls = kernels(clock.cuda, ring, seconds)
            for flushed in (False, True):
                turns = RingSampler(clock, calls, launches_per_sample(clock, calls, Protocol()), flushed)
                assert max(turns.sizes) <= clock.most_launches
                assert sum(turns.sizes) % ring == 0 and min(turns.sizes) >= 1


# ---- the blocking kernel


@pytest.mark.parametrize("rise_s", [0.0, 0.02, 0.06, 0.3])
def test_the_spin_rate_is_that_of_a_loaded_device(rise_s: float) -> None:
    """An idle H100 runs at 345 of its 1980 MHz, and takes a while to leave them."""
    cuda = SimulatedCuda()
    cuda.idle_hz, cuda.rise_s = 0.17 * CLOCK_HZ, rise_s
    assert BlockingKernel(cuda).cycles_per_s == pytest.approx(CLOCK_HZ, rel=0.03)


@BOTH
def test_a_sample_over_which_the_host_was_late_is_taken_again(make: Make) -> None:
    """The host is interrupted for 3 ms, once in a while: no sample shows it, and the spin stays short."""
    cuda = (clock := clock_of(make)).cuda
    batch = clock.batch(kernels(cuda, 50, 2e-6), False)
    chance = random.Random(2)
    often = 1 / 3000 if make is StreamClock else 1 / 200  # of an operation, of which a graph's sample has few
    cuda.stall = lambda: 3e-3 * (chance.random() < often)
    for _ in range(400):
        assert batch() == pytest.approx(100e-6, abs=1.1e-6)
    assert clock.late > 0
    cuda.stall = lambda: 0.0
    begin = cuda.device_s
    batch()
    assert cuda.device_s - begin < 1e-3


def test_a_spin_that_is_a_little_too_short_does_not_make_every_sample_late() -> None:
    """The first queueing was quick, all later ones take three times as long: one doubling is enough."""
    clock = clock_of(StreamClock)
    batch = clock.batch(kernels(clock.cuda, 40, 5e-6), False)
    clock.cuda.stall = lambda: 8e-6
    for _ in range(50):
        assert batch() == pytest.approx(200e-6, abs=1.1e-6)
    assert 0 < clock.late < 5


def test_what_is_taken_again_out_of_its_turn_finds_its_data_in_memory() -> None:
    cuda = SimulatedCuda()
    flushes: list[float] = []
    clock = StreamClock(cuda, lambda: flushes.append(cuda.device_s), cuda.host_now)
    for cold in (False, True):
        batch = clock.batch(kernels(cuda, 20, 5e-6), False, cold=cold)
        batch()
        assert not flushes
        late = clock.late
        cuda.stall = iter([*[0.0] * 9, 3e-3, *[0.0] * 1000]).__next__  # while the calls are queued
        batch()
        assert clock.late > late and bool(flushes) == cold
        cuda.stall = lambda: 0.0


@BOTH
def test_a_host_that_has_become_slower_is_met_by_a_longer_spin(make: Make) -> None:
    clock = clock_of(make)
    batch = clock.batch(kernels(clock.cuda, 20, 5e-6), False)
    clock.cuda.stall = lambda: 400e-6
    for _ in range(5):
        assert batch() == pytest.approx(100e-6, abs=1.1e-6)
    late = clock.late
    assert 2 <= late <= 9
    for _ in range(50):
        assert batch() == pytest.approx(100e-6, abs=1.1e-6)
    assert clock.late == late, "what was found to be long enough is kept"


def test_a_host_that_is_always_late_is_said_to_be() -> None:
    cuda = (clock := clock_of(GraphClock)).cuda
    batch = clock.batch(kernels(cuda, 10, 10e-6), False)
    cuda.stall = lambda: 1.0
    begin = cuda.device_s
    with pytest.raises(LateError, match=r"^the host was late 14 times in a row: .* at last for 0\.5 s$"):
        batch()
    assert cuda.device_s - begin < 14 * 4.0, "no spin lasts longer than half a second"


# ---- what a sample holds beside the launches


@pytest.mark.parametrize("start_s", [0.0, 1.5e-6, 4e-6, 12e-6])
@pytest.mark.parametrize("node_s", [0.0, 1.2e-6])
def test_the_start_of_a_graph_is_measured(start_s: float, node_s: float) -> None:
    clock = clock_of(GraphClock, graph_start_s=start_s, node_s=node_s)
    assert clock.start_s == pytest.approx(start_s, abs=0.6e-6)
    assert clock.resolution_s == max(0.5e-6, clock.start_s)


def test_a_start_that_makes_no_sense_makes_no_samples_of_seconds() -> None:
    """The interval reaches what the clock may be off instead."""
    clock = clock_of(GraphClock)
    vars(clock)["start_s"] = 0.5
    calls = kernels(clock.cuda, 1, 10e-6)
    assert 0.02 <= launches_per_sample(clock, calls, Protocol()) * 10e-6 < 0.03
    assert clock.resolution_s == 0.5


def test_the_stream_clock_measures_an_empty_pair_of_events() -> None:
    clock = clock_of(StreamClock)
    assert clock.start_s == 0.0 and clock.resolution_s == 0.5e-6
    clock = clock_of(StreamClock, event_s=1.5e-6)
    assert clock.start_s == pytest.approx(1.5e-6) == clock.resolution_s


def test_a_clock_of_a_device_that_captures_nothing_can_be_made() -> None:
    """Else each new worker would be spoilt before it is asked for the stream clock."""
    cuda = SimulatedCuda()
    cuda.launch = lambda operation: cuda.refuse() if cuda.capturing else cuda.queue(operation)  # type: ignore
    clock = GraphClock(cuda, cuda.flush, cuda.host_now)
    assert not clock.distrust and cuda.stream == "default"
    with pytest.raises(CaptureError, match=r"^CUDA error: operation not permitted when stream is capturing$"):
        clock.start_s  # noqa: B018
    assert clock.distrust


def test_host_clock_runs_every_call_in_order_and_keeps_the_last_result() -> None:
    """It has no start and is never late."""
    seen: list[int] = []
    flushed: list[bool] = []
    clock = HostClock(lambda: flushed.append(True))
    batch = clock.batch([lambda i=i: seen.append(i) or i for i in range(5)], True)  # type: ignore[misc]
    assert batch() > 0 and seen == [0, 1, 2, 3, 4]
    assert batch.written == [4] and flushed == [True]
    assert clock.start_s is None and clock.late == 0
