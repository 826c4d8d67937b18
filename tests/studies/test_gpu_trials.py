"""Trials of kernels: what makes one wrong, what ends them, and which shapes and configurations they meet."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from bench.device.detect import Device, detect
from bench.launching.ending import Stuck
from bench.spec import Launch, Unsupported
from kernels.gemm.problem import Gemm
from studies.gpu import facts, on_device, trials
from studies.gpu.facts import Trials
from studies.gpu.on_device import Configurable
from studies.gpu.trials import Trial, tried

CPU = detect("cpu")
LONG_S = 300.0
SMALL = Gemm(dtype="float32", m=24, n=16, k=8)


class Made:
    """A product of `SMALL` whose launches, by their number, add these to one element."""

    def __init__(self, *added: float) -> None:
        self.added = iter(added)
        self.inputs = on_device._inputs(SMALL, CPU)
        self.out = torch.empty(SMALL.n, SMALL.m)

    def call(self) -> torch.Tensor:
        a, b = self.inputs
        torch.mm(b, a, out=self.out)
        self.out[3, 5] += next(self.added)
        return self.out

    def trial(self, what: str = "") -> Trial:
        return Trial(SMALL, "onednn", what, lambda: (tuple(self.inputs), Launch(self.call, (self.out,))))


def failing(error: Exception) -> Trial:
    def make() -> Any:
        raise error

    return Trial(SMALL, "onednn", "c1", make)


def test_a_result_that_differs_by_a_bit_when_repeated_is_wrong() -> None:
    made = [Made(0.0, 0.0).trial("c0"), Made(0.0, 2.0**-22).trial("c1"), Made(1.0, 1.0).trial("c2")]
    found = tried(made, float("inf"), repeats=True)
    assert len(found.right) == 1 and len(found.shapes) == 1 and not found.refused
    assert found.right[0].startswith(f"{SMALL} c0: error ")
    repeated, off = found.wrong
    assert repeated.startswith(f"{SMALL} c1: ") and repeated.endswith("bytes are others the second time")
    assert f"{SMALL} c2: error" in off
    assert len(tried([Made(0.0, 2.0**-22).trial()], float("inf")).right) == 1, "launched once"


def test_a_result_that_is_not_written_is_wrong() -> None:
    made = Made()
    idle = Trial(SMALL, "onednn", "c0", lambda: (tuple(made.inputs), Launch(lambda: made.out, (made.out,))))
    assert "error inf" in tried([idle], float("inf")).wrong[0]


def test_what_cannot_run_is_told_from_what_fails() -> None:
    refused, failed = failing(Unsupported("too old")), failing(ValueError("no"))
    found = tried([right_again(), refused, failed], float("inf"), repeats=True)
    assert (len(found.right), found.refused) == (1, [f"{SMALL} c1: too old"])
    assert found.wrong == [f"{SMALL} c1: ValueError: no"] and not found.broken
    alone = facts.confirmed("?", "products", tried([refused], float("inf")))
    assert (alone.answer, alone.sentence) == ("unknown", f"{SMALL} c1: too old")
    beside = facts.confirmed("?", "products", tried([right_again(), refused], 1e9))
    assert beside.answer == "yes" and beside.sentence.endswith(f"; 1 did not run, first {refused}: too old")
    assert facts.confirmed("?", "products", Trials()).sentence == "nothing ran"


def right_again() -> Trial:
    return Made(0.0, 0.0).trial()


@pytest.mark.parametrize("lost", ["fault", "hang"])
def test_nothing_follows_a_launch_that_breaks(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error: Exception = RuntimeError("an illegal memory access was encountered")
    if lost == "hang":
        error = Stuck("str", "the launch has not ended after 5 s", "timeout")
    computes = iter([False])  # whoever asks a device that is still at it waits for ever
    monkeypatch.setattr(trials, "_still_computes", lambda: lost == "fault" and next(computes))
    found = tried([right_again(), failing(error), right_again()], float("inf"), repeats=True)
    assert len(found.right) == 1 and not found.wrong
    said = facts.confirmed("?", "products", found)
    assert said.answer == "no" and said.sentence.startswith(f"{SMALL} c1: ")
    assert said.sentence.endswith("before it 1 of 1 products of 1 shapes were right")


def on_a(capability: tuple[int, int], sm_count: int = 132) -> Device:
    return replace(CPU, kind="cuda", capability=capability, sm_count=sm_count)


@pytest.mark.parametrize("capability", [(9, 0), (10, 0)])
def test_shapes_for_gluon_are_of_every_kind_in_every_type_and_can_be_run(capability: tuple[int, int]) -> None:
    chosen, device = random.Random(on_device.SEED), on_a(capability)
    types = on_device._types(device)
    assert set(types) >= {"float16", "bfloat16", "float8_e4m3"}
    assert ("nvfp4" in types) is ("mxfp8" in types) is (capability[0] == 10)
    met = set()
    for number in range(on_device.SHAPES):
        problem = on_device._ragged_problem(chosen, number, types[number % len(types)])
        assert not problem.missing("triton-gluon", "cuda", capability)
        there = on_device._products("gluon", device).configurations(problem)
        assert len(there) > 5
        met.add((problem.dtype, number % 4))
        tiles = (problem.m // 256) * (problem.n // 128)
        assert (tiles > 2 * device.sm_count) is (number % 4 == 2)
        assert all(problem.k < one.tile.k for one in there) is (number % 4 == 1) or problem.k < 256
    assert met == {(dtype, kind) for dtype in types for kind in range(4)}


def test_each_shape_meets_every_configuration_with_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    side_by_side = lambda now, build: compiled.extend(chosen for _, chosen in now)  # noqa: E731
    monkeypatch.setattr(on_device, "compile_side_by_side", side_by_side)
    given: list[tuple[torch.Tensor, str]] = []

    def launch(problem: Gemm, inputs: Sequence[torch.Tensor], chosen: str) -> Launch:
        given.append((inputs[0], chosen))
        return Launch(lambda: None, ())

    there = {8: ["a", "b", "c"], 16: ["a", "b"]}
    problems = [Gemm(dtype="float32", m=24, n=16, k=k) for k in there]
    ours = Configurable("x", lambda problem: there[problem.k], launch, lambda *given: None)
    turns = list(on_device._in_turn(problems, ours, CPU))
    for trial in turns:
        trial.make()
    assert compiled == ["a", "b", "b", "a", "c"] == [chosen for _, chosen in given]
    assert [trial.what[:8] for trial in turns] == ["a seed 0", "b seed 0", "b seed 1", "a seed 1", "c seed 2"]
    assert not torch.equal(given[0][0], given[2][0])


def test_a_configuration_that_does_not_compile_is_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.gemm import persistent

    compiled = iter(range(1))  # once: Triton 3.6 would repeat the failure, for seconds

    def preparing(*given: Any) -> Any:
        next(compiled)
        raise RuntimeError("at 27:17:") from ValueError("no")

    monkeypatch.setattr(persistent, "prepare", preparing)
    monkeypatch.setattr(on_device, "operands", lambda *given: None)
    launch = on_device._products("persistent", on_a((10, 0))).launch
    for _ in range(2):
        with pytest.raises(Unsupported, match="does not compile: ValueError: no"):
            launch(SMALL, [], "c")


@pytest.mark.parametrize("capability", [(8, 0), (12, 0)])
def test_a_device_without_such_kernels_leaves_gluon_unknown(capability: tuple[int, int]) -> None:
    found = on_device.gluon(on_a(capability), LONG_S)
    assert found.answer == "unknown" and "kernels for compute capability" in found.sentence


def test_rows_for_shared_memory_are_of_all_four_kernels_and_have_clusters() -> None:
    chosen = random.Random(on_device.SEED)
    problems = [on_device._long_rows(chosen, number) for number in range(on_device.SHAPES)]
    for problem in problems:
        there = on_device._rows(on_a((9, 0))).configurations(problem)
        assert problem.length > 16384 and 0 < len(there)
        assert any(share.blocks > 1 for share in there)
    kinds = {(p.operator, p.direction, p.dtype) for p in problems}
    assert len(kinds) == 12


# ---- products in every configuration, one after the other


def wrong_at(calls: set[int]) -> Configurable:
    """Builds products that are right but for these calls, counted over all launches."""
    count = iter(range(10**6))

    def launch(problem: Gemm, inputs: Sequence[torch.Tensor], chosen: str) -> Launch:
        out = torch.empty(problem.n, problem.m)

        def call() -> torch.Tensor:
            a, b = (x if kind == "N" else x.t() for x, kind in zip(inputs, problem.layout, strict=True))
            torch.mm(b, a, out=out)
            if next(count) in calls:
                out[-1, -1] += 1.0
            return out

        return Launch(call, (out,))

    return Configurable("onednn", lambda problem: "abcd", launch)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "SHAPES", 3)
    small = iter([Gemm(dtype="float32", m=16, n=24, k=8 * number) for number in (1, 2, 3)])
    monkeypatch.setattr(on_device, "_ragged_problem", lambda *given: next(small))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("wrong", "answer", "sentence"),
    [
        (set(), "yes", "12 products of 3 shapes, all confirmed by float64"),
        ({12}, "no", "1 of 12 products of 3 shapes are wrong, first float32-NN-m16-n24-k8 c seed 2: error"),
    ],
)
def test_a_wrong_product_of_many_is_seen_and_named(
    wrong: set[int], answer: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_device, "_products", lambda *given: wrong_at(wrong))
    found = on_device.gluon(CPU, LONG_S)
    assert found.answer == answer and found.sentence.startswith(sentence)


@pytest.mark.usefixtures("few")
def test_time_that_ends_early_claims_no_more_than_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "_products", lambda *given: wrong_at(set()))
    looks = iter([0.0, 1.0, 2.0, *[99.0] * 20])
    monkeypatch.setattr(trials.time, "monotonic", lambda: next(looks))
    assert on_device.gluon(CPU, 10.0).sentence.startswith("2 products of 2 shapes, all confirmed")


@pytest.mark.usefixtures("few")
def test_what_does_not_run_is_unknown_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(problem: Gemm) -> Any:
        raise Unsupported("needs Triton 3.7")

    refusing = Configurable("triton-gluon", refuses, lambda *given: Launch(lambda: None, ()))
    monkeypatch.setattr(on_device, "_products", lambda *given: refusing)
    found = on_device.gluon(CPU, LONG_S)
    assert found.answer == "unknown" and found.sentence.endswith(": needs Triton 3.7")


def test_8_bit_types_are_checked_and_missing_ones_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "LONG_K", {"m": 16, "n": 16, "k": 64, "layout": "TN"})
    found = on_device.narrow(CPU, LONG_S)
    assert found.answer == "yes" and found.sentence.startswith("2 products of 2 shapes, all confirmed")
    assert "float8_e4m3-TN-m16-n16-k64 onednn: error" in found.numbers["right"][0]

    def refuses(problem: Gemm, inputs: Sequence[torch.Tensor]) -> Launch:
        raise Unsupported("needs a GPU")

    monkeypatch.setattr(on_device, "_builders", lambda *given: {"onednn": refuses})
    found = on_device.narrow(CPU, LONG_S)
    assert found.answer == "unknown" and found.sentence == "float8_e4m3-TN-m16-n16-k64 onednn: needs a GPU"
    json.dumps(found.numbers)


def test_the_rehearsals_of_trials_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "SHAPES", 2)
    assert on_device.gluon(CPU, LONG_S).sentence.startswith("2 products of 2 shapes, all confirmed")
    assert on_device.held(CPU, LONG_S).sentence.startswith("2 results of 2 shapes, all confirmed")
