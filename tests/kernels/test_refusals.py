"""Impossible problems, and what an implementation cannot do, are refused in the words of refusals.txt."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

import kernels
from bench.spec import DeviceKind, Problem
from tests.kernels.problems import REFUSALS, parameters


class Case(NamedTuple):
    """One line of the file, with one value of each parameter."""

    operator: str
    implementation: str
    """Empty where the problem itself is tried."""
    where: str
    """`cpu`, or a compute capability."""
    given: dict[str, Any]
    sentence: str
    """Empty where nothing is refused."""

    def __str__(self) -> str:
        return " ".join((self.operator, self.implementation, self.where, str(self.given)))

    def problem(self) -> Problem:
        return kernels.problem(self.operator).model_validate(self.given)


def cases() -> Iterator[Case]:
    """All of the file's."""
    operator, usual = "", ""
    for line in REFUSALS.read_text().splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            operator, _, usual = line.partition(":")
            yield from (Case(operator, "", "", given, "") for given in parameters(usual))
            continue
        text, _, sentence = line.partition(" -> ")
        names, colon, changed = text.strip().rpartition(":")
        implementations, _, where = (
            names.rpartition(" ") if names.endswith(("cpu", ".0")) else (names, "", "9.0")
        )
        for name, given in itertools.product(implementations.split(", "), parameters(f"{usual} {changed}")):
            yield Case(operator, name, where if colon else "", given, sentence)


@pytest.mark.parametrize("case", [*cases()], ids=str)
def test_what_cannot_be_done_is_said_in_a_sentence_and_nothing_else_is_refused(case: Case) -> None:
    if case.implementation:
        device: DeviceKind = "cpu" if case.where == "cpu" else "cuda"
        major, _, minor = case.where.partition(".")
        capability = (int(major), int(minor)) if device == "cuda" else None
        reason = case.problem().missing(case.implementation, device, capability)
        assert case.sentence in reason and bool(case.sentence) == bool(reason), reason
    elif case.sentence:
        with pytest.raises(ValidationError) as raised:
            case.problem()
        assert case.sentence in str(raised.value)
    else:
        assert case.problem()
