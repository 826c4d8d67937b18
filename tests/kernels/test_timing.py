"""Choosing the quickest of several launches on simulated devices, whose clocks do what those of GPUs do."""

from __future__ import annotations

import contextlib
import gc
import random
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.launching import timing
from bench.spec import Launch, cause
from tests.kernels.devices import new_process
from tests.kernels.tensors import Dispatches

EVICT_S = 40e-6


class Drifting:
    """A device at rest: an eighth of its speed at first, all of it after 40 ms of work, then ever less.

    A launch takes its seconds at full speed, and up to a hundredth more or less by chance.
    """

    def __init__(self, launches_s: dict[str, float], per_second: float, seed: int = 0) -> None:
        """`per_second`: the speed lost in a second of work, as a share."""
        self.launches_s, self.per_second = launches_s, per_second
        self.worked_s = 0.0
        self.called = ""
        self.chance = random.Random(seed)
        self.evictions = 0

    @property
    def makers(self) -> list[Callable[[], timing.Call]]:
        def maker(name: str) -> Callable[[], timing.Call]:
            return lambda: lambda: setattr(self, "called", name)

        return [maker(name) for name in self.launches_s]

    def work(self, seconds: float) -> float:
        speed = min(1.0, 0.125 + self.worked_s / 0.04) * max(0.5, 1 - self.per_second * self.worked_s)
        taken = seconds / speed * self.chance.uniform(0.99, 1.01)
        self.worked_s += taken
        return taken

    def launch_s(self, call: timing.Call) -> float:
        self.called = ""
        call()
        return self.launches_s.get(self.called, 0.0)

    def once_s(self, call: timing.Call) -> float:
        return self.work(self.launch_s(call)) + 20e-6

    def captured(self, call: timing.Call, launches: int) -> timing.Replay:
        self.evictions += launches
        seconds = launches * (self.launch_s(call) + EVICT_S)

        def replay(count: int) -> list[float]:
            assert call is not None  # kept, as a graph must keep what it was captured from
            return [self.work(seconds) for _ in range(count)]

        return replay

    def chosen(self) -> str:
        place, _ = timing.quickest(self.makers, self)
        return list(self.launches_s)[place]


def twelve(best: int, best_s: float) -> dict[str, float]:
    """Candidates, the best of which is a tenth quicker than the next, 12 % than the one after, and so on."""
    others = iter(range(1, 12))
    return {
        str(place): best_s * (1.0 if place == best else 1.1 + 0.02 * (next(others) - 1))
        for place in range(12)
    }


@pytest.mark.parametrize("best_s", [20e-6, 100e-6, 300e-6])
def test_the_first_candidate_is_not_charged_for_a_cold_clock(best_s: float) -> None:
    for seed in range(5):
        assert Drifting(twelve(0, best_s), 0.0, seed).chosen() == "0"


@pytest.mark.parametrize("best_s", [20e-6, 100e-6, 3e-3])
def test_a_clock_that_falls_while_the_list_is_walked_does_not_favour_its_beginning(best_s: float) -> None:
    """By 40 % in a second: the device grows hot. The best is last."""
    slow = {str(place): best_s * (1.0 if place == 11 else 1.04) for place in range(12)}
    assert [Drifting(slow, 0.4, seed).chosen() for seed in range(5)] == ["11"] * 5


def test_the_time_is_that_of_the_launch_without_eviction() -> None:
    for seconds in (2e-6, 50e-6, 1e-3):
        place, found = timing.quickest((device := Drifting(twelve(4, seconds), 0.0)).makers, device)
        assert place == 4 and found == pytest.approx(seconds, abs=0.005 * (seconds + EVICT_S))
    assert device.evictions > 0


@pytest.mark.parametrize("best_s", [2e-6, 50e-6, 1e-3, 10e-3])
def test_a_question_of_twelve_candidates_takes_about_a_second(best_s: float) -> None:
    device = Drifting(twelve(3, best_s), 0.0)
    device.chosen()
    assert timing.WARM_UP_S < device.worked_s < 1.5


def test_one_candidate_that_is_left_is_timed_and_a_launch_of_no_length_is_no_division_by_zero() -> None:
    assert timing.quickest((device := Drifting({"only": 1e-3}, 0.0)).makers, device)[0] == 0
    assert timing.quickest((device := Drifting({"a": 0.0, "b": 1e-3}, 0.0)).makers, device)[0] == 0


def test_at_most_one_launch_is_there_at_a_time() -> None:
    """Its outputs may take up most of the device."""
    device = Drifting(twelve(3, 50e-6), 0.0)
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Made:
        def __init__(self, make: Callable[[], timing.Call]) -> None:
            assert not alive
            alive.add(self)
            self.call = make()

        def __call__(self) -> object:
            return self.call()

    def maker(make: Callable[[], timing.Call]) -> Callable[[], timing.Call]:
        return lambda: Made(make)

    place, _ = timing.quickest([maker(make) for make in device.makers], device)
    assert place == 3


class FakeCuda:
    """What GraphClock uses of torch.cuda, as torch/cuda/graphs.py and streams.py of 2.11 and 2.13 do it.

    It records what is called; 1 ms passes at each.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.streams: list[str] = ["default"]
        self.capturing = self.broken = False

    def note(self, what: str) -> None:
        self.log.append(what)

    def get_device_properties(self, device: torch.device) -> Any:
        return SimpleNamespace(L2_cache_size=4096)

    def Stream(self) -> str:
        return "side"

    @contextlib.contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        self.streams.append(stream)
        try:
            yield
        finally:
            self.streams.pop()

    def synchronize(self) -> None:
        self.note("synchronize")

    def empty_cache(self) -> None:
        """Gives back what the allocator keeps."""

    def Event(self, enable_timing: bool) -> Any:
        assert enable_timing
        event = SimpleNamespace(at=0)

        def record() -> None:
            self.note("event")
            event.at = len(self.log)

        event.record = record
        event.synchronize = lambda: self.note("wait")
        event.elapsed_time = lambda end: float(end.at - event.at)
        return event

    def CUDAGraph(self) -> Any:
        def begin() -> None:
            assert self.streams[-1] == "side"  # a capture on the default stream is an error
            self.note("begin")
            self.capturing = True

        def end() -> None:
            self.note("end")
            broken, self.capturing, self.broken = self.broken, False, False
            if broken:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

        return SimpleNamespace(capture_begin=begin, capture_end=end, replay=lambda: self.note("replay"))

    def refuse(self, error: BaseException) -> None:
        """What a call does that is not permitted in a capture: it fails, and so does the capture's end."""
        self.broken = True
        raise error


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(timing.GraphClock, "evict", lambda self: fake.note("evict"))
    return fake


def test_each_launch_of_a_graph_comes_after_an_eviction_and_replays_are_between_events(
    cuda: FakeCuda,
) -> None:
    clock = timing.GraphClock(cuda, torch.device("cpu"))
    cuda.log.clear()
    replay = clock.captured(lambda: cuda.note("call"), 2)
    assert cuda.log == ["synchronize", "begin", "evict", "call", "evict", "call", "end"]
    cuda.log.clear()
    assert replay(2) == [2e-3, 2e-3]
    assert cuda.log == ["evict", "evict", "event", "replay", "event", "replay", "event", "synchronize"]
    cuda.log.clear()
    assert clock.once_s(lambda: cuda.note("call")) == 2e-3
    assert cuda.log == ["synchronize", "event", "call", "event", "wait"]


def test_a_launch_lives_as_long_as_the_graph_that_writes_to_its_outputs(cuda: FakeCuda) -> None:
    class Made:
        def __call__(self) -> None:
            pass

    clock = timing.GraphClock(cuda, torch.device("cpu"))
    made = Made()
    alive = weakref.ref(made)
    replay = clock.captured(made, 1)
    del made
    gc.collect()
    assert alive() is not None
    del replay
    gc.collect()
    assert alive() is None


NOT_PERMITTED = RuntimeError("CUDA error: operation not permitted when stream is capturing")


@pytest.mark.parametrize(
    "error", [NOT_PERMITTED, KeyboardInterrupt(), torch.OutOfMemoryError("CUDA out of memory.")]
)
def test_a_capture_that_fails_leaves_the_stream_as_it_was_and_says_what_broke_it(
    error: BaseException, cuda: FakeCuda
) -> None:
    clock = timing.GraphClock(cuda, torch.device("cpu"))
    with pytest.raises(BaseException) as raised:
        clock.captured(lambda: cuda.refuse(error), 2)
    assert cuda.log[-1] == "end" and cuda.streams == ["default"]
    if error is NOT_PERMITTED:
        assert str(raised.value) == f"RuntimeError: {error}" and isinstance(raised.value, timing.Uncaptured)
    else:  # no fault of the launch
        assert raised.value is error


def test_a_capture_that_cannot_be_ended_says_why(cuda: FakeCuda) -> None:
    clock = timing.GraphClock(cuda, torch.device("cpu"))
    with pytest.raises(timing.Uncaptured, match="previous error during capture"):
        clock.captured(lambda: setattr(cuda, "broken", True), 1)


@pytest.fixture
def tuned(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str, str], tuple[Launch, str]]:
    """Chooses among letters, of which some cannot be captured: the launch, and its letter."""
    tuning = pytest.importorskip("bench.launching.tuning")
    clock = timing.GraphClock(cuda, torch.device("cpu"))
    monkeypatch.setattr(timing, "GraphClock", lambda *_: clock)
    monkeypatch.setattr(tuning, "TUNED", tmp_path)

    def tuned(candidates: str, uncapturable: str) -> tuple[Launch, str]:
        def launch(name: str) -> Launch:
            def call() -> torch.Tensor:
                cuda.note(name)
                if cuda.capturing and name in uncapturable:
                    cuda.refuse(NOT_PERMITTED)
                return torch.empty(0)

            return Launch(call)

        new_process(monkeypatch)
        made: Launch = tuning.tuned(("stream", "one"), list(candidates), launch)
        made.call()
        return made, cuda.log[-1]

    return tuned


@pytest.mark.parametrize("candidates", ["ab", "abc", "abcdef"])
def test_a_candidate_that_cannot_be_captured_is_passed_over(
    candidates: str, tuned: Callable[[str, str], tuple[Launch, str]]
) -> None:
    bad = "".join(random.sample(candidates, random.randrange(1, len(candidates))))
    launch, chosen = tuned(candidates, bad)
    assert chosen not in bad and launch.tuning_s > 0
    assert sorted(launch.passed_over) == [f"{name}: RuntimeError: {NOT_PERMITTED}" for name in sorted(bad)]
    again, same = tuned(candidates, bad)
    assert same == chosen and again.tuning_s == 0 and again.passed_over == launch.passed_over


def test_if_no_candidate_can_be_captured_that_is_the_cause(
    tuned: Callable[[str, str], tuple[Launch, str]],
) -> None:
    with pytest.raises(RuntimeError) as raised:
        tuned("abc", "abc")
    assert cause(raised.value) == f"RuntimeError: {NOT_PERMITTED}"


def test_eviction_reads_twice_the_cache() -> None:
    clock = timing.GraphClock(FakeCuda(), torch.device("cpu"))
    with Dispatches() as dispatches:
        clock.evict()
    assert sum(tensor.nbytes for call in dispatches.calls for tensor in call.read) == 2 * 4096
