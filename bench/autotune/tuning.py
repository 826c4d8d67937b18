"""Choosing among the configurations of one of our kernels: the device decides, once, and it is written down.

The first TIMED of a list that run are timed, by the clock that times rows (`timed_by`): each launch comes
after the cache was flushed, as rows are measured cold, and what flushing takes is the same for all. A walk
forwards through them warms the device up, then come one backwards and one forwards, whose times count: so a
steady drift of the clock rate affects all alike. What it takes is part of no measured time, and is reported
(`Launch.tuning_s`). Answers are kept (choices.py). Without a clock, as in checks, the first that runs is
taken.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import torch

from bench.autotune.choices import choices_of, sources
from bench.autotune.ending import await_end, trusted
from bench.causes import cause
from bench.spec import Launch, Unsupported

C = TypeVar("C")

TIMED = 6
"""Candidates that are timed for one question."""
LAUNCHES = 4
"""Launches of one sample, each after a flush."""
LOOK_S = 0.01
"""Seconds of sampling one candidate in one walk; a single sample may take longer."""
MOST_SAMPLES = 100
"""Of one candidate in one walk."""


class Clock(Protocol):
    """What is asked of a device's clock; those of bench/worker/clock.py can it."""

    flush: Callable[[], None]

    def batch(self, calls: Sequence[Callable[[], Any]], flushed: bool) -> Callable[[], float]:
        """These calls, queued in order; calling it runs them and returns the seconds of all together."""
        ...


_CLOCK: ContextVar[Clock | None] = ContextVar("clock", default=None)


@contextmanager
def timed_by(clock: Clock | None) -> Iterator[None]:
    """Within it `tuned` times candidates by this clock.

    Without one it takes the first that runs: nothing is timed, and no choices are read or written.
    """
    before = _CLOCK.set(clock)
    try:
        yield
    finally:
        _CLOCK.reset(before)


def is_timing() -> bool:
    """Whether there is a clock; what is chosen without one is no choice to remember."""
    return _CLOCK.get() is not None


def tuned(
    question: tuple[object, ...],
    candidates: Sequence[C],
    launch: Callable[[C], Launch],
    compile: Callable[[C], object] | None = None,  # noqa: A002
) -> Launch:
    """The launch of the candidate that takes least time on the current device.

    It says which candidate that is, which were passed over, and how long choosing took.

    `question` begins with the operator's name and says all that a choice depends on; candidates are told
    apart by their text. The only candidate is taken untried. With `compile`, which makes a candidate's
    program without running it, those that are timed are compiled side by side first. A candidate that does
    not compile, or that the device has no room for, is passed over, and the next in the list takes its place.
    If that is all of them: Unsupported where none fits; RuntimeError, whose cause is the compiler's error,
    otherwise. Any other error of a launch is raised; Stuck where a launch does not end. Kernels that got
    stuck earlier in the run are passed over (ending.py).
    """
    begin, clock = time.perf_counter(), _CLOCK.get()
    candidates, given_up = trusted(candidates)

    def chosen(candidate: C, passed_over: Iterable[str] = (), tuning_s: float = 0.0) -> Launch:
        passed_over = (*given_up, *passed_over)
        made = launch(candidate)
        return replace(made, tuning_s=tuning_s, passed_over=passed_over, configuration=str(candidate))

    if len(candidates) == 1:
        return chosen(candidates[0])
    passed_over: list[str] = []
    running = _running(candidates, launch, passed_over)
    if clock is None:
        return chosen(next(running), passed_over)
    choices = choices_of(torch.cuda.current_device())
    text = " ".join(map(str, (question[0], sources(str(question[0])), *question[1:])))
    before = choices.get(text)
    for candidate in candidates:
        if str(candidate) == before.get("configuration"):
            return chosen(candidate, before.get("passed_over", ()))
    if compile is not None:
        _compile_side_by_side(candidates[:TIMED], compile)
    runnable = list(itertools.islice(running, TIMED))
    best = _quickest(runnable, launch, clock)
    if not given_up:  # else it is no choice for other runs
        answer = {"configuration": str(best), "of": len(runnable), "passed_over": passed_over}
        choices.put(text, answer)
    return chosen(best, passed_over, time.perf_counter() - begin)


def _quickest(runnable: Sequence[C], launch: Callable[[C], Launch], clock: Clock) -> C:
    """The candidate whose launches take least time, with a cold cache."""
    places = range(len(runnable))
    seconds = [0.0] * len(runnable)
    for counts, walk in ((False, places), (True, reversed(places)), (True, places)):
        for place in walk:
            # Built anew each time: a launch holds its outputs, which may take up much of the device.
            seconds[place] += counts * _sample_s(launch(runnable[place]).call, clock)
    return runnable[min(places, key=seconds.__getitem__)]


def _sample_s(call: Callable[[], object], clock: Clock) -> float:
    """Median seconds of samples of LAUNCHES flushes and launches."""
    batch = clock.batch([clock.flush, call] * LAUNCHES, False)
    samples = [batch()]
    while sum(samples) < LOOK_S and len(samples) < MOST_SAMPLES:
        samples.append(batch())
    return statistics.median(samples)


def _compile_side_by_side(candidates: Sequence[C], compile: Callable[[C], object]) -> None:  # noqa: A002
    """Fill Triton's cache from several threads. What fails to compile here fails again when it is tried.

    Triton 3.6 forgets a failed compilation and repeats it; 3.7 keeps it and raises the same error again.
    """
    import triton

    with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
        for candidate in candidates:
            with suppress(Unsupported):
                compile(candidate)


def _running(candidates: Sequence[C], launch: Callable[[C], Launch], passed_over: list[str]) -> Iterator[C]:
    """The candidates that run: each one's launch has been called and has finished.

    `candidate: reason` of the others goes to `passed_over`. If that is all of them: raises what `tuned` does.
    """
    not_compiled: Exception | None = None
    for candidate in candidates:
        try:
            launch(candidate).call()
        except Exception as error:
            if isinstance(error, Unsupported) or type(error).__name__ == "OutOfResources":  # Triton's
                reason = str(error)
            elif _is_of_the_compiler(error):
                reason, not_compiled = cause(error), not_compiled or error
            else:  # not the candidate's fault: the device's, or a mistake in our code
                raise
            passed_over.append(f"{candidate}: {reason}")
        else:
            # Two launches may share a workspace, so they must not overlap; a fault of the kernel shows here.
            await_end(candidate)
            yield candidate
    if len(passed_over) < len(candidates):
        return
    none = f"none of {len(candidates)} configurations"
    if not_compiled is not None:
        raise RuntimeError(f"{none} compiles; {passed_over[-1]}") from not_compiled
    raise Unsupported(f"{none} can run on this device; {passed_over[-1]}")


def _is_of_the_compiler(error: Exception) -> bool:
    """Whether Triton's compiler raised this, which loads and launches nothing.

    What it raises is of many kinds (CompilationError, PTXASError, the RuntimeError of a pass), and a failed
    launch raises some of them too: so the place counts, not the class. A host that has no memory or disk left
    is no fault of the candidate. Triton 3.7 keeps what a thread raised, hence also our frames and the tensors
    in them: those are dropped.
    """
    here = None if isinstance(error, OSError | MemoryError) else error.__traceback__
    while here is not None:
        code = here.tb_frame.f_code
        if code.co_name == "compile" and code.co_filename.endswith("triton/compiler/compiler.py"):
            error.with_traceback(here)
            return True
        here = here.tb_next
    return False
