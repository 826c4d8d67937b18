"""What the batch normalization kernels promise of their compiled form, with every configuration they may try.

The promises are those of streaming.py. Kernels that write nothing in bulk, or read one element of x with the
bulk (the shift), promise 16-byte loads here. The two passes also keep enough bytes in flight (in_flight.py),
and all programs of a launch run at once.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from bench.spec import Dtype
from kernels.batchnorm import passes, persistent, two_pass
from kernels.batchnorm.problem import BatchNorm, Layout
from tests.kernels.compiled import Built, pointer
from tests.kernels.in_flight import NEEDED_BYTE, in_flight, resident
from tests.kernels.streaming import CAPABILITIES, Variant, family

SIZES = ("images", "channels", "parts")
LAYOUTS: tuple[Layout, ...] = ("NCHW", "NHWC")
DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
BULK = ("x_pointer", "y_pointer", "dy_pointer", "dx_pointer")


def variant(name: str, kernel: Any, dtype: Dtype, constants: dict[str, Any], warps: int) -> Variant:
    """One compilation; what is no constant is a pointer or a size."""
    arguments = {
        argument: "i32"
        if argument in SIZES
        else "*i32"
        if argument == "counter_pointer"
        else pointer(dtype if argument in BULK else "float32")
        for argument in kernel.arg_names
        if argument not in constants
    }
    return Variant(name, kernel, arguments, constants, warps)


def constants(kernel: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Of the options, and of those that the launch adds, what this kernel compiles in."""
    known = options | {"EPSILON": 1e-5, "MOMENTUM": 0.1, "FROM_VARIANCE": False}
    return {name: known[name] for name in kernel.arg_names if name.isupper()}


def two_passes(layout: Layout, dtype: Dtype, aligned: bool) -> Iterator[Variant]:
    """The four kernels of a layout with each candidate."""
    c, side = (256, 56) if aligned else (255, 7)
    yield from four_kernels(BatchNorm(n=32, c=c, h=side, w=side, layout=layout, dtype=dtype), aligned)


def odd_planes(dtype: Dtype, sides: tuple[int, ...]) -> Iterator[Variant]:
    """The four kernels for groups of odd planes, with each candidate."""
    for side in sides:
        yield from four_kernels(
            BatchNorm(n=32, c=256, h=side, w=side, layout="NCHW", dtype=dtype), aligned=True
        )


def four_kernels(problem: BatchNorm, aligned: bool) -> Iterator[Variant]:
    """The four kernels of a problem with each candidate."""
    layout, dtype = problem.layout, problem.dtype
    for tile in two_pass.candidates(problem):
        filled = min(1.0, 8 * problem.h * problem.w / tile.columns)  # the share of its lanes with an element
        for kernel in (passes.statistics, passes.normalize, passes.gradient_sums, passes.input_gradient):
            options = constants(kernel, two_pass.sizes(problem, tile, 4))
            plane = f" {problem.h}x{problem.w}" if two_pass.grouped(problem) else ""
            name = f"{layout}{plane} {kernel.__name__} {dtype} {tile}{'' if aligned else ' unaligned'}"
            writes = "y_pointer" in kernel.arg_names or "dx_pointer" in kernel.arg_names
            yield replace(
                variant(name, kernel, dtype, options, tile.warps),
                wide=aligned and writes,
                promises=(partial(idle, tile=tile, copied=aligned and tile.stages > 1, filled=filled),),
            )


def held(layout: Layout, dtype: Dtype, aligned: bool) -> Iterator[Variant]:
    """The persistent kernel with as much as it may hold, and each candidate for that."""
    c, side = (256, 8) if aligned else (255, 7)
    most = BatchNorm(n=1, c=c, h=side, w=side, layout=layout, dtype=dtype).persistent_limit
    problem = BatchNorm(n=most // side**2, c=c, h=side, w=side, layout=layout, dtype=dtype)
    kernel = persistent.normalize_held
    for one in persistent.candidates(problem):
        options = constants(kernel, persistent.operands(problem, one))
        name = f"{layout} {kernel.__name__} {dtype} {one}{'' if aligned else ' unaligned'}"
        yield replace(variant(name, kernel, dtype, options, one.warps), wide=False)


def every() -> Iterator[Variant]:
    """All of them, for every type on every architecture."""
    for layout in LAYOUTS:
        for dtype in DTYPES:
            for aligned in (True, False):
                yield from two_passes(layout, dtype, aligned)
                yield from held(layout, dtype, aligned)
    for dtype in ("float16", "bfloat16"):
        yield from odd_planes(dtype, (7, 9, 11))
    yield from readers()


def variants() -> Iterator[Variant]:
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
            for place, one in enumerate(held(layout, dtype, aligned=dtype != "bfloat16")):
                yield replace(one, capabilities=(CAPABILITIES[(i + j + place) % 4],))
    for place, one in enumerate(odd_planes("float16", (7,))):
        yield replace(one, capabilities=(CAPABILITIES[(place // 4 - place) % 4],))
    yield from readers()


def readers() -> Iterator[Variant]:
    """Of each kernel that reads aligned data its first configuration, for sm_90, held to how it reads."""
    for layout in LAYOUTS:
        for dtype in ("float16", "float32"):
            aligned = (*two_passes(layout, dtype, True), *held(layout, dtype, True))
            for kernel in ("statistics", "gradient_sums", "normalize_"):
                reader = next(each for each in aligned if f" {kernel}" in each.name)
                # The shift of an NCHW channel is a single element; those of NHWC columns are vectors too.
                shift = layout == "NCHW" and dtype == "float16" and kernel != "gradient_sums"
                yield replace(reader, capabilities=(90,), promises=(partial(misread, most_narrow=shift),))


def idle(built: Built, tile: two_pass.Tile, copied: bool, filled: float) -> list[str]:
    """Whether programs wait for others to end, or asynchronous copies leave the memory idle, as phrases."""
    capability = int(built.ptx.partition(".target sm_")[2][:3].rstrip("a"))
    if not built.program:
        return []
    blocks = resident(built, capability, tile.warps)
    found = [] if blocks >= tile.programs else [f"{blocks} programs at once, launched {tile.programs}"]
    under_way = in_flight(built, capability, tile.warps, tile.programs).byte * filled
    if copied and under_way < NEEDED_BYTE[capability]:
        found.append(f"{under_way:.0f} bytes in flight, needed {NEEDED_BYTE[capability]:.0f}")
    return found


def misread(built: Built, most_narrow: int) -> list[str]:
    """Whether no loads of 16 bytes, more narrow ones, or a maximum of float32, as phrases.

    A maximum on the GPU returns the other operand for NaN, while the interpreter's returns NaN.
    """
    wide = sum(n for name, n in built.instructions.items() if is_load(name) and "128" in name.split("."))
    narrow = built.count("LDG.E.U16", "LDG.E.S16", "LDG.E.U8")
    found = [] if wide and narrow <= most_narrow else [f"{wide} loads of 16 bytes, {narrow} of 1 or 2"]
    if "max.f32" in built.ptx or "max.NaN.f32" in built.ptx:
        found.append("a maximum of float32")
    return found


def is_load(name: str) -> bool:
    """A load from global memory."""
    return name.startswith("LDG")


FAMILY = family(variants, every)
