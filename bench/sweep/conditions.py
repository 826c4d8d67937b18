"""Conditions of selections: what `k: "!%8"` or `byte: ">=4 cache"` means of a column."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, ValidationError

from bench.sweep.models import PerSm

UNITS = ("ridge", "cache", "launches")
"""What a number of a condition may be a multiple of: the device's FLOP for each byte at which its limit
changes, its last-level cache in bytes, its launch floor in seconds."""
NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"
_CONDITION = re.compile(
    rf"(?P<not>!)?%(?P<divisor>[1-9][0-9]*)(?P<byte>B)?|(?P<than>[<>]=?)(?P<bar>{NUMBER})"
    rf"(?: (?P<unit>{'|'.join(UNITS)}))?|x(?P<factor>[1-9][0-9]*) (?P<column>[a-z_]+)"
)
_THAN: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


class In(NamedTuple):
    """A column has one of these values."""

    values: tuple[Any, ...]


class Divisible(NamedTuple):
    """A column is (or, `wanted` False, is not) a multiple of a number of elements, or of bytes."""

    divisor: int
    in_bytes: bool
    wanted: bool


class Compare(NamedTuple):
    """A column is below or above a number, of `unit` if that is not empty."""

    compare: Callable[[Any, Any], Any]
    bar: float
    unit: str


class MultipleOf(NamedTuple):
    """A column is so many times another."""

    factor: int
    column: str


class Matching(NamedTuple):
    """A text that a regular expression matches."""

    pattern: str


Condition = In | Divisible | Compare | MultipleOf | Matching | PerSm


def conditions(value: Any) -> list[Condition]:
    """What the value of a selection's column means. ValueError for what only looks like a condition."""
    if isinstance(value, Mapping):
        try:
            return [PerSm.model_validate(dict(value))]
        except ValidationError as error:
            raise ValueError("a mapping in a selection is {per_sm: N} or {per_sm: N, plus: P}") from error
    if isinstance(value, list | tuple):
        if no_values := [each for each in value if isinstance(each, str) and re.match("[!%<>~]", each)]:
            raise ValueError(f"a list holds values; {no_values[0]!r} is a condition, which stands alone")
        return [In(tuple(value))]
    if not isinstance(value, str):
        return [In((value,))]
    if value.startswith("~"):
        try:
            re.compile(value[1:])
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression: {error}") from error
        return [Matching(value[1:])]
    if not re.match(r"[!%<>]|x[0-9]", value):
        return [In((value,))]
    read: list[Condition] = []
    at = 0
    while at < len(value):
        part = _CONDITION.match(value, at)
        if part is None or value[part.end() : part.end() + 1] not in ("", " "):
            raise ValueError(
                f"{value!r} is no condition: write %8, !%8, %16B (bytes), >=64, <0.5 ridge, x3 inputs, "
                "several with a space between them, or ~ and a regular expression"
            )
        read.append(_condition(part))
        at = part.end() + 1
    return read


def _condition(part: re.Match[str]) -> Condition:
    if part["divisor"]:
        return Divisible(int(part["divisor"]), bool(part["byte"]), not part["not"])
    if part["than"]:
        return Compare(_THAN[part["than"]], float(part["bar"]), part["unit"] or "")
    return MultipleOf(int(part["factor"]), part["column"])


def _selection(select: dict[str, Any]) -> dict[str, Any]:
    for value in select.values():
        conditions(value)
    return select


Select = Annotated[dict[str, Any], AfterValidator(_selection)]
"""Column -> a value, a list of values, or a condition."""
