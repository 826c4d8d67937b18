"""Expansion of blocks into problems: lists multiply, joined names move together, every value is checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError

from bench.errors import meant
from bench.spec import Problem
from bench.sweep.grammar import Range, validated, worded
from bench.sweep.models import PerSm
from bench.sweep.yaml_nodes import Mistake, Place, shown

MAX_CASES = 100_000
"""Most cases of one sweep. At a tenth of a second each they take three hours; more is a typing mistake."""

Value = str | int | float | bool


class Part(NamedTuple):
    """One entry of a list: a value, or a range whose values are not yet listed."""

    values: Sequence[Value]
    at: Place


@dataclass(frozen=True, slots=True)
class Axis:
    """The parameters that one key of a block moves together, and their values."""

    names: tuple[str, ...]
    parts: list[Part]

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(len(part.values) for part in self.parts)

    def items(self) -> list[tuple[Value, Place]]:
        """The values in file order, each once, with its place."""
        by_value: dict[tuple[type, Value], tuple[Value, Place]] = {}
        for values, at in self.parts:
            for value in values:
                by_value.setdefault((type(value), value), (value, at))
        return list(by_value.values())


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a sweep: its axes, the first varying slowest."""

    kind: type[Problem]
    axes: list[Axis]
    at: Place

    @property
    def count(self) -> int:
        """Number of its problems."""
        return math.prod(axis.count for axis in self.axes)

    def moving_with(self, x: str | None) -> tuple[str, ...]:
        """The parameters that move along axis `x`; without one, along the axis with most values."""
        named = [axis.names for axis in self.axes if x in axis.names]
        if x is not None:
            return named[0] if named else (x,)
        return max(self.axes, key=lambda axis: axis.count).names if self.axes else ()

    def problems(self) -> Iterator[Problem]:
        """Every combination, checked. Raises Mistake."""
        for items in product(*(axis.items() for axis in self.axes)):
            given = {name: item for axis, item in zip(self.axes, items, strict=True) for name in axis.names}
            try:
                problem = self.kind.model_validate({name: value for name, (value, _) in given.items()})
            except ValidationError as errors:
                raise self._mistake(errors, given) from errors
            # Result files count in 64 bits.
            if max(problem.flop, problem.byte) >= 2**63:
                raise Mistake(self.at, f"{problem} is too large: more than 2^63 FLOP or bytes")
            yield problem

    def _mistake(self, errors: ValidationError, given: dict[str, tuple[Value, Place]]) -> Mistake:
        error = errors.errors(include_url=False)[0]
        name = str(error["loc"][0]) if error["loc"] else ""
        if name in given:
            return Mistake(given[name][1], worded(error, name))
        at = " ".join(f"{name}={value}" for name, (value, _) in given.items())
        return Mistake(self.at, f"{worded(error, self.kind.operator)} (at {at})")


def block(parameters: Mapping[str, Any], at: Place, kind: type[Problem], sm_count: int) -> Block:
    """One entry of `cases:`. Raises Mistake."""
    fields = kind.model_fields
    operator = kind.operator
    places: set[str] = set()
    axes = []
    for key, value in parameters.items():
        of_key = (*at, key)
        names = tuple(key.split("="))
        for name in names:
            if name not in fields:
                hint = " (join names without spaces)" if name.strip() in fields else meant(name, fields)
                there = ", ".join(fields)
                raise Mistake(of_key, f"{operator} has no parameter {shown(name)}{hint}; it has {there}")
            if name in places:
                raise Mistake(of_key, f"{name} is given twice in this block")
            places.add(name)
        values = value if isinstance(value, list) else [value]
        axes.append(Axis(names, [_part(each, key, (*of_key, i), sm_count) for i, each in enumerate(values)]))
    if missing := [name for name, f in fields.items() if f.is_required() and name not in places]:
        needed = ", ".join(name for name, f in fields.items() if f.is_required())
        lacking = ", ".join(f"{name}{_values(kind, name)}" for name in missing)
        raise Mistake(at, f"{operator} needs {needed}; not set here: {lacking}")
    return Block(kind, axes, at)


def _values(kind: type[Problem], name: str) -> str:
    """` (relu or silu)`: the words that a parameter can be; empty for a number."""
    words = get_args(kind.model_fields[name].annotation)
    if name == "dtype":
        words = kind.dtypes()
    return f" ({' or '.join(words)})" if words and all(isinstance(word, str) for word in words) else ""


def _part(value: Any, key: str, at: Place, sm_count: int) -> Part:
    if isinstance(value, dict):
        if "per_sm" in value:
            given = validated(PerSm, value, "per_sm", at=at)
            return Part([given.per_sm * sm_count + given.plus], at)
        if not value.keys() & {"from", "to"}:
            forms = "{from, to, step}, {from, to, factor} and {per_sm}"
            raise Mistake(at, f"{key} has a mapping that is none of {forms}")
        return Part(_range(value, at), at)
    if isinstance(value, list):
        raise Mistake(at, f"{key} has a list within its list; write one list")
    return Part([value], at)


def _range(value: Any, at: Place) -> Sequence[int]:
    given = validated(Range, value, "a range", at=at)
    if given.factor is None:
        return range(given.start, given.end + 1, given.step)
    steps = math.log(given.end / given.start) / math.log(given.factor)
    if steps > MAX_CASES:
        raise Mistake(at, f"factor {given.factor} is too near 1: {steps:.0f} steps")
    numbers = {given.start: None}
    for power in range(1, int(steps) + 2):
        number = given.start * given.factor**power
        # Half a unit: rounding must neither lose the end of the range nor pass it.
        if number >= given.end + 0.5:
            break
        numbers[min(round(number), given.end)] = None
    return list(numbers)
