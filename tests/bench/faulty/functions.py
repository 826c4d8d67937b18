"""What kernels do when they are wrong. Never in kernels/ of the checkout itself: see problem.py."""

from __future__ import annotations

import ctypes
import os
import stat
from dataclasses import replace

import torch
from kernels.faulty.problem import Faulty

from bench.worker.fault_operator import OPERATOR as FAULT
from bench.worker.fault_operator import then


def chatty(y: torch.Tensor) -> None:
    os.write(1, b'{"status": "ok", "median_s": 1e-30}\n')
    os.write(2, b'{"status": "ok", "median_s": 1e-30}\n')


def scribble(y: torch.Tensor) -> None:
    for number in range(3, 100):
        try:
            if stat.S_ISFIFO(os.fstat(number).st_mode):
                os.write(number, b"\0\xff")
        except OSError:
            pass


def segfault(y: torch.Tensor) -> None:
    ctypes.string_at(0)


def raises(y: torch.Tensor) -> None:
    raise RuntimeError("at 3:4:\n    tl.dot(a, b)\nno tile fits")


def huge(y: torch.Tensor) -> None:
    torch.empty(10**15, dtype=torch.uint8)


def wrong(y: torch.Tensor) -> None:
    y[-1] += 0.5


ACTS = {"chatty": chatty, "scribble": scribble, "segfault": segfault}
ACTS |= {"raise": raises, "huge": huge, "wrong": wrong}
OPERATOR = replace(
    FAULT,
    problem=Faulty,
    implementations={**FAULT.implementations, **{name: then(act) for name, act in ACTS.items()}},
    examples=[Faulty(dtype="float32", length=7)],
)
