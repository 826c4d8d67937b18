"""How many bytes a kernel has on their way from memory at a time, by its compiled program.

By Little's law a memory of bandwidth B that answers after L is busy only if B L bytes are under way; `needed`
says how many that are for one multiprocessor. What a kernel keeps under way is bounded by its program: a
thread issues loads until an instruction needs one that has not arrived.

**The measure.** The program is walked as the hardware issues it, in order, with two times only: a load
arrives one latency after it was issued, and everything else takes no time. An instruction that reads or
overwrites a register waits for the load that fills it; DEPBAR waits for groups of LDGSTS (cp.async), all but
the newest N. Hence a loop takes so many latencies for each iteration, and by Little's law again

    bytes in flight of a thread = bytes it loads in an iteration / latencies an iteration takes.

Four 16-byte loads used after the fourth: 64. Each used before the next: 16. Three stages of cp.async of which
the loop waits for the oldest: two stages. Times the threads that a multiprocessor holds at once, as its
registers, shared memory and slots allow, or as the launch asks.

It is the most that the program permits: misses, contention and masked-off lanes make it less, and blocks that
start and end are not counted. Loads with cache policy .STRONG (`.cg`) are left out: these kernels use
them to read partial sums back from L2. Bulk copies are not understood, and refused.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.kernels.compiled import Built
from tests.kernels.listing import Line, written

LATENCY_NS = 800
"""From a load that misses all caches to its data, under traffic. An assumption: read without traffic it is
500 to 700 ns on an H100, more on a B200 of two dies. `sweeps/latency` reads it on a device."""

_ITERATIONS = 60
"""Walked before, and while, the time is taken: a multiple of 1 to 6 stages."""
_WAYS = 64
"""Ways through one region that are compared."""


class Multiprocessor(NamedTuple):
    """What limits the blocks that one multiprocessor holds."""

    warps: int
    blocks: int
    shared_byte: int
    """Of all blocks."""
    reserved_byte: int
    """That each block takes of it beside its own."""


MULTIPROCESSOR = {
    75: Multiprocessor(32, 16, 64 * 1024, 0),
    80: Multiprocessor(64, 32, 164 * 1024, 1024),
    86: Multiprocessor(48, 16, 100 * 1024, 1024),
    89: Multiprocessor(48, 24, 100 * 1024, 1024),
    90: Multiprocessor(64, 32, 228 * 1024, 1024),
    100: Multiprocessor(64, 32, 228 * 1024, 1024),
    120: Multiprocessor(48, 24, 100 * 1024, 1024),
}
"""By compute capability: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""


class InFlight(NamedTuple):
    """Bytes under way."""

    thread_byte: float
    """Of one thread, on average over an iteration."""
    threads: int
    """Of one multiprocessor."""

    @property
    def byte(self) -> float:
        """Of one multiprocessor."""
        return self.thread_byte * self.threads


def needed(byte_per_s: float, multiprocessors: int, latency_ns: float = LATENCY_NS) -> float:
    """Bytes that one multiprocessor must have in flight for the memory to be busy: B L / multiprocessors."""
    return byte_per_s * latency_ns * 1e-9 / multiprocessors


NEEDED_BYTE = {80: needed(2.039e12, 108), 90: needed(4.8e12, 132), 100: needed(8e12, 148)}
"""By compute capability, for the most bandwidth that a multiprocessor of it shares: A100 of 80 GB, H200, B200
(bench/device/datasheets)."""


def in_flight(built: Built, capability: int, warps: int, programs: int | None = None) -> InFlight:
    """Bytes in flight of the loop that has the most, or of the whole program if no loop loads.

    `warps` of one block; `programs` is the most blocks that the launch gives one multiprocessor, if it limits
    them. ValueError if the program makes bulk copies, loads nothing or was not disassembled.
    """
    blocks = resident(built, capability, warps)
    threads = 32 * warps * (blocks if programs is None else min(blocks, programs))
    return InFlight(of_thread(built.program), threads)


def resident(built: Built, capability: int, warps: int) -> int:
    """Blocks of `warps` warps that one multiprocessor holds at once; 0 if not even one."""
    most = MULTIPROCESSOR[capability]
    # A quarter of the 64 Ki registers for a quarter of the warps, in units of 8 registers a thread.
    by_registers = 4 * (16 * 1024 // (32 * (-(-built.registers // 8) * 8))) // warps
    shared = -(-built.shared_byte // 128) * 128 + most.reserved_byte
    by_shared = most.shared_byte // shared if shared else most.blocks
    return min(most.blocks, most.warps // warps, by_registers, by_shared)


def of_thread(program: list[Line]) -> float:
    """Bytes in flight of one thread, as `in_flight`."""
    if not program:
        raise ValueError("no instructions to read")
    bulk = {line.name for line in program if line.name.startswith(("UTMALDG", "UBLKCP"))}
    if bulk:
        raise ValueError(f"bulk copies are not counted: {', '.join(sorted(bulk))}")
    if loops := _loading_loops(program):
        return max(_steady(_fullest(program, *loop)) for loop in loops)
    path = _fullest(program, program[0].address, None)
    if not any(map(loaded_byte, path)):
        raise ValueError("the program loads nothing")
    return sum(map(loaded_byte, path)) / _Walk().past(path)


def loaded_byte(line: Line) -> int:
    """Bytes that one thread loads from global memory by this instruction; 0 if it is something else."""
    parts = line.name.split(".")
    if parts[0] not in ("LDG", "LDGSTS") or "STRONG" in parts:
        return 0
    sizes = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
    return next((byte for size, byte in sizes.items() if size in parts), 4)


def _loading_loops(program: list[Line]) -> list[tuple[int, int]]:
    """First and last address of the innermost loops that load."""
    loops = [(line.target, line.address) for line in program if line.target is not None]
    loading = [
        (first, last)
        for first, last in loops
        if any(first <= line.address <= last and loaded_byte(line) for line in program)
    ]
    return [
        (first, last)
        for first, last in loading
        if not any((first, last) != (a, b) and first <= a and b <= last for a, b in loading)
    ]


def _fullest(program: list[Line], first: int, last: int | None) -> list[Line]:
    """The way from `first` to `last`, or to the end, that loads most; of such the one that waits most."""
    ways = list(itertools.islice(_ways(program, first, last), _WAYS))
    if not ways:
        raise ValueError(f"no way leads from {first:#x} to {'the end' if last is None else hex(last)}")
    return max(ways, key=lambda way: (sum(map(loaded_byte, way)), _Walk().past(way)))


def _ways(program: list[Line], first: int, last: int | None) -> Iterator[list[Line]]:
    """Instructions from `first` to `last`, or to an EXIT if it is None, by every choice at branches forwards.

    Branches backwards and out of the region are those not taken.
    """
    places = {line.address: place for place, line in enumerate(program)}
    begun: list[tuple[int, list[Line]]] = [(places[first], [])]
    while begun:
        place, way = begun.pop()
        line = program[place]
        way.append(line)
        always = not line.predicate and "," not in line.operands  # `BRA.U UP0, 0x80` has a condition
        leaves = line.name == "EXIT" and always
        if line.address == last or (leaves and last is None):
            yield way
            continue
        target = line.target
        if target is not None and line.address < target and (last is None or target <= last):
            begun.append((places[target], way if always else way.copy()))
        if not leaves and not (line.target is not None and always) and place + 1 < len(program):
            begun.append((place + 1, way))


def _steady(way: list[Line]) -> float:
    """Bytes in flight of a thread that goes this way again and again."""
    walk = _Walk()
    begun = walk.past(way * _ITERATIONS)
    took = walk.past(way * _ITERATIONS) - begun
    if not took:
        raise ValueError("a loop never waits for what it loads")
    return _ITERATIONS * sum(map(loaded_byte, way)) / took


class _Walk:
    """A thread that issues instructions in order; its clock counts latencies."""

    def __init__(self) -> None:
        """Nothing is under way."""
        self._clock = 0
        self._arrives: dict[int, int] = {}
        """When a register is filled."""
        self._group = 0
        """When all LDGSTS of the open group have arrived, and of those that are closed."""
        self._groups: list[int] = []

    def past(self, way: list[Line]) -> int:
        """Walk on; the time then."""
        for line in way:
            self._step(line)
        return self._clock

    def _step(self, line: Line) -> None:
        for register in _named(line):
            self._wait(self._arrives.pop(register, 0))
        if line.name.startswith("LDGSTS"):
            self._group = self._clock + 1
        elif line.name.startswith("LDGDEPBAR"):
            self._groups.append(self._group)
        elif line.name.startswith("DEPBAR.LE") and line.operands.startswith("SB0"):
            allowed = int(line.operands.split(",")[1], 16)
            self._wait(max(self._groups[: len(self._groups) - allowed], default=0))
        elif loaded_byte(line):
            self._arrives.update(dict.fromkeys(written(line), self._clock + 1))

    def _wait(self, until: int) -> None:
        self._clock = max(self._clock, until)


@functools.cache
def _named(line: Line) -> set[int]:
    """Registers that an instruction reads or writes."""
    return written(line) | {int(each) for each in re.findall(r"\bR(\d+)", line.operands)}
