"""Choosing over the sweeps of tile and wave quantization, on a device that knows the true waves."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.spec import Launch
from kernels.gemm.operands import Operands
from kernels.gemm.problem import Gemm

choosing = pytest.importorskip("kernels.gemm.choosing")
from kernels.gemm.parts import tiles_of  # noqa: E402
from tests.kernels.devices import Tuner  # noqa: E402
from tests.kernels.gemm_choices import SWEEPS, Case, Outcome, asked_of, cases_of, choosing_ones, played  # noqa: E402

AT = choosing.Device((9, 0), 132)


def true_waves(case: Case, choice: Any, at: Any) -> float:
    """Elements of D that the busiest SM computes; 15 % more for each halving of the largest tile.

    Stream-K shares them evenly, for a tenth more and a tenth of a tile, and so do others that cut up K.
    """
    area = choice.tile.m * choice.tile.n
    waves = tiles_of(case.problem, choice.tile) / at.sm_count
    cuts = choice.variant in ("stream-k", "split-k", "skinny")
    waves = 1.1 * waves + 0.1 if cuts else float(math.ceil(waves))
    return waves * area * (1 + 0.15 * math.log2(256 * 128 / area))


def neighbours(cases: Sequence[Case]) -> list[tuple[Case, Case]]:
    """Cases of one line next to each other along N, that are of one class of shapes."""
    pairs = []
    for case in cases:
        wider = [
            other
            for other in cases
            if other.name == case.name
            and other.problem.model_copy(update={"n": case.problem.n}) == case.problem
            and other.problem.n > case.problem.n
            and choosing.shape_class(other.problem) == choosing.shape_class(case.problem)
        ]
        if wider:
            pairs.append((case, min(wider, key=lambda other: other.problem.n)))
    return pairs


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Shapes of the sweeps of waves and tiles, by our kernels that choose; those that are held to a tile do
    not."""
    return [case for name in SWEEPS for case in choosing_ones(cases_of([name], AT))]


@pytest.fixture(scope="module")
def outcome(cases: list[Case]) -> Outcome:
    """Of all cases, one after the other."""
    return played(cases, AT, true_waves)


def test_neighbours_on_either_side_of_an_edge_choose_for_themselves(
    cases: list[Case], outcome: Outcome
) -> None:
    """The choice follows the edge at the very shape."""

    def chosen(case: Case) -> Any:
        return min(asked_of(case, AT).choices, key=lambda choice: true_waves(case, choice, AT))

    pairs = neighbours(cases)
    differ = [(low, high) for low, high in pairs if chosen(low).grouped(8) != chosen(high).grouped(8)]
    assert len(differ) >= 10
    assert max(outcome.losses) < 1.2


def test_a_class_that_agrees_is_timed_once(cases: list[Case], outcome: Outcome) -> None:
    """And of it so many candidates as are proposed."""
    assert outcome.questions < len(cases) / 2
    assert outcome.timed <= choosing.PROPOSED * outcome.questions
    low = Case(Gemm(m=8192, n=8192, k=8192, dtype="float16", layout="NT"), "triton")
    high = low._replace(problem=low.problem.model_copy(update={"n": 8192 - 8}))
    assert asked_of(low, AT) == asked_of(high, AT)


class Gpu(Tuner):
    """A device that computes nothing, and a clock that knows how long each choice takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch, folder)
        self.asked = 0
        self.wrong: Set[str] = set()
        """Kernels that compute something else."""
        self.idle: Set[str] = set()
        """And those that write nothing."""
        monkeypatch.setattr(choosing, "_prepare", self._prepare)

    def choose(self, problem: Gemm, name: str = "triton") -> Launch:
        """Of tensors as wide as one element, whatever the problem."""
        tensor = torch.zeros(1, 1)
        made: Launch = choosing.launch(Operands(problem, tensor, tensor, torch.zeros(4, 4)), name)
        return made

    def choose_anew(self, wrong: Set[str] = frozenset(), idle: Set[str] = frozenset()) -> tuple[str, ...]:
        """What is passed over of LARGE, in a new process that has chosen nothing."""
        self.wrong, self.idle = wrong, idle
        self.folder = self.folder.with_name(f"without {wrong | idle}")
        self.start()
        return self.choose(LARGE).passed_over

    def _prepare(self, of: Operands, at: Any, choice: Any) -> Any:
        def call() -> torch.Tensor:
            self.timed.append(str(choice))
            if choice.variant not in self.idle:
                of.d.fill_(2.0 if choice.variant in self.wrong else 1.0)
            return of.d

        return SimpleNamespace(launch=lambda: Launch(call, outputs=(of.d,)), compile=lambda: None)

    def _quickest(self, makers: Sequence[Any]) -> tuple[int, float]:
        self.asked += 1
        self.timed.clear()
        for make in makers:
            make()()
        return 0, 1e-5


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    return Gpu(monkeypatch, tmp_path / "tuned")


LARGE = Gemm(m=8192, n=8192, k=8192, dtype="float16", layout="NT")


def test_a_question_is_in_the_account_of_the_row_that_asked(gpu: Gpu) -> None:
    first, again = gpu.choose(LARGE), gpu.choose(LARGE)
    assert first.tuning_s > 0 == again.tuning_s
    alike = gpu.choose(LARGE.model_copy(update={"n": 8192 - 8}))
    assert alike.tuning_s == 0 and gpu.asked == 1
    (answers,) = (operators for operators in gpu.written.values())
    ((question, answer),) = next(iter(answers.values())).items()
    assert answer["of"] == choosing.PROPOSED
    assert answer["configuration"] in question and question.startswith("triton 16-bit NT 8192x8192x8192")
    gpu.choose(LARGE.model_copy(update={"layout": "TN"}))
    gpu.start()
    assert gpu.choose(LARGE).tuning_s == 0 and gpu.asked == 2  # read back


def test_the_types_of_16_bits_share_a_choice_and_no_other_types_do(gpu: Gpu) -> None:
    chosen = {
        dtype: gpu.choose(LARGE.model_copy(update={"dtype": dtype})) for dtype in ("float16", "bfloat16")
    }
    assert gpu.asked == 1 and chosen["bfloat16"].tuning_s == 0
    assert chosen["bfloat16"].configuration == chosen["float16"].configuration
    gpu.choose(LARGE.model_copy(update={"dtype": "tf32"}))
    assert gpu.asked == 2


def test_a_kernel_in_gluon_that_disagrees_is_passed_over_with_the_reason(gpu: Gpu) -> None:
    assert not gpu.choose(LARGE).passed_over
    assert any(one.startswith("gluon") for one in gpu.timed)
    said = gpu.choose_anew(wrong={"gluon"})
    assert said and all("differs from persistent" in one and one.startswith("gluon") for one in said)
    assert len(gpu.timed) == choosing.PROPOSED  # others took their places
    assert not any(one.startswith("gluon") for one in gpu.timed)
    assert "by nan of the largest" in gpu.choose_anew(idle={"gluon"})[0]
    # Persistent is trusted: the check of the row's results is for that.
    assert all(one.startswith("gluon") for one in gpu.choose_anew(wrong={"persistent"}))


def test_asked_for_by_its_own_name_it_is_not_compared(gpu: Gpu) -> None:
    gpu.wrong = {"gluon"}
    assert not gpu.choose(LARGE, "triton-gluon").passed_over
