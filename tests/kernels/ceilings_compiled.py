"""What the kernels that measure ceilings promise of their compiled form, beside that nothing is spilled.

STREAM's copy: no shared memory, 1024 threads that fit the registers of an SM, and whole blocks that move 16
bytes at a time, all loads of each thread issued before the first value is needed. Only the rest moves
element by element.

The chain of multiply-adds: no shared memory, a multiply-add for each that is counted, no addition or
multiplication by itself, and so many registers that an SM holds one block of 1024 threads.

The pointer chase: no shared memory, and loads of global memory.
"""

import re
from collections.abc import Iterator
from functools import partial

import torch

from kernels.fma import multiply_add
from kernels.fma.problem import THREADS, TILE_OF_THREAD, FusedMultiplyAdd
from kernels.latency import chasing
from kernels.latency.problem import Latency
from kernels.stream import copying
from kernels.stream.problem import Stream
from tests.kernels.compiled import Built, Form, launched, resource_faults, without_memory

LENGTHS = {"i32": 1 << 20, "i64": 1 << 31}
"""Of fewer elements than 2^31, and of more."""
COPIED = {"i32 short": 1 << 19, "i32 within a cache": 1 << 22, "i32": 1 << 26, "i64": 1 << 31}
"""The same of a copy, whose blocks are smaller where the array is short."""
MOST_REGISTERS = 65_536 // (32 * copying.WARPS)
"""Of a thread of a copy, if an SM's registers are to hold one program."""
UNROLLED = 4
"""Pairs of multiply-adds of one turn of the loop."""
HALF_OF_REGISTERS = 32
"""Of a thread of 1024: with more, an SM's 65,536 hold one block."""


def copies() -> Iterator[Form]:
    """Every size of element, blocks of every size, lengths of 32 and of 64 bits."""
    for dtype in ("float16", "float32", "float64"):
        for kind, length in COPIED.items():
            problem = Stream(kind="copy", length=length, dtype=dtype)
            (call,) = launched(copying.launch_with(132, problem, *without_memory(problem)))
            loads = call.arguments["BLOCK"] * problem.item_byte // (16 * 32 * copying.WARPS)
            yield Form(f"copy {dtype} {kind}", call, (resource_faults, unshared, partial(copy_faults, loads)))


def chains() -> Iterator[Form]:
    """Every size of block, lengths of 32 and of 64 bits."""
    for threads in THREADS:
        for kind, length in LENGTHS.items():
            problem = FusedMultiplyAdd(dtype="float32", length=length, flop_per_byte=1, block_threads=threads)
            (call,) = launched(multiply_add.launch(problem, *without_memory(problem)))
            yield Form(f"{threads} threads {kind}", call, (resource_faults, unshared, chain_faults))


def chases() -> Iterator[Form]:
    """The only one."""
    problem = Latency(dtype="float32", footprint_byte=1 << 20, steps=1000)
    table, begin = (torch.empty(2, 32, dtype=torch.int32, device="meta") for _ in range(2))
    (call,) = launched(chasing.launch(problem, table, begin))
    yield Form("chase", call, (resource_faults, unshared, chase_faults))


def unshared(built: Built) -> list[str]:
    """Whether it takes shared memory."""
    return [f"{built.shared_byte} bytes of shared memory"] if built.shared_byte else []


def copy_faults(loads: int, built: Built) -> list[str]:
    """Whether a copy takes too many registers, or has not so many 16-byte loads, then as many stores."""
    faults = [f"{built.registers} registers"] if built.registers > MOST_REGISTERS else []
    # In the order of the program.
    wide = [match[1] for match in re.finditer(r"\b(ld|st)\.global\S*\.(?:v4\.b32|v2\.b64)", built.ptx)]
    if wide != ["ld"] * loads + ["st"] * loads:
        faults.append(f"16-byte accesses are {' '.join(wide)}")
    if (built.wide("ld"), built.wide("st")) != (loads, loads):
        faults.append(f"{built.wide('ld')} 16-byte loads, {built.wide('st')} stores")
    return faults


def chain_faults(built: Built) -> list[str]:
    """Whether multiply-adds are missing, something else is computed, or two blocks fit an SM."""
    faults = [f"{built.registers} registers"] if built.registers <= HALF_OF_REGISTERS else []
    if not built.program:
        return faults
    wanted = 2 * 2 * TILE_OF_THREAD * UNROLLED  # of whole tiles and of the rest; turns left over beside
    count = built.count("FFMA") + built.count("FFMA2")  # Blackwell's FFMA2 is two
    if count < wanted:
        faults.append(f"{count} multiply-adds, expected {wanted} and more")
    others = sum(n for name, n in built.instructions.items() if name.split(".")[0] in ("FADD", "FMUL"))
    return [*faults, f"{others} additions or multiplications by themselves"] if others else faults


def chase_faults(built: Built) -> list[str]:
    """Whether it loads nothing; a load needs the value of the load before it by the kernel's own formula."""
    return ["no loads"] if built.program and not built.count("LDG") else []


FAMILIES = {"stream": copies, "fma": chains, "latency": chases}
