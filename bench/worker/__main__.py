"""The worker process, which owns the device: it reads one request a line and answers each with one line.

    {"do": "hello"}                          -> versions of the libraries that compute here
    {"do": "examples", operator}             -> parameters of the operator's examples
    {"do": "example_file", operator, given}  -> a file with a custom kernel to begin with
    {"do": "awkward", operator, kernel, ...} -> parameters of the examples at which to check a custom kernel
    {"do": "check", operator, ...}           -> whether an implementation is right at one problem; "quick":
                                                in its first configuration that compiles, nothing is tuned
    {"do": "measure", operator, ...}         -> the columns of one visit's row
    {"do": "one", operator, ...}             -> the seconds of one launch, which a profiler sees
    end of input                             -> exit

A request with `kernel`, FILE:FUNCTION, is about the implementation that this custom kernel is.

An answer has the key "renew", with the reason, if this process can no longer be trusted, and "uncaptured" if
the clock could not capture the launches: a new process may measure them with "clock": "stream". "stuck" names
a kernel whose launch does not end or broke the device; that of a request those that are to be passed over.

Requests and answers are JSON on the original standard input and output. Whatever a library prints goes to
standard error. The parent (bench/runner/worker_process.py) outlives this process and needs no torch.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import platform
import re
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import distributions
from typing import Any

from bench.device.control_groups import available_byte
from bench.environment.chosen_code import chosen_code
from bench.environment.dependencies import AFTERWARDS, refuse_if_missing
from bench.worker.lifeline import answers_only, die_with

if __name__ == "__main__":
    die_with(json.loads(sys.argv[1])["parent"])  # also while it imports torch, which takes seconds
    # Before the first import that could fail: the parent shows the last line.
    refuse_if_missing(without=AFTERWARDS)

import scipy.special  # noqa: F401  slow to import: not in the middle of a visit, where intervals need it
import torch

import kernels
from bench.autotune.ending import passing_over
from bench.autotune.tuning import timed_by
from bench.causes import cause, operator_file, without_function
from bench.sampling.protocol import protocol
from bench.spec import DeviceKind
from bench.worker import compiled, custom_kernel
from bench.worker.clock import GraphClock, HostClock, StreamClock
from bench.worker.failure import failure
from bench.worker.fault_operator import OPERATOR as FAULT
from bench.worker.measure_case import Bench, check, measure, one_launch
from bench.worker.memory import Memory
from bench.worker.telemetry_cpu import CpuTelemetry
from bench.worker.telemetry_cuda import CudaTelemetry
from bench.worker.visit import Visit, VisitResult


def make_bench(kind: DeviceKind, cache_byte: int, seed: int, uuid: str | None = None) -> Bench:
    """The device made ready to measure. `cache_byte` is its last-level cache, `seed` fixes the inputs.

    `uuid` is a GPU's by device/detect.py, for NVML. Without it NVML knows no fact.
    """
    cuda, device = torch.cuda, torch.device("cpu")
    if kind == "cuda":
        device = torch.device("cuda", 0)  # the parent made the wanted GPU the only visible one
    flush = Flusher(device, cache_byte)
    made = partial(Bench, device=device, cache_byte=cache_byte, protocol=protocol(kind), seed=seed)
    if kind == "cpu":
        return made(clock=HostClock(flush), telemetry=CpuTelemetry(), free_byte=available_byte)
    matrix = torch.ones(1, 1, device=device)
    torch.mm(matrix, matrix)  # cuBLAS's workspace, which stays, is not the first product's

    def flushed() -> None:
        flush()
        cuda.synchronize()  # the host's time begins when the flush is over

    return made(
        clock=GraphClock(cuda, flush),
        spare_clock=StreamClock(cuda, flush),
        telemetry=CudaTelemetry(uuid or ""),
        synchronize=cuda.synchronize,
        free_byte=partial(_free_cuda_byte, device),
        host_clock=HostClock(flushed),
        memory=Memory(cuda),
        alive=partial(alive, cuda, torch.zeros(1, device=device)),
    )


def alive(cuda: Any, number: Any) -> None:
    """Raise RuntimeError unless the device still computes for this process, on the stream it began with.

    `number` is filled at random: a tiny launch, which torch 2.11 refuses after any capture that could not be
    ended (CUDAGeneratorImpl.cpp). `cuda` is torch.cuda, or a simulation of it.
    """
    cuda.synchronize()
    if cuda.current_stream() != cuda.default_stream():
        raise RuntimeError("a capture that could not be ended left its stream behind as the current one")
    number.uniform_()
    cuda.synchronize()


class Flusher:
    """Evicts the last-level cache by touching twice its size; the memory is allocated on first use."""

    def __init__(self, device: torch.device, cache_byte: int) -> None:
        self.device, self.byte = device, max(4, 2 * cache_byte // 4 * 4)
        self.memory: torch.Tensor | None = None

    def __call__(self) -> None:
        """Write all of it (GPU) or read it (CPU)."""
        if self.device.type == "cuda":
            if self.memory is None:
                self.memory = torch.empty(self.byte, dtype=torch.uint8, device=self.device)
            self.memory.zero_()
            return
        if self.memory is None:
            pages = mmap.mmap(-1, self.byte)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                pages.madvise(mmap.MADV_HUGEPAGE)  # 500 times fewer page faults; no kernel uses these
            self.memory = torch.frombuffer(pages, dtype=torch.float32).fill_(1.0)
        self.memory.sum()


def _free_cuda_byte(device: torch.device) -> int:
    """Bytes that can still be allocated: free in the driver, or kept unused by torch's allocator."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def hello(bench: Bench) -> dict[str, Any]:
    """Columns of every row that only the process with torch knows."""
    # Its version without an import, which takes a tenth of a second; PyTorch's nightly builds have their own.
    triton = (each.version for name in ("triton", "pytorch-triton") for each in distributions(name=name))
    libraries = _cpu_libraries()
    if bench.device.type == "cuda":
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        libraries = f"CUDA {torch.version.cuda}, cuDNN {cudnn}"
    versions = {"torch": torch.__version__, "triton": next(triton, ""), "python": platform.python_version()}
    return versions | {"libraries": libraries}


def _cpu_libraries() -> str:
    """MKL and oneDNN with their versions, from torch's description of its build."""
    patterns = {"MKL": r"Math Kernel Library Version ([\d.]+)", "oneDNN": r"MKL-DNN v([\d.]+)"}
    built = torch.__config__.show()
    names = [f"{name} {found[1]}" for name, p in patterns.items() if (found := re.search(p, built))]
    return ", ".join(names) or "torch's own BLAS"


def answer(bench: Bench, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    if request["do"] == "hello":
        return hello(bench)
    name = request["operator"]
    faulty = name == FAULT.problem.operator  # the doctor's: no sweep has it
    try:
        operator = FAULT if faulty else kernels.operator(name)
    except Exception as error:
        return {"status": "error", "reason": f"{operator_file(name)} cannot be imported: {cause(error)}"}
    if request["do"] == "examples":
        return {"examples": [example.parameters() for example in operator.examples]}
    if request["do"] == "example_file":
        try:
            return {"text": custom_kernel.example_file(operator, request["given"], bench.device)}
        except Exception as error:
            return failure(error)
    if "kernel" in request:
        try:
            compiled.end()
            kernel = custom_kernel.load(request["kernel"])
        except custom_kernel.BadKernel as error:
            return {"status": "error", "reason": str(error)}
        if request["do"] == "awkward":
            problems = [operator.problem(**parameters) for parameters in request["asked"]]
            examples = custom_kernel.awkward(operator, kernel, problems, bench.device)
            return {"examples": [example.parameters() for example in examples]}
        # Variants of all awkward sizes are one kernel's; what is timed has those of its own size alone.
        compiled.begin(request["kernel"], "" if request["do"] == "check" else str(request["parameters"]))
        more = bench.device.type, request.get("guarded", False)
        operator = custom_kernel.with_custom(operator, request["implementation"], kernel, *more)
    if request["implementation"] not in operator.implementations:
        return {"status": "error", "reason": without_function(name, request["implementation"])}
    problem = operator.problem(**request["parameters"])
    if request["do"] == "check":
        ranges = request.get("ranges", False)
        found = check(bench, operator, request["implementation"], problem, ranges)
        return _unless_eager(request, found).to_json()
    if request["do"] == "one":
        return one_launch(bench, operator, request["implementation"], problem, request["cache"] == "cold")
    visit = Visit.from_json(request)
    bench.protocol = protocol("cuda" if bench.device.type == "cuda" else "cpu", visit.visits)
    if visit.threads:
        torch.set_num_threads(visit.threads)
    found = _unless_eager(request, measure(bench, operator, problem, visit))
    return found.to_json() | {"environment": chosen_code()}


def _unless_eager(request: dict[str, Any], result: VisitResult) -> VisitResult:
    """The result, or an error if a custom kernel was to be compiled and was not."""
    why = compiled.uncompiled() if "kernel" in request and result.status == "ok" else ""
    return VisitResult("error", why) if why else result


def respond(bench: Bench, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request, with `renew` if a new process must answer the next."""
    by = None if request.get("quick") else bench.clock_named(request.get("clock"))
    with passing_over(request.get("stuck", {})), timed_by(by):
        answered = answer(bench, request)
    # Whoever asks a device that is still at it waits for ever.
    cause = answered["reason"] if "stuck" in answered else bench.distrust()
    return answered | {"renew": cause} if cause else answered


def main(respond: Callable[[Bench, dict[str, Any]], dict[str, Any]] = respond) -> None:
    """Answer requests until the input ends."""
    answers = answers_only()
    settings = json.loads(sys.argv[1])
    if settings["threads"]:
        torch.set_num_threads(settings["threads"])
    bench = make_bench(settings["kind"], settings["cache_byte"], settings["seed"], settings["uuid"])
    with torch.no_grad():
        for line in sys.stdin:
            answers.write(json.dumps(respond(bench, json.loads(line))) + "\n")
            answers.flush()
            # While the parent writes the row. What is left lives on: the next time need not look at it.
            gc.collect()
            gc.freeze()


if __name__ == "__main__":
    main()
    os._exit(0)  # to take torch and its tensors down in order costs as long as several visits
