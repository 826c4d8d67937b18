"""A kernel with all that it is called with: what a launch runs is what was compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from bench.spec import Launch


class Prepared(NamedTuple):
    """A kernel, its grid and its arguments."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    output: torch.Tensor

    def launch(self) -> Launch:
        """Its launch on the current device and stream."""
        return Launch.of(self.kernel[self.grid], (self.output,), **self.arguments)

    def compile(self) -> None:
        """Make what `launch` will run, and do not run it."""
        self.kernel.warmup(**self.arguments, grid=(1,))
