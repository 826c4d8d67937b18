"""Every Triton kernel compiles for every architecture, through the path that a run takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kernels
from bench.spec import Launch
from tests.contract import broken_kernel
from tests.contract.compiling import Compilation, compile_one, problems
from tests.contract.plugin import Compilers
from tests.contract.stand_in import GPUS

EVERYTHING = [
    Compilation(place, operator, implementation, tuple(problem.parameters().items()))
    for place, gpu in enumerate(GPUS)
    for operator in kernels.names()
    for implementation, problem in problems(operator, gpu)
]


@pytest.mark.parametrize("asked", EVERYTHING, ids=str)
def test_compiles(asked: Compilation, compilers: Compilers, note: Callable[[str], None]) -> None:
    outcome = compilers.outcome(asked)
    for text in outcome.passed_over:
        note(f"{GPUS[asked.gpu]} {asked.operator} {asked.implementation}: passed over {text}")
    if outcome.unsupported:
        note(f"{asked}: unsupported: {outcome.unsupported}")
    assert not outcome.failure, outcome.failure


def test_every_triton_kernel_of_the_tables_is_there() -> None:
    asked = {(one.operator, one.implementation) for one in EVERYTHING}
    there = {
        (name, implementation.name)
        for name in kernels.names()
        for implementation in kernels.problem(name).implementations
        if implementation.name.startswith("triton")
    }
    assert asked == there


@pytest.mark.parametrize(
    ("implementation", "said"),
    [
        (broken_kernel.launch, "no_such_function"),
        (broken_kernel.launch_on_a_grid_too_high, "invalid argument"),
        (lambda problem, x: Launch(lambda: x), "nothing was launched"),
    ],
)
def test_a_broken_kernel_is_seen(
    monkeypatch: pytest.MonkeyPatch, implementation: Callable[..., Launch], said: str
) -> None:
    monkeypatch.setitem(kernels.operator("launch").implementations, "triton", implementation)
    outcome = compile_one(Compilation(1, "launch", "triton", (("dtype", "float32"),)))
    assert said in outcome.failure
