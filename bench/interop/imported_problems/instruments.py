"""What microbenchmarks of the device itself time: rates of its caches, its roofline."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bench.interop.imported_problems.counted import Counted, Counts, on_gpus
from bench.spec import Dtypes, Implementation, Size

_FLOATS: Dtypes = {"float32": (0, 0), "float64": (0, 0)}


class CachedRead(Counted):
    """Loads from `footprint_byte` again and again, which what holds them serves: a cache, or memory.

    `readers` says who reads what: `each` multiprocessor all of it, or all of them `together`, parts of it.
    The counts are of `footprint_byte` once: times are those of so many bytes at the rate of all
    multiprocessors. No roof is drawn for them, since no datasheet has the rates of caches.
    """

    operator: ClassVar[str] = "cached_read"
    arithmetic: ClassVar[Literal["unbounded"]] = "unbounded"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_gpus("gpu-cache", "gpu-benches' sums of one buffer, a block of 256 threads each", _FLOATS),
        on_gpus("gpu-l2-cache", "gpu-benches' sums of parts of a buffer, blocks of 1024 threads", _FLOATS),
    )

    readers: Literal["each", "together"]
    footprint_byte: Size

    @property
    def counts(self) -> Counts:
        """The footprint is read; the sums, which are not what is measured, are not counted."""
        return Counts(read=self.footprint_byte)


class MultiplyAdds(Counted):
    """`steps` dependent multiply-adds of each pair of elements of two arrays of `length`, and a few sums.

    kernels/fma writes as much as it reads; this reads alone. Both are for the intensity at which a GPU stops
    being limited by memory (NVIDIA's GPU Performance Background, "Understanding Performance").
    """

    operator: ClassVar[str] = "multiply_adds"
    rate: ClassVar[Literal["flop", "byte"]] = "flop"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_gpus("gpu-roofline", "gpu-benches' kernel, blocks of 256 threads", _FLOATS),
    )

    length: Size
    steps: Annotated[int, Field(ge=0)]

    @property
    def counts(self) -> Counts:
        """2 FLOP a step, a difference before and a sum after all of them; both arrays are read.

        Nothing is written: the sums of blocks are a few thousand numbers.
        """
        return Counts(flop=2 * (self.steps + 1) * self.length, read=2 * self.length * self.item_byte)
