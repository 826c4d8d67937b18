"""What kernels do when they are wrong. Never in kernels/ of the checkout itself: see problem.py."""

from __future__ import annotations

import ctypes
import os
import signal
import stat
from collections.abc import Callable

import torch
from kernels.faulty.problem import Faulty

from bench.spec import Launch, Operator, Uniform

OFTEN = 20


def misbehaving(act: Callable[[torch.Tensor], None]) -> Callable[[Faulty, torch.Tensor], Launch]:
    """An implementation that negates x and then does what `act` does, given y."""

    def build(problem: Faulty, x: torch.Tensor) -> Launch:
        y = torch.empty_like(x)

        def call() -> torch.Tensor:
            torch.neg(x, out=y)
            act(y)
            return y

        return Launch(call, (y,))

    return build


def good(y: torch.Tensor) -> None:
    pass


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


def kill(y: torch.Tensor) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raises(y: torch.Tensor) -> None:
    raise RuntimeError("at 3:4:\n    tl.dot(a, b)\nno tile fits")


def huge(y: torch.Tensor) -> None:
    torch.empty(10**15, dtype=torch.uint8)


def wrong(y: torch.Tensor) -> None:
    y[-1] += 0.5


def later() -> Callable[[torch.Tensor], None]:
    calls = 0

    def act(y: torch.Tensor) -> None:
        nonlocal calls
        calls += 1
        if calls > OFTEN:
            y[-1] += 0.5

    return act


def nan(y: torch.Tensor) -> None:
    y[0] = float("nan")


def nothing(problem: Faulty, x: torch.Tensor) -> Launch:
    y = torch.empty_like(x)
    return Launch(lambda: y, (y,))


def hang(y: torch.Tensor) -> None:
    while True:
        pass


def inputs(problem: Faulty, uniform: Uniform) -> tuple[torch.Tensor, ...]:
    return (uniform(problem.length),)


def reference(problem: Faulty, x: torch.Tensor) -> torch.Tensor:
    return -x.double()


ACTS = {
    **{"good": good, "chatty": chatty, "scribble": scribble, "segfault": segfault},
    **{"kill": kill, "raise": raises, "huge": huge, "wrong": wrong, "later": later(), "nan": nan},
    "hang": hang,
}
OPERATOR = Operator(
    problem=Faulty,
    inputs=inputs,
    reference=reference,
    implementations={name: misbehaving(act) for name, act in ACTS.items()} | {"nothing": nothing},
    tolerance=lambda problem, implementation: 0.0,
    examples=[Faulty(dtype="float32", length=7)],
)
