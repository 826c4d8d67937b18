"""Trials of kernels: what makes one wrong, what ends them, and which shapes and configurations they meet."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from bench.device.detect import Device, detect
from bench.first_minutes import facts, on_device, trials
from bench.first_minutes.trials import Trial, tried
from bench.launching.ending import Stuck
from bench.spec import Launch, Unsupported
from kernels.gemm.problem import Gemm

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
    assert found.right == 1 and len(found.shapes) == 1 and not found.refused
    repeated, off = found.wrong
    assert repeated.startswith(f"{SMALL} c1: ") and repeated.endswith("bytes are others the second time")
    assert f"{SMALL} c2: error" in off
    assert tried([Made(0.0, 2.0**-22).trial()], float("inf")).right == 1, "launched once"


def test_a_result_that_is_not_written_is_wrong() -> None:
    made = Made()
    idle = Trial(SMALL, "onednn", "c0", lambda: (tuple(made.inputs), Launch(lambda: made.out, (made.out,))))
    assert "error inf" in tried([idle], float("inf")).wrong[0]


def test_what_cannot_run_is_told_from_what_fails() -> None:
    right, refused, failed = (
        Made(0.0, 0.0).trial(),
        failing(Unsupported("too old")),
        failing(ValueError("no")),
    )
    found = tried([right, refused, failed], float("inf"), repeats=True)
    assert (found.right, found.refused) == (1, [f"{SMALL} c1: too old"])
    assert found.wrong == [f"{SMALL} c1: ValueError: no"] and not found.broken
    alone = on_device._counted(tried([refused], float("inf")))
    assert facts.confirmed("?", "products", alone, "").sentence == f"{SMALL} c1: too old"
    assert facts.confirmed("?", "products", alone, "").answer == "unknown"
    beside = facts.confirmed("?", "products", on_device._counted(tried([right_again(), refused], 1e9)), "")
    assert beside.answer == "yes" and beside.sentence.endswith(f"; 1 did not run, first {refused}: too old")


def right_again() -> Trial:
    return Made(0.0, 0.0).trial()


@pytest.mark.parametrize("lost", ["fault", "hang"])
def test_nothing_follows_a_launch_that_hangs_or_loses_the_device(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error: Exception = RuntimeError("an illegal memory access was encountered")
    if lost == "hang":
        error = Stuck("str", "the launch has not ended after 5 s", "timeout")
    computes = iter([False])  # whoever asks a device that is still at it waits for ever
    monkeypatch.setattr(trials, "_still_computes", lambda: lost == "fault" and next(computes))
    found = tried([right_again(), failing(error), right_again()], float("inf"), repeats=True)
    assert found.right == 1 and not found.wrong
    said = facts.confirmed("?", "products", on_device._counted(found), "")
    assert said.answer == "no" and said.sentence.startswith(f"{SMALL} c1: ")
    assert said.sentence.endswith("before it 1 of 1 products of 1 shapes were right")


def on_a(capability: tuple[int, int], sm_count: int = 132) -> Device:
    values: dict[str, Any] = {f: getattr(CPU, f) for f in CPU.__dataclass_fields__}
    return Device(**values | {"kind": "cuda", "capability": capability, "sm_count": sm_count})


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
        there = on_device._configurations(problem, device)
        assert len(there) > 5
        met.add((problem.dtype, number % 4))
        tiles = (problem.m // 256) * (problem.n // 128)
        assert (tiles > 2 * device.sm_count) is (number % 4 == 2)
        assert all(problem.k < one.tile.k for one in there) is (number % 4 == 1) or problem.k < 256
    assert met == {(dtype, kind) for dtype in types for kind in range(4)}


def test_each_shape_meets_every_configuration_once_with_other_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bench.launching import tuning
    from kernels.gemm import gluon

    compiled: list[str] = []
    side_by_side = lambda made, build: compiled.extend(one[2] for one in made)  # noqa: E731
    monkeypatch.setattr(tuning, "compile_side_by_side", side_by_side)
    given: list[tuple[torch.Tensor, str]] = []
    idle = Launch(lambda: None, ())
    monkeypatch.setattr(gluon, "launch", lambda of, one, sms: given.append((of.a.clone(), one)) or idle)
    monkeypatch.setattr(on_device.torch, "device", lambda kind: "cpu")
    listed: list[tuple[Gemm, list[Any]]] = [(SMALL, ["a", "b", "c"]), (SMALL, ["a", "b"])]
    turns = list(on_device._in_turn(listed, on_a((9, 0))))
    for trial in turns:
        trial.make()
    assert (
        [trial.what for trial in turns] == ["a", "b", "b", "a", "c"] == compiled == [one for _, one in given]
    )
    assert torch.equal(given[0][0], given[1][0]) and not torch.equal(given[0][0], given[2][0])


@pytest.mark.parametrize("capability", [(8, 0), (12, 0)])
def test_a_device_without_such_kernels_leaves_gluon_unknown_with_the_reason(
    capability: tuple[int, int],
) -> None:
    found = on_device.gluon(on_a(capability), LONG_S)
    assert found.answer == "unknown" and "kernels for compute capability" in found.sentence


def test_rows_for_shared_memory_are_of_all_four_kernels_and_have_clusters() -> None:
    chosen = random.Random(on_device.SEED)
    problems = [on_device._long_rows(chosen, number) for number in range(on_device.SHAPES)]
    for problem in problems:
        there, _ = on_device._shares(problem, on_a((9, 0)))
        assert problem.length > 16384 and 0 < len(there) <= on_device._MOST_HELD
        assert any(share.blocks > 1 for share in there)
    kinds = {(p.operator, p.direction, p.dtype) for p in problems}
    assert len(kinds) == 12


def test_the_rehearsals_of_trials_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "SHAPES", 2)
    assert on_device.gluon(CPU, LONG_S).sentence.startswith("2 products of 2 shapes, all confirmed")
    assert on_device.held(CPU, LONG_S).sentence.startswith("2 results of 2 shapes, all confirmed")
