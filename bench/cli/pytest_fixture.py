"""The pytest fixture `roofbench`: a function of a test's file, measured as a kernel of an operator."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import kernels
from bench.case_name import parameter_words
from bench.cli.run_command import cases_of
from bench.device.lock import device_lock
from bench.errors import UserError
from bench.judge.read_runs import runs
from bench.model.predict import reached
from bench.runner.custom_kernel import checked_kernels, compared
from bench.runner.limits import earlier_ceilings, unless_too_quick
from bench.runner.merge_visits import visit_row
from bench.runner.resume import earlier_runs
from bench.runner.run import Run
from bench.runner.supervisor import visit_to
from bench.store.schema import RunKey
from bench.sweep.load import Case
from bench.worker.visit import VisitResult

SAMPLING_S = 2.0
"""Most seconds of sampling."""


class ReplayTimer:
    """A `timer` for pytest-benchmark that replays times measured elsewhere.

    pytest-benchmark reads it before and after a round: it returns 0, then the seconds of the round. The
    table, JSON and comparisons thus hold device times, through pytest-benchmark's public interface alone.
    """

    readings: Iterator[float] = iter(())
    """0 at the start of a round, its seconds at the end; nothing where there is nothing to replay."""

    def __call__(self) -> float:
        """The next reading."""
        return next(self.readings)


TIMER = ReplayTimer()


def replay(benchmark: Any, samples_s: Sequence[float], launches: int) -> None:
    """Give pytest-benchmark's fixture, made with TIMER, samples of so many launches each."""
    if benchmark.enabled:
        TIMER.readings = chain.from_iterable((0.0, sample * launches) for sample in samples_s)
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
    """The columns of one visit to this kernel, which is checked at small sizes first, and what they mean.

    `rate_per_s` in FLOP/s or bytes/s; `of_roof`, `bound_by` and `flags` by the ceilings of the device's last
    run, if there is one; `library` and `library_s`, the first library and its median of one visit. UserError.
    """
    words = [operator, *parameter_words(given)]
    device, worker = run.device, run.worker
    text = f"roofbench {' '.join(words)}"
    cases = cases_of("roofbench", words, device, kernel=[kernel_text(kernel)], cache=cache)
    if len(cases) != 1:
        raise UserError(f"{text}: give one value of each parameter")
    (case,) = cases
    before = earlier_runs(run.folder)
    earlier = earlier_ceilings(before)
    with device_lock(device.uuid, str(device), "a test"):
        for _ in checked_kernels(cases, worker, device):
            pass

        def visited(case: Case) -> VisitResult:
            visit = visit_to(case, run.protocol, SAMPLING_S, worker.threads("all"), first=True)
            return unless_too_quick(worker.visit(visit), case, device, earlier)

        result = visited(case)
        if result.status != "ok":
            return result.columns()
        library = replace(case, implementation=compared(kernels.problem(operator), device.kind)[0])
        beside = visited(library)
    roofs = [row for rows in before[-1:] for row in rows if row.role != "measurement"]
    key = RunKey.of(roofs[0])._asdict() if roofs else {"run_id": "", "device_id": device.id}
    facts = {"commit": "", "threads": worker.threads("all") or 1} | result.columns()
    row = visit_row(case, device, run.protocol, key | facts)
    (judged,) = runs([*roofs, row])
    return result.columns() | {
        "rate_per_s": (row.flop if row.rate == "flop" else row.byte) / (row.median_s or math.nan),
        "of_roof": reached(row, judged.roof_of(row)),
        "bound_by": judged.bounds[-1],
        "flags": judged.flags_of(row),
        "library": library.implementation,
        "library_s": beside.median_s,
    }
