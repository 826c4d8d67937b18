"""A disassembled program, line by line."""

import re
from typing import NamedTuple


class Line(NamedTuple):
    """One instruction."""

    address: int
    name: str
    """In full: `LDG.E.128`."""
    target: int | None
    """The address that a branch goes to."""


def listing(text: str) -> list[Line]:
    """The instructions in cuobjdump's text."""
    # A line of it: "/*0b10*/    @!P0 BRA 0x890 ;    /* 0x... */"
    program = []
    line = r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9x_.]*)\s*([^;]*?)\s*;"
    for address, _, name, operands in re.findall(line, text, re.M):
        target = re.search(r"\b0x([0-9a-f]+)$", operands) if name.startswith("BRA") else None
        to = int(target[1], 16) if target else None
        program.append(Line(int(address, 16), name, to))
    return program
