"""Launches that never end, and the kernels that a run gives up because of one.

Nothing stops a launch on a GPU. A kernel whose warps wait for each other for ever takes its process with it,
and one that writes where nothing is leaves a process that computes no more. A new process must then measure
what follows, and would meet the same kernel at the next problem. So the first launch of a kernel is waited
for with a limit (`await_end`), the answer of its process names the kernel that got stuck, and the parent
tells the next ones (bench/runner/supervisor.py), which pass it over (`trusted`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

from bench.causes import cause

C = TypeVar("C")

HANG_S = 30.0
"""A first launch that has not ended by then never will: the largest product of our sweeps, of 8.8 TFLOP,
would run at 0.3 TFLOP/s."""
TRIED = 3
"""Problems at which a kernel may get stuck before it is given up where there is no other."""

Reasons = Mapping[str, Sequence[str]]
"""Kernel -> how it got stuck, for each time that it did."""
_STUCK: ContextVar[Reasons | None] = ContextVar("stuck", default=None)


class Stuck(Exception):
    """A launch that does not end, or after which the device computes no more: so does this process not."""

    def __init__(self, kernel: str, says: str, status: str) -> None:
        """`kernel` as `name_of` gives it; `status` is the row's."""
        super().__init__(says)
        self.kernel, self.status = kernel, status


def name_of(candidate: object) -> str:
    """The kernel that a configuration is of: what it says itself, else the name of its type."""
    return str(getattr(candidate, "kernel", type(candidate).__name__))


def await_end(what: object) -> None:
    """Wait until all that is queued on the current stream has ended. Stuck if it does not, or fails.

    `what` was launched: a configuration, or words. It is waited for HANG_S.
    """
    has_ended = torch.cuda.current_stream().query
    until_s = time.monotonic() + HANG_S
    try:
        while not has_ended():
            if time.monotonic() > until_s:
                raise Stuck(name_of(what), f"{what} has not ended after {HANG_S:.0f} s", "timeout")
            time.sleep(1e-4)
    except RuntimeError as error:  # of an illegal address, and of each call to CUDA from then on
        raise Stuck(name_of(what), f"{what}: {cause(error)}", "error") from error


@contextmanager
def passing_over(stuck: Reasons) -> Iterator[None]:
    """Within it `trusted` leaves out the kernels that got stuck before."""
    before = _STUCK.set(stuck)
    try:
        yield
    finally:
        _STUCK.reset(before)


def trusted(candidates: Sequence[C]) -> tuple[Sequence[C], list[str]]:
    """(the candidates that may be tried, `kernel: reason` for each kernel that is passed over).

    Where every candidate is of a kernel that got stuck, all may be tried; RuntimeError after TRIED times.
    """
    stuck = _STUCK.get() or {}
    named = {name: stuck[name] for name in dict.fromkeys(map(name_of, candidates)) if name in stuck}
    if not named:
        return candidates, []
    others = [candidate for candidate in candidates if name_of(candidate) not in named]
    if others:
        return others, [f"{name}: {reasons[0]}" for name, reasons in named.items()]
    if all(len(reasons) >= TRIED for reasons in named.values()):
        says = "; ".join(f"{name} got stuck {len(of)} times in this run" for name, of in named.items())
        raise RuntimeError(f"{says}, first: {next(iter(named.values()))[0]}")
    return candidates, []
