"""Memory that a launch needs in addition to its inputs: by torch's allocator (GPU) or its tensors (CPU)."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

T = TypeVar("T")


class Memory:
    """What torch's allocator has handed out on the current GPU; what it keeps unused does not count."""

    def __init__(self, cuda: Any) -> None:
        """`cuda` is torch.cuda, or a simulation of it."""
        self._cuda = cuda

    def kept_by(self, build: Callable[[], T]) -> tuple[T, int]:
        """What `build` returns, and the bytes that it has allocated and not freed."""
        before = self._cuda.memory_allocated()
        built = build()
        return built, int(self._cuda.memory_allocated() - before)

    def raised_by(self, call: Callable[[], object]) -> int:
        """Bytes that `call` adds to those at most while it runs, what it returns included."""
        self._cuda.reset_peak_memory_stats()
        before = self._cuda.memory_allocated()
        written = call()
        self._cuda.synchronize()
        raised = int(self._cuda.max_memory_allocated() - before)
        del written
        return raised


class HostMemory:
    """The storages of tensors on a CPU: each counts from the operator that returns it until it is freed.

    It sees what torch's dispatcher sees: not what an operator allocates and frees inside of itself. Only
    tensors that came to be while it counted are known, so a launch's inputs are not.
    """

    def __init__(self) -> None:
        self._live: dict[int, int] = {}
        self._held = self._peak = 0

    def kept_by(self, build: Callable[[], T]) -> tuple[T, int]:
        """As of `Memory`."""
        before = self._held
        with _Watching(self._found):
            built = build()
        return built, self._held - before

    def raised_by(self, call: Callable[[], object]) -> int:
        """As of `Memory`."""
        before = self._peak = self._held
        with _Watching(self._found):
            written = call()
        del written
        return self._peak - before

    def _found(self, storage: torch.UntypedStorage) -> None:
        address, byte = storage._cdata, storage.nbytes()
        if address in self._live or not byte:
            return
        self._live[address] = byte
        weakref.finalize(storage, self._freed, address)
        self._held += byte
        self._peak = max(self._peak, self._held)

    def _freed(self, address: int) -> None:
        self._held -= self._live.pop(address)


class _Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells of each storage that an operator returned and had not been given."""

    def __init__(self, on_storage: Callable[[torch.UntypedStorage], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tell = on_storage

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = {each._cdata for each in _storages((args, kwargs))}
        result = func(*args, **kwargs)
        for storage in _storages(result):
            if storage._cdata not in given:
                self._tell(storage)
        return result


def _storages(values: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
