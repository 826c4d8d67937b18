"""Pooling in NCHW by tiles, a tap at a time, and by strips, a row at a time: what limits either.

    python -m tests.kernels.losses pooling

float16 with one-byte codes and averages over 56 x 56; over 112 x 112 the programs are the same. An element is
an output, backward a point of dx. The note counts the cycles that one multiprocessor takes for an element in
each of a warp's 32 lanes, in the most that each of its parts can do:

    loads   a warp-wide load takes a cycle, or one for each 128 bytes of which its lanes touch any: 32 load
            and store units and 128 bytes of L1 a cycle (NVIDIA's whitepapers of the A100 and the H100)
    issue   one instruction a cycle of each of four schedulers (CUDA C++ Programming Guide)
    memory  what must be moved, once, by its share of the datasheet's bandwidth, at the boost clock

The largest is the limit. Instructions in a loop count as often as it turns. Stores are not among the loads,
nor conflicts, misses and their replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.device.datasheet import find_datasheet
from kernels.pooling.problem import Direction, Kind, Pooling
from tests.kernels.compiled import Built, build, pointer
from tests.kernels.in_flight import in_flight
from tests.kernels.losses import Form, Row

DEVICES = {80: "NVIDIA A100-SXM4-80GB", 90: "NVIDIA H100 80GB HBM3", 100: "NVIDIA B200"}
CASES: tuple[tuple[Direction, Kind, int, int, int, tuple[int, int]], ...] = (
    ("forward", "max", 3, 1, 1, (2, 8)),
    ("forward", "max", 3, 2, 1, (4, 8)),
    ("forward", "max", 2, 2, 0, (4, 8)),
    ("forward", "max", 5, 1, 2, (4, 4)),
    ("forward", "average", 3, 1, 1, (4, 8)),
    ("backward", "max", 3, 1, 1, (2, 8)),
    ("backward", "max", 3, 2, 1, (4, 4)),
)
"""Direction, kind, window, stride, padding, and rows and columns of one of the strips."""


def losses() -> Iterator[Row]:
    """Those on an H100, and 3 x 3 at stride 1 on an A100 and a B200 too."""
    for case in CASES:
        direction, kind, window, stride, padding, strip = case
        problem = Pooling(
            kind=kind, direction=direction, n=256, c=64, h=56, w=56, window=window, stride=stride,
            padding=padding, layout="NCHW", dtype="float16",
        )  # fmt: skip
        for capability in (80, 90, 100) if case == CASES[0] else (90,):
            yield Row(
                what=f"{direction} {kind} {window} x {window} at stride {stride}, sm_{capability}",
                now=partial(by_strips, problem, capability, *strip),
                before=partial(by_tiles, problem, capability),
            )


def by_strips(problem: Pooling, capability: int, rows: int, columns: int) -> Form:
    """A strip of those that the device chooses from."""
    from kernels.pooling import launching

    strip = launching.Strip(rows, columns, 4)
    assert strip in launching.strips(problem)
    constants = launching.constants(problem, problem.kind == "max", strip)
    kernel = launching.kernel(problem, strip)
    # Lanes are a strip apart; backward every other load is of one-byte codes.
    if problem.direction == "forward":
        return form(
            problem, capability, kernel, strip, constants,
            elements=rows * columns // problem.stride_w, lines=columns * problem.item_byte / 4,
        )  # fmt: skip
    return form(
        problem, capability, kernel, strip, constants,
        elements=rows * columns * problem.stride_w, lines=columns * (problem.item_byte + 1) / 8,
    )  # fmt: skip


def by_tiles(problem: Pooling, capability: int) -> Form:
    """A tile of few registers; all make the same loads an element. Lanes at best are neighbours: one line."""
    from kernels.pooling import launching
    from kernels.pooling.cells import gather_cells
    from kernels.pooling.forward import pool

    tile = launching.Tile(1, 256 if problem.stride == 1 else 512, 1, 4)
    constants = launching.constants(problem, problem.kind == "max", tile)
    elements = tile.wide // (32 * tile.warps)
    if problem.direction == "forward":
        return form(problem, capability, pool, tile, constants, elements=elements, lines=1)
    elements *= problem.stride * problem.stride_w
    return form(problem, capability, gather_cells, tile, constants, elements=elements, lines=1)


def form(
    problem: Pooling,
    capability: int,
    kernel: Any,
    shape: Any,
    constants: dict[str, Any],
    *,
    elements: int,
    lines: float,
) -> Form:
    """This kernel: a thread computes so many elements, a warp's load touches so many lines of 128 bytes."""
    names = [name for name in kernel.arg_names if name not in constants]
    arguments = {name: pointer(problem.dtype) if name.endswith("_pointer") else "i32" for name in names}
    if problem.kind == "max":
        arguments["place_pointer"] = "*u8"
    # Above 3 x 3 the tap at a time goes through the rows of a window in a loop.
    turns = problem.window if kernel.fn.__name__ == "pool" and problem.window > 3 else 1
    return Form(
        kernel=f"{kernel.fn.__module__.removeprefix('kernels.')}.{kernel.fn.__name__}",
        configuration=str(shape),
        build=partial(build, kernel, arguments, constants, capability, warps=shape.warps, stages=1),
        instructions=lambda built: executed(built, turns) / elements,
        in_flight=lambda built: in_flight(built, capability, shape.warps).byte,
        note=lambda built: limits(problem, capability, built, turns, elements, lines) if built else "",
    )


def executed(built: Built, turns: int, prefix: str = "") -> int:
    """Instructions of this name that a thread executes if its loops turn so often; NOPs are none."""
    loops = [(line.target, line.address) for line in built.program if line.target is not None]
    total = 0
    for line in built.program:
        inside = any(start < end and start <= line.address <= end for start, end in loops)
        if line.name.startswith(prefix) and not line.name.startswith("NOP"):
            total += turns if inside else 1
    return total


def limits(problem: Pooling, capability: int, built: Built, turns: int, elements: int, lines: float) -> str:
    """Loads an element, and the cycles of each part."""
    device = find_datasheet(DEVICES[capability])
    assert device is not None
    loads = executed(built, turns, "LDG") / elements
    byte = problem.byte_moved("triton-codes" if problem.kind == "max" else "triton")
    per_cycle = device.bandwidth_byte_per_s / device.sm_count / device.boost_clock_hz
    count = problem.output_elements if problem.direction == "forward" else problem.input_elements
    cycles = {
        "loads": loads * max(1, lines),
        "issue": executed(built, turns) / elements / 4,
        "memory": 32 * byte / count / per_cycle,
    }
    each = ", ".join(f"{name} {value:.1f}" for name, value in cycles.items())
    return (
        f"{loads:.2f} loads an element; cycles: {each}; limit: {max(cycles, key=lambda name: cycles[name])}"
    )
