"""Figures that other processes save are the files that one process would have written."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.device.datasheet import find_datasheet
from bench.judge.frame import DeviceRun, load
from bench.store import parquet
from plots.base import saving, style
from plots.base.page import Page
from plots.figures.every_figure import pages
from tests.drawing import is_deep
from tests.our_sweeps import declared_of
from tests.plots.synthetic import H100, ceilings, gemms


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> DeviceRun:
    """A GPU's run with figures of most kinds."""
    rows = [*ceilings(H100), *gemms(H100)]
    path = tmp_path_factory.mktemp("run") / "run.parquet"
    (one,) = load([parquet.write(path, rows)], find_datasheet)
    return one


def first(run: DeviceRun, count: int) -> Iterator[tuple[str, Page]]:
    """The first few figures of a run, drawn anew."""
    return itertools.islice(pages(run, declared_of(run)), count)


def test_every_figure_can_be_sent_to_another_process(run: DeviceRun) -> None:
    kinds = set()
    with style.look():
        for stem, page in first(run, 100 if is_deep() else 10):
            kinds.add(stem.split("-")[0].split("/")[-1])
            assert isinstance(pickle.loads(pickle.dumps(page)), Page), stem
    assert {"roofline", "scorecard", "distribution"} <= kinds


def test_the_files_are_the_same(run: DeviceRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def saved(to: str) -> list[Path]:
        with style.look():
            return saving.save_all((tmp_path / to / stem, page) for stem, page in first(run, 3))

    here = saved("here")
    monkeypatch.setattr(saving, "ALONE", 1)
    monkeypatch.setattr(saving, "AHEAD", 1)
    there = saved("there")
    assert len(here) == len(there) == 6
    for one, other in zip(here, there, strict=True):
        assert one.relative_to(tmp_path / "here") == other.relative_to(tmp_path / "there")
        assert one.read_bytes() == other.read_bytes()


def test_a_place_that_cannot_be_written_is_an_error_from_there_too(
    run: DeviceRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "ALONE", 0)
    (tmp_path / "file").write_text("no folder")
    with style.look(), pytest.raises(OSError):
        saving.save_all((tmp_path / "file" / stem, page) for stem, page in first(run, 3))
