"""Inductor's C++ on this CPU: right at every operator's examples, refused where there is no compiler."""

import math
import sysconfig
from pathlib import Path
from unittest.mock import patch

import pytest

from bench.spec import Problem, Unsupported
from bench.worker.check import judged, outputs_of, poison
from kernels import names, operator, problem
from kernels.activations.problem import Activation
from tests.drawing import drawn, is_deep
from tests.kernels.tensors import uniform

OPERATORS = [name for name in names() if any(i.cpp_on_cpu for i in problem(name).implementations)]


def compiled_here() -> list[Problem]:
    """An example, of many seconds, that this machine compiles; in a deep run forty of each operator.

    A layer takes a minute.
    """
    every = [operator(name).examples for name in OPERATORS if is_deep() or name != "layer"]
    examples = [example for of in every for example in of[:: math.ceil(len(of) / 40)]]
    return drawn([e for e in examples if not e.missing("inductor", "cpu", None)], 1, "examples of Inductor")


@pytest.mark.parametrize("example", compiled_here(), ids=lambda example: f"{example.operator}-{example}")
def test_what_is_compiled_is_right(example: Problem, seed: int) -> None:
    of = operator(example.operator)
    tensors = of.inputs(example, uniform(example, seed))
    try:
        launch = of.implementations["inductor"](example, *tensors)
    except Unsupported as reason:
        pytest.skip(str(reason))
    launch.call()  # compiles
    poison(launch.outputs)
    written = outputs_of(launch.call())
    if example.operator not in ("convolution", "layer"):  # a library, or autograd, allocates their results
        assert all(one is other for one, other in zip(written, launch.outputs, strict=True))
    error, tolerance = judged(of, "inductor", example, tensors, written)
    assert error <= tolerance


def test_a_convolution_that_torch_adds_up_in_float16_is_refused(seed: int) -> None:
    for name in ("convolution", "convolution_block"):
        of = operator(name)
        example = next(example for example in of.examples if example.dtype == "float16")
        tensors = of.inputs(example, uniform(example, seed))
        with (
            patch("torch._C._select_conv_backend", lambda *_: "_ConvBackend.Slow2d"),
            pytest.raises(Unsupported, match="torch has no oneDNN for float16 on this CPU"),
        ):
            of.implementations["inductor"](example, *tensors)


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
