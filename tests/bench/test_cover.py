"""Which examples are checked, and that a check tunes nothing."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import kernels
from bench.autotune.tuning import is_timing
from bench.runner.examples import Check, Examples, check_of, cover
from bench.runner.supervisor import WorkerSupervisor
from bench.spec import DeviceKind
from bench.worker import __main__ as worker
from bench.worker.visit import VisitResult
from tests.bench import several


def checks(kind: DeviceKind, capability: tuple[int, int] | None) -> list[Check]:
    """Every check there is on such a device."""
    return [
        check_of(example, implementation.name, kind)
        for name in kernels.names()
        for example in kernels.operator(name).examples
        for implementation in example.implementations
        if not example.missing(implementation.name, kind, capability)
    ]


@pytest.mark.parametrize(("kind", "capability", "most"), [("cuda", (9, 0), 150), ("cpu", None, 28)])
def test_a_few_examples_have_every_implementation_and_every_value_of_all(
    kind: DeviceKind, capability: tuple[int, int] | None, most: int
) -> None:
    every = checks(kind, capability)
    chosen = [every[index] for index in cover(every)]
    by_operator = Counter(check.operator for check in chosen)
    print(by_operator)
    assert max(by_operator.values()) <= most and len(chosen) < len(every) / 5

    def seen(some: list[Check]) -> set[Any]:
        return {(check.family, feature) for check in some for feature in check.features}

    assert seen(chosen) == seen(every)
    names = {(check.operator, check.implementation) for check in chosen}
    assert names == {(check.operator, check.implementation) for check in every}
    assert cover(every) == cover(every) == sorted(cover(every))
    if kind == "cpu":
        assert sum(check.implementation == "inductor" for check in chosen) == 11, "seconds each"


def test_kernels_held_to_a_tile_are_one_family_and_variants_are_not() -> None:
    families = [Check("gemm", name, {}).family[1] for name in ("triton-256x128", "triton-64x64")]
    assert families == ["triton-tile"] * 2
    assert Check("gemm", "triton-split-k", {}).family == ("gemm", "triton-split-k")
    assert Check("gemm", "cublaslt-64x64", {}).family != ("gemm", "triton-tile")


def test_the_check_that_shows_most_comes_first_and_of_equals_the_first() -> None:
    sizes = [{"m": 1, "dtype": "a"}, {"m": 2, "dtype": "a"}, {"m": 2, "dtype": "b"}, {"m": 1, "dtype": "b"}]
    assert cover([Check("gemm", "x", size) for size in sizes]) == [0, 2]
    assert cover([]) == []


@pytest.mark.parametrize("quick", [True, False])
def test_a_quick_check_takes_the_first_configuration_that_compiles(
    monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    timing: list[bool] = []
    monkeypatch.setattr(worker, "check", lambda *_: timing.append(is_timing()) or VisitResult())
    request = {"do": "check", "operator": "launch", "implementation": "aten", "quick": quick}
    bench = cast(Any, SimpleNamespace(clock_named=lambda name: "clock", distrust=lambda: ""))
    assert worker.respond(bench, request | {"parameters": {"dtype": "float32"}}) == {
        "status": "ok",
        "reason": "",
    }
    assert timing == [not quick] and not is_timing()


def test_what_is_broken_is_kept_and_a_few_stand_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several.stand_in(tmp_path, monkeypatch)
    with closing(WorkerSupervisor(several.gpu(0))) as worker:
        examples = Examples(worker, kernels.problem, ["gemm", "launch"])  # the stand-in has none of launch
        names = examples.names
        broken = [name for name in names if "cannot-be-tested" in name]
        assert {name: examples.check(name).reason for name in broken} == {
            "launch-cannot-be-tested": "launch: no compiler",
        }
        assert any("-cublas-" in name for name in names)
        kept = examples.few(names)
        assert {*broken} < {*kept} and len(kept) < len(names)
        assert examples.few(kept[:1]) == kept[:1], "whatever -k leaves has its cover"
        assert examples.check(kept[0]).status == "ok"
