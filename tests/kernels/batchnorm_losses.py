"""Batch normalization in two passes: bytes in flight of the loops, before and after asynchronous copies.

Rows of `losses.py`: of each kernel and layout the first candidate, which every commit has, for a problem of
ResNet-50. Programs count that the launch starts, not those that would fit.
"""

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from types import ModuleType

from kernels.batchnorm import two_pass
from kernels.batchnorm.problem import BatchNorm, Layout
from tests.kernels.batchnorm_compiled import constants, variant
from tests.kernels.compiled import Built
from tests.kernels.in_flight import in_flight
from tests.kernels.losses import Form, Row, in_loop, of_variant

KERNELS = ("statistics", "normalize", "gradient_sums", "input_gradient")
PASSES = {"statistics": 1, "normalize": 2, "gradient_sums": 2, "input_gradient": 3}
"""Tensors of x's size that each reads and writes."""


def losses() -> Iterator[Row]:
    """Every kernel for sm_90, planes of 7 x 7 among them; of what reads only also sm_100 and 14 x 14."""
    for layout in ("NHWC", "NCHW"):
        for kernel in KERNELS:
            yield row(kernel, layout, 56, 90)
        yield row("statistics", layout, 56, 100)
    yield row("statistics", "NCHW", 14, 90)
    for kernel in KERNELS:
        yield row(kernel, "NCHW", 7, 90)
    yield row("statistics", "NCHW", 7, 100)


def row(kernel: str, layout: Layout, side: int, capability: int) -> Row:
    """One kernel for float16 images of `side` x `side`."""
    return Row(
        f"{kernel}, {layout} {side} x {side} float16, sm_{capability}",
        partial(form, kernel, layout, side, capability),
    )


def form(kernel: str, layout: Layout, side: int, capability: int) -> Form:
    """Its first candidate."""
    problem = BatchNorm(n=32, c=256, h=side, w=side, layout=layout, dtype="float16")
    tile = two_pass.candidates(problem)[0]
    function = getattr(kernels(problem), kernel)
    options = constants(function, two_pass.sizes(problem, tile, 4))

    columns = min(tile.columns, 8 * side**2)  # past a group of 8 odd planes there is nothing

    def under_way(built: Built) -> float:
        return in_flight(built, capability, tile.warps, tile.programs).byte * columns / tile.columns

    def issued(built: Built) -> float | None:
        return in_loop(built, tile.rows * columns / (32 * tile.warps))

    return of_variant(
        variant(str(tile), function, problem.dtype, options, tile.warps),
        capability,
        passes=PASSES[kernel],
        in_flight=under_way,
        instructions=issued,
    )


def kernels(problem: BatchNorm) -> ModuleType:
    """Where the kernels are: in one file, of earlier commits in one for each layout."""
    of_layout = getattr(two_pass, "kernels", None)
    found: ModuleType = of_layout(problem) if of_layout else import_module("kernels.batchnorm.passes")
    return found
