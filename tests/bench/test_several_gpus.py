"""Several GPUs timed one after the other or at once: by threads that are real and GPUs that are not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.cli.run_lines import opening_lines, show
from bench.environment import dependencies
from bench.errors import UserError
from bench.runner.session import Session, at_once, in_turn, prepare_all
from bench.runner.supervisor import Stopped, WorkerSupervisor
from bench.store import schema
from bench.store.journal import Journal, recover
from bench.store.parquet import read_frame, read_rows
from tests.bench import several
from tests.bench.several import begun, gpu, opened, small


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where stand-in workers run; afterwards no thread is left."""
    before = threading.active_count()
    yield several.stand_in(tmp_path, monkeypatch)
    assert threading.active_count() == before


def hang(folder: Path, index: int, size: int) -> Path:
    """This GPU's worker hangs at this size; whoever reads the path waits until it does."""
    (folder / f"hang-GPU-{index}-{size}").touch()
    pipe = folder / f"here-GPU-{index}-{size}"
    os.mkfifo(pipe)
    return pipe


def kept(session: Session) -> list[schema.Measurement]:
    """The rows in the journal of a session that was interrupted."""
    journal = session.interrupted()
    assert journal is not None
    found = recover(journal)
    assert not found.damage and found.rows == session.planner.rows
    return found.rows


def test_all_are_visited_at_the_same_time_and_each_worker_sees_its_own_gpu(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask from outside says which GPUs there are; each worker's own says which is its."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    os.mkfifo(folder / "meet-2")  # neither gets past it alone
    cases = small(folder, [1, 2, 3])
    sessions = opened(folder, cases)
    with at_once(sessions) as visits:
        seen = [(visited.session.device.index, visited.row) for visited in visits]
    assert sorted(index for index, _ in seen) == [0, 0, 0, 1, 1, 1]
    for index, row in seen:
        assert (row.device_id, row.configuration) == (f"id{index}", f"GPU-{index}")
        assert (row.status, row.concurrent_gpus) == ("ok", 2)
    for session in sessions:
        session.close()
    frame = read_frame([folder / "results"])
    assert len(frame) == 6 and set(frame["concurrent_gpus"]) == {2} and frame["run_id"].nunique() == 2


def test_one_after_the_other_is_that_and_says_one(folder: Path) -> None:
    sessions = opened(folder, small(folder, [1, 2]), concurrent_gpus=1)
    seen = [(visited.session.device.index, visited.row.concurrent_gpus) for visited in in_turn(sessions)]
    assert seen == [(0, 1), (0, 1), (1, 1), (1, 1)]
    for session in sessions:
        session.close()


@pytest.mark.parametrize("how", ["Ctrl-C", "enough", "full disk"])
def test_however_it_ends_early_all_end_and_what_was_visited_is_safe(
    folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPU 0 hangs in its second visit, which is over only with its worker."""
    waiting = hang(folder, 0, 2)
    sessions = opened(folder, small(folder, [1, 2, 3]))
    append = Journal.append

    def full(journal: Journal, *rows: schema.Measurement, sync: bool = True) -> None:
        if rows and rows[0].device_id == "id1" and '"m":2' in rows[0].parameters:
            waiting.read_bytes()
            if how == "full disk":
                raise UserError("results: No space left on device")
        append(journal, *rows, sync=sync)

    monkeypatch.setattr(Journal, "append", full)
    raised: type[BaseException] | None = None
    try:
        with at_once(sessions) as visits:
            for visited in visits:
                if visited.session is sessions[1] and '"m":2' in visited.row.parameters:
                    if how == "Ctrl-C":
                        raise KeyboardInterrupt
                    break
    except BaseException as error:
        raised = type(error)
    assert raised == {"Ctrl-C": KeyboardInterrupt, "enough": None, "full disk": UserError}[how]
    assert all(session.worker.pid is None for session in sessions)
    assert [row.status for row in kept(sessions[0])] == ["ok"], "the visit that was given up left no row"
    assert len(kept(sessions[1])) == (1 if how == "full disk" else len(sessions[1].planner.rows))


def test_preparing_ends_for_all_when_it_fails_for_one(folder: Path) -> None:
    waiting = hang(folder, 0, 2)
    sessions = opened(folder, small(folder, [1, 2]))

    def broken() -> None:
        waiting.read_bytes()
        raise UserError("results: No space left on device")

    sessions[1].prepare = broken  # type: ignore[method-assign]
    with pytest.raises(UserError, match="No space left"):
        prepare_all(sessions)
    for session in sessions:
        assert kept(session) == []


def test_what_is_stopped_asks_nothing_more(folder: Path) -> None:
    supervisor = WorkerSupervisor(gpu(0), 1)
    check = {"do": "check", "parameters": {}}
    assert supervisor.answer(check) == {"status": "ok"}
    supervisor.close()
    assert supervisor.answer(check) == {"status": "ok"}, "another worker begins"
    supervisor.stop()
    with pytest.raises(Stopped):
        supervisor.answer(check)
    supervisor.close()
    with pytest.raises(Stopped):
        supervisor.started()


# ---- the command


def test_a_run_says_what_a_missing_package_costs_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "SWEEP", several.SWEEP.replace("cublas", "[cublas, cublaslt]"))
    find = dependencies.find_spec
    monkeypatch.setattr(dependencies, "find_spec", lambda name: None if name == "nvmath" else find(name))
    run = begun(folder, monkeypatch, small(folder, [1, 2]), count=1)
    (line,) = [line for line in opening_lines(run) if "cublaslt" in line]
    assert line.startswith("2 cases of cublaslt will be unsupported without nvmath-python>=1.0: ")
    run.release()


def test_a_concurrent_run_says_so_and_which_device_each_line_is_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(folder, monkeypatch, small(folder, [1, 2]), count=2, concurrent=True)
    os.mkfifo(folder / "meet-2")  # neither gets past it alone
    opening = "\n".join(opening_lines(run))
    assert "timed at the same time on 2 GPUs" in opening and "never compared" in opening
    said: list[str] = []
    show(run, said.append)
    assert said[0] == "compiling and checking on 2 devices at once"
    assert sorted(line.split(" ", 1)[0] for line in said[1:]) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    assert [line.split("]")[0].split("[")[1] for line in said[1:]] == [f"{n}/4" for n in range(1, 5)]
    run.collect()
    rows = [run.row(identifier) for identifier in run.cases]
    assert all(row is not None and row.concurrent_gpus == 2 for row in rows)
    run.finish()
    assert len(list((folder / "results").rglob("*.parquet"))) == 2


@pytest.mark.parametrize("concurrent", [False, True])
def test_what_cannot_run_has_its_row_on_every_device(
    folder: Path, monkeypatch: pytest.MonkeyPatch, concurrent: bool
) -> None:
    monkeypatch.setattr(several, "SWEEP", several.SWEEP.replace("cublas", "[cublas, onednn]"))
    run = begun(folder, monkeypatch, small(folder, [1, 2]), count=2, concurrent=concurrent)
    assert {asked.case.implementation for asked in run.requested} == {"cublas"}
    show(run, lambda line: None)
    for result in run.finish():
        assert sorted((row.implementation, row.status) for row in result.rows) == [
            *[("cublas", "ok")] * 2,
            *[("onednn", "unsupported")] * 2,
        ]
        assert result.path is not None and len(read_rows(result.path)) == 4


@pytest.mark.parametrize("concurrent", [False, True])
def test_enough_failures_end_it_on_every_device(
    folder: Path, monkeypatch: pytest.MonkeyPatch, concurrent: bool
) -> None:
    (folder / "fail-2").touch()
    sizes = list(range(1, 101))
    run = begun(folder, monkeypatch, small(folder, sizes), count=2, concurrent=concurrent)
    said: list[str] = []
    show(run, said.append, 1)
    assert run.stopped == "stopped after 1 failures" and "wrong: made so" in said[-1]
    run.finish()
    frame = read_frame([folder / "results"])
    assert "wrong" in set(frame["status"]) and len(frame) < 2 * len(sizes)


def test_cases_without_room_are_no_failures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(folder, monkeypatch, small(folder, [1, 2, 3]), count=1, budget="0.001")
    with run.visits(1) as visits:
        statuses = [visited.row.status for visited in visits]
    run.release()
    assert statuses == [] and not run.stopped
    assert len(run.sessions[0].planner.left_out) == 1


def test_one_device_cannot_be_timed_at_the_same_time_as_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"--bench-concurrent .* cuda:0 \(Made up\) would be the only device"):
        begun(folder, monkeypatch, small(folder, [1]), count=1, concurrent=True)
    assert not (folder / "results").exists()


def test_a_run_is_not_gone_on_with_beside_other_gpus(folder: Path) -> None:
    (session,) = opened(folder, small(folder, [1, 2]), count=1)
    next(session.walk())
    journal = session.interrupted()
    with pytest.raises(
        UserError, match=r"was measured on one GPU at a time, this is 2 GPUs at the same time"
    ):
        opened(folder, small(folder, [1, 2]), count=2, resume=True)
    assert journal is not None and journal.exists() and len(recover(journal).rows) == 1
    (again,) = opened(folder, small(folder, [1, 2]), count=1, resume=True)
    assert [row.configuration for _, row in again.walk()] == ["GPU-0"] and len(again.planner.rows) == 2
    again.close()
