"""Examples of every operator on a device, which `pytest bench/` checks without --benchmark.

Unless all are requested, a few stand for them: for every operator and family of implementations enough to
cover each implementation of the family, and each value that a parameter has in any example (data type,
layout, direction, an awkward size). Pairs of values are not covered: ROOFBENCH_DEEP=1 covers them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from bench.runner.supervisor import WorkerSupervisor
from bench.runner.worker_process import WorkerDied
from bench.spec import DeviceKind, Problem
from bench.sweep.load import Find
from bench.worker.visit import VisitResult


class Check(NamedTuple):
    """An implementation at one example."""

    operator: str
    implementation: str
    parameters: Mapping[str, Hashable]

    @property
    def family(self) -> tuple[str, str]:
        """Implementations that are tested together: a kernel at any forced tile (`triton-256x128`) is one."""
        return self.operator, re.sub(r"-\d+x\d+$", "-tile", self.implementation)

    @property
    def features(self) -> set[Hashable]:
        """The implementation and the parameters' values: what this check covers."""
        return {("implementation", self.implementation), *self.parameters.items()}


def check_of(example: Problem, implementation: str, kind: DeviceKind) -> Check:
    """Its check on such a device. What is compiled from C++ takes seconds: one example covers it."""
    is_slow = kind == "cpu" and example.implementation(implementation).cpp_on_cpu
    return Check(example.operator, implementation, {} if is_slow else example.parameters())


def cover(checks: Sequence[Check]) -> list[int]:
    """Indices, ascending, of checks that together cover every feature of their families; deterministic.

    Greedy: the next check is the first one with most features that no chosen check has.
    """
    families: dict[tuple[str, str], list[int]] = {}
    for index, check in enumerate(checks):
        families.setdefault(check.family, []).append(index)
    chosen: list[int] = []
    for members in families.values():
        features = {index: checks[index].features for index in members}
        missing = set().union(*features.values())
        while missing:
            best = max(members, key=lambda index: len(features[index] & missing))
            missing -= features[best]
            chosen.append(best)
    return sorted(chosen)


class Examples:
    """(implementation, example) pairs that a device can run, by the names of their tests."""

    def __init__(self, worker: WorkerSupervisor, find: Find, operators: Iterable[str]) -> None:
        """Ask the started `worker` for the operators' examples; `find` gives an operator's problem class."""
        self._worker, device = worker, worker.device
        self._checks: dict[str, tuple[str, Problem]] = {}
        self._broken: dict[str, str] = {}
        for operator in operators:
            try:
                examples = [find(operator)(**parameters) for parameters in worker.examples(operator)]
            except WorkerDied as error:  # one broken operator must not hide what the others show
                self._broken[f"{operator}-cannot-be-tested"] = str(error)
                continue
            for example, each in product(examples, find(operator).implementations):
                if not example.missing(each.name, device.kind, device.capability):
                    test = f"{operator}-{each.name}-{example}".replace(" ", "-")
                    self._checks[test] = (each.name, example)

    @property
    def names(self) -> list[str]:
        """Names of their tests; what cannot be tested at all comes last."""
        return [*self._checks, *self._broken]

    def few(self, names: Sequence[str]) -> list[str]:
        """A few of these examples that stand for all; what is broken stays."""
        there = [name for name in names if name in self._checks]
        pairs = [self._checks[name] for name in there]
        kept = cover([check_of(example, name, self._worker.device.kind) for name, example in pairs])
        chosen = {there[index] for index in kept}
        return [name for name in names if name in chosen or name in self._broken]

    def check(self, name: str) -> VisitResult:
        """Check an implementation at an example, in the first configuration that compiles."""
        if name in self._broken:
            return VisitResult("error", self._broken[name])
        implementation, example = self._checks[name]
        return self._worker.check(implementation, example, quick=True)
