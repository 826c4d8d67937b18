"""Every name of a library that our source touches, looked up in the library itself.

The source is parsed, not run. A chain of attributes that begins at an import (`torch.cuda.Event`, `tl.dot`)
is resolved link by link, and a call of what it names is bound to `inspect.signature` where the library has
one. What an object's own methods are is not followed: contract_names.py lists those.

No environment lacks a name that our source uses, not even one whose absence it would handle; only what it
asks for as `getattr(x, "name", default)` may be absent.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

LIBRARIES = ("torch", "triton", "pynvml", "nvmath")

INJECTED = {"cuda": "torch.cuda", "nvml": "pynvml", "pynvml": "pynvml"}
"""Parameter -> the module that callers pass for it; tests pass a simulation of that module."""


class Known(NamedTuple):
    """An object of a library: a module, a class, a function, a constant."""

    value: Any
    name: str


@dataclass
class Findings:
    """What one or more files touch."""

    resolved: set[str] = field(default_factory=set)
    """Full names that exist."""
    missing: list[str] = field(default_factory=list)
    """`file:line: what is wrong`."""


def find(path: str, source: str, into: Findings) -> None:
    """Add what this source, called `path` in messages, touches."""
    _File(path, into).visit(ast.parse(source))


class _File(ast.NodeVisitor):
    def __init__(self, path: str, into: Findings) -> None:
        self.path, self.into = path, into
        self._scopes: list[dict[str, Known | None]] = [{}]

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self._import(node, bound, alias.name, None, bool(alias.asname))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._import(node, alias.asname or alias.name, node.module or "", alias.name, True)

    def _import(self, node: ast.stmt, bound: str, module: str, member: str | None, whole: bool) -> None:
        self._scopes[-1][bound] = None
        if module.partition(".")[0] not in LIBRARIES:
            return
        try:
            found: Any = importlib.import_module(module)
            name = f"{module}.{member}" if member else module
            self.into.resolved.add(name)
            value = _member(found, member) if member else found if whole else sys.modules[bound]
            self._scopes[-1][bound] = Known(value, name if whole else bound)
        except (ImportError, AttributeError) as error:
            self._absent(node, f"import of {module}: {error}")

    def visit_FunctionDef(self, node: Any) -> None:
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        injected = {one.arg: INJECTED.get(one.arg) for one in given}
        for part in (*getattr(node, "decorator_list", []), *node.args.defaults, *node.args.kw_defaults):
            if part is not None:
                self.visit(part)
        self._scopes.append({a: Known(_dotted(m), m) if m else None for a, m in injected.items()})
        for part in [node.body] if isinstance(node, ast.Lambda) else node.body:
            self.visit(part)
        self._scopes.pop()

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._scopes[-1][target.id] = self._resolved(node.value)
            else:
                self.visit(target)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._scopes[-1][node.id] = None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._resolved(node) is None:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[of, ast.Constant(value=str(name))]):
                self._attribute(node, self._resolved(of), name)
        function = self._resolved(node.func)
        signature = _signature(function.value) if function else None
        if signature is None or function is None:
            return
        keywords = {keyword.arg: None for keyword in node.keywords if keyword.arg}
        open_ended = len(keywords) < len(node.keywords)
        open_ended |= any(isinstance(argument, ast.Starred) for argument in node.args)
        bind = signature.bind_partial if open_ended else signature.bind
        try:
            bind(*[None] * (0 if open_ended else len(node.args)), **keywords)
        except TypeError as error:
            self._absent(node, f"{function.name}{signature}: {error}")

    def _resolved(self, node: ast.AST) -> Known | None:
        """What a name or a chain of attributes is, where that is an object of a library."""
        if isinstance(node, ast.Name):
            return next((scope[node.id] for scope in reversed(self._scopes) if node.id in scope), None)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, self._resolved(node.value), node.attr)
        return None

    def _attribute(self, node: Any, of: Known | None, name: str) -> Known | None:
        if of is None:
            return None
        full = f"{of.name}.{name}"
        try:
            value = _member(of.value, name)
        except AttributeError:
            self._absent(node, f"{full} does not exist")
            return None
        self.into.resolved.add(full)
        # What a constant can do is Python's business.
        return None if value is None or isinstance(value, str | int | float | tuple) else Known(value, full)

    def _absent(self, node: Any, what: str) -> None:
        text = f"{self.path}:{node.lineno}: {what}"
        if text not in self.into.missing:  # chains are resolved more than once
            self.into.missing.append(text)


def _dotted(name: str) -> Any:
    module, _, rest = name.partition(".")
    value = importlib.import_module(module)
    for part in rest.split(".") if rest else ():
        value = _member(value, part)
    return value


def _member(of: Any, name: str) -> Any:
    """An attribute; of a package also a module not imported yet (`from package import module`)."""
    try:
        return getattr(of, name)
    except AttributeError:
        if isinstance(of, ModuleType) and hasattr(of, "__path__"):
            try:
                return importlib.import_module(f"{of.__name__}.{name}")
            except ModuleNotFoundError:
                pass
        raise


def _signature(function: Any) -> inspect.Signature | None:
    if isinstance(known := getattr(function, "signature", None), inspect.Signature):
        return known  # a function of Triton's language that is itself compiled
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # built in, and says nothing
        return None


def words(source: str, pattern: str) -> Iterator[tuple[int, str]]:
    """(line, word): string constants and attributes that match the whole pattern."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(word)) | ast.Attribute(attr=word):
                if re.fullmatch(pattern, word):
                    yield node.lineno, word


def sources(root: Path) -> Iterator[tuple[str, str]]:
    """(path, text) of everything that runs on a GPU box."""
    for folder in ("bench", "kernels"):
        for path in sorted((root / folder).rglob("*.py")):
            yield str(path.relative_to(root)), path.read_text("utf-8")
