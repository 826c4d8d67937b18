"""Plain arithmetic: multiply-adds of float32 on vector units, as many for each byte as are asked for.

Each element of x goes through a chain of multiply-adds and is written to y. In pairs these are

    v = 4 v + 1;  v = v / 4 - 1/4 + 2^-12

so that a pair adds 2^-12: the result of the longest chain is known without computing it, and a pair too few
or too many is seen. No compiler can leave out or fold steps, since each rounds what the one before gave.

A block of `block_threads` threads computes a tile of 32 elements a thread, all of them in registers. So a
block is work of a fixed amount, and one of 1024 threads fills an SM, whose registers hold no second.
`programs` asks for so many blocks, which take the tiles in turns; 0 is a block for each tile.

Strongest known: none, for this measures the device.
"""

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from bench.spec import Implementation, Problem, Specs, TensorSpec
from kernels.implementations import VOLTA, on_cuda

TILE_OF_THREAD = 32
"""Elements of a tile for each thread."""
SHIFT = 2.0**-12
"""What a pair of multiply-adds adds."""
THREADS = (32, 64, 128, 256, 512, 1024)


class FusedMultiplyAdd(Problem):
    """`length` elements, `flop_per_byte`, `block_threads`, `programs`, `dtype`."""

    operator: ClassVar[str] = "fma"
    rate: ClassVar = "flop"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_cuda("triton", "our chain of multiply-adds, 32 independent ones a thread", {"float32": VOLTA}),
    )

    length: Annotated[int, Field(ge=1024)]
    flop_per_byte: Annotated[int, Field(ge=1, le=2048)]
    block_threads: int = 256
    programs: Annotated[int, Field(ge=0, le=2**20)] = 0

    @field_validator("block_threads")
    @classmethod
    def _fit_a_block(cls, threads: int) -> int:
        if threads not in THREADS:
            raise ValueError(f"block_threads is one of {', '.join(map(str, THREADS))}, not {threads}")
        return threads

    @property
    def pairs(self) -> int:
        """Pairs of multiply-adds of each element: four operations, for the bytes read and written."""
        return self.flop_per_byte * 2 * self.item_byte // 4

    @property
    def tile(self) -> int:
        """Elements that a block computes at once."""
        return TILE_OF_THREAD * self.block_threads

    @property
    def flop(self) -> int:
        """Two for each multiply-add."""
        return 4 * self.pairs * self.length

    @property
    def tensors(self) -> tuple[Specs, Specs]:
        """x and y."""
        line = TensorSpec((self.length,))
        return {"x": line}, {"y": line}


PROBLEM = FusedMultiplyAdd
