"""Latency of memory by footprint: loads that each need the one before, a pointer chase.

A table has a cell in each line of 128 bytes, the lines of NVIDIA's caches: the place of the cell that comes
next. The cells form one cycle in random order, so no prefetcher and no neighbour in a page helps. A chain
follows it for `steps` steps, and a launch takes steps times the latency: of the first-level cache while the
table fits there, of the second, and of memory beyond.

A launch is to visit all of its table, or a large one would stay in the cache by halves. So a table of more
lines than steps is visited by as many chains as that needs, each by one block on an arc of its own: 64 at
512 MiB and 65536 steps. They wait at the same time, and so few loads do not make each other wait.

A line for each step is no measure of what memory could deliver, so `arithmetic` is `latency`: no roof is held
against these rows.

Strongest known: none, for this measures the device.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from bench.spec import Implementation, Problem
from kernels.implementations import VOLTA, on_cuda

LINE_BYTE = 128
"""Bytes from one cell to the next."""


class Latency(Problem):
    """A chase through `footprint_byte` for `steps` steps; `dtype` only says that a cell has 4 bytes."""

    operator: ClassVar[str] = "latency"
    arithmetic: ClassVar[Literal["latency"]] = "latency"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_cuda("triton", "our chase: every load has its address from the one before", {"float32": VOLTA}),
    )

    footprint_byte: Annotated[int, Field(ge=2 * LINE_BYTE, le=2**32)]
    steps: Annotated[int, Field(ge=1, le=2**24)] = 65_536

    @model_validator(mode="after")
    def _has_whole_lines(self) -> "Latency":
        if self.footprint_byte % LINE_BYTE:
            raise ValueError(f"footprint_byte is a multiple of {LINE_BYTE}, not {self.footprint_byte}")
        return self

    @property
    def lines(self) -> int:
        """Cells of the table."""
        return self.footprint_byte // LINE_BYTE

    @property
    def chains(self) -> int:
        """Blocks that follow the cycle side by side, so that they visit all of it."""
        return -(-self.lines // self.steps)

    @property
    def flop(self) -> int:
        """0."""
        return 0

    @property
    def byte_read(self) -> int:
        """A line for each step of each chain."""
        return LINE_BYTE * self.steps * self.chains

    @property
    def byte_written(self) -> int:
        """The place where each chain ends."""
        return 4 * self.chains

    @property
    def byte_stored(self) -> int:
        """The table, and where each chain begins."""
        return self.footprint_byte + 4 * self.chains

    def probe(self) -> "Latency":
        """At most 1 MiB and 1024 steps."""
        return self.at_most(footprint_byte=1 << 20, steps=1024)


PROBLEM = Latency
