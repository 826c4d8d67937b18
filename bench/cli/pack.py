"""`python -m bench pack`: what was packed, in lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.errors import UserError
from bench.format import count_text, memory_text
from bench.store.pack import pack, remove


def pack_lines(
    results: Sequence[Path], folder: Path, removing: bool, left_out: Callable[[str], object]
) -> Iterator[str]:
    """Pack these results below `folder`; a line for each pack that holds some of them.

    UserError if the folder is one of those that are packed, or in it: whoever reads that would find every run
    twice.
    """
    into = folder.resolve()
    for root in results:
        if root.resolve() in (into, *into.parents):
            raise UserError(
                f"-o {folder}: is inside {root}, where every run would then be found twice; "
                "give a folder outside of it"
            )
    any_pack = False
    for packed in pack(results, folder, left_out):
        any_pack = True
        files = count_text(len(packed.originals), "file")
        if packed.packed_byte:
            sizes = f"{memory_text(packed.byte)} in {memory_text(packed.packed_byte)}"
            line = f"{packed.path}: {files}, {sizes}"
        else:
            line = f"{packed.path}: held {files} of these already"
        if removing:
            line += f"; removed {count_text(sum(1 for _ in remove(packed)), 'original')}"
        yield line
    if not any_pack:
        yield "nothing to pack"
