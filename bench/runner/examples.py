"""Examples of every operator on the devices of a run, which `pytest bench/` checks without --benchmark.

Unless all are requested, a few stand for them: for every operator and family of implementations enough to
cover each implementation of the family, and each value that a parameter has in any example (data type,
layout, direction, an awkward size). Pairs of values are not covered: --bench-all-examples covers them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.errors import UserError
from bench.runner.run import Run
from bench.runner.session import Session
from bench.runner.worker_process import WorkerDied
from bench.spec import DeviceKind, Problem, without_function


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
    """(implementation, example) pairs that the devices can run, by the names of their tests."""

    def __init__(self, run: Run, find: Callable[[str], type[Problem]], operators: Iterable[str]) -> None:
        """`find` gives an operator's problem class. If a worker does not start there are none."""
        self._checks: dict[str, tuple[Session, str, Problem]] = {}
        self._broken: dict[str, str] = {}
        self.unstarted = ""
        """Why no worker starts; empty if they do. It is reported once, not for every operator."""
        self.left_out = 0
        """Number of examples that others stand for."""
        try:
            for session in run.sessions:
                run.libraries(session)
        except UserError as error:
            self.unstarted = str(error)
            return
        for operator in operators:
            for session in run.sessions:
                self._add(run, session, find, operator)

    def _add(self, run: Run, session: Session, find: Callable[[str], type[Problem]], operator: str) -> None:
        device = session.device
        try:
            problem, (parameters, functionless) = find(operator), session.worker.examples(operator)
        except WorkerDied as error:  # one broken operator must not hide what the others show
            self._broken[run.name(session, f"{operator}-cannot-be-tested")] = str(error)
            return
        for name in functionless:
            words = f"{operator}-{name}-cannot-be-tested"
            self._broken[run.name(session, words)] = without_function(operator, name)
        for example in (problem(**values) for values in parameters):
            for implementation in problem.implementations:
                name = implementation.name
                if name not in functionless and not example.missing(name, device.kind, device.capability):
                    words = f"{operator}-{name}-{example}".replace(" ", "-")
                    self._checks[run.name(session, words)] = (session, name, example)

    @property
    def names(self) -> list[str]:
        """Names of their tests; what cannot be tested at all comes last."""
        return [*self._checks, *self._broken]

    def few(self, names: Sequence[str]) -> list[int]:
        """Indices of a few of these examples that stand for all, on each device; what is broken stays."""
        kept = [index for index, name in enumerate(names) if name in self._broken]
        by_session: dict[int, list[int]] = {}
        for index, name in enumerate(names):
            if name in self._checks:
                by_session.setdefault(id(self._checks[name][0]), []).append(index)
        for indices in by_session.values():
            examples = [self._checks[names[index]] for index in indices]
            checks = [check_of(example, name, each.device.kind) for each, name, example in examples]
            kept += [indices[place] for place in cover(checks)]
        self.left_out = len(names) - len(kept)
        return sorted(kept)

    def check(self, name: str) -> dict[str, Any]:
        """Check an implementation at an example, in the first configuration that compiles."""
        if name in self._broken:
            return {"status": "error", "reason": self._broken[name]}
        session, implementation, example = self._checks[name]
        return session.check(implementation, example, quick=True)
