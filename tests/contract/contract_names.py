"""Every name of a library that bench/ and kernels/ use exists, and every call fits its signature."""

from __future__ import annotations

import ast
import inspect

import pynvml
import pytest
import torch

from bench.autotune import choices
from kernels.gemm import max_autotune
from tests.contract.names import Findings, find, sources, words
from tests.contract.plugin import ROOT


def found(source: str) -> Findings:
    findings = Findings()
    find("kernels/made_up.py", source, findings)
    return findings


def test_every_name_and_call() -> None:
    findings = Findings()
    for path, source in sources(ROOT):
        find(path, source, findings)
    assert not findings.missing, "\n".join(findings.missing)
    # What a broken walk would leave out.
    assert {
        "torch.ops.aten.cudnn_batch_norm_backward",
        "triton.language.dot",
        "triton.tools.tensor_descriptor.TensorDescriptor",
        "nvmath.bindings.cublasLt",
    } <= findings.resolved


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("from torch.cuda import no_such", ":1: import of torch.cuda"),
        ("import triton.language as tl\n@jit\ndef k(x):\n    tl.no_such(x)", ":4: triton.language.no_such"),
        ("import triton.testing\ntriton.testing.do_bench(f, repetitions=2)", ":2: triton.testing.do_bench("),
        ("def f(cuda):\n    cuda.no_such()", ":2: torch.cuda.no_such"),
    ],
)
def test_an_absent_name_or_argument_is_seen(source: str, said: str) -> None:
    (text,) = found(source).missing
    assert said in text


METHODS = {
    "CUDAGraph": "capture_begin capture_end replay raw_cuda_graph",
    "Event": "record synchronize elapsed_time query",
    "Stream": "wait_stream synchronize query cuda_stream",
}
"""What our source calls on objects of torch.cuda, whose types the parsed source does not tell."""


@pytest.mark.parametrize("kind", METHODS)
def test_methods_of_objects_of_torch(kind: str) -> None:
    assert all(hasattr(getattr(torch.cuda, kind), name) for name in METHODS[kind].split())


def test_nvml_functions_and_constants() -> None:
    """Also those that are asked for by their names as text, which no guard may make a mistake of."""
    named = {
        (word, f"{path}:{line}")
        for path, source in sources(ROOT)
        for line, word in words(source, r"nvml[A-Z]\w+|NVML_[A-Z]\w+")
    }
    members = {name for name, _ in pynvml.c_nvmlFieldValue_t._fields_}
    there = members | set(dir(pynvml))
    assert not [f"{at}: pynvml has no {word}" for word, at in named if word not in there]
    known = {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetHandleByUUID", "NVML_CLOCK_SM"}
    assert known <= {word for word, _ in named}


def test_nvml_arguments() -> None:
    """Functions that NvmlGpu calls by name: what is given after the name, and the handle before it."""
    first = {"scaled": 2, "ask": 1, "mode": 1}
    for _, source in sources(ROOT):
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(func=ast.Attribute(attr=how), args=[ast.Constant(value=str(name)), *_]):
                    if how in first and name.startswith("nvml"):
                        given = len(node.args) - first[how]
                        signature = inspect.signature(getattr(pynvml, name))
                        signature.bind(None, *[None] * given)  # TypeError says what is wrong


def test_versions_of_what_makes_a_kernel() -> None:
    """Answers without a GPU."""
    text = choices.versions(90)
    assert text.startswith("triton ") and ", ptxas " in text, text


def test_options_of_inductor() -> None:
    given = {name for name, _ in max_autotune._OPTIONS}
    assert given <= set(torch._inductor.list_options())
    # What mode="max-autotune-no-cudagraphs" stands for, as the source says of itself.
    mode = torch._inductor.list_mode_options("max-autotune-no-cudagraphs")
    assert {name: value for name, value in max_autotune._OPTIONS if name in mode} == mode
