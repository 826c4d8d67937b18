"""Checks of cuBLAS, cuBLASLt, cuDNN in each mode and Inductor: one real call each, compared with float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import kernels
from bench.device.detect import Device
from bench.doctor import requests
from bench.doctor.finding import Finding, failed, passed, warned
from bench.runner.rows import SEED
from bench.runner.supervisor import WorkerSupervisor

GRACE_S = 35.0
_SQUARE: dict[str, Any] = {"dtype": "float16", "m": 512, "n": 512, "k": 512, "layout": "NN"}
_VALUES: dict[str, Any] = {"dtype": "float16", "direction": "forward", "n": 8, "c": 64, "h": 28, "w": 28}
_IMAGES = {**_VALUES, "layout": "NHWC"}
CALLS = (
    ("cuBLAS", "gemm", "cublas", _SQUARE),
    ("cuBLASLt", "gemm", "cublaslt", _SQUARE),
    ("cuDNN", "batchnorm", "cudnn", _IMAGES),
    ("cuDNN spatial", "batchnorm", "cudnn-spatial", _IMAGES),
    ("cuDNN persistent", "batchnorm", "cudnn-persistent", _IMAGES),
    ("Inductor", "activations", "inductor", {**_VALUES, "function": "relu"}),
)
"""Name, operator, implementation, parameters."""
REMEDIES = {
    "cuBLASLt": "Install nvmath-python 1.0 or later, and see that its CUDA is that of torch.",
    "Inductor": "See that a C compiler and Triton's ptxas work here: the JSON file has what they said.",
}
REMEDY = "Reinstall torch with the libraries that its wheel asks for, and nothing else on LD_LIBRARY_PATH."


def findings(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on a GPU's libraries."""
    with closing(WorkerSupervisor(device, SEED, GRACE_S)) as supervisor:
        supervisor.started()
        yield from called(supervisor)


def called(supervisor: WorkerSupervisor) -> Iterator[Finding]:
    """One finding for each of CALLS."""
    for name, operator, implementation, parameters in CALLS:
        problem = kernels.problem(operator)(**parameters)
        answer = supervisor.answer(requests.check(implementation, problem))
        remedy = REMEDIES.get(name, REMEDY)
        if answer["status"] == "ok":
            sentence = f"One call of {operator} is right: relative error {answer['relative_error']:.1e}."
            yield passed(name, sentence, row=answer)
        elif answer["status"] == "unsupported":
            sentence = f"{implementation} of {operator} is not available: {answer['reason']}."
            yield warned(name, sentence, remedy, row=answer)
        else:
            yield failed(name, f"One call of {operator} gave {requests.outcome(answer)}.", remedy, row=answer)
