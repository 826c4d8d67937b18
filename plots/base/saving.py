"""Saving of figures on all cores: writing PNG and SVG takes longer than drawing.

The first pages are saved here, so that few figures start no process. Others are pickled and sent to spawned
processes; they are not forked, since this process has threads that read parquet.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, islice
from pathlib import Path

from bench.worker.lifeline import die_with
from plots.base import style
from plots.base.page import Page

ALONE = 4
"""Pages that are saved here before other processes are started."""


def save_all(pages: Iterable[tuple[Path, Page]]) -> list[Path]:
    """Write each page as `path`.png and `path`.svg, in `style.look`; the paths in turn. OSError of a file."""
    pages = iter(pages)
    paths = [path for stem, page in islice(pages, ALONE) for path in _save(page, stem)]
    if (further := next(pages, None)) is None:
        return paths
    anew = multiprocessing.get_context("spawn")
    # A process of the pool would wait for ever for the next page of a killed parent.
    processes = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(processes, anew, initializer=die_with, initargs=(os.getpid(),)) as pool:
        saved = [pool.submit(_save, page, stem) for stem, page in chain([further], pages)]
        return paths + [path for each in saved for path in each.result()]


def save_in(folder: Path, pages: Iterable[tuple[str, Page]], say: Callable[[str], object]) -> list[Path]:
    """Draw pages in `style.look` and save each under its stem in this folder; `say` gets each name."""

    def said() -> Iterator[tuple[Path, Page]]:
        for number, (stem, page) in enumerate(pages, 1):
            say(f"{folder}: figure {number}, {stem}")
            yield folder / stem, page

    with style.look():
        return save_all(said())


def _save(page: Page, stem: Path) -> list[Path]:
    with style.look():
        return page.save(stem)
