"""Kernels of Gluon that hold rows in shared memory, run by Triton's interpreter as one program a cluster.

What Gluon says beside the arithmetic, Triton's own language does not: layouts are dropped, shared memory
becomes tensors, and the rest is taken literally and made as unkind as the hardware may be:

* Shared memory is NaN until a copy into it has been waited for, and so is what a mask left out.
* A chunk must not be read before `wait_group` says that its copy, and all of its group's, has arrived.
* In a cluster what has been stored must not be loaded again before the cluster's barrier, nor the barrier be
  waited for without an arrival.

Needs a process started with TRITON_INTERPRET=1. The order of threads within a block is the compiler's care:
Gluon puts a barrier where one thread reads shared memory that another wrote.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonJITFunction
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import cluster
from triton.runtime.interpreter import InterpretedFunction


class Fault(AssertionError):
    """The kernel relies on an order that the hardware does not promise."""


class Emulated:
    """Stands in for a kernel: `Emulated(kernel)[grid](..., num_warps=8, num_ctas=2)`."""

    def __init__(self, kernel: Any) -> None:
        """`kernel` is a function of Gluon's `jit`."""
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        """The launch of so many clusters."""

        def run(*arguments: Any, num_warps: int, num_ctas: int, **named: Any) -> None:
            program = _Program(num_warps, num_ctas)
            program.interpreted(self._kernel)[grid](*arguments, **named)

        return run


class _Buffer:
    """Shared memory of one program: `[chunks, blocks, elements]`."""

    def __init__(self, program: _Program, kind: Any, shape: list[int]) -> None:
        self._program, self._kind, self._shape = program, kind, shape
        self.kept: dict[int, Any] = {}
        self.group: dict[int, int] = {}

    def index(self, chunk: Any) -> _Chunk:
        number = int(chunk.handle.data.item()) if hasattr(chunk, "handle") else int(chunk)
        if not 0 <= number < self._shape[0]:
            raise Fault(f"chunk {number} of {self._shape[0]}")
        return _Chunk(self, number)

    def fill(self, number: int, values: Any) -> None:
        if values.shape != self._shape[1:]:
            raise Fault(f"{values.shape} elements into a chunk of {self._shape[1:]}")
        self.kept[number], self.group[number] = values, self._program.open_group

    def read(self, number: int) -> Any:
        if number not in self.kept:
            raise Fault(f"chunk {number} is read but was never copied")
        if self.group[number] >= self._program.arrived:
            raise Fault(f"chunk {number} is read before its copy was waited for")
        return self.kept[number]


class _Chunk:
    """One chunk of a buffer."""

    def __init__(self, buffer: _Buffer, number: int) -> None:
        self.buffer, self.number = buffer, number

    def load(self, layout: Any) -> Any:
        return self.buffer.read(self.number)


def _addresses(pointers: Any, mask: Any) -> Any:
    """Those that a mask keeps."""
    every = pointers.handle.data
    return every.ravel() if mask is None else every[np.broadcast_to(mask.handle.data, every.shape)]


class _Program:
    """Gluon's language for the programs of one launch, and what it must keep in mind of the one that runs."""

    def __init__(self, warps: int, blocks: int) -> None:
        self.warps, self.blocks = warps, blocks
        self._functions: dict[int, Any] = {}
        self.begin()

    def begin(self) -> None:
        """A program starts: nothing is under way."""
        self.open_group = self.arrived = 0
        self._stored: list[Any] = []
        self._at_barrier = False

    def interpreted(self, kernel: GluonJITFunction[Any]) -> Any:
        """The function with every name of Gluon's replaced by one of ours, interpreted."""
        if id(kernel) not in self._functions:
            fn = kernel.fn
            names: dict[str, Any] = {"tl": tl}
            copied = types.FunctionType(fn.__code__, names, fn.__name__, fn.__defaults__)
            self._functions[id(kernel)] = function = InterpretedFunction(copied)
            names |= {name: self._replaced(value) for name, value in fn.__globals__.items()}
            # The interpreter knows compile-time arguments by the name `tl.constexpr`.
            marked = inspect.get_annotations(fn)
            function.rewrite().__annotations__.update(dict.fromkeys(marked, "constexpr"))
        return self._functions[id(kernel)]

    def _replaced(self, value: Any) -> Any:
        if value is gl:
            return self._language()
        if value is async_copy:
            return self._copies()
        if value is cluster:
            return types.SimpleNamespace(arrive=self._arrive, wait=self._meet)
        return self.interpreted(value) if isinstance(value, GluonJITFunction) else value

    def _language(self) -> types.SimpleNamespace:
        def program_id(axis: int) -> Any:
            self.begin()
            return tl.program_id(axis)

        return types.SimpleNamespace(
            constexpr=tl.constexpr,
            float32=tl.float32,
            int64=tl.int64,
            SliceLayout=gl.SliceLayout,
            static_range=range,
            cast=lambda value, kind: tl.cast(value, kind),
            num_programs=lambda axis: tl.num_programs(axis),
            num_ctas=lambda: self.blocks,
            num_warps=lambda: self.warps,
            program_id=program_id,
            arange=lambda start, end, layout: tl.arange(start, end),
            full=lambda shape, value, kind, layout: tl.full(shape, value, kind),
            allocate_shared_memory=lambda kind, shape, layout: _Buffer(self, kind, list(shape)),
            load=self._load,
            store=self._store,
            **{
                name: lambda *operands, name=name: getattr(tl, name)(*operands)
                for name in ("where", "maximum", "max", "sum", "exp", "rsqrt")
            },
        )

    def _copies(self) -> types.SimpleNamespace:
        return types.SimpleNamespace(
            async_copy_global_to_shared=self._copy, commit_group=self._commit, wait_group=self._wait
        )

    def _copy(self, chunk: _Chunk, pointers: Any, mask: Any) -> None:
        chunk.buffer.fill(chunk.number, tl.load(pointers, mask=mask, other=math.nan))

    def _commit(self) -> None:
        self.open_group += 1

    def _wait(self, newest: int) -> None:
        self.arrived = max(self.arrived, self.open_group - newest)

    def _store(self, pointers: Any, values: Any, mask: Any = None) -> None:
        self._stored.append(_addresses(pointers, mask))
        tl.store(pointers, values, mask=mask)

    def _load(self, pointers: Any, mask: Any = None, other: Any = None, cache_modifier: str = "") -> Any:
        if self._stored and np.isin(_addresses(pointers, mask), np.concatenate(self._stored)).any():
            raise Fault("what was stored is loaded again before the cluster's barrier")
        return tl.load(pointers, mask=mask, other=other)

    def _arrive(self) -> None:
        self._at_barrier = True

    def _meet(self) -> None:
        if not self._at_barrier:
            raise Fault("the cluster's barrier is waited for without an arrival")
        self._at_barrier = False
        self._stored.clear()
