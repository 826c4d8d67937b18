"""What plots, claims and selections name, held to the operator that they are about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.errors import unknown
from bench.spec import Problem
from bench.sweep.claims import ANSWERS, FACTS, MEASURED, SHARES, Claim, Share
from bench.sweep.conditions import In, Matching, MultipleOf, conditions
from bench.sweep.grammar import COLUMNS, Plot, parameter_schemas, whole_numbers
from bench.sweep.yaml_nodes import Mistake, Place, shown

NUMBERS = ("median_s", "intensity", "flop", "byte", "byte_moved", *SHARES)
"""Columns of every row that are numbers."""


def check_plot(plot: Plot, at: Place, kind: type[Problem]) -> None:
    """Raises Mistake if the plot names what the operator does not have."""
    parameters = list(kind.model_fields)
    if plot.x not in parameters:
        raise Mistake((*at, "x"), unknown("parameter", plot.x, kind.operator, parameters))
    if plot.kind == "quantization":
        if not {"m", "n"} <= set(parameters):
            says = f"{kind.operator} has no m and n, so no tiles to draw quantization of"
            raise Mistake((*at, "kind"), says)
        if plot.x not in ("m", "n"):
            raise Mistake((*at, "x"), f"tiles quantize m and n; x: {plot.x} is neither")
    whole = whole_numbers(kind)
    columns = [*COLUMNS, *parameters]
    of_plot = f"a plot of {kind.operator}"
    for key, names, what, of, possible in (
        ("per", plot.per, "number", kind.operator, whole),
        ("lines", plot.lines, "column", of_plot, columns),
        ("panels", plot.panels, "column", of_plot, columns),
    ):
        for number, name in enumerate(names):
            if name not in possible:
                raise Mistake((*at, key, number), unknown(what, name, of, possible))


def check_claims(claims: Iterable[Claim], kind: type[Problem]) -> None:
    """Raises Mistake at the first claim that names what the operator does not have, or that stands twice."""
    ids: set[str] = set()
    for number, claim in enumerate(claims):
        at: Place = ("claims", number)
        if claim.id in ids:
            raise Mistake(at, f"claim {claim.id} stands here again")
        ids.add(claim.id)
        _check_columns(claim, at, kind)
        test = claim.test[1]
        if isinstance(test, Share) and not test.of.keys() & MEASURED:
            says = f"share of what is counted before a run; name one of {', '.join(MEASURED)}"
            raise Mistake((*at, "share", "of"), says)
        for place, select in claim.selections():
            for column, value in select.items():
                check_condition(column, value, (*at, *place, column), kind, "a claim", FACTS)


def _check_columns(claim: Claim, at: Place, kind: type[Problem]) -> None:
    of, numbers = f"a claim about {kind.operator}", [*whole_numbers(kind), "flop", "byte", "byte_moved"]
    for place, column in claim.columns():
        possible = [*kind.model_fields, "implementation"] if place[-1] == "over" else numbers
        if column not in possible:
            raise Mistake((*at, *place), unknown("parameter", column, of, possible))


def check_condition(
    column: str, value: Any, at: Place, kind: type[Problem], owner: str, facts: Sequence[str]
) -> None:
    """Raises Mistake if an operator's rows cannot be selected so; `facts`: columns other than parameters."""
    of, parameters, numbers = f"{owner} about {kind.operator}", list(kind.model_fields), whole_numbers(kind)
    if column not in (*facts, *parameters):
        raise Mistake(at, unknown("column", column, of, [*facts, *parameters]))
    for condition in conditions(value):
        if isinstance(condition, MultipleOf) and condition.column not in numbers:
            raise Mistake(at, unknown("number", condition.column, of, numbers))
        if isinstance(condition, In):
            _check_values(column, condition.values, at, kind)
        elif not isinstance(condition, Matching) and column not in (*NUMBERS, *numbers):
            raise Mistake(at, f"{column} is no number, so {shown(value)} is no condition of it")


def _check_values(column: str, values: Iterable[Any], at: Place, kind: type[Problem]) -> None:
    field = parameter_schemas(kind).get(column, {})
    possible = ANSWERS.get(column, field.get("enum"))
    if column == "implementation":
        possible = [each.name for each in kind.implementations]
    for value in values:
        if possible and value not in possible:
            raise Mistake(at, unknown(column, str(value), kind.operator, map(str, possible)))
        if column in whole_numbers(kind) and (isinstance(value, bool) or not isinstance(value, int)):
            raise Mistake(at, f"{column} is a whole number, not {shown(value)}")
