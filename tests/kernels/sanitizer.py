"""Watches every load and store of an interpreted kernel: in bounds, how many bytes, how often each.

Needs a process started with TRITON_INTERPRET=1. Addresses are checked against the tensors that the kernel
was given, before they are touched. Values that were never written are found by filling outputs with NaN.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder


@dataclass
class Access:
    """All unmasked accesses of one kind: parallel arrays of byte addresses, and the size of each."""

    addresses: list[Any] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    @property
    def byte(self) -> int:
        """Bytes accessed, repeats included."""
        return sum(one.size * size for one, size in zip(self.addresses, self.sizes, strict=True))

    @property
    def distinct_byte(self) -> int:
        """Bytes accessed, each address counted once: what must come from memory if the cache is kind.

        Meaningful where all accesses to an address have one size.
        """
        of_size: dict[int, list[Any]] = {}
        for one, size in zip(self.addresses, self.sizes, strict=True):
            of_size.setdefault(size, []).append(one)
        return sum(size * _distinct(addresses) for size, addresses in of_size.items())

    def within(self, tensor: Any) -> "Access":
        """Those of them that fall into this tensor's extent."""
        start, end = _extent(tensor)
        found = Access()
        for one, size in zip(self.addresses, self.sizes, strict=True):
            found.addresses.append(one[(one >= start) & (one < end)])
            found.sizes.append(size)
        return found

    @property
    def repeated(self) -> int:
        """Accesses beyond the first to the same address."""
        return sum(one.size for one in self.addresses) - _distinct(self.addresses)


def _distinct(addresses: list[Any]) -> int:
    """How many different addresses there are; sorting is ten times as quick as numpy's unique."""
    if not addresses:
        return 0
    ordered = np.sort(np.concatenate(addresses))
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + min(1, ordered.size)


@dataclass
class Watch:
    """What the kernels launched while watching have done."""

    loads: Access = field(default_factory=Access)
    stores: Access = field(default_factory=Access)
    atomics: Access = field(default_factory=Access)
    extents: list[tuple[int, int]] = field(default_factory=list)
    """First byte and end of every tensor given to a kernel."""

    def admit(self, tensor: Any) -> None:
        """Make this tensor's own extent (not its whole storage) a place that kernels may touch."""
        if tensor.numel():
            self.extents.append(_extent(tensor))

    def note(self, access: Access, what: str, program: Any, pointers: Any, mask: Any) -> None:
        """Record one access; IndexError if any of its addresses lies outside every tensor."""
        chosen = True if mask is None else mask.data
        addresses = pointers.data[np.broadcast_to(chosen, pointers.data.shape)]
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        if addresses.size and not self._within_one(int(addresses.min()), int(addresses.max()) + size):
            inside = np.zeros(addresses.shape, dtype=bool)
            for start, end in self.extents:
                inside |= (addresses >= start) & (addresses + np.uint64(size) <= end)
            if not inside.all():
                outside = int((~inside).sum())
                raise IndexError(f"{what} out of bounds: {outside} of {inside.size} in program {program}")
        access.addresses.append(addresses)
        access.sizes.append(size)

    def _within_one(self, first: int, end: int) -> bool:
        """Whether these bytes all lie in one tensor, as those of an access nearly always do."""
        return any(start <= first and end <= stop for start, stop in self.extents)


def _extent(tensor: Any) -> tuple[int, int]:
    """Address of the first byte, and one past the last: its own reach, not its whole storage."""
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (reach + 1) * tensor.element_size()


@contextmanager
def placed(program: Sequence[int], grid: Sequence[int]) -> Iterator[None]:
    """While entered, a kernel launched with a grid of (1,) runs as this one program of this larger grid.

    So the far end of a tensor beyond 2^31 elements is reached without running the millions of programs
    before it; pages of a `torch.empty` that nobody touches cost no memory.
    """
    at, of = (tuple(one) + (fill,) * (3 - len(one)) for one, fill in ((program, 0), (grid, 1)))

    def set_index(self: Any, *_: int) -> None:
        self.grid_idx = at

    def set_dimensions(self: Any, *_: int) -> None:
        self.grid_dim = of

    with patch.multiple(InterpreterBuilder, set_grid_idx=set_index, set_grid_dim=set_dimensions):
        yield


@contextmanager
def at_the_end(programs: int) -> Iterator[None]:
    """While entered, of each grid that is launched only the last programs run; x changes slowest."""
    call = GridExecutor.__call__

    def run_last(self: Any, *arguments: Any, **named: Any) -> None:
        grid = (*self.grid, 1, 1)[:3]
        self.grid = (1,)
        count = math.prod(grid)
        for number in range(count - programs, count):
            with placed([int(place) for place in np.unravel_index(number, grid)], grid):
                call(self, *arguments, **named)

    with patch.object(GridExecutor, "__call__", run_last):
        yield


@contextmanager
def watched() -> Iterator[Watch]:
    """While entered, every interpreted kernel is watched; an access out of bounds stops it.

    Triton wraps the IndexError in its own InterpreterError.
    """
    watch = Watch()
    load, store, atomic = (
        InterpreterBuilder.create_masked_load,
        InterpreterBuilder.create_masked_store,
        InterpreterBuilder.create_atomic_rmw,
    )
    admit = GridExecutor._init_args_hst

    def watched_load(self: Any, pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        watch.note(watch.loads, "load", self.grid_idx, pointers, mask)
        return load(self, pointers, mask, *rest, **named)

    def watched_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        watch.note(watch.stores, "store", self.grid_idx, pointers, mask)
        return store(self, pointers, value, mask, *rest)

    def watched_atomic(self: Any, operation: Any, pointer: Any, value: Any, mask: Any, *rest: Any) -> Any:
        watch.note(watch.atomics, "atomic", self.grid_idx, pointer, mask)
        return atomic(self, operation, pointer, value, mask, *rest)

    def watched_arguments(self: Any, arguments: Any, named: Any) -> Any:
        # The interpreter works on CPU copies of device tensors; those are what it may touch.
        on_host, named_on_host = admit(self, arguments, named)
        for one in (*on_host, *named_on_host.values()):
            tensor = getattr(one, "base", one) if not hasattr(one, "untyped_storage") else one
            if hasattr(tensor, "untyped_storage"):
                watch.admit(tensor)
        return on_host, named_on_host

    with (
        patch.multiple(
            InterpreterBuilder,
            create_masked_load=watched_load,
            create_masked_store=watched_store,
            create_atomic_rmw=watched_atomic,
        ),
        patch.object(GridExecutor, "_init_args_hst", watched_arguments),
    ):
        yield watch
