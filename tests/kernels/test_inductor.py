"""Inductor's C++ on this CPU: right at every operator's examples, refused where there is no compiler."""

import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from bench.spec import Problem
from bench.worker.check import judged, outputs_of, poison
from kernels import names, operator, problem
from kernels.activations.problem import Activation
from tests.drawing import drawn
from tests.kernels.tensors import uniform

OPERATORS = [name for name in names() if any(i.cpp_on_cpu for i in problem(name).implementations)]


def compiled_here() -> list[Problem]:
    """Two examples, of seconds each, that this machine compiles; all of them in a deep run."""
    examples = [example for name in OPERATORS for example in operator(name).examples]
    return drawn([e for e in examples if not e.missing("inductor", "cpu", None)], 2, "examples of Inductor")


@pytest.mark.parametrize("example", compiled_here(), ids=lambda example: f"{example.operator}-{example}")
def test_what_is_compiled_is_right(example: Problem, seed: int) -> None:
    torch.manual_seed(seed)
    of = operator(example.operator)
    tensors = of.inputs(example, uniform(example, seed))
    launch = of.implementations["inductor"](example, *tensors)
    launch.call()  # compiles
    poison(launch.outputs)
    written = outputs_of(launch.call())
    assert all(one is other for one, other in zip(written, launch.outputs, strict=True))
    error, tolerance = judged(of, "inductor", example, tensors, written)
    assert error <= tolerance


def test_six_operators_have_it() -> None:
    assert OPERATORS == ["activations", "batchnorm", "fusion", "layernorm", "pooling", "softmax"]


def test_a_program_is_compiled_for_the_threads_that_torch_has() -> None:
    kept = torch.get_num_threads()
    example = Activation(function="relu", n=7, dtype="float32")
    of, x = operator("activations"), torch.ones(7, 1, 1, 1)
    compiled: list[int] = []

    def compile_(function: Callable[..., Any], **_: object) -> Callable[..., Any]:
        compiled.append(torch.get_num_threads())
        return function

    try:
        with patch("torch.compile", compile_):
            for threads in (1, 1, 2):
                torch.set_num_threads(threads)
                of.implementations["inductor"](example, x)
    finally:
        torch.set_num_threads(kept)
    assert compiled == [1, 2]


def test_without_a_compiler_it_is_refused_and_says_what_is_lacking(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    example = Activation(function="relu", n=7, dtype="float32")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    reason = "inductor compiles C++ on a CPU, and there is no g++ with Python.h here"
    assert example.missing("inductor", "cpu", None) == reason
    assert not example.missing("inductor", "cuda", (9, 0)) and not example.missing("aten", "cpu", None)
    mine = tmp_path / "mine"
    mine.write_text("")
    mine.chmod(0o755)
    monkeypatch.setenv("CXX", "mine")
    assert example.missing("inductor", "cpu", None) == reason.replace("g++", "mine")
    (tmp_path / "Python.h").write_text("")
    monkeypatch.setenv("CXX", str(mine))
    assert not example.missing("inductor", "cpu", None)
