"""Whether the threads of a warp meet in the banks of shared memory, by a compiled kernel's virtual assembly.

Shared memory has 32 banks of 4 bytes; what a warp's threads want of one bank in one instruction, different
words, comes one after the other. Where addresses follow from the thread's number alone they can be computed
here, by walking through a program without loops.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

_WORD = 0xFFFFFFFF
_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "mov": lambda a, _: a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
}
"""On unsigned words; `shr.s32` and `bfe` are apart."""


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
    threads = 32 * warps
    known: dict[str, list[int]] = {"%tid.x": list(range(threads)), "global_smem": [0] * threads}
    found = []
    for line in ptx.splitlines():
        if access := re.match(r"\s*(ld|st)\.shared(?:\.v(\d))?\.b(\d+)\s(.*)", line):
            kind, vector, bits, operands = access.groups()
            address = re.search(r"\[\s*(%r\d+)\s*(?:\+\s*(\d+)\s*)?\]", operands)
            byte = int(vector or 1) * int(bits) // 8
            if not address or address[1] not in known or byte > 4:
                raise ValueError(f"no address is known of {line.strip()}")
            at = [base + int(address[2] or 0) for base in known[address[1]]]
            found.append(
                Access(kind, byte, max(_ways(at[warp : warp + 32]) for warp in range(0, threads, 32)))
            )
        elif move := re.match(r"\s*([a-z.0-9]+)\s+(%r\d+), (.*);", line):
            name, target, operands = move.groups()
            computed = _computed(name, [_value(one.strip(), known, threads) for one in operands.split(",")])
            known.pop(target, None)
            if computed is not None:
                known[target] = computed
    return found


def _ways(addresses: list[int]) -> int:
    words = {address // 4 for address in addresses}
    return max(sum(word % 32 == bank for word in words) for bank in range(32))


def _value(operand: str, known: Mapping[str, list[int]], threads: int) -> list[int] | None:
    if re.fullmatch(r"-?\d+", operand):
        return [int(operand) & _WORD] * threads
    return known.get(operand)


def _computed(name: str, operands: list[list[int] | None]) -> list[int] | None:
    """The result for each thread; None if an operand is unknown, or the operation."""
    operation, _, kind = name.partition(".")
    given = [one for one in operands if one is not None]
    if len(given) < len(operands):
        return None
    if name == "shr.s32":
        return [(_signed(a) >> b) & _WORD for a, b in zip(*given, strict=True)]
    if operation == "bfe":
        return [_field(a >> start, size, kind == "s32") for a, start, size in zip(*given, strict=True)]
    if operation not in _OPERATIONS or not kind.endswith("32"):
        return None
    left, right = given[0], given[-1]
    return [_OPERATIONS[operation](a, b) & _WORD for a, b in zip(left, right, strict=True)]


def _field(value: int, size: int, signed: bool) -> int:
    value &= (1 << size) - 1
    return (value - (1 << size)) & _WORD if signed and value >> (size - 1) else value


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word
