"""Whether the threads of a warp meet in the banks of shared memory, by a compiled kernel's virtual assembly.

Shared memory has 32 banks of 4 bytes; what a warp's threads want of one bank in one instruction, different
words, comes one after the other. Where addresses follow from the thread's number alone they can be computed
here, by walking through a program without loops.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
"""A register of each thread."""


def _field(value: Words, start: Words, size: Words) -> Words:
    return value >> start & (1 << size) - 1


def _signed_field(value: Words, start: Words, size: Words) -> Words:
    """Its sign fills the bits above."""
    unused = 32 - size
    return ((_field(value, start, size) << unused).view(np.int32) >> unused.view(np.int32)).view(np.uint32)


_OPERATIONS: Mapping[str, Callable[..., Words]] = {
    "mov": lambda a: a,
    **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor},
    **{"shl": np.left_shift, "shr": np.right_shift, "add": np.add, "sub": np.subtract},
    "shr.s32": lambda a, b: (a.view(np.int32) >> b.view(np.int32)).view(np.uint32),
    **{"bfe": _field, "bfe.s32": _signed_field},
}
"""Of 32 bits, by name, or by name and type where that makes a difference."""


class Access(NamedTuple):
    """One instruction that loads from shared memory (`ld`) or stores there (`st`)."""

    kind: str
    byte: int
    """Of one thread."""
    ways: int
    """Words that the warp that has it worst wants of one bank: 1 is without conflict."""


def accesses(ptx: str, warps: int) -> list[Access]:
    """Every access to shared memory of at most 4 bytes a thread, in the order of the program.

    ValueError if an address depends on more than the thread, or if an access is wider.
    """
    threads = np.arange(32 * warps, dtype=np.uint32)
    known = {"%tid.x": threads, "global_smem": 0 * threads}
    found = []
    for line in ptx.splitlines():
        if access := re.match(r"\s*(ld|st)\.shared(?:\.v(\d))?\.b(\d+)\s(.*)", line):
            kind, vector, bits, operands = access.groups()
            address = re.search(r"\[\s*(%r\d+)\s*(?:\+\s*(\d+)\s*)?\]", operands)
            byte = int(vector or 1) * int(bits) // 8
            if not address or address[1] not in known or byte > 4:
                raise ValueError(f"no address is known of {line.strip()}")
            words = (known[address[1]] + np.uint32(address[2] or 0)) // 4
            found.append(Access(kind, byte, max(map(_ways, words.reshape(warps, 32)))))
        elif move := re.match(r"\s*([a-z.0-9]+)\s+(%r\d+), (.*);", line):
            name, target, operands = move.groups()
            operation, _, kind = name.partition(".")
            operator = _OPERATIONS.get(name) or _OPERATIONS.get(operation)
            given: list[Any] = [_value(one.strip(), known, threads) for one in operands.split(",")]
            known.pop(target, None)
            if operator and kind.endswith("32") and not any(one is None for one in given):
                known[target] = operator(*given)
    return found


def _ways(words: Words) -> int:
    return int(np.bincount(np.unique(words) % 32).max())


def _value(operand: str, known: Mapping[str, Words], threads: Words) -> Words | None:
    if re.fullmatch(r"-?\d+", operand):
        return np.full_like(threads, int(operand) & 0xFFFFFFFF)
    return known.get(operand)
