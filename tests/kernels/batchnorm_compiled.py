"""What the batch normalization kernels promise of their compiled form, with every configuration they may try.

Kernels that write nothing in bulk, or read one element of x with the bulk (the shift), promise 16-byte loads
here. The two passes also keep enough bytes in flight (in_flight.py), and all programs of a launch run at
once.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench.spec import Dtype
from kernels.batchnorm import two_pass
from kernels.batchnorm.problem import BatchNorm, Layout
from tests.kernels.compiled import (
    CAPABILITIES,
    Built,
    Family,
    Form,
    launched,
    narrow_faults,
    resource_faults,
    without_memory,
)
from tests.kernels.in_flight import NEEDED_BYTE, in_flight, resident

LAYOUTS: tuple[Layout, ...] = ("NCHW", "NHWC")
DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
MULTIPROCESSORS = 132


def two_passes(layout: Layout, dtype: Dtype, aligned: bool) -> Iterator[Form]:
    """The four kernels of a layout with each candidate."""
    c, side = (256, 56) if aligned else (255, 7)
    yield from four_kernels(BatchNorm(n=32, c=c, h=side, w=side, layout=layout, dtype=dtype), aligned)


def odd_planes(dtype: Dtype, sides: tuple[int, ...]) -> Iterator[Form]:
    """The four kernels for groups of odd planes, with each candidate."""
    for side in sides:
        problem = BatchNorm(n=32, c=256, h=side, w=side, layout="NCHW", dtype=dtype)
        yield from four_kernels(problem, aligned=True)


def four_kernels(problem: BatchNorm, aligned: bool) -> Iterator[Form]:
    """The four kernels of a problem with each candidate."""
    passes = (("forward", 3), ("backward", 5))  # and how many tensors a launch reads
    for tile in two_pass.candidates(problem):
        filled = min(1.0, 8 * problem.h * problem.w / tile.columns)  # the share of its lanes with an element
        meanwhile = partial(idle, tile=tile, copied=aligned and tile.stages > 1, filled=filled)
        for direction, count in passes:
            way = problem.model_copy(update={"direction": direction})
            tensors = without_memory(way)[:count]
            for call in launched(two_pass.launch(way, *tensors, tile=tile, multiprocessors=MULTIPROCESSORS)):
                wide = aligned and call.kernel.fn.__name__ in ("normalize", "input_gradient")
                promises = (resource_faults, meanwhile, *((narrow_faults,) if wide else ()))
                yield Form(f"{call.kernel.fn.__name__} {problem} {tile}", call, promises)


def every() -> Iterator[Form]:
    """All of them, for every type on every architecture."""
    for layout in LAYOUTS:
        for dtype in DTYPES:
            for aligned in (True, False):
                yield from two_passes(layout, dtype, aligned)
    for dtype in ("float16", "bfloat16"):
        yield from odd_planes(dtype, (7, 9, 11))
    yield from readers()


def chosen() -> Iterator[Form]:
    """Every configuration of every kernel in float16 and float32, the rest in turns.

    Each is compiled for one architecture, so that each kernel and each configuration meets all of them.
    """
    for i, layout in enumerate(LAYOUTS):
        for j, dtype in enumerate(DTYPES):
            for place, one in enumerate(two_passes(layout, dtype, aligned=dtype != "bfloat16")):
                configuration, kernel = divmod(place, 4)
                turn = (configuration + kernel + i + 2 * j) % 4
                if dtype != "bfloat16" or kernel == (configuration + i) % 4:
                    yield replace(one, capabilities=(CAPABILITIES[turn],))
    for place, one in enumerate(odd_planes("float16", (7,))):
        yield replace(one, capabilities=(CAPABILITIES[(place // 4 - place) % 4],))
    yield from readers()


def readers() -> Iterator[Form]:
    """Of each kernel that reads aligned data its first configuration, for sm_90, held to how it reads."""
    for layout in LAYOUTS:
        for dtype in ("float16", "float32"):
            aligned = tuple(two_passes(layout, dtype, True))
            for kernel in ("statistics", "gradient_sums"):
                reader = next(form for form in aligned if form.name.startswith(kernel))
                # The shift of an NCHW channel is a single element; those of NHWC columns are vectors too.
                shift = layout == "NCHW" and dtype == "float16" and kernel != "gradient_sums"
                wide = partial(narrow_faults, stores=0, narrow=int(shift))
                yield replace(reader, capabilities=(90,), promises=(wide, no_maximum))


def idle(built: Built, tile: two_pass.Tile, copied: bool, filled: float) -> list[str]:
    """Whether programs wait for others to end, or asynchronous copies leave the memory idle."""
    if not built.program:
        return []
    blocks = resident(built, built.capability, tile.warps)
    faults = [] if blocks >= tile.programs else [f"{blocks} programs at once, launched {tile.programs}"]
    under_way = in_flight(built, built.capability, tile.warps, tile.programs).byte * filled
    if copied and under_way < NEEDED_BYTE[built.capability]:
        faults.append(f"{under_way:.0f} bytes in flight, needed {NEEDED_BYTE[built.capability]:.0f}")
    return faults


def no_maximum(built: Built) -> list[str]:
    """Whether a maximum of float32 is taken.

    On the GPU it returns the other operand for NaN, while the interpreter's returns NaN.
    """
    return ["a maximum of float32"] if re.search(r"max\.(NaN\.)?f32", built.ptx) else []


FAMILIES = {"batchnorm": Family(chosen, every)}
