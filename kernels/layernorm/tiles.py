"""How rows are cut among programs: for layer normalization and for softmax, whose rows are alike.

A row in registers takes a block of the next power of two; short rows share a program, so that it has
several 16-byte loads a thread in flight.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Tile(NamedTuple):
    """What one program holds at a time, and by how many threads."""

    rows: int
    block: int
    """Elements of a row: all of it and some padding, or a chunk of a long row."""
    warps: int
    per_sm: int = 1
    """Programs started for each multiprocessor, where a program takes one tile after the other."""

    def __str__(self) -> str:
        """`4x1024 w4`, rows x elements and warps; `4x1024 w4 p2` if 2 programs run on a multiprocessor."""
        return f"{self.rows}x{self.block} w{self.warps}" + (f" p{self.per_sm}" if self.per_sm > 1 else "")


def whole_rows(length: int, most: int) -> list[Tile]:
    """Tiles for rows of `length` in registers, 8 to `most` elements a thread; the smallest tile first.

    `most` is a power of two; at most five tiles.
    """
    block = max(2, 1 << (length - 1).bit_length())
    tiles: list[Tile] = []
    for elements in sorted({max(block, least) for least in (1024, 2048, 4096)}):
        for warps in (4, 8, 16):
            if 8 <= elements // (32 * warps) <= most:
                tiles.append(Tile(elements // block, block, warps))
    return tiles[:5]


def alignment(length: int, item_byte: int) -> int:
    """Elements, a power of two: the largest that divides every row's start, up to 16 bytes' worth.

    A compile-time constant of the kernels: the compiler loads 16 bytes at once only if it can prove it may.
    """
    wide = 16 // item_byte
    return min(wide, length & -length)


def along_rows(tile: Tile, length: int, item_byte: int) -> dict[str, Any]:
    """Compile-time arguments of kernels that walk along rows of this length, a block at a time."""
    align = alignment(length, item_byte)
    return {"ALIGN": align, "BLOCK": tile.block, "num_warps": tile.warps, "num_stages": 1}


def of_rows(tile: Tile, length: int, item_byte: int) -> dict[str, Any]:
    """Arguments of kernels that hold some rows whole."""
    return along_rows(tile, length, item_byte) | {"EVEN": length == tile.block, "ROWS": tile.rows}


def chunks(length: int, item_byte: int) -> Sequence[Tile]:
    """Chunks of a long row that one program may walk along: 16 elements a thread.

    Eight where a row is no multiple of 16 bytes, since each element then takes an address of its own.
    """
    wide = length * item_byte % 16 == 0
    return (
        (Tile(1, 2048, 4), Tile(1, 4096, 8), Tile(1, 8192, 16))
        if wide
        else (Tile(1, 2048, 8), Tile(1, 4096, 16))
    )
