"""How often `ab` finds a slowdown, and how often it is wrong: `python -m studies.ab [SEED [TRIES]]`.

Each try compares two versions in ten cases, of which the new one takes 5 % longer or just as long. The
decisions are those of bench/runner/ab.py; only the visits and the clock are made up. A visit's noise is that
of a committed run of a CPU (studies/honest_claims.py): in each round each worker takes the place of one
row of that run, with all that this row was off its case's usual time, since a new process may be off as far.
The cases are matrix products, other work from memory, or one and the other in turns. The last machine is
simulated.

Workers that start, and visits, take as long as they do on two idle cores.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

import kernels
from bench.judge.work_class import WorkClass
from bench.runner.ab import Side, contests
from bench.spec import Problem
from bench.sweep.load import Case
from bench.worker.visit import VisitResult
from studies.honest_claims import Machine, machines
from studies.simulated_streams import RUN_S

CASES = 10
BUDGET_S, VISIT_S, START_S = 55.0, 0.25, 1.3
"""Wall seconds of a try, of one visit, and of starting the two workers of a round."""
SAMPLES = 20
"""Most samples of a visit: 0.1 s of launches that take 5 ms."""
SLOWER, SAME = 0.05, 0.02
PROBLEMS: Mapping[str, Problem] = {
    "matrix": kernels.problem("gemm").model_validate({"dtype": "float32", "m": 8, "n": 8, "k": 8}),
    "memory": kernels.problem("softmax").model_validate(
        {"dtype": "float32", "direction": "forward", "rows": 8, "length": 8}
    ),
}
"""Kind of work -> a problem of that kind."""
WORKS: Mapping[str, tuple[str, ...]] = {
    "matrix": ("matrix",),
    "memory": ("memory",),
    "both": ("matrix", "memory"),
}


class Outcomes(NamedTuple):
    """What many tries at one effect came to."""

    words: Counter[str]
    """Verdict -> cases."""
    all_found: int
    """Tries in which every case was found slower."""
    seconds: float
    """The mean of a try."""

    def of(self, *words: str) -> float:
        """Share of the cases with one of these verdicts."""
        return sum(self.words[word] for word in words) / self.words.total()


class Simulated:
    """Two versions on one machine, in one run: visits, and the clock that they move."""

    def __init__(self, machine: Machine, effect: float, chance: np.random.Generator) -> None:
        self.visits_at, self.effect = machine.run(chance), effect
        self.began_s = chance.uniform(0, RUN_S - BUDGET_S)
        self.at_s = 0.0

    def now(self) -> float:
        return self.at_s

    def renew(self) -> None:
        self.at_s += START_S

    def visit(self, case: Case, side: Side) -> VisitResult:
        self.at_s += VISIT_S
        at = (self.began_s + self.at_s) / RUN_S
        work = WorkClass.COMPUTE if case.problem.arithmetic == "matrix" else WorkClass.MEMORY
        visit = next(visit for visit in self.visits_at(work, [at]) if visit.at == at)
        factor = 1 + self.effect if side == "new" else 1.0
        return VisitResult(median_s=1e-3 * factor * float(np.median(visit.samples[:SAMPLES])))


def outcomes(seed: int, machine: Machine, works: Sequence[str], effect: float, tries: int) -> Outcomes:
    """What so many tries on a machine came to, their cases of these kinds of work in turns."""
    problems = [PROBLEMS[works[number % len(works)]] for number in range(CASES)]
    cases = [Case(f"{n}", "a", problem, "cold", "", "measurement") for n, problem in enumerate(problems)]
    words, all_found, seconds = Counter[str](), 0, 0.0
    for number in range(tries):
        simulated = Simulated(machine, effect, np.random.default_rng([seed, number]))
        decided = contests(cases, simulated.visit, simulated.renew, BUDGET_S, SAME, simulated.now)
        of_try = Counter(contest.verdict for contest in decided)
        words += of_try
        all_found += of_try["SLOWER"] == CASES
        seconds += simulated.at_s / tries
    return Outcomes(words, all_found, seconds)


def table(seed: int, tries: int) -> Iterator[str]:
    """A line for each machine and kind of work."""
    yield f"seed {seed}, {tries} tries a line, {CASES} cases in {BUDGET_S:.0f} s; same within {SAME:.0%}"
    yield ""
    yield (
        "| machine | work | 5 % slower: found | called faster | all ten found | seconds "
        "| no difference: called different | same | undecided |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for machine in (*machines()[3:], machines()[1]):
        for name, works in WORKS.items():
            slower = outcomes(seed, machine, works, SLOWER, tries)
            equal = outcomes(seed, machine, works, 0.0, tries)
            cells = (
                f"{slower.of('slower'):.1%}",
                f"{slower.of('faster'):.1%}",
                f"{slower.all_found / tries:.0%}",
                f"{slower.seconds:.0f}",
                *(f"{equal.of(*words):.1%}" for words in (("SLOWER", "FASTER"), ("SAME",), ("UNDECIDED",))),
            )
            yield f"| {machine.name} | {name} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    for line in table(*given, *(0, 100)[len(given) :]):
        print(line, flush=True)
