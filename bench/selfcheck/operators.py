"""Checks of what a run would measure: its forecast, and every operator, implementation and data type."""

from __future__ import annotations

import os
import time
from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import kernels
from bench.device.detect import Device
from bench.format import duration_text
from bench.runner.run import Options, Run
from bench.runner.supervisor import WorkerSupervisor, check_request
from bench.selfcheck.finding import FAULTY, Finding, checked, failed, guarded, passed, warned
from bench.selfcheck.rows import outcome
from bench.spec import Problem
from bench.sweep.suites import TOUR

LONG_S = 2 * 3600.0
BUDGET_REMEDY = "Give it a budget: --bench-budget 600."
SWEEPS_REMEDY = "Look at python -m bench list: no case of the sweeps can run on this device."


def forecast(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The forecast of a full run as one finding."""
    return guarded("forecast", SWEEPS_REMEDY, lambda: iter([forecast_finding(planned(device.kind))]))


def planned(device: str) -> dict[str, Any]:
    """The plan of `pytest bench/ --benchmark` as the run itself makes it before its first measurement."""
    run = Run(Options(device, suite=TOUR), kernels.problem, opens=False)
    names = list(run.cases)
    order = run.order(names)
    run.plan(names[index] for index in order)
    session = run.sessions[0]
    expected = session.planner.forecast(0.0)
    return {
        "cases": len(names),
        "runnable": len(order),
        "planned": expected.planned.cases + expected.ceilings.cases,
        "seconds": expected.seconds,
        "budget_s": session.budget_s,
    }


def forecast_finding(numbers: Mapping[str, Any]) -> Finding:
    """The finding for what `planned` returned."""
    if not numbers["runnable"]:
        return failed("forecast", f"None of {numbers['cases']} cases can run here.", SWEEPS_REMEDY, **numbers)
    seconds, budget_s = numbers["seconds"], numbers["budget_s"]
    within = "without a budget" if budget_s is None else f"within {duration_text(budget_s)}"
    sentence = (
        f"pytest bench/ --benchmark, the {TOUR}: {numbers['planned']} of the {numbers['runnable']} cases "
        f"that can run here (of {numbers['cases']}), {within}; about {duration_text(seconds)}."
    )
    return checked("forecast", seconds <= LONG_S, sentence, BUDGET_REMEDY, **numbers)


# ---- every operator at a small problem, compared with float64

WITHIN_S = 25.0
"""After this time no further check is begun; a finding names those that were not reached."""
HANG_S = 20.0
"""A check that had less time than this left and ran into the end was cut short, not hung."""
MOST_WORKERS = 8
CORES_A_WORKER = 2
WORTH_SAYING_S = 0.1
SMALL_BYTE = 4096
"""Examples of at least this many bytes are preferred: a single element shows little."""
REMEDY = "Leave the implementation out of decisions, and report it with the JSON file: its rows are failures."
TORCH_REMEDY = (
    "Reinstall torch with the libraries that its wheel asks for, and nothing else on LD_LIBRARY_PATH."
)
REMEDIES = {
    "cublas": TORCH_REMEDY,
    "cublaslt": "Install nvmath-python 1.0 or later, and see that its CUDA is that of torch.",
    "cudnn": TORCH_REMEDY,
    "cudnn-spatial": TORCH_REMEDY,
    "cudnn-persistent": TORCH_REMEDY,
    "inductor": "See that a C compiler and Triton's ptxas work here: the JSON file has what they said.",
}
"""Implementation -> what to do if it is wrong, or not available in any data type."""


@dataclass(frozen=True)
class OperatorCheck:
    """One implementation at one problem."""

    implementation: str
    problem: Problem

    def __str__(self) -> str:
        return f"{self.problem.operator} {self.short}"

    @property
    def short(self) -> str:
        """The question without its operator."""
        return f"{self.implementation} {self.problem.dtype}"


@dataclass(frozen=True)
class CheckedRow:
    """The row that answers a question, and the wall seconds it took, for the most part compiling."""

    question: OperatorCheck
    row: dict[str, Any]
    seconds: float

    def json(self) -> dict[str, Any]:
        """The answer as the JSON file holds it."""
        problem = self.question.problem
        what = {"operator": problem.operator, "implementation": self.question.implementation}
        return what | {"parameters": problem.parameters(), "seconds": self.seconds} | self.row

    def __str__(self) -> str:
        return f"{self.question.short} {outcome(self.row)}"


def operators(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """One finding for each operator; on a GPU from several workers at once, as each compiles on one core."""
    start = partial(WorkerSupervisor, device, grace_s=WITHIN_S)
    questions, refused = combinations(device, _examples(start()))
    cores = os.cpu_count() or 1
    workers = 1 if device.kind == "cpu" else max(1, min(MOST_WORKERS, cores // CORES_A_WORKER))

    # Each worker would start a pool of compiling processes, one for each core.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

    yield from judged(answers(questions, start, workers, WITHIN_S), questions, refused)


def _examples(worker: WorkerSupervisor) -> dict[str, list[Problem]]:
    """The examples of each operator by its name, from a worker, which has torch."""
    examples: dict[str, list[Problem]] = {}
    with closing(worker):
        for name in kernels.names():
            examples[name] = [kernels.problem(name)(**parameters) for parameters in worker.examples(name)[0]]
    return examples


def combinations(
    device: Device, examples: Mapping[str, Sequence[Problem]]
) -> tuple[list[OperatorCheck], dict[str, Counter[str]]]:
    """The questions, each implementation's first data type before any second one; and, by operator, why other
    combinations cannot run on this device.
    """
    refused: dict[str, Counter[str]] = {}
    rounds: list[tuple[int, OperatorCheck]] = []
    for name, problems in examples.items():
        reasons = refused.setdefault(name, Counter())
        for implementation in kernels.problem(name).implementations:
            turn = 0
            for dtype in implementation.dtypes:
                if turn and implementation.cpp_on_cpu and device.kind == "cpu":
                    break  # each takes seconds
                of_dtype = [problem for problem in problems if problem.dtype == dtype]
                able = [problem for problem in of_dtype if not problem.refusal(implementation.name)]
                if missing := implementation.missing(dtype, device.kind, device.capability):
                    reasons[missing] += 1
                elif not able:
                    reasons[f"{implementation.name} has no example of {dtype}"] += 1
                else:
                    rounds.append((turn, OperatorCheck(implementation.name, cheapest(able))))
                    turn += 1
    return [question for _, question in sorted(rounds, key=lambda pair: pair[0])], refused


def cheapest(problems: Sequence[Problem]) -> Problem:
    """The smallest of at least SMALL_BYTE; the largest if all are smaller."""

    def size(problem: Problem) -> int:
        return problem.byte + problem.flop

    large = [problem for problem in problems if problem.byte >= SMALL_BYTE]
    return min(large, key=size) if large else max(problems, key=size)


def answers(
    questions: Sequence[OperatorCheck],
    start: Callable[[], WorkerSupervisor],
    workers: int,
    within_s: float,
    now: Callable[[], float] = time.monotonic,
) -> list[CheckedRow]:
    """The answers in the order of their questions, but for those not begun within `within_s` or cut short.

    Each of the workers takes the next question as soon as it has answered the one before.
    """
    until = now() + within_s
    waiting = iter(questions)

    def serve() -> dict[OperatorCheck, CheckedRow]:
        answered = {}
        with closing(start()) as supervisor:
            while (left_s := until - now()) > 0 and (question := next(waiting, None)) is not None:
                begin, supervisor.grace_s = now(), left_s
                row = supervisor.answer(check_request(question.implementation, question.problem, quick=True))
                if row["status"] != "timeout" or left_s >= HANG_S:
                    answered[question] = CheckedRow(question, row, now() - begin)
        return answered

    with ThreadPoolExecutor(workers) as pool:
        answered = ChainMap(*(served.result() for served in [pool.submit(serve) for _ in range(workers)]))
    return [answered[question] for question in questions if question in answered]


def judged(
    answered: Sequence[CheckedRow], questions: Sequence[OperatorCheck], refused: Mapping[str, Counter[str]]
) -> Iterator[Finding]:
    """A finding for each operator, then one for the questions that were not reached."""
    for name, reasons in refused.items():
        of_it = [answer for answer in answered if answer.question.problem.operator == name]
        if of_it or all(question.problem.operator != name for question in questions):
            yield replace(_of_operator(name, of_it, reasons), seconds=sum(answer.seconds for answer in of_it))
    if left := len(questions) - len(answered):
        reached = {answer.question for answer in answered}
        names = [str(question) for question in questions if question not in reached]
        sentence = f"{left} of {len(questions)} combinations were not reached in {WITHIN_S:.0f} s"
        remedy = "Run the checks themselves, which take as long as they need: python -m pytest bench/"
        yield warned("not reached", f"{sentence}: {_few(names)}.", remedy, not_reached=names)


def _of_operator(name: str, answered: Sequence[CheckedRow], reasons: Counter[str]) -> Finding:
    numbers: dict[str, Any] = {"answers": [answer.json() for answer in answered], "not_asked": dict(reasons)}
    if not answered:
        return passed(name, f"Nothing of it runs on this device: {', '.join(reasons)}.", **numbers)
    statuses = Counter(answer.row["status"] for answer in answered)
    sentence = f"{statuses['ok']} of {len(answered)} combinations are right"
    slowest = max(answered, key=lambda answer: answer.seconds)
    if slowest.seconds >= WORTH_SAYING_S:
        sentence += f", the slowest after {slowest.seconds:.1f} s ({slowest.question.short})"
    sentence += "."
    if faulty := [answer for answer in answered if answer.row["status"] in FAULTY]:
        remedy = REMEDIES.get(faulty[0].question.implementation, REMEDY)
        return failed(name, f"{sentence} Failing: {_few(faulty, '; ')}.", remedy, **numbers)
    unsupported = [answer for answer in answered if answer.row["status"] == "unsupported"]
    if declined := Counter(f"{a.question.implementation}: {a.row['reason']}" for a in unsupported):
        sentence += f" Unsupported: {_few([f'{why} ({n})' for why, n in declined.items()], '; ')}."
    if reasons:
        sentence += f" Not for this device: {sum(reasons.values())}."
    asked = [answer.question.implementation for answer in unsupported]
    available = {answer.question.implementation for answer in answered if answer not in unsupported}
    if remedy := next((REMEDIES[each] for each in asked if each in REMEDIES and each not in available), ""):
        return warned(name, sentence, remedy, **numbers)
    return passed(name, sentence, **numbers)


def _few(names: Sequence[object], separator: str = ", ") -> str:
    """The first three, and how many more."""
    more = [f"and {len(names) - 3} more"] if len(names) > 3 else []
    return separator.join([*map(str, names[:3]), *more])
