"""What the rule of choosing.py asks and loses over sweeps of GEMM, and how often it proposes each kernel.

    python -m tests.kernels.gemm_choices [--sm 132] [--capability 9.0] [--spread 0.1] [SWEEP ...]
    python -m tests.kernels.gemm_choices --kernels

For each sweep, and for all cases of suites: the shapes, the questions that the tuner is asked, the
candidates that are timed, and the loss: the time of what is chosen over the best of all candidates, the
mean of all shapes and the worst. Times are modelled (kernels/gemm/duration.py); with a spread every
configuration is quicker or slower by a factor of its own that no rule knows, drawn once, as on a device.

`--kernels`: over the GPUs of all datasheets, as far as a choice depends on them, and all products of our
sweeps and of a grid of sizes, how many products each kernel is timed for, and is the likeliest of all for.

Needs no GPU.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, get_args

import kernels
from bench.device.datasheet import datasheets
from bench.sweep import load as sweep
from bench.sweep.suites import load_suite
from kernels.gemm import choosing
from kernels.gemm.choosing import Choice, Device, Question
from kernels.gemm.problem import FORCED_TILES, Gemm, Layout

SWEEPS = tuple(
    f"gemm/{name}"
    for name in ("tile_quantization", "wave_quantization", "waves", "past_a_tile", "linear_waves")
)
SUITES = ("tour", "core", "full")
_choices_of = functools.cache(choosing.choices_of)


class Case(NamedTuple):
    """A shape for one of our implementations."""

    problem: Gemm
    name: str


Clock = Callable[[Case, Choice, Device], float]
"""How long a choice takes; in any unit."""


def asked_of(case: Case, at: Device) -> Question:
    """What the rule of choosing.py asks the device, with the choices that are timed alone."""
    question = choosing.question_of(case.problem, case.name, at)
    return question._replace(choices=question.choices[: choosing.PROPOSED])


def clock(spread: float, seed: int) -> Clock:
    """Modelled times; each configuration of a kernel is off by its own factor, log-normal with this
    spread."""

    def seconds(case: Case, choice: Choice, at: Device) -> float:
        own = random.Random(f"{seed} {choice.grouped(8)}").gauss(0.0, spread)
        return choosing.cost(case.problem, choice, *at) * math.exp(own)

    return seconds


class Outcome(NamedTuple):
    """What the rule made of some cases."""

    questions: int
    timed: int
    """Candidates of all questions together."""
    losses: list[float]
    """Of each case: time of what was chosen / time of the best candidate."""

    def __str__(self) -> str:
        mean = statistics.fmean(self.losses) if self.losses else 1.0
        return f"{self.questions:>5} {self.timed:>6}   {mean:5.3f} {max(self.losses, default=1.0):5.2f}"


def played(cases: Iterable[Case], at: Device, seconds: Clock) -> Outcome:
    """Ask for every case in turn, time where the question is new, and judge by the case's own best."""
    answers: dict[object, Choice] = {}
    timed = 0
    losses = []
    for case in cases:
        asked = asked_of(case, at)
        if asked.key not in answers:
            answers[asked.key] = min(asked.choices, key=lambda choice: seconds(case, choice, at))
            timed += len(asked.choices) if len(asked.choices) > 1 else 0
        best = min(seconds(case, choice, at) for choice in everything(case, at))
        losses.append(seconds(case, answers[asked.key], at) / best)
    return Outcome(len(answers), timed, losses)


@functools.cache
def everything(case: Case, at: Device) -> list[Choice]:
    """All configurations of the kernel that is asked for, or of all kernels."""
    names = [case.name] if case.name != "triton" else [f"triton-{kernel}" for kernel in choosing.VARIANTS]
    able = [
        name
        for name in names
        if not case.problem.refusal(name) and not case.problem.missing(name, "cuda", at.capability)
    ]
    return [choice for name in able for choice in _choices_of(case.problem, name, *at)]


def cases_of(sweeps: Iterable[str], at: Device) -> list[Case]:
    """Our cases of these sweeps, in their order, each once."""
    paths = [path for name in sweeps for path in sweep.select(name)]
    loaded = sweep.load_all(paths, kernels.problem, at.sm_count)
    return _kept(((case.problem, case.implementation) for each in loaded for case in each.cases), at)


def choosing_ones(cases: Iterable[Case]) -> list[Case]:
    """Those that choose; of a sweep that has none, since it is held to a tile, its shapes as `triton` has
    them."""
    held = {f"triton-{tile}" for tile in FORCED_TILES}
    several = list(cases)
    found = [case for case in several if case.name not in held]
    return found or list(dict.fromkeys(case._replace(name="triton") for case in several))


def cases_of_suite(name: str, at: Device) -> list[Case]:
    """Our cases of this suite, each once."""
    from bench.cli.list_cases import of_datasheet
    from bench.cli.predict import datasheet_named
    from bench.runner.comparisons import cases_of_suite
    from bench.runner.forecast import Prices, budget_s
    from bench.sampling.protocol import protocol

    found = load_suite(name, kernels.problem, at.sm_count)
    device = of_datasheet(datasheet_named("h100_sxm5"))
    settings = protocol(device.kind, found.suite.visits.of(device.kind))
    prices = Prices(device, settings, budget_s(None, device.kind, found.suite))
    of_suite = cases_of_suite(found, prices)
    return _kept(((case.problem, case.implementation) for case in of_suite), at)


def _kept(cases: Iterable[tuple[object, str]], at: Device) -> list[Case]:
    kept = {
        Case(problem, name): None
        for problem, name in cases
        if isinstance(problem, Gemm) and name.startswith("triton")
        if not problem.refusal(name) and not problem.missing(name, "cuda", at.capability)
    }
    return [case for case in kept if _choices_of(case.problem, case.name, *at)]


def devices() -> list[Device]:
    """GPUs on which Triton multiplies something, each kind once, oldest first."""
    some = {Device(one.capability, one.sm_count) for one in datasheets() if one.capability}
    return sorted(one for one in some if one.capability >= (7, 0))


def grid(turn: int) -> Iterator[Gemm]:
    """Sizes from 1 to 65,536; types, layouts and misaligned N and K take turns, from `turn` on."""
    odd = ((0, 0), (8, 0), (1, 0), (0, 1), (0, 0))
    ways = itertools.cycle(itertools.product(get_args(Layout), Gemm.implementation("triton").dtypes))
    sizes = itertools.product([4**power for power in range(9)], repeat=3)
    for (m, n, k), (more_n, more_k), (layout, dtype) in zip(
        sizes, itertools.cycle(odd), itertools.islice(ways, turn, None), strict=False
    ):
        yield Gemm(m=m, n=n + more_n, k=k + more_k, layout=layout, dtype=dtype)


def print_kernels() -> None:
    """Print how many products each kernel is timed for."""
    timed, first, products = Counter[str](), Counter[str](), 0
    for turn, at in enumerate(devices()):
        loaded = sweep.load_all(sweep.every_sweep(), kernels.problem, at.sm_count)
        every = {case.problem: None for each in loaded for case in each.cases}
        for problem in (*(one for one in every if isinstance(one, Gemm)), *grid(turn)):
            if problem.missing("triton", "cuda", at.capability):
                continue
            found = [one.variant for one in asked_of(Case(problem, "triton"), at).choices]
            products += 1
            timed.update(set(found))
            first.update(found[:1])
    print(f"{products} products on {len(devices())} kinds of GPU\n{'timed':>8} {'likeliest':>9}")
    for kernel in choosing.VARIANTS:
        print(f"{timed[kernel]:>8} {first[kernel]:>9}  {kernel}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweeps", nargs="*", default=SWEEPS)
    parser.add_argument("--sm", type=int, default=132)
    parser.add_argument("--capability", default="9.0")
    parser.add_argument("--spread", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernels", action="store_true")
    given = parser.parse_args()
    if given.kernels:
        print_kernels()
        return
    major, minor = given.capability.split(".")
    at = Device((int(major), int(minor)), given.sm)
    seconds = clock(given.spread, given.seed)
    print(f"compute capability {given.capability}, {given.sm} SMs, spread {given.spread}, seed {given.seed}")
    print(f"{'':26} shapes    asked  timed    mean worst")
    rows = [(name, cases_of([name], at)) for name in given.sweeps]
    rows += [(f"suite {name}", cases_of_suite(name, at)) for name in SUITES] if given.sweeps is SWEEPS else []
    for name, cases in rows:
        tuned = choosing_ones(cases)
        print(f"{name:26} {len(tuned):>6}    {played(tuned, at, seconds)}")


if __name__ == "__main__":
    main()
