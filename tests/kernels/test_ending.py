"""Kernels whose launch never ends or breaks the device, and choosing without them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.launching import ending
from bench.launching.ending import TRIED, Stuck, passing_over
from bench.spec import Launch
from kernels.gemm.problem import Gemm
from kernels.softmax.problem import Softmax
from tests.kernels.devices import Tuner

tuning = pytest.importorskip("bench.launching.tuning")
choosing = pytest.importorskip("kernels.gemm.choosing")
softmax = pytest.importorskip("kernels.softmax.launch")


class Configuration(NamedTuple):
    """Of a kernel that has a name."""

    kernel: str
    size: int

    def __str__(self) -> str:
        return f"{self.kernel} {self.size}"


YOUNG = [Configuration("young", 1), Configuration("young", 2)]
BOTH = [*YOUNG, Configuration("old", 1), Configuration("old", 2)]


class Gpu(Tuner):
    """On which kernels of some names get stuck: what its stream answers after one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch, folder)
        self.answers: dict[str, Callable[[], bool]] = {}
        self.has_ended = lambda: self.answers.get(self.launched[-1].kernel, lambda: True)()
        monkeypatch.setattr(ending, "HANG_S", 0.0)

    def run(self, candidates: list[Configuration] = BOTH) -> Launch:
        """The launch that is chosen, called once."""
        made = self.tuned(candidates)
        made.call()
        return made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    return Gpu(monkeypatch, tmp_path / "tuned")


def broken() -> bool:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (lambda: False, "timeout", "young 1 has not ended after 0 s"),
        (broken, "error", "young 1: RuntimeError: CUDA error: an illegal memory access was encountered"),
    ],
    ids=["hangs", "breaks"],
)
def test_a_launch_that_gets_stuck_is_told_by_its_kernel(
    gpu: Gpu, answer: Callable[[], bool], status: str, says: str
) -> None:
    gpu.answers["young"] = answer
    with pytest.raises(Stuck, match=says) as stuck:
        gpu.run()
    assert (stuck.value.kernel, stuck.value.status) == ("young", status)
    assert gpu.launched == BOTH[:1], "nothing may be asked of the device any more"
    assert not gpu.folder.exists()


def test_what_takes_a_while_is_waited_for(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "HANG_S", 1e9)
    answers = iter([False, False, True])
    gpu.answers["young"] = lambda: next(answers, True)
    assert gpu.run().passed_over == () and gpu.launched[-1] == YOUNG[0]
    assert next(answers, None) is None


def test_a_kernel_that_got_stuck_is_passed_over_in_this_run_and_tried_by_the_next(gpu: Gpu) -> None:
    gpu.answers["young"] = lambda: False
    for _ in range(2):  # chosen anew, then remembered
        with passing_over({"young": ["young 1 has not ended after 0 s"]}):
            launch = gpu.run()
        assert launch.passed_over == ("young: young 1 has not ended after 0 s",)
        assert {one.kernel for one in gpu.launched} == {"old"}
    assert not gpu.folder.exists(), "no choice for other runs"
    gpu.start()
    gpu.answers = {}
    assert gpu.run().passed_over == () and gpu.launched[-1] == YOUNG[0]


def test_what_was_chosen_before_it_got_stuck_is_not_taken(gpu: Gpu) -> None:
    gpu.run()
    assert gpu.launched[-1] == YOUNG[0] and len(list(gpu.folder.glob("*.json"))) == 1
    gpu.start()
    with passing_over({"young": ["broke"]}):
        gpu.run()
        assert gpu.launched[-1].kernel == "old"
    gpu.start()
    gpu.run()
    assert gpu.launched[-1] == YOUNG[0]


def test_a_check_passes_it_over_too(gpu: Gpu) -> None:
    gpu.answers["young"] = lambda: False
    with tuning.first_that_compiles(), passing_over({"young": ["broke"], "other": ["broke"]}):
        assert gpu.run().passed_over == ("young: broke",)
    assert set(gpu.launched) == {BOTH[2]}


def test_where_there_is_no_other_it_is_tried_a_few_times(gpu: Gpu) -> None:
    with passing_over({"young": ["broke"] * (TRIED - 1)}):
        assert gpu.run(YOUNG).passed_over == ()
    gpu.start()
    reasons = ["young 7 has not ended", *["broke"] * (TRIED - 1)]
    with passing_over({"young": reasons}), pytest.raises(RuntimeError) as given_up:
        gpu.run(YOUNG)
    assert str(given_up.value) == "young got stuck 3 times in this run, first: young 7 has not ended"
    with passing_over({"young": reasons}):
        assert gpu.run([*YOUNG, BOTH[2]]).passed_over == ("young: young 7 has not ended",)


def test_outside_nothing_is_passed_over(gpu: Gpu) -> None:
    with pytest.raises(KeyError), passing_over({"young": ["broke"]}):
        raise KeyError
    assert gpu.run().passed_over == ()


def test_configurations_are_told_apart_by_the_kernels_that_they_are_of() -> None:
    problem = Gemm(dtype="float16", m=4096, n=4096, k=4096, layout="NN", beta=0, pitch="tight")
    choices = choosing.choices_of(problem, "triton", choosing.Device((9, 0), 132))
    assert {ending.name_of(choice) for choice in choices} == {"persistent", "tma"}
    rows = softmax.candidates(Softmax(direction="forward", rows=64, length=65536, dtype="float16"))
    assert {ending.name_of(one) for one in rows} == {"Tile"}
