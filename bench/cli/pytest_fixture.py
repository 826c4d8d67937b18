"""The pytest fixture `roofbench`: a function of a test's file, measured as a kernel of an operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.case_name import parameter_words
from bench.cli.run_command import cases_of
from bench.device.lock import device_lock
from bench.errors import UserError
from bench.runner.custom_kernel import checked_kernels
from bench.runner.limits import earlier_ceilings, unless_too_quick
from bench.runner.run import Run
from bench.runner.supervisor import visit_to

SAMPLING_S = 2.0
"""Most seconds of sampling."""


class ReplayTimer:
    """A `timer` for pytest-benchmark that replays times measured elsewhere.

    pytest-benchmark reads it before and after a round: it returns 0, then the seconds of the round. The
    table, JSON and comparisons thus hold device times, through pytest-benchmark's public interface alone.
    """

    def __init__(self) -> None:
        self._rounds_s: list[float] | None = None
        self._running = False

    def load(self, rounds_s: list[float]) -> None:
        """Set the seconds of the next rounds."""
        self._rounds_s = list(reversed(rounds_s))
        self._running = False

    def __call__(self) -> float:
        """0 at the start of a round, its seconds at the end."""
        if self._rounds_s is None:
            raise RuntimeError("this timer only replays: it cannot time `benchmark(function)`")
        self._running = not self._running
        return 0.0 if self._running else self._rounds_s.pop()


TIMER = ReplayTimer()


def replay(benchmark: Any, samples_s: Sequence[float], launches: int) -> None:
    """Give pytest-benchmark's fixture, made with TIMER, samples of so many launches each."""
    if benchmark.enabled:
        TIMER.load([sample * launches for sample in samples_s])
    benchmark.pedantic(lambda: None, rounds=len(samples_s), iterations=launches)


def kernel_text(kernel: Callable[..., Any] | str) -> str:
    """FILE:FUNCTION of a function, or the text that was given. UserError for one within another."""
    if isinstance(kernel, str):
        return kernel
    function = inspect.unwrap(kernel)
    if "." in function.__qualname__ or not (file := inspect.getsourcefile(function)):
        raise UserError(f"roofbench: {function.__qualname__} is no function at the top of a file")
    return f"{file}:{function.__name__}"


def measured(
    run: Run, kernel: Callable[..., Any] | str, operator: str, given: Mapping[str, Any], cache: str
) -> dict[str, Any]:
    """The worker's columns of one visit to this kernel, which is checked at small sizes first. UserError."""
    words = [operator, *parameter_words(given)]
    device, worker = run.device, run.worker
    cases = cases_of("roofbench", words, device, kernel=[kernel_text(kernel)], cache=cache)
    if len(cases) != 1:
        raise UserError(f"roofbench {' '.join(words)}: give one value of each parameter")
    with device_lock(device.uuid, str(device), "a test"):
        for _ in checked_kernels(cases, worker, device):
            pass
        threads = worker.threads("all")
        visit = visit_to(cases[0], run.protocol, None, SAMPLING_S, threads, first=True)
        earlier = earlier_ceilings(device, run.results)
        return unless_too_quick(worker.visit(visit), cases[0], device, earlier).columns()
