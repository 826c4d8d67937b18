"""Copies of a Gluon kernel's module, each with one synchronising call changed, or with a fault planted.

What tests do not notice when it is broken, they do not test: of every such copy the emulator or the walk must
find the fault, unless the call orders nothing.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

_WAYS = {
    "left out": (
        *("init", "wait", "arrive", "expect", "fence_async_shared", "store_wait", "tcgen05_commit"),
        *("sync_cluster_init", "warpgroup_mma_wait"),
    ),
    "early": ("arrive", "tcgen05_commit", "fence_async_shared"),
    "wrong phase": ("wait",),
    "one more": ("init", "store_wait", "warpgroup_mma_wait"),
    "fewer bytes": ("expect",),
    "more bytes": ("expect",),
    "swapped": ("async_copy_global_to_shared", "async_copy_shared_to_global"),
}
"""What is done to which calls; one more arrival, or operation under way."""

_NEVER = "        if False:\n            mbarrier.wait"
_SHARED = "taken = mbarrier.allocate_mbarrier(two_ctas=PAIRED, "
PLANTED: dict[str, list[tuple[str, str, str]]] = {
    "hopper": [
        ("a phase that turns every step", "index(stage), step // STAGES & 1)", "index(stage), step & 1)"),
        ("a buffer of another step", "right.index(stage))", "right.index(0))"),
        ("the barrier of another step", "full.index(stage), buffer)", "full.index(0), buffer)"),
        ("too many arrivals", "STAGES - 1) % STAGES))", "STAGES - 1) % STAGES), count=2)"),
    ],
    "blackwell": [
        ("old sums added", "use_acc=at_k > 0", "use_acc=True"),
        (
            "buffers freed by a product's issue",
            "=[freed.index(stage)])",
            "=None); mbarrier.arrive(freed.index(stage))",
        ),
        ("sums freed in the first block alone", "        if PAIRED:\n            mbarrier.wait", _NEVER),
        ("a barrier of each block where both share one", "batch=STAGES, two_ctas=PAIRED", "batch=STAGES"),
        ("sums behind a shared barrier", "taken = mbarrier.allocate_mbarrier(", _SHARED),
    ],
}
"""Of a kernel: what is wrong, the text of its module that is replaced wherever it stands, and by what."""


class Mutation(NamedTuple):
    """One change of a module."""

    what: str
    """What was done, in which function, to which call."""
    changed: Callable[[], str]
    """The changed module's text: there are a hundred of them, of which a run draws three."""

    def load(self, folder: Path) -> ModuleType:
        """The changed module, from a file in this folder."""
        text = self.changed()
        path = folder / f"mutated_{zlib.crc32(text.encode())}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def mutations(module: ModuleType) -> Iterator[Mutation]:
    """All of this module's calls, each in all ways."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text())
    for function, body, at in list(_statements(tree)):
        for how in _WAYS:
            if _can(how, body, at):
                what = f"{how}, in {function}: {ast.unparse(body[at])}"
                yield Mutation(what, partial(_changed, tree, how, body, at))


def _changed(tree: ast.Module, how: str, body: list[ast.stmt], at: int) -> str:
    """The text of a tree with one statement changed; the tree stays as it is."""
    before = body[:]
    body[at] = copy.deepcopy(before[at])
    _change(how, body, at)
    text = ast.unparse(ast.fix_missing_locations(tree))
    body[:] = before
    return text


def planted(kernel: str, module: ModuleType) -> Iterator[Mutation]:
    """The faults that no single call is responsible for."""
    assert module.__file__ is not None
    text = Path(module.__file__).read_text()
    for what, old, new in PLANTED.get(kernel, []):
        assert old in text
        yield Mutation(what, partial(text.replace, old, new))


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
    elif how == "one more":
        number = next((named for named in call.keywords if named.arg == "count"), None)
        if number is not None:
            number.value = ast.BinOp(number.value, ast.Add(), ast.Constant(1))
        else:
            call.args[0] = ast.BinOp(call.args[0], ast.Add(), ast.Constant(1))
    elif how in ("fewer bytes", "more bytes"):
        operator = ast.Sub() if how == "fewer bytes" else ast.Add()
        call.args[1] = ast.BinOp(call.args[1], operator, ast.Constant(16))
    elif isinstance(coordinates := call.args[1], ast.List):
        coordinates.elts.reverse()
