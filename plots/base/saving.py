"""Saving of figures on all cores: writing PNG and SVG takes longer than drawing.

The first pages are saved here, so that few figures start no process. Others are pickled and sent to spawned
processes; they are not forked, since this process has threads that read parquet.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from bench.worker.lifeline import die_with
from plots.base import style
from plots.base.page import Page

ALONE = 4
"""Pages that are saved here before other processes are started."""
AHEAD = 3
"""Most pages for each process that wait to be saved, so that thousands do not wait in memory."""


def save_all(pages: Iterable[tuple[Path, Page]]) -> list[Path]:
    """Write each page as `path`.png and `path`.svg, in `style.look`; the paths in turn. OSError of a file."""
    paths: list[Path] = []
    waiting: deque[Future[list[Path]]] = deque()
    pool: ProcessPoolExecutor | None = None
    processes = len(os.sched_getaffinity(0))
    usual = gc.get_threshold()
    _collect_rarely()
    try:
        for number, (stem, page) in enumerate(pages):
            if number < ALONE or processes == 1:
                paths += _save(page, stem)
                continue
            if pool is None:
                anew = multiprocessing.get_context("spawn")
                pool = ProcessPoolExecutor(processes, anew, initializer=_begin, initargs=(os.getpid(),))
            waiting.append(pool.submit(_save, page, stem))
            if len(waiting) > AHEAD * processes:
                paths += waiting.popleft().result()
        for saved in waiting:
            paths += saved.result()
    finally:
        gc.set_threshold(*usual)
        if pool is not None:
            pool.shutdown(cancel_futures=True)
    return paths


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


def _begin(parent: int) -> None:
    """Prepare a process of the pool, which would wait for ever for the next page of a killed `parent`."""
    die_with(parent)
    _collect_rarely()


def _collect_rarely() -> None:
    """Make garbage collection rare: a figure is tens of thousands of objects that live until it is saved."""
    gc.set_threshold(200_000, 20, 20)
