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
from collections.abc import Iterator, Mapping
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
    _File(path, into).visit_body(ast.parse(source).body, {})


class _File:
    def __init__(self, path: str, into: Findings) -> None:
        self.path, self.into = path, into
        self._guards: list[set[str]] = []
        self._tested: list[str] = []
        self._kept: dict[str, Scope] = {}
        """Class -> what is known of its objects' attributes."""

    # ---- statements

    def visit_body(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._statement(statement, scope)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for decorator in node.decorator_list:
                    self._value(decorator, scope)
                scope[node.name] = None
                self._function(node, scope)
            case ast.ClassDef():
                self._class(node, scope)
            case ast.Try():
                caught = {n for handler in node.handlers for n in _names(handler.type)}
                self._guards.append(caught)
                self.visit_body(node.body, scope)
                self._guards.pop()
                for handler in node.handlers:
                    self._value(handler.type, scope)
                    self.visit_body(handler.body, scope)
                self.visit_body([*node.orelse, *node.finalbody], scope)
            case ast.If():
                tested = self._hasattr(node.test)
                self._value(node.test, scope)
                self._tested += tested
                self.visit_body(node.body, scope)
                del self._tested[len(self._tested) - len(tested) :]
                self.visit_body(node.orelse, scope)
            case ast.Assign():
                value = self._value(node.value, scope)
                for target in node.targets:
                    self._assign(target, node.value, value, scope)
            case ast.AnnAssign():
                annotated = self._annotated(node.annotation, scope)
                value = self._value(node.value, scope)
                self._assign(node.target, node.value, value or annotated, scope)
            case ast.With():
                for item in node.items:
                    value = self._value(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, item.context_expr, value, scope)
                self.visit_body(node.body, scope)
            case _:
                if isinstance(node, ast.For):
                    self._assign(node.target, None, None, scope)
                for _, child in ast.iter_fields(node):
                    for part in child if isinstance(child, list) else [child]:
                        if isinstance(part, ast.stmt):
                            self._statement(part, scope)
                        elif isinstance(part, ast.AST):
                            self._value(part, scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
            bound = alias.asname or alias.name.partition(".")[0]
            if module.partition(".")[0] not in LIBRARIES:
                scope[bound] = None
                continue
            try:
                imported = importlib.import_module(module)
                if isinstance(node, ast.ImportFrom):
                    scope[bound] = Known(_member(imported, alias.name), f"{module}.{alias.name}")
                else:
                    whole = imported if alias.asname else sys.modules[bound]
                    scope[bound] = Known(whole, module if alias.asname else bound)
                self.into.resolved.add(module if isinstance(node, ast.Import) else f"{module}.{alias.name}")
            except (ImportError, AttributeError) as error:
                scope[bound] = None
                self._absent(node, f"import of {module}: {error}", _NOT_INSTALLED)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, outer: Scope) -> None:
        self.visit_function(node, dict(outer))

    def visit_function(self, node: Any, scope: Scope) -> None:
        """A function's parameters, then its body, in a scope of its own."""
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults: dict[str, ast.expr | None] = dict(
            zip(
                [a.arg for a in positional][len(positional) - len(arguments.defaults) :],
                arguments.defaults,
                strict=True,
            )
        ) | dict(zip([a.arg for a in arguments.kwonlyargs], arguments.kw_defaults, strict=True))
        for one in [*positional, *arguments.kwonlyargs]:
            injected = INJECTED.get(one.arg)
            if injected:
                scope[one.arg] = Known(_dotted(injected), injected)
                continue
            default = self._value(defaults.get(one.arg), scope)
            annotated = self._annotated(one.annotation, scope)
            scope[one.arg] = annotated or (default if isinstance(default, Known) else None)
        for star in (arguments.vararg, arguments.kwarg):
            if star is not None:
                scope[star.arg] = None
        if isinstance(node, ast.Lambda):
            self._value(node.body, scope)
        else:
            self.visit_body(node.body, scope)

    def _class(self, node: ast.ClassDef, outer: Scope) -> None:
        scope = dict(outer)
        for base in node.bases:
            self._value(base, outer)
            scope |= self._kept.get(getattr(base, "id", ""), {})
        # A field of a dataclass, or what all objects of the class share.
        fields = [part for part in node.body if isinstance(part, ast.Assign | ast.AnnAssign)]
        shared: Scope = dict(outer)
        self.visit_body(list(fields), shared)
        scope |= {f"self.{name}": value for name, value in shared.items() if outer.get(name) != value}
        methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
        # What __init__ keeps in `self` is known to every method.
        for method in methods:
            if method.name == "__init__":
                inside = dict(scope)
                self.visit_function(method, inside)
                scope |= _attributes(inside)
        rest = [part for part in node.body if part not in fields and getattr(part, "name", "") != "__init__"]
        self._kept[node.name] = _attributes(scope)
        self.visit_body(rest, scope)
        outer[node.name] = None

    def _assign(self, target: ast.expr, source: ast.expr | None, value: Value, scope: Scope) -> None:
        match target:
            case ast.Name():
                scope[target.id] = value
            case ast.Attribute(value=ast.Name(id="self")):
                scope[f"self.{target.attr}"] = value
            case ast.Tuple(elts=parts):
                # `start, end = (Event() for _ in range(2))`: each is what the generator makes.
                made = self._value(source.elt, scope) if isinstance(source, ast.GeneratorExp) else None
                sources = source.elts if isinstance(source, ast.Tuple) else [None] * len(parts)
                for part, of in zip(parts, sources, strict=False):
                    self._assign(part, of, self._value(of, scope) if of is not None else made, scope)
            case _:
                self._value(target, scope)

    # ---- expressions

    def _value(self, node: Any, scope: Scope) -> Value:
        """What an expression is, where that is known; all names in it are looked up on the way."""
        match node:
            case None:
                return None
            case ast.Name():
                return scope.get(node.id)
            case ast.Attribute():
                if isinstance(node.value, ast.Name) and node.value.id == "self":
                    return scope.get(f"self.{node.attr}")
                return self._attribute(node, self._value(node.value, scope), node.attr)
            case ast.Call():
                return self._call(node, scope)
            case ast.Lambda():
                self._function(node, scope)
                return None
            case ast.NamedExpr():
                value = self._value(node.value, scope)
                self._assign(node.target, node.value, value, scope)
                return value
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                inside = dict(scope)
                for generator in node.generators:
                    self._value(generator.iter, inside)
                    self._assign(generator.target, None, None, inside)
                    for condition in generator.ifs:
                        self._value(condition, inside)
                for part in ("key", "value", "elt"):
                    self._value(getattr(node, part, None), inside)
                return None
            case ast.AST():
                for child in ast.iter_child_nodes(node):
                    self._value(child, scope)
        return None

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
        function = self._value(node.func, scope)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self._value(argument.value if isinstance(argument, ast.Starred) else argument, scope)
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[of, ast.Constant(value=str(name)), *default]):
                return self._attribute(node, self._value(of, scope), name, optional=bool(default))
        if not isinstance(function, Known):
            return None
        self._bind(node, function)
        return _result(function)

    def _bind(self, node: ast.Call, function: Known) -> None:
        signature = _signature(function.value)
        if signature is None:
            return
        open_ended = any(isinstance(argument, ast.Starred) for argument in node.args)
        open_ended |= any(keyword.arg is None for keyword in node.keywords)
        keywords = {keyword.arg: None for keyword in node.keywords if keyword.arg}
        count = 0 if open_ended else len(node.args) + function.bound
        try:
            if open_ended:
                signature.bind_partial(**keywords)
            else:
                signature.bind(*[None] * count, **keywords)
        except TypeError as error:
            self._absent(node, f"{function.name}{signature}: {error}", {"TypeError", "Exception"})
            return
        self.into.calls.add((self._at(node), node.col_offset))

    def _annotated(self, node: ast.expr | None, scope: Scope) -> Value:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        value = self._value(node, scope) if isinstance(node, ast.Name | ast.Attribute) else None
        # A constant of Triton's compiler has the attributes of what it holds.
        if isinstance(value, Known) and isinstance(value.value, type) and value.value.__name__ != "constexpr":
            return Instance(value.value, value.name)
        return None

    def _hasattr(self, node: ast.expr) -> list[str]:
        return [
            str(call.args[1].value)
            for call in ast.walk(node)
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "hasattr"
            and isinstance(call.args[1], ast.Constant)
        ]

    # ---- findings

    def _absent(self, node: ast.AST, what: str, guards: set[str]) -> None:
        guarded = any(caught & guards for caught in self._guards)
        findings = self.into.optional if guarded else self.into.missing
        if (text := f"{self._at(node)}: {what}") not in findings:  # some expressions are visited twice
            findings.append(text)

    def _at(self, node: Any) -> str:
        return f"{self.path}:{node.lineno}"


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
    for folder in ("bench", "kernels", "studies/gpu"):
        for path in sorted((root / folder).rglob("*.py")):
            yield str(path.relative_to(root)), path.read_text("utf-8")
