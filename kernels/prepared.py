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
    before: tuple[Prepared, ...] = ()
    """What runs before it, as part of the launch."""

    def launch(self) -> Launch:
        """Its launch on the current device and stream."""
        own = Launch.of(self.kernel[self.grid], (self.output,), **self.arguments)
        if not self.before:
            return own
        calls = [each.launch().call for each in self.before]

        def call() -> torch.Tensor:
            for each in calls:
                each()
            own.call()
            return self.output

        return Launch(call, (self.output,))

    def compile(self) -> None:
        """Make what `launch` will run, and do not run it."""
        for before in self.before:
            before.compile()
        self.kernel.warmup(**self.arguments, grid=(1,))
