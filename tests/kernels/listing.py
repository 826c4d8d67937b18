"""A disassembled program, line by line, and the registers that a line writes."""

import re
from typing import NamedTuple


class Line(NamedTuple):
    """One instruction."""

    address: int
    name: str
    """In full: `LDG.E.128`."""
    operands: str
    target: int | None
    """The address that a branch goes to."""
    predicate: str = ""
    """The condition under which it is executed, `@!P0`; empty if always."""


def listing(text: str) -> list[Line]:
    """The instructions in cuobjdump's text."""
    # A line of it: "/*0b10*/    @!P0 BRA 0x890 ;    /* 0x... */"
    program = []
    line = r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9x_.]*)\s*([^;]*?)\s*;"
    for address, predicate, name, operands in re.findall(line, text, re.M):
        target = re.search(r"\b0x([0-9a-f]+)$", operands) if name.startswith("BRA") else None
        to = int(target[1], 16) if target else None
        program.append(Line(int(address, 16), name, operands, to, predicate.strip()))
    return program


def written(line: Line) -> set[int]:
    """The registers that an instruction writes; of a predicate and a register the second."""
    result = re.match(r"(?:P\w+, )?R(\d+)\b", line.operands)
    if not result or line.name.startswith(("ST", "LDGSTS", "RED")):
        return set()
    parts = line.name.split(".")
    if "256" in parts and (high := re.match(r"R\d+, R(\d+)", line.operands)):  # LDG.E.ENL2.256 R8, R4, ...
        return {first + i for first in (int(result[1]), int(high[1])) for i in range(4)}
    if parts[0] == "HGMMA":
        count = int(parts[1].split("x")[1]) // 2
    elif parts[0] == "LDSM":
        count = int(parts[-1]) if parts[-1].isdigit() else 1
    else:
        count = 4 if "128" in parts else 2 if {"64", "WIDE"} & set(parts) else 1
    return set(range(int(result[1]), int(result[1]) + count))
