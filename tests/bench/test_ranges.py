"""Kernels that are right for inputs in [-1, 1] only are refused before anything is timed, with the range."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kernels
from bench.spec import ASKED_DATA
from bench.worker.__main__ import make_bench, respond
from bench.worker.buffer_ring import BufferRing
from bench.worker.measure_case import Bench
from bench.worker.visit import Visit

KERNELS = """
import torch
import torch.nn.functional as F

def relu(x):
    return x.relu()

def clamped(x, out):
    torch.clamp(x, 0.0, 1.0, out=out)

def taylor(x):
    return x - x**3 / 3 if x.abs().max() > 1 else x.tanh()

def tanh_of_exp(x):
    e = torch.exp(2 * x)
    return (e - 1) / (e + 1)

def softmax(x):
    return x.softmax(1)

def without_maximum(x):
    e = x.exp()
    return e / e.sum(1, keepdim=True)

def of_one_maximum(x):
    e = (x - x.max()).exp()
    return e / e.sum(1, keepdim=True)

def normed(x, weight, bias):
    mean, variance = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
    y = F.layer_norm(x, x.shape[1:], weight, bias)
    return y, mean, (variance + 1e-5).rsqrt()

def of_squares(x, weight, bias):
    mean = x.mean(1, keepdim=True)
    rstd = ((x * x).mean(1, keepdim=True) - mean * mean + 1e-5).rsqrt()
    return (x - mean) * rstd * weight + bias, mean, rstd

def without_epsilon(x, weight, bias):
    mean = x.mean(1, keepdim=True)
    variance = x.var(1, correction=0, keepdim=True)
    rstd = (variance + 1e-5 * (variance > 0)).rsqrt()
    return (x - mean) * rstd * weight + bias, mean, rstd

def product(a, b):
    return b @ a

def in_halves(a, b):
    return (b @ a).half().float() if (b @ a).abs().max() > 1e3 else b @ a
"""
NUMBERS: dict[str, dict[str, Any]] = {
    "activations": {"function": "relu", "direction": "forward", "n": 2, "c": 16, "h": 8, "w": 8},
    "tanh": {"function": "tanh", "direction": "forward", "n": 2, "c": 16, "h": 8, "w": 8},
    "softmax": {"rows": 13, "length": 97, "direction": "forward"},
    "layernorm": {"rows": 13, "length": 97, "direction": "forward"},
    "gemm": {"m": 31, "n": 17, "k": 65, "layout": "NN"},
}
RIGHT = [("activations", "relu"), ("softmax", "softmax"), ("layernorm", "normed"), ("gemm", "product")]
WRONG = [
    ("activations", "clamped", r"uniform\[-100,100\]"),
    ("tanh", "taylor", r"uniform\[-100,100\]"),
    ("tanh", "tanh_of_exp", r"uniform\[-100,100\]"),
    ("softmax", "without_maximum", r"uniform\[-100,100\]"),
    ("softmax", "of_one_maximum", r"uniform\[-100,100\]|uniform\[-1,1\] with 10000"),
    ("layernorm", "of_squares", r"uniform\[999,1001\]"),
    ("layernorm", "without_epsilon", "zeros"),
    ("gemm", "in_halves", r"uniform\[-100,100\]"),
]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    threads = torch.get_num_threads()
    yield make_bench("cpu", 1 << 20, 1)
    torch.set_num_threads(threads)


def checked(bench: Bench, folder: Path, what: str, name: str, dtype: str = "float32") -> dict[str, Any]:
    (folder / "mine.py").write_text(KERNELS)
    operator = "activations" if what == "tanh" else what
    asked = {"implementation": "mine:f", "kernel": f"{folder / 'mine.py'}:{name}", "ranges": True}
    asked |= {"do": "check", "operator": operator, "parameters": {"dtype": dtype, **NUMBERS[what]}}
    with torch.no_grad():
        return json.loads(json.dumps(respond(bench, asked)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("what", "name"), RIGHT)
def test_a_right_kernel_says_with_which_numbers_it_was_compared(
    what: str, name: str, tmp_path: Path, bench: Bench
) -> None:
    found = checked(bench, tmp_path, what, name)
    assert found["status"] == "ok", found
    assert found["fill"].startswith("uniform[-1,1], uniform[-100,100], uniform[999,1001], uniform[-1,1] with")


@pytest.mark.parametrize(("what", "name", "range_"), WRONG)
def test_a_kernel_that_is_right_near_zero_only_is_wrong(
    what: str, name: str, range_: str, tmp_path: Path, bench: Bench
) -> None:
    """Without the ranges none of them is."""
    found = checked(bench, tmp_path, what, name)
    assert found["status"] == "wrong"
    assert re.search(f"with inputs ({range_})", found["reason"]), found["reason"]


@pytest.mark.parametrize("name", ["softmax", "activations", "layernorm", "batchnorm", "pooling", "linear"])
def test_the_libraries_are_right_beyond(name: str, bench: Bench) -> None:
    """Or a range is left out: at one example of each type, those whose numbers are stored in 16 bits too."""
    operator = kernels.operator(name)
    able = [
        (each.name, example)
        for example in sorted(operator.examples, key=lambda example: -example.byte)
        for each in operator.problem.implementations
        if not each.cpp_on_cpu and not example.missing(each.name, "cpu", None)
    ]
    few = {(implementation, example.dtype): example for implementation, example in able}
    for (implementation, _), example in few.items():
        asked = {"do": "check", "operator": name, "implementation": implementation, "ranges": True}
        with torch.no_grad():
            found = respond(bench, {**asked, "parameters": example.parameters()})
        assert found["status"] in ("ok", "unsupported"), (str(example), found)


@pytest.mark.parametrize("name", kernels.names())
def test_the_libraries_are_right_with_the_inputs_that_can_be_asked_for(name: str, bench: Bench) -> None:
    operator = kernels.operator(name)
    example = min(operator.examples, key=lambda example: example.byte)
    able = [
        each.name
        for each in operator.problem.implementations
        if not each.cpp_on_cpu and not example.missing(each.name, "cpu", None)
    ]
    for data in ASKED_DATA:
        visit = Visit(name, able[0], example.parameters(), "warm", 0.01, 10.0, data=data) if able else None
        with torch.no_grad():
            found = respond(bench, visit.to_json()) if visit else {"status": "unsupported"}
        assert found["status"] in ("ok", "unsupported"), (str(example), found)


@pytest.mark.parametrize(("data", "mean_square"), [("uniform", 1 / 3), ("normal", 1.0), ("zeros", 0.0)])
def test_inputs_are_what_was_asked_for(data: str, mean_square: float, bench: Bench) -> None:
    operator = kernels.operator("softmax")
    problem = operator.problem(dtype="float32", rows=64, length=1024, direction="forward")
    (drawn,) = BufferRing(bench, operator, "aten", problem, 1, data).inputs[0]
    assert drawn.square().mean().item() == pytest.approx(mean_square, rel=0.03)
