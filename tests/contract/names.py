"""Every name of a library that our source touches, looked up in the library itself.

The source is parsed, not run. A chain of attributes that begins at an import (`torch.cuda.Event`, `tl.dot`)
is resolved link by link. It continues through objects whose class is known: what a class returns when called,
what a function's return annotation says, an annotated parameter. Calls are bound to `inspect.signature` where
the library has one.

A name may be absent only where the source itself handles that: inside a `try` that catches AttributeError
(ImportError for an import), in the body of `if hasattr(x, "name")`, or as `getattr(x, "name", default)`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

LIBRARIES = ("torch", "triton", "pynvml", "nvmath", "quack", "liger_kernel", "flash_attn")

INJECTED = {"cuda": "torch.cuda", "nvml": "pynvml", "pynvml": "pynvml"}
"""Parameter -> the module that callers pass for it; tests pass a simulation of that module."""

_ABSENT = {"AttributeError", "Exception", "BaseException"}
_NOT_INSTALLED = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(frozen=True)
class Known:
    """An object of a library: a module, a class, a function, a constant."""

    value: Any
    name: str
    bound: bool = False
    """A method of some object, found in the object's class: its first parameter is given."""


@dataclass(frozen=True)
class Instance:
    """Some object of this class."""

    of: type
    name: str


Value = Known | Instance | None
Scope = dict[str, Value]


@dataclass
class Findings:
    """What one or more files touch."""

    resolved: set[str] = field(default_factory=set)
    """Full names that exist."""
    calls: set[tuple[str, int]] = field(default_factory=set)
    """Calls that were bound to a signature: `file:line` and column."""
    missing: list[str] = field(default_factory=list)
    """`file:line: what is wrong`."""
    optional: list[str] = field(default_factory=list)
    """Absent names that the source does without."""


def find(path: str, source: str, into: Findings) -> None:
    """Add what this source, called `path` in messages, touches."""
    _File(path, into).visit(ast.parse(source), {})


class _File:
    def __init__(self, path: str, into: Findings) -> None:
        self.path, self.into = path, into
        self._guards: list[set[str]] = []
        self._tested: list[str] = []
        self._kept: dict[str, Scope] = {}
        """Class -> what is known of its objects' attributes."""

    def visit(self, node: ast.AST | None, scope: Scope) -> Value:
        """What an expression is, where that is known; all names in it, or in a statement, are looked up."""
        match node:
            case None:
                pass
            case ast.Name():
                return scope.get(node.id)
            case ast.Attribute(value=ast.Name(id="self")):
                return scope.get(f"self.{node.attr}")
            case ast.Attribute():
                return self._attribute(node, self.visit(node.value, scope), node.attr)
            case ast.Call():
                return self._call(node, scope)
            case ast.NamedExpr():
                value = self.visit(node.value, scope)
                self._assign(node.target, node.value, value, scope)
                return value
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._all(getattr(node, "decorator_list", []), scope)
                if not isinstance(node, ast.Lambda):
                    scope[node.name] = None
                self._function(node, dict(scope))
            case ast.ClassDef():
                self._class(node, scope)
            case ast.Try():
                self._guards.append({n for handler in node.handlers for n in _names(handler.type)})
                self._all(node.body, scope)
                self._guards.pop()
                self._all([*node.handlers, *node.orelse, *node.finalbody], scope)
            case ast.If():
                self.visit(node.test, scope)
                before = len(self._tested)
                self._tested += _hasattr(node.test)
                self._all(node.body, scope)
                del self._tested[before:]
                self._all(node.orelse, scope)
            case ast.Assign():
                value = self.visit(node.value, scope)
                for target in node.targets:
                    self._assign(target, node.value, value, scope)
            case ast.AnnAssign():
                annotated = self._annotated(node.annotation, scope)
                value = self.visit(node.value, scope)
                self._assign(node.target, node.value, value or annotated, scope)
            case ast.withitem():
                value = self.visit(node.context_expr, scope)
                self._assign(node.optional_vars, node.context_expr, value, scope)
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                inside = dict(scope)
                for generator in node.generators:
                    self.visit(generator.iter, inside)
                    self._assign(generator.target, None, None, inside)
                    self._all(generator.ifs, inside)
                for part in ("key", "value", "elt"):
                    self.visit(getattr(node, part, None), inside)
            case _:
                if isinstance(node, ast.For):
                    self._assign(node.target, None, None, scope)
                self._all(ast.iter_child_nodes(node), scope)
        return None

    def _all(self, nodes: Iterable[ast.AST], scope: Scope) -> None:
        for node in nodes:
            self.visit(node, scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
            bound = alias.asname or alias.name.partition(".")[0]
            scope[bound] = None
            if module.partition(".")[0] not in LIBRARIES:
                continue
            try:
                imported = importlib.import_module(module)
                if isinstance(node, ast.ImportFrom):
                    name = f"{module}.{alias.name}"
                    scope[bound] = Known(_member(imported, alias.name), name)
                else:
                    name = module
                    whole = imported if alias.asname else sys.modules[bound]
                    scope[bound] = Known(whole, module if alias.asname else bound)
                self.into.resolved.add(name)
            except (ImportError, AttributeError) as error:
                self._absent(node, f"import of {module}: {error}", _NOT_INSTALLED)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope) -> None:
        """A function's parameters, then its body, in a scope of its own."""
        given = node.args
        positional = [*given.posonlyargs, *given.args]
        defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults, *given.kw_defaults]
        for one, default in zip([*positional, *given.kwonlyargs], defaults, strict=True):
            if injected := INJECTED.get(one.arg):
                scope[one.arg] = Known(_dotted(injected), injected)
                continue
            value = self.visit(default, scope)
            annotated = self._annotated(one.annotation, scope)
            scope[one.arg] = annotated or (value if isinstance(value, Known) else None)
        scope |= {star.arg: None for star in (given.vararg, given.kwarg) if star is not None}
        self._all([node.body] if isinstance(node, ast.Lambda) else node.body, scope)

    def _class(self, node: ast.ClassDef, outer: Scope) -> None:
        scope = dict(outer)
        for base in node.bases:
            self.visit(base, outer)
            scope |= self._kept.get(getattr(base, "id", ""), {})
        # A field of a dataclass, or what all objects of the class share.
        fields = [part for part in node.body if isinstance(part, ast.Assign | ast.AnnAssign)]
        shared = dict(outer)
        self._all(fields, shared)
        scope |= {f"self.{name}": value for name, value in shared.items() if outer.get(name) != value}
        # What __init__ keeps in `self` is known to every method.
        begins = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        for method in begins:
            inside = dict(scope)
            self._function(method, inside)
            scope |= _attributes(inside)
        self._kept[node.name] = _attributes(scope)
        self._all([part for part in node.body if part not in [*fields, *begins]], scope)
        outer[node.name] = None

    def _assign(self, target: ast.expr | None, source: ast.expr | None, value: Value, scope: Scope) -> None:
        match target:
            case ast.Name():
                scope[target.id] = value
            case ast.Attribute(value=ast.Name(id="self")):
                scope[f"self.{target.attr}"] = value
            case ast.Tuple(elts=parts):
                # `start, end = (Event() for _ in range(2))`: each is what the generator makes.
                made = self.visit(source.elt, scope) if isinstance(source, ast.GeneratorExp) else None
                sources = source.elts if isinstance(source, ast.Tuple) else [None] * len(parts)
                for part, of in zip(parts, sources, strict=False):
                    self._assign(part, of, self.visit(of, scope) if of is not None else made, scope)
            case _:
                self.visit(target, scope)

    def _attribute(self, node: ast.AST, of: Value, name: str, optional: bool = False) -> Value:
        if of is None:
            return None
        full = f"{of.name}.{name}"
        try:
            value = _member(of.value, name) if isinstance(of, Known) else _of_class(of.of, name)
        except AttributeError:
            if optional or name in self._tested:
                self.into.optional.append(f"{self._at(node)}: {full}")
            else:
                self._absent(node, f"{full} does not exist", _ABSENT)
            return None
        self.into.resolved.add(full)
        if value is None or isinstance(value, str | int | float | tuple):
            return None  # what a constant can do is Python's business
        return Known(value, full, bound=isinstance(of, Instance))

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        function = self.visit(node.func, scope)
        self._all([*node.args, *node.keywords], scope)
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[of, ast.Constant(value=str(name)), *default]):
                return self._attribute(node, self.visit(of, scope), name, optional=bool(default))
        if not isinstance(function, Known):
            return None
        self._bind(node, function)
        return _result(function)

    def _bind(self, node: ast.Call, function: Known) -> None:
        signature = _signature(function.value)
        if signature is None:
            return
        keywords = {keyword.arg: None for keyword in node.keywords if keyword.arg}
        open_ended = len(keywords) < len(node.keywords)
        open_ended |= any(isinstance(argument, ast.Starred) for argument in node.args)
        try:
            if open_ended:
                signature.bind_partial(**keywords)
            else:
                signature.bind(*[None] * (len(node.args) + function.bound), **keywords)
        except TypeError as error:
            self._absent(node, f"{function.name}{signature}: {error}", {"TypeError", "Exception"})
            return
        self.into.calls.add((self._at(node), node.col_offset))

    def _annotated(self, node: ast.expr | None, scope: Scope) -> Value:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        value = self.visit(node, scope) if isinstance(node, ast.Name | ast.Attribute) else None
        # A constant of Triton's compiler has the attributes of what it holds.
        if isinstance(value, Known) and isinstance(value.value, type) and value.value.__name__ != "constexpr":
            return Instance(value.value, value.name)
        return None

    def _absent(self, node: ast.AST, what: str, guards: set[str]) -> None:
        guarded = any(caught & guards for caught in self._guards)
        findings = self.into.optional if guarded else self.into.missing
        if (text := f"{self._at(node)}: {what}") not in findings:  # some expressions are visited twice
            findings.append(text)

    def _at(self, node: Any) -> str:
        return f"{self.path}:{node.lineno}"


def _hasattr(test: ast.expr) -> Iterator[str]:
    """Names that a condition asks `hasattr` for."""
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Constant(value=name)]):
                yield str(name)


def _names(node: ast.expr | None) -> Iterator[str]:
    """Class names in an `except` clause; a bare one catches everything."""
    if node is None:
        yield "BaseException"
        return
    for part in node.elts if isinstance(node, ast.Tuple) else [node]:
        yield part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")


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


def _of_class(of: type, name: str) -> Any:
    """An attribute of an object of this class; None where only its __init__ makes it."""
    if hasattr(of, name):
        return getattr(of, name)
    for base in of.__mro__[:-1]:
        if name in getattr(base, "__annotations__", {}) or "__getattr__" in vars(base):
            return None
        try:
            if re.search(rf"\bself\.{name}\b", inspect.getsource(base)):
                return None
        except (OSError, TypeError):
            continue
    raise AttributeError(name)


def _signature(function: Any) -> inspect.Signature | None:
    if isinstance(known := getattr(function, "signature", None), inspect.Signature):
        return known  # a function of Triton's language that is itself compiled
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # built in, and says nothing
        return None


def _result(function: Known) -> Value:
    if isinstance(function.value, type):
        return Instance(function.value, function.name)
    annotation = getattr(function.value, "__annotations__", {}).get("return")
    if isinstance(annotation, str):
        space: Mapping[str, Any] = getattr(function.value, "__globals__", {})
        annotation = space.get(annotation)
    if isinstance(annotation, type) and annotation.__module__.partition(".")[0] in LIBRARIES:
        return Instance(annotation, f"{annotation.__module__}.{annotation.__qualname__}")
    return None


def _attributes(scope: Scope) -> Scope:
    return {name: value for name, value in scope.items() if name.startswith("self.")}


def words(source: str, pattern: str) -> Iterator[tuple[int, str]]:
    """(line, word): string constants and attributes that match the whole pattern."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(word)) | ast.Attribute(attr=word):
                if re.fullmatch(pattern, word):
                    yield node.lineno, word


def least_triton(source: str) -> tuple[int, int]:
    """The first version of Triton that a module of kernels says it is for; (0, 0) if it says none."""
    said = re.search(r"^LEAST_TRITON = \((\d+), (\d+)\)$", source, re.MULTILINE)
    return (int(said[1]), int(said[2])) if said else (0, 0)


def sources(root: Path) -> Iterator[tuple[str, str]]:
    """(path, text) of everything that runs on a GPU box."""
    for folder in ("bench", "kernels"):
        for path in sorted((root / folder).rglob("*.py")):
            yield str(path.relative_to(root)), path.read_text("utf-8")
