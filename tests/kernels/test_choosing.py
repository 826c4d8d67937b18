"""What operators share: torch.compile for one problem at a time, and choosing a configuration."""

from typing import Any

import pytest
import torch

from bench.spec import Launch
from kernels import inductor
from kernels.stream.problem import Stream


def doubled(problem: Stream, x: torch.Tensor) -> torch.Tensor:
    return x * 2 + problem.length


def test_every_problem_of_a_long_sweep_is_compiled_and_none_falls_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dynamo compiles a function for eight shapes and refuses the ninth."""
    compiled: list[Any] = []

    def backend(module: Any, _: Any) -> Any:
        compiled.append(module)
        return module

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *a, **k: compile_(*a, **k, backend=backend))
    for length in range(1, 21):
        problem = Stream(dtype="float32", kind="copy", length=length)
        for _ in range(3):  # as slots of a ring ask
            x = torch.ones(length)
            assert torch.equal(inductor.compiled(doubled, problem)(x), x * 2 + length)
        assert len(compiled) == length
    inductor.compiled.cache_clear()


class Device:
    """Stands in for the clock that candidates are compared by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float]) -> None:
        tuning = pytest.importorskip("kernels.tuning")
        self.timed: list[str] = []
        self.last = ""

        def bench(call: Any, rep: int) -> float:
            call()
            self.timed.append(self.last)
            return seconds[self.last]

        monkeypatch.setattr(tuning.triton.testing, "do_bench_cudagraph", bench)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        tuning._answers.cache_clear()
        self.fastest = tuning.fastest
        self.OutOfResources = tuning.OutOfResources

    def launch(self, candidate: str) -> Launch:
        def call() -> torch.Tensor:
            if candidate.startswith("large"):
                raise self.OutOfResources(300_000, 232_448, "shared memory")
            self.last = candidate
            return torch.empty(0)

        return Launch(call)


def test_the_fastest_candidate_that_fits_is_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, {"a": 3.0, "b": 1.0, "c": 2.0})
    candidates = ["large", "a", "b", "c"]
    assert device.fastest("one", candidates, device.launch) == "b"
    assert device.fastest("one", candidates, device.launch) == "b"
    assert device.timed == ["a", "b", "c"]
    assert device.fastest("another", candidates[:2], device.launch) == "a"
    assert device.fastest("single", ["c"], device.launch) == "c"  # nothing to choose, nothing to time
    assert device.timed == ["a", "b", "c", "a"]


def test_if_none_fits_the_device_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, {})
    with pytest.raises(device.OutOfResources, match="shared memory"):
        device.fastest("one", ["large", "larger"], device.launch)
