"""How much memory a launch needs beside its inputs, as torch's allocator counts it on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Memory:
    """What torch's allocator has handed out on the current GPU; what it keeps unused does not count."""

    def __init__(self, cuda: Any) -> None:
        """`cuda` is torch.cuda, or a simulation of it."""
        self._cuda = cuda

    def allocated(self) -> int:
        """Bytes of all tensors that there are."""
        return int(self._cuda.memory_allocated())

    def raised_by(self, call: Callable[[], object]) -> int:
        """Bytes that `call` adds to these at most while it runs, what it returns included."""
        self._cuda.reset_peak_memory_stats()
        before = self.allocated()
        written = call()
        self._cuda.synchronize()
        raised = int(self._cuda.max_memory_allocated()) - before
        del written
        return raised
