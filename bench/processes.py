"""Work in parts that several processes do at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

from bench.device.detect import usable_processors
from bench.errors import UserError

Part = TypeVar("Part")
Done = TypeVar("Done")

MOST = 4
"""Processes, one a processor; each holds the rows of one part."""


def in_processes(
    do: Callable[[Part], Done], parts: Sequence[Part], size: Callable[[Part], float]
) -> Iterator[tuple[int, Done]]:
    """(place, what came of it) of each part, in which order is open; here, if there are few.

    The largest are begun first, so that none is left when the other processes are done. UserError if the
    system killed one.
    """
    order = sorted(range(len(parts)), key=lambda place: -size(parts[place]))
    ordered = [parts[place] for place in order]
    if len(parts) <= MOST:
        yield from zip(order, map(do, ordered), strict=True)
        return
    with ProcessPoolExecutor(min(MOST, len(usable_processors()))) as pool:
        try:
            yield from zip(order, pool.map(do, ordered), strict=True)
        except BrokenProcessPool as error:
            raise UserError(
                "the system killed a process, as it does without memory: give fewer files"
            ) from error


def byte_count(paths: Iterable[Path]) -> int:
    """What these files and folders hold."""
    return sum(file.stat().st_size for path in paths for file in (path, *path.rglob("*")) if file.exists())
