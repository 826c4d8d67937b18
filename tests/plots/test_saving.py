"""Figures that other processes save are the files that one process would have written."""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.environment.dependencies import ROOT
from bench.judge.frame import DeviceRun
from plots.base import saving, style
from plots.base.page import Page
from plots.figures.every_figure import pages
from tests.our_sweeps import declared_of
from tests.plots.drawn import loaded
from tests.plots.synthetic import H100, ceilings, gemms


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> DeviceRun:
    """A GPU's run with figures of most kinds."""
    return loaded(tmp_path_factory.mktemp("run"), [*ceilings(H100), *gemms(H100)])


def first(run: DeviceRun, count: int) -> Iterator[tuple[str, Page]]:
    """The first few figures of a run, drawn anew."""
    return itertools.islice(pages(run, declared_of(run)), count)


def test_the_files_are_the_same(run: DeviceRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def saved(to: str) -> list[Path]:
        with style.look():
            return saving.save_all((tmp_path / to / stem, page) for stem, page in first(run, 3))

    here = saved("here")
    monkeypatch.setattr(saving, "ALONE", 1)
    there = saved("there")
    assert len(here) == len(there) == 6
    for one, other in zip(here, there, strict=True):
        assert one.relative_to(tmp_path / "here") == other.relative_to(tmp_path / "there")
        assert one.read_bytes() == other.read_bytes()


STUCK = """
import os, signal
class Stuck:
    def save(self, stem):
        with open(stem.parent / "here", "w") as here:
            here.write(str(os.getpid()))
        signal.pause()
"""


def test_processes_that_save_die_with_a_killed_parent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "here")
    (tmp_path / "stuck.py").write_text(STUCK)
    program = (
        "from pathlib import Path; from plots.base import saving; from stuck import Stuck; saving.ALONE = 0;"
        f"saving.save_all([(Path({str(tmp_path / 'figure')!r}), Stuck())])"
    )
    paths = os.pathsep.join((str(ROOT), str(tmp_path)))
    parent = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths})
    saving_one = os.pidfd_open(int((tmp_path / "here").read_text()))
    try:
        parent.kill()
        assert select.select([saving_one], [], [], 60)[0], "it waits for more pages for ever"
    finally:
        signal.pidfd_send_signal(saving_one, signal.SIGKILL)
        os.close(saving_one)
        parent.wait()
