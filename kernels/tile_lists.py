"""Lists of tiles as texts: each tile as its `str`, the text in which rows show it, with commas between."""

import re
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def parsed(kind: Callable[..., T], text: str) -> tuple[T, ...]:
    """The tiles of a text; `kind` makes one of its numbers. ValueError or TypeError for another text."""
    tiles = tuple(kind(*map(int, re.findall(r"\d+", name))) for name in text.split(", "))
    if (shown := ", ".join(map(str, tiles))) != text:
        raise ValueError(f"{text!r} was read as {shown!r}")
    return tiles
