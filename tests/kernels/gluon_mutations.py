"""Copies of a Gluon kernel's module, each with one synchronising call left out or displaced.

What tests do not notice when it is broken, they do not test: of every such copy the emulator or the walk must
find the fault, unless the call orders nothing.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

_LEFT_OUT = (
    "wait",
    "arrive",
    "expect",
    "fence_async_shared",
    "store_wait",
    "tcgen05_commit",
    "sync_cluster_init",
)
_WAYS = {
    "left out": _LEFT_OUT,
    "early": ("arrive", "tcgen05_commit"),
    "wrong phase": ("wait",),
    "one more under way": ("store_wait", "warpgroup_mma_wait"),
    "fewer bytes": ("expect",),
    "swapped": ("async_copy_global_to_shared", "async_copy_shared_to_global"),
}
"""What is done to which calls."""


@dataclass(frozen=True)
class Mutation:
    """One change of a module."""

    source: Path
    how: str
    place: int
    """Of the changed statement among those that are calls."""
    what: str
    """What was done, in which function, to which call."""

    def load(self, folder: Path) -> ModuleType:
        """The changed module, from a file in this folder."""
        tree = ast.parse(self.source.read_text())
        for place, (_, body, at) in enumerate(_statements(tree)):
            if place == self.place:
                _change(self.how, body, at)
                break
        path = folder / f"mutated_{self.place}_{self.how.replace(' ', '_')}.py"
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def mutations(module: ModuleType) -> list[Mutation]:
    """All of this module's."""
    assert module.__file__ is not None
    source = Path(module.__file__)
    return [
        Mutation(source, how, place, f"{how}, in {function}: {ast.unparse(body[at])}")
        for place, (function, body, at) in enumerate(_statements(ast.parse(source.read_text())))
        for how in _WAYS
        if _can(how, body, at)
    ]


def _statements(tree: ast.AST) -> Iterator[tuple[str, list[ast.stmt], int]]:
    """Every statement that is a call, or assigns one: its function, the list that it is in, and its place."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                for name in ("body", "orelse"):
                    body = getattr(node, name, None)
                    for at, statement in enumerate(body if isinstance(body, list) else []):
                        if _call(statement) is not None:
                            yield function.name, body, at


def _call(statement: ast.stmt) -> ast.Call | None:
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    return value if isinstance(value, ast.Call) else None


def _can(how: str, body: list[ast.stmt], at: int) -> bool:
    """Whether this can be done to this statement."""
    call = _call(body[at])
    assert call is not None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if how == "swapped" and name in _WAYS[how]:
        return len(getattr(call.args[1], "elts", ())) == 2
    return name in _WAYS[how] and (how != "early" or at > 0)


def _change(how: str, body: list[ast.stmt], at: int) -> None:
    call = _call(body[at])
    assert call is not None
    if how == "left out":
        body[at] = ast.Pass()
    elif how == "early":
        body[at - 1], body[at] = body[at], body[at - 1]
    elif how == "wrong phase":
        call.args[1] = ast.BinOp(ast.Constant(1), ast.Sub(), call.args[1])
    elif how == "one more under way":
        call.args[0] = ast.BinOp(call.args[0], ast.Add(), ast.Constant(1))
    elif how == "fewer bytes":
        call.args[1] = ast.BinOp(call.args[1], ast.Sub(), ast.Constant(16))
    elif isinstance(coordinates := call.args[1], ast.List):
        coordinates.elts.reverse()
