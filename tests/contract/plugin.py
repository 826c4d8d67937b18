"""Fixtures and report of the contract suite: notes, and a pool of processes that compile."""

from __future__ import annotations

import multiprocessing
import os
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from tests.contract.compiling import Compilation, Outcome, compile_one

NOTES: pytest.StashKey[list[str]] = pytest.StashKey()
ROOT = Path(__file__).parents[2]


def pytest_configure(config: pytest.Config) -> None:
    """Nothing is noted yet."""
    config.stash[NOTES] = []


@pytest.fixture
def note(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Adds a line to the report that is no failure."""
    return pytestconfig.stash[NOTES].append


class Compilers:
    """Processes that compile side by side; one that a compiler kills is replaced."""

    def __init__(self, asked: list[Compilation]) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(os.cpu_count(), self._context)
        self._alone = ProcessPoolExecutor(1, self._context)
        self._futures: dict[Compilation, Future[Outcome]] = {
            one: self._pool.submit(compile_one, one) for one in asked
        }

    def outcome(self, asked: Compilation) -> Outcome:
        """What came of it."""
        try:
            return self._futures[asked].result()
        except BrokenProcessPool:  # whose fault it was shows when each has a process to itself
            pass
        try:
            return self._alone.submit(compile_one, asked).result()
        except BrokenProcessPool:
            self._alone = ProcessPoolExecutor(1, self._context)
            return Outcome(failure="the process that compiled it was killed")

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)
        self._alone.shutdown(cancel_futures=True)


@pytest.fixture(scope="session")
def compilers(request: pytest.FixtureRequest) -> Iterator[Compilers]:
    """All compilations of this session, begun together."""
    items: list[Any] = request.session.items
    given = (getattr(item, "callspec", None) for item in items)
    asked = [call.params["asked"] for call in given if call is not None and "asked" in call.params]
    pool = Compilers(asked)
    yield pool
    pool.close()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The notes, and the versions last."""
    import torch
    import triton

    noted = config.stash[NOTES]
    for line in dict.fromkeys(noted):
        terminalreporter.write_line(f"note: {line}")
    failures = sum(len(terminalreporter.stats.get(kind, ())) for kind in ("failed", "error"))
    terminalreporter.write_line(
        f"contract: torch {torch.__version__} (CUDA {torch.version.cuda}), Triton {triton.__version__}, "
        f"Python {platform.python_version()}: {failures} failures"
    )
