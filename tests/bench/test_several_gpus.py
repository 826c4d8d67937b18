"""Runs on a GPU, and beside others: by GPUs that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cli.run_lines import opening_lines
from bench.cli.whole_run import measure
from bench.errors import UserError
from bench.runner.options import CONCURRENT, Options
from bench.store.parquet import read_frame, read_rows
from tests.bench import several
from tests.bench.several import begun, opened, small


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where stand-in workers run, each case once."""
    several.once(monkeypatch)
    return several.stand_in(tmp_path, monkeypatch)


def test_a_worker_sees_its_own_gpu_whatever_mask_comes_from_outside(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    run = opened(folder, small(folder, [1]), index=1)
    (row,) = run.walk()
    assert (row.configuration, row.device_id, row.concurrent_gpus) == ("GPU-1", "id1", 1)
    run.interrupted()


def test_without_a_worker_the_run_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(folder, monkeypatch, small(folder, [1])).interrupted()
    (folder / "bench" / "worker" / "__main__.py").write_text("import nonesuch\n")
    result = measure(Options(results=folder / "results"))
    assert "cuda:0 (Made up) cannot be measured" in result.reason and not result.rows


def test_what_is_timed_beside_other_gpus_says_so_and_is_not_gone_on_with_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = small(folder, [1, 2])
    monkeypatch.setenv(CONCURRENT, "8")
    run = begun(folder, monkeypatch, cases)
    opening = " ".join(line.strip() for line in opening_lines(run))
    assert "timed at the same time as other GPUs, 8 in all" in opening and "never compared" in opening
    assert run.run_id.endswith("-gpu0"), "the others write into this folder, too"
    row = next(run.walk())
    assert row.concurrent_gpus == 8
    journal = run.interrupted()
    again = opened(folder, cases, resume=True, concurrent_gpus=8)
    assert [row.configuration for row in again.walk()] == ["GPU-0"] and len(again.rounds.rows) == 2
    assert again.interrupted() == journal is not None
    alone = opened(folder, cases, resume=True)
    (left,) = alone.left
    assert left.path == journal.with_suffix(".parquet") and alone.rows() == []
    assert [row.concurrent_gpus for row in read_rows(left.path)] == [8, 8]
    alone.close()
    monkeypatch.setenv(CONCURRENT, "all")
    with pytest.raises(UserError, match=f"{CONCURRENT}=all: give the number of GPUs"):
        begun(folder, monkeypatch, cases)


def test_what_cannot_run_has_its_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "SWEEP", several.SWEEP.replace("cublas", "[cublas, onednn]"))
    run = begun(folder, monkeypatch, small(folder, [1, 2]))
    assert {case.implementation for case in run.requested} == {"cublas"}
    assert len(list(run.walk())) == 2
    result = run.finish()
    statuses = sorted((row.implementation, row.status) for row in result.rows)
    assert statuses == [*[("cublas", "ok")] * 2, *[("onednn", "unsupported")] * 2]
    assert result.path is not None and len(read_rows(result.path)) == 4


def test_enough_failures_end_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "fail-2").touch()
    run = begun(folder, monkeypatch, small(folder, list(range(1, 101))))
    *_, last = run.walk(1)
    assert run.stopped == "stopped after 1 failures" and (last.status, last.reason) == ("wrong", "made so")
    run.finish()
    frame = read_frame([folder / "results"])
    assert "wrong" in set(frame["status"]) and len(frame) < 100


def test_checks_of_a_kernel_end_with_the_budget(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been timed yet, so there is nothing to be had from more of them."""
    run = begun(folder, monkeypatch, small(folder, [1]), budget="1e-9")
    with pytest.raises(
        UserError, match=r"the budget of 1e-09 s was over before any case was timed: starting"
    ):
        run.refuse_if_over()
    run.interrupted()
    run = begun(folder, monkeypatch, small(folder, [1]))
    run.refuse_if_over()
    run.interrupted()


def test_cases_without_room_are_no_failures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(folder, monkeypatch, small(folder, [1, 2, 3]), budget="1e-9")
    assert not list(run.walk(1)) and not run.stopped and len(run.rounds.left_out) == 1
    run.interrupted()
