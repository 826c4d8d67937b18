"""Saving of figures: each page as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from plots.base import style
from plots.base.page import Page


def save_in(folder: Path, pages: Iterable[tuple[str, Page]], say: Callable[[str], object]) -> list[Path]:
    """Draw pages in `style.look` and save each under its stem in this folder; `say` gets each name.

    The paths in turn; OSError of a file.
    """
    paths: list[Path] = []
    with style.look():
        for number, (stem, page) in enumerate(pages, 1):
            say(f"{folder}: figure {number}, {stem}")
            paths += page.save(folder / stem)
    return paths
