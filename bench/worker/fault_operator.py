"""What the faults of fault.py do. Run by a worker that the doctor asks, and by no other."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import NoReturn

import torch

from bench.spec import Launch, Operator
from bench.worker.fault import Fault

FOR_EVER = 1 << 62
"""Cycles of a spin: some 70 years."""


def _then(act: Callable[[torch.Tensor], None]) -> Callable[[Fault, torch.Tensor], Launch]:
    """An implementation that negates x [length] and then does what `act` does, given y [length]."""

    def build(problem: Fault, x: torch.Tensor) -> Launch:
        y = torch.empty_like(x)

        def call() -> torch.Tensor:
            torch.neg(x, out=y)
            act(y)
            return y

        return Launch(call, (y,))

    return build


def _illegal(y: torch.Tensor) -> None:
    if not y.is_cuda:
        ctypes.string_at(0)
        return
    from bench.worker.fault_kernel import store_far  # needs Triton, which a CPU does not

    store_far(y)


def _hang(y: torch.Tensor) -> NoReturn:
    if y.is_cuda:
        torch.cuda._sleep(FOR_EVER)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    while True:
        pass


def _kill(y: torch.Tensor) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _query(y: torch.Tensor) -> None:
    # Invalid for a stream that is captured; else it waits for nothing.
    torch.cuda.current_stream(y.device).query()


OPERATOR = Operator(
    problem=Fault,
    inputs=lambda problem, uniform: (uniform(problem.length),),
    reference=lambda problem, x: -x.double(),
    implementations={
        "good": _then(lambda y: None),
        "illegal": _then(_illegal),
        "hang": _then(_hang),
        "kill": _then(_kill),
        "uncapturable": _then(_query),
    },
    tolerance=lambda problem, implementation: 0.0,
    examples=[Fault(dtype="float32", length=1024)],
)
