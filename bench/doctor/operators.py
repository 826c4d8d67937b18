"""One small problem of each operator, by each implementation, compared with float64 by real workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import kernels
from bench.device.detect import Device
from bench.doctor.finding import Finding, failed, outcome, passed, warned
from bench.runner.supervisor import WorkerSupervisor
from bench.spec import Problem

WITHIN_S = 25.0
"""After this time no further case is begun; a finding names those that were not reached."""
HANG_S = 120.0
"""Seconds after which a case counts as hung: most compile in a second or two, Inductor's first C++ in 30."""
MOST_WORKERS = 8
SMALL_BYTE = 4096
"""Examples of at least this many bytes are preferred: a single element shows little."""
FAULTY = ("wrong", "error", "crashed", "timeout", "out_of_memory", "escaped")
"""Statuses that the rows of a sound implementation never have."""
REMEDY = "Leave the implementation out of decisions, and report this line: its rows are failures."


class Asked(NamedTuple):
    """One implementation at one problem."""

    implementation: str
    problem: Problem


def operators(device: Device) -> Iterator[Finding]:
    """One finding for each operator; on a GPU from several workers at once, as each compiles on one core."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # each worker would start a process for each core
    count = 1 if device.kind == "cpu" else max(1, min(MOST_WORKERS, (os.cpu_count() or 1) // 2))
    workers = [WorkerSupervisor(device, grace_s=HANG_S) for _ in range(count)]
    examples = {
        name: [kernels.problem(name)(**each) for each in workers[0].examples(name)]
        for name in kernels.names()
    }
    every = list(cases(device, examples))
    rows = answers(every, workers)
    for name in examples:
        mine = [asked for asked in every if asked.problem.operator == name]
        if not mine:
            yield passed(name, "No implementation of it runs on this device.")
        elif reached := {asked: rows[asked] for asked in mine if asked in rows}:
            yield judged(name, reached)
    if left := [f"{of.problem.operator} {of.implementation}" for of in every if of not in rows]:
        sentence = f"{len(left)} of {len(every)} were not reached in {WITHIN_S:.0f} s, the first: {left[0]}."
        yield warned("not reached", sentence, "Run them all: python -m pytest bench/")


def cases(device: Device, examples: Mapping[str, Sequence[Problem]]) -> Iterator[Asked]:
    """Each implementation that runs here at one example: in the device's usual data type, if it has that.

    Of Inductor on a CPU, whose C++ takes seconds to compile, one case is enough, and comes last.
    """
    compiled, usual = [], "float32" if device.kind == "cpu" else "float16"
    for name, problems in examples.items():
        for implementation in kernels.problem(name).implementations:
            here = (implementation.name, device.kind, device.capability)
            if able := [problem for problem in problems if not problem.missing(*here)]:
                case = Asked(implementation.name, small([p for p in able if p.dtype == usual] or able))
                if implementation.cpp_on_cpu and device.kind == "cpu":
                    compiled.append(case)
                else:
                    yield case
    yield from compiled[:1]


def small(problems: Sequence[Problem]) -> Problem:
    """The smallest of at least SMALL_BYTE; the largest if all are smaller."""
    large = [each for each in problems if each.byte >= SMALL_BYTE]
    return min(large, key=lambda p: p.byte + p.flop) if large else max(problems, key=lambda p: p.byte)


def answers(
    every: Sequence[Asked], workers: Sequence[WorkerSupervisor], now: Callable[[], float] = time.monotonic
) -> dict[Asked, dict[str, Any]]:
    """The row of each case that was begun within WITHIN_S; a worker takes the next as soon as it is free."""
    until, waiting = now() + WITHIN_S, iter(every)
    rows: dict[Asked, dict[str, Any]] = {}

    def serve(worker: WorkerSupervisor) -> None:
        with closing(worker):
            while now() < until and (asked := next(waiting, None)) is not None:
                rows[asked] = worker.check(asked.implementation, asked.problem, quick=True).columns()

    with ThreadPoolExecutor(len(workers)) as pool:
        try:
            list(pool.map(serve, workers))
        except BaseException:  # interrupted: the pool would wait for what is running
            waiting = iter(())
            for worker in workers:
                worker.kill()
            raise
    return rows


def judged(name: str, rows: Mapping[Asked, Mapping[str, Any]]) -> Finding:
    """The finding for an operator: is every implementation right?"""

    def those(*statuses: str) -> list[str]:
        return [f"{a.implementation} {outcome(row)}" for a, row in rows.items() if row["status"] in statuses]

    right = [asked.implementation for asked, row in rows.items() if row["status"] == "ok"]
    sentence = f"{len(right)} of {len(rows)} implementations are right ({', '.join(right) or 'none'})."
    for word, listed in (("Failing", faulty := those(*FAULTY)), ("Unsupported", those("unsupported"))):
        if listed:
            sentence += f" {word}: {'; '.join(listed)}."
    return failed(name, sentence, REMEDY) if faulty else passed(name, sentence)
