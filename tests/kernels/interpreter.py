"""Triton's interpreter, repaired where it silently computes something else than the GPU.

Needs a process started with TRITON_INTERPRET=1. What is mended (Triton 3.6 and 3.7):

* bfloat16 is kept as bit patterns in uint16 arrays, and dot, arithmetic and comparisons work on the
  patterns. Here they are widened to float32, computed, and rounded back.
* float32 -> bfloat16 drops the low bits, or rounds halves up; the GPU rounds to nearest even.
* Other casts from and to bfloat16 (float16, float64, integers) convert the pattern, not the value.
* float8e4nv is kept as bit patterns in uint8 arrays: casts other than from float32 and float16 convert
  the pattern, and those to it do not round to nearest even. Values beyond 448 become 448, as on the GPU.
* `input_precision="tf32"` is ignored; here it truncates the operands to 10 bits, as the tensor cores do.
* Counting a loop with a run-time value fails with numpy >= 2.4 in Triton 3.6.

A reduction of either type is refused: cast to float32 first, as our kernels do.

What only takes time, four fifths of it in all, is left out: tests of 32-bit arithmetic for overflow, whose
outcome the interpreter ignores; looking through all of the language for what is to be replaced whenever a
kernel calls a function, though that has been replaced already; describing the type of every block anew,
though a kernel has but a few; and asking of operands of one type, or of one and a number, what
they are to be cast to.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, ReduceOps, TensorHandle

_COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
_CHECK_TYPES = TritonSemantic.binary_op_type_checking_impl
_BITWISE = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)

_PATTERNS = {
    tl.bfloat16: (torch.bfloat16, np.int16, math.inf),
    tl.float8e4nv: (torch.float8_e4m3fn, np.uint8, 448.0),
    tl.float8e5: (torch.float8_e5m2, np.uint8, 57344.0),
}
"""Types that numpy lacks, kept as bit patterns: torch's type, an integer as wide, what overflow becomes."""


@contextmanager
def repaired() -> Iterator[None]:
    """While entered, interpreted kernels compute what compiled ones would, up to the order of sums."""
    builder = interpreter.interpreter_builder
    with ExitStack() as stack:
        for owner, name, mended in (
            (InterpreterBuilder, "cast_impl", _cast(InterpreterBuilder.cast_impl)),
            (InterpreterBuilder, "create_fp_to_fp", _round_to(InterpreterBuilder.create_fp_to_fp)),
            (InterpreterBuilder, "binary_op", _binary(InterpreterBuilder.binary_op)),
            (InterpreterBuilder, "unary_op", _unary(InterpreterBuilder.unary_op)),
            (InterpreterBuilder, "create_dot", _dot),
            (ReduceOps, "apply_impl", _reduce(ReduceOps.apply_impl)),
            (interpreter, "_patch_lang_tensor", _index(interpreter._patch_lang_tensor)),
            (interpreter, "_patch_builtin", _patch_builtins),
            (InterpretedFunction, "__call__", _call(InterpretedFunction.__call__)),
            (TritonSemantic, "binary_op_type_checking_impl", _operands(_CHECK_TYPES)),
            (TritonSemantic, "broadcast_impl_value", _broadcast(TritonSemantic.broadcast_impl_value)),
            (tl.block_type, "__init__", _block(tl.block_type.__init__)),
            (builder, "options", replace(builder.options, sanitize_overflow=False)),
        ):
            stack.enter_context(patch.object(owner, name, mended))
        yield


def _is_pattern(handle: Any) -> bool:
    return handle.dtype.scalar in _PATTERNS


def _value(handle: Any) -> Any:
    """The numbers in a handle: float32 where it holds bit patterns, else as they are."""
    if not _is_pattern(handle):
        return handle.data
    kind, bits, _ = _PATTERNS[handle.dtype.scalar]
    pattern = torch.from_numpy(np.ascontiguousarray(handle.data).view(bits))
    return pattern.view(kind).float().numpy().reshape(handle.data.shape)


def _rounded(value: Any, target: Any) -> Any:
    """A handle of these numbers as bit patterns of `target`; torch rounds to nearest even.

    What overflows is cut off here: it depends on torch's version whether its casts do.
    """
    kind, bits, largest = _PATTERNS[target]
    number = torch.from_numpy(np.ascontiguousarray(value)).float().clamp(-largest, largest).to(kind)
    pattern = number.view(getattr(torch, bits.__name__)).numpy()
    return TensorHandle(pattern.view(interpreter._get_np_dtype(target)), target)


def _cast(original: Callable[..., Any]) -> Callable[..., Any]:
    def cast(self: Any, source: Any, target: Any) -> Any:
        if target.scalar in _PATTERNS:
            same = source.dtype.scalar == target.scalar
            return source if same else _rounded(_value(source), target.scalar)
        if _is_pattern(source):
            return TensorHandle(_value(source).astype(interpreter._get_np_dtype(target)), target.scalar)
        return original(self, source, target)

    return cast


def _round_to(original: Callable[..., Any]) -> Callable[..., Any]:
    def round_to(self: Any, source: Any, target: Any, rounding: Any) -> Any:
        if target.scalar in _PATTERNS or _is_pattern(source):
            return self.cast_impl(source, target)
        return original(self, source, target, rounding)

    return round_to


def _binary(original: Callable[..., Any]) -> Callable[..., Any]:
    def binary(self: Any, left: Any, right: Any, operation: Any) -> Any:
        if not _is_pattern(left) or operation in _BITWISE:
            return original(self, left, right, operation)
        result = operation(_value(left), _value(right))
        if operation in _COMPARISONS:
            return TensorHandle(result, tl.int1)
        return _rounded(result, left.dtype.scalar)

    return binary


def _unary(original: Callable[..., Any]) -> Callable[..., Any]:
    def unary(self: Any, argument: Any, operation: Any) -> Any:
        if _is_pattern(argument):
            return _rounded(operation(_value(argument)), argument.dtype.scalar)
        return original(self, argument, operation)

    return unary


def _dot(self: Any, a: Any, b: Any, total: Any, precision: Any, imprecise: Any) -> Any:
    left, right = _value(a), _value(b)
    if a.dtype.scalar == tl.float32 and str(precision).upper().endswith("TF32"):
        left, right = _tf32(left), _tf32(right)
    product = np.matmul(left, right, dtype=total.data.dtype)
    return TensorHandle(product + total.data, total.dtype.scalar)


def _tf32(value: Any) -> Any:
    kept = np.ascontiguousarray(value).view(np.uint32) & np.uint32(0xFFFFE000)
    return kept.view(np.float32)


def _reduce(original: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(self: Any, inputs: Any) -> Any:
        pattern = next((one.handle for one in inputs if _is_pattern(one.handle)), None)
        if pattern is not None:
            kind = pattern.dtype.scalar
            raise TypeError(f"a reduction of {kind} cannot be interpreted; cast to float32 first")
        return original(self, inputs)

    return reduce


def _index(original: Callable[..., Any]) -> Callable[..., Any]:
    def index(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return index


_BUILTINS: dict[Any, list[str]] = {}
"""Names of the language's builtins in a module or class of it."""


def _patch_builtins(package: Any, builder: Any, scope: Any) -> None:
    """What Triton's `_patch_builtin` does, unless it has been done and not been taken back yet."""
    if package not in _BUILTINS:
        members = inspect.getmembers(package)
        _BUILTINS[package] = [name for name, member in members if tl.core.is_builtin(member)]
    names = _BUILTINS[package]
    if names and tl.core.is_builtin(getattr(package, names[0])):
        for name in names:
            scope.set_attr(package, name, _replaced(getattr(package, name)))


def _replaced(builtin: Callable[..., Any]) -> Callable[..., Any]:
    builtin = getattr(builtin, "__wrapped__", builtin)  # beneath what only asks whether there is a _semantic

    def call(*arguments: Any, _semantic: Any = None, **named: Any) -> Any:
        return builtin(*arguments, **named, _semantic=interpreter.interpreter_semantic)

    return call


def _call(original: Callable[..., Any]) -> Callable[..., Any]:
    """Of functions that kernels call only the first of a module may meet something not replaced yet.

    The launch has replaced what the kernel's module sees, and what is replaced for a function stays so.
    """
    ready: set[str] = set()

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if self.fn.__module__ in ready:
            return self.rewrite()(*arguments, **named)
        ready.add(self.fn.__module__)
        return original(self, *arguments, **named)

    return call


def _block(original: Callable[..., Any]) -> Callable[..., Any]:
    """The type of a block: only the first of these elements and this shape is described and found valid."""
    known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def init(self: Any, element: Any, shape: Any) -> None:
        key = id(element), *shape  # what is known holds the element, so nothing else gets its id
        if key not in known:
            original(self, element, shape)
            known[key] = vars(self).copy()
        vars(self).update(known[key])

    return init


def _operands(original: Callable[..., Any]) -> Callable[..., Any]:
    """The operands of an operation, cast and broadcast: two of one type, or one and a number of Python's."""
    constants: dict[tuple[Any, ...], Any] = {}

    def operands(self: Any, left: Any, right: Any, *how: bool) -> Any:
        same = type(left) is type(right) is tl.tensor and left.dtype is right.dtype
        beside = type(left) is tl.tensor and type(right) in (int, float)
        if not (same or beside) or len(how) > 2 or left.dtype.is_ptr():  # others divide, or cast nothing
            return original(self, left, right, *how)
        if beside:
            key = left.dtype.name, type(right), right
            if key not in constants:
                _, constants[key] = original(self, self.scalar_constant(0, left.dtype), right)
            if constants[key].dtype is not left.dtype:
                return original(self, left, right, *how)
            right = constants[key]
        return self.broadcast_impl_value(left, right)

    return operands


def _broadcast(original: Callable[..., Any]) -> Callable[..., Any]:
    """Two blocks in the shape that NumPy broadcasts them to, by the same rules; a scalar as before."""

    def broadcast(self: Any, left: Any, right: Any) -> Any:
        if not (left.type.is_block() and right.type.is_block()):
            return original(self, left, right)
        sizes = left.handle.data.shape, right.handle.data.shape
        if sizes[0] == sizes[1]:
            return left, right
        shape = list(np.broadcast_shapes(*sizes))

        def spread(value: Any) -> Any:
            if list(value.handle.data.shape) == shape:
                return value
            handle = self.builder.create_broadcast(value.handle, shape)
            return self.tensor(handle, tl.block_type(value.dtype, shape))

        return spread(left), spread(right)

    return broadcast
