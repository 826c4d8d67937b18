"""Runs on several GPUs, one after the other, and beside others: by GPUs that are not there."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from bench.cli.run_lines import opening_lines
from bench.cli.whole_run import measure
from bench.errors import UserError
from bench.runner.options import CONCURRENT, Options
from bench.runner.run import Run
from bench.store.journal import recover
from bench.store.parquet import read_frame, read_rows
from tests.bench import several
from tests.bench.several import begun, opened, small


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where stand-in workers run."""
    return several.stand_in(tmp_path, monkeypatch)


@pytest.fixture
def two(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    """Options of a run on each of two GPUs, over three small cases."""
    for run in begun(folder, monkeypatch, small(folder, [1, 2, 3]), count=2):
        run.interrupted()
    return Options("all", results=folder / "results")


def test_one_after_the_other_is_measured_and_each_worker_sees_its_own_gpu(
    two: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mask from outside says which GPUs there are; each worker's own says which is its."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    results = measure(two)
    assert [result.device.index for result in results] == [0, 1]
    for index, result in enumerate(results):
        assert result.path is not None and not result.reason
        rows = read_rows(result.path)
        assert [row.configuration for row in rows] == [f"GPU-{index}"] * 3
        assert {(row.status, row.device_id, row.concurrent_gpus) for row in rows} == {("ok", f"id{index}", 1)}
    assert capsys.readouterr().out.count("roofbench: Made up, 2 SMs") == 2


@pytest.mark.parametrize("how", ["Ctrl-C", "no worker"])
def test_what_ends_one_run_ends_all_and_what_was_visited_is_safe(
    two: Options, folder: Path, how: str
) -> None:
    """GPU 0 hangs in its second visit, until Ctrl-C comes."""
    if how == "no worker":
        (folder / "bench" / "worker" / "__main__.py").write_text("import nonesuch\n")
        (first,) = measure(two)
        assert "cuda:0 (Made up) cannot be measured" in first.reason and not first.rows
        return
    (folder / "hang-GPU-0-2").touch()
    os.mkfifo(folder / "here-GPU-0-2")
    # A signal of its own wakes the main thread where it waits for the worker; interrupt_main would not.
    wake = partial(signal.pthread_kill, threading.main_thread().ident or 0, signal.SIGINT)
    ends = threading.Thread(target=lambda: (folder / "here-GPU-0-2").read_bytes() or wake())
    ends.start()
    (first,) = measure(two)
    ends.join()
    assert first.journal is not None and first.reason == "the measuring was interrupted"
    assert [row.status for row in recover(first.journal).rows] == ["ok"], "what was given up left no row"
    assert not list(folder.rglob("*.parquet"))


def test_a_refusal_of_one_device_leaves_none_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second device that another run holds is refused before the first is measured."""
    opens, made = Run.open, list[Run]()

    def held(run: Run) -> None:
        made.append(run)
        if run.device.index == 1:
            raise UserError("cuda:1 is being measured")
        opens(run)

    monkeypatch.setattr(Run, "open", held)
    with pytest.raises(UserError, match="cuda:1 is being measured"):
        begun(folder, monkeypatch, small(folder, [1]), count=2)
    assert len(made) == 2 and made[0].interrupted() is None, "its journal is closed"


def test_what_is_timed_beside_other_gpus_says_so_and_is_not_gone_on_with_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = small(folder, [1, 2])
    monkeypatch.setenv(CONCURRENT, "8")
    (run,) = begun(folder, monkeypatch, cases)
    opening = " ".join(line.strip() for line in opening_lines(run))
    assert "timed at the same time as other GPUs, 8 in all" in opening and "never compared" in opening
    assert run.run_id.endswith("-gpu0"), "the others write into this folder, too"
    _, row = next(run.walk())
    assert row.concurrent_gpus == 8
    journal = run.interrupted()
    with pytest.raises(UserError, match=r"measured on 8 GPUs at the same time, this is one GPU at a time"):
        opened(folder, cases, resume=True)
    assert journal is not None and len(recover(journal).rows) == 1
    again = opened(folder, cases, resume=True, concurrent_gpus=8)
    assert [row.configuration for _, row in again.walk()] == ["GPU-0"] and len(again.rounds.rows) == 2
    again.interrupted()
    monkeypatch.setenv(CONCURRENT, "all")
    with pytest.raises(UserError, match=f"{CONCURRENT}=all: give the number of GPUs"):
        begun(folder, monkeypatch, cases)


def test_what_cannot_run_has_its_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "SWEEP", several.SWEEP.replace("cublas", "[cublas, onednn]"))
    (run,) = begun(folder, monkeypatch, small(folder, [1, 2]))
    assert {case.implementation for case in run.requested} == {"cublas"}
    assert len(list(run.walk())) == 2
    result = run.finish()
    statuses = sorted((row.implementation, row.status) for row in result.rows)
    assert statuses == [*[("cublas", "ok")] * 2, *[("onednn", "unsupported")] * 2]
    assert result.path is not None and len(read_rows(result.path)) == 4


def test_enough_failures_end_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "fail-2").touch()
    (run,) = begun(folder, monkeypatch, small(folder, list(range(1, 101))))
    *_, (_, last) = run.walk(1)
    assert run.stopped == "stopped after 1 failures" and (last.status, last.reason) == ("wrong", "made so")
    run.finish()
    frame = read_frame([folder / "results"])
    assert "wrong" in set(frame["status"]) and len(frame) < 100


def test_cases_without_room_are_no_failures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = begun(folder, monkeypatch, small(folder, [1, 2, 3]), budget="0.001")
    assert not list(run.walk(1)) and not run.stopped and len(run.rounds.left_out) == 1
    run.interrupted()
