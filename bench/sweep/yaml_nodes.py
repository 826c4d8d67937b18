"""YAML nodes with line numbers: a parser for the small, unsurprising part of YAML that sweeps use.

Left out on purpose, each with its own message: anchors and aliases (every value is written where it is used,
and a file cannot grow by reference), tags, keys given twice, empty values and lists. Scalars are what they
look like, as in YAML 1.2: `no` and `1:30` are texts, `1e3` is a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from bench.errors import UserError, quoted

MAX_BYTE = 1_000_000
"""Longest file: far longer than what is written by hand; libyaml is not meant for hostile megabytes."""
MAX_DEPTH = 8
"""Deepest nesting; a sweep nests four deep: cases, a block, a list, a range."""

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]{0,17})")
_NUMBER = re.compile(r"[-+]?([0-9][0-9_]*\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


Place = tuple[int | str, ...]
"""Keys and indices from the top of a file to a value: `("plot", 0, "x")`."""


class Mistake(UserError):
    """A mistake in a file, in one sentence with what is possible.

    `at`: its place, or its line from 1; None: the whole file.
    """

    def __init__(self, at: Place | int | None, says: str) -> None:
        super().__init__(says)
        self.at = at

    def located(self, shown: str, file: Node | None = None) -> UserError:
        """The same with the file as it is `shown` and the line, of places by the contents of the `file`."""
        line = file.line_of(self.at) if file is not None and isinstance(self.at, tuple) else self.at
        says = " ".join(str(self).split())
        return UserError(f"{shown}: {says}" if line is None else f"{shown}:{line}: {says}")


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file, the line it begins on and, for a mapping, the lines of its keys."""

    value: str | int | float | bool | list[Node] | dict[str, Node]
    line: int
    key_lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def mapping(self) -> dict[str, Node]:
        """Its entries, in file order; empty if it is no mapping."""
        return self.value if isinstance(self.value, dict) else {}

    def data(self) -> Any:
        """The value as plain Python values."""
        if isinstance(self.value, dict):
            return {key: node.data() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.data() for node in self.value]
        return self.value

    def line_of(self, place: Place) -> int:
        """The line of the key or item at this place, or of the last one on the way to it that exists."""
        node, line = self, self.line
        for step in place:
            if isinstance(step, str) and step in node.mapping:
                node, line = node.mapping[step], node.key_lines[step]
            elif isinstance(step, int) and isinstance(node.value, list) and step < len(node.value):
                node = node.value[step]
                line = node.line
        return line


def shown(value: object) -> str:
    """A value as it may stand in a one-line message."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value)


def tree(raw: bytes) -> Node:
    """The file's only document, a mapping or not. Raises Mistake."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(raw) > MAX_BYTE:
        raise Mistake(None, f"this file is longer than {MAX_BYTE} bytes: no sweep is")
    try:
        _refuse(yaml.parse(raw, Loader=loader))
        composed = yaml.compose(raw, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark, says = error.problem_mark or error.context_mark, filter(None, (error.context, error.problem))
        raise Mistake(mark.line + 1 if mark else 1, f"this is not YAML: {', '.join(says)}") from error
    except yaml.YAMLError as error:
        raise Mistake(None, f"this is not YAML: {error}") from error
    node = None if composed is None else _node(composed)
    if node is None:
        raise Mistake(1, "this file is empty; a sweep begins with `title:`")
    return node


def _refuse(events: Iterable[yaml.Event]) -> None:
    """Mistake at the first thing that YAML has and a sweep has not."""
    depth = documents = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            says = "anchors (&name) and aliases (*name) are not used here: write the value out"
            raise Mistake(_line(event), says)
        if getattr(event, "tag", None):
            raise Mistake(_line(event), "tags (!name) are not used here: quote what is meant as text")
        if isinstance(event, yaml.NodeEvent) and depth >= MAX_DEPTH:
            raise Mistake(_line(event), f"nested more than {MAX_DEPTH} deep; no sweep is")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise Mistake(_line(event), "a second document begins here; one file holds one sweep")


def _line(of: yaml.Event | yaml.Node) -> int:
    return 1 if of.start_mark is None else of.start_mark.line + 1


def _node(of: yaml.Node) -> Node | None:
    """None for an empty value."""
    line = _line(of)
    if isinstance(of, yaml.ScalarNode):
        value = str(of.value) if of.style else _scalar(str(of.value))
        return None if value is None else Node(value, line)
    if isinstance(of, yaml.SequenceNode):
        items = [(each, _node(each)) for each in of.value]
        if empty := [each for each, item in items if item is None]:
            raise Mistake(_line(empty[0]), "an item of this list has no value")
        return Node([item for _, item in items if item is not None], line)
    entries: dict[str, Node] = {}
    key_lines: dict[str, int] = {}
    for name, given in of.value:
        key, at = _key(name), _line(name)
        if key in entries:
            raise Mistake(at, f"key {shown(key)} is given twice, first on line {key_lines[key]}")
        node = _node(given)
        if node is None:
            raise Mistake(at, f"key {shown(key)} has no value")
        if node.value == []:
            raise Mistake(at, f"key {shown(key)} has an empty list")
        entries[key], key_lines[key] = node, at
    return Node(entries, line, key_lines)


def _key(of: yaml.Node) -> str:
    node = _node(of)
    if node is None:
        raise Mistake(_line(of), "a key is missing before the colon")
    if not isinstance(node.value, str):
        raise Mistake(node.line, f"a key is a name, not {shown(node.data())}")
    return node.value


def _scalar(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar as YAML 1.2 reads it, integers in decimal; None if empty or null."""
    if text in ("", "~", "null"):
        return None
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _NUMBER.fullmatch(text) and math.isfinite(number := float(text.replace("_", ""))):
        return number
    return text
