"""Implementations of the faults of fault.py, which run only in workers of the doctor."""

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
"""Cycles of a blocking kernel: some 70 years."""


def then(act: Callable[[torch.Tensor], None]) -> Callable[[Fault, torch.Tensor], Launch]:
    """An implementation that negates x [length] and then calls `act` with the result y [length]."""

    def build(problem: Fault, x: torch.Tensor) -> Launch:
        y = torch.empty_like(x)

        def run() -> None:
            torch.neg(x, out=y)
            act(y)

        return Launch.of(run, (y,))

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


OPERATOR = Operator(
    problem=Fault,
    inputs=lambda problem, uniform: (uniform(problem.length),),
    reference=lambda problem, x: -x.double(),
    implementations={
        "good": then(lambda y: None),
        "illegal": then(_illegal),
        "hang": then(_hang),
        "kill": then(_kill),
    },
    tolerance=lambda problem, implementation: 0.0,
    examples=[Fault(dtype="float32", length=1024)],
)
