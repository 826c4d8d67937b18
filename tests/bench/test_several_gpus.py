"""Several GPUs timed one after the other or at once: by threads that are real and GPUs that are not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kernels
from bench.environment import dependencies
from bench.runner import run as running
from bench.runner.run import Refusal, Run
from bench.runner.session import Session
from bench.runner.supervisor import Attended, Stopped
from bench.runner.walking import at_once, in_turn, prepare_all
from bench.store import parquet, schema
from bench.store.journal import recover
from bench.store.schema import StoreError
from tests.bench import several
from tests.bench.several import gpu, opened, small


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
    assert not found.damage and found.rows == session.made
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
    frame = parquet.read([folder / "results"])
    assert len(frame) == 6 and set(frame["concurrent_gpus"]) == {2} and frame["run_id"].nunique() == 2


def test_one_after_the_other_is_that_and_says_one(folder: Path) -> None:
    sessions = opened(folder, small(folder, [1, 2]), concurrent_gpus=1)
    seen = [(visited.session.device.index, visited.row.concurrent_gpus) for visited in in_turn(sessions)]
    assert seen == [(0, 1), (0, 1), (1, 1), (1, 1)]
    for session in sessions:
        session.close()


@pytest.mark.parametrize("how", ["Ctrl-C", "enough", "full disk"])
def test_however_it_ends_early_all_end_and_what_was_visited_is_safe(folder: Path, how: str) -> None:
    """GPU 0 hangs in its second visit, which is over only with its worker."""
    waiting = hang(folder, 0, 2)
    sessions = opened(folder, small(folder, [1, 2, 3]))
    keep = sessions[1]._keep

    def full(*rows: schema.Measurement, sync: bool = True) -> None:
        if '"m":2' in rows[0].parameters:
            waiting.read_bytes()
            if how == "full disk":
                raise StoreError("results: No space left on device")
        keep(*rows, sync=sync)

    sessions[1]._keep = full  # type: ignore[method-assign]
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
    assert raised == {"Ctrl-C": KeyboardInterrupt, "enough": None, "full disk": StoreError}[how]
    assert all(session._worker._worker is None for session in sessions)
    assert [row.status for row in kept(sessions[0])] == ["ok"], "the visit that was given up left no row"
    assert len(kept(sessions[1])) == (1 if how == "full disk" else len(sessions[1].made))


def test_preparing_ends_for_all_when_it_fails_for_one(folder: Path) -> None:
    waiting = hang(folder, 0, 2)
    sessions = opened(folder, small(folder, [1, 2]))

    def broken() -> None:
        waiting.read_bytes()
        raise StoreError("results: No space left on device")

    sessions[1].prepare = broken  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="No space left"):
        prepare_all(sessions)
    for session in sessions:
        assert kept(session) == []


def test_what_is_stopped_asks_nothing_more(folder: Path) -> None:
    attended = Attended(gpu(0), 1)
    check = {"do": "check", "parameters": {}}
    assert attended.answer(check) == {"status": "ok"}
    attended.close()
    assert attended.answer(check) == {"status": "ok"}, "another worker begins"
    attended.stop()
    with pytest.raises(Stopped):
        attended.answer(check)
    attended.close()
    with pytest.raises(Stopped):
        attended.started()


# ---- the command


def options(folder: Path, **given: Any) -> Any:
    values: dict[str, Any] = {
        "bench_run": True,
        "bench_device": "all",
        "bench_sweep": [],
        "collectonly": False,
    }
    values |= {
        "bench_budget": None,
        "bench_visits": "1",
        "bench_regime": "sustained",
        "bench_resume": False,
        "bench_tag": [],
        "bench_anonymous": False,
    }
    values |= {"bench_shard": None, "bench_concurrent": False, "bench_results": str(folder / "results")}
    return SimpleNamespace(**(values | given))


def begun(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, sizes: list[int], **given: Any) -> Run:
    """A run over as many GPUs, its cases planned. There is no GPU to have ceilings."""
    monkeypatch.setattr(running, "chosen", lambda wanted: [gpu(index) for index in range(count)])
    cases = small(folder, sizes)
    monkeypatch.setattr(Run, "_load", lambda *_: cases)
    run = Run(options(folder, **given), kernels.problem, kernels.names)
    identifiers = list(run.cases)
    run.plan(identifiers[index] for index in run.order(identifiers))
    return run


def test_a_run_says_what_a_missing_package_costs_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "SWEEP", several.SWEEP.replace("cublas", "[cublas, cublaslt]"))
    find = dependencies.find_spec
    monkeypatch.setattr(dependencies, "find_spec", lambda name: None if name == "nvmath" else find(name))
    run = begun(folder, monkeypatch, 1, [1, 2])
    (line,) = [line for line in run.opening() if "cublaslt" in line]
    assert line.startswith("2 cases of cublaslt will be unsupported without nvmath-python>=1.0: ")
    run.release()


def test_a_concurrent_run_says_so_and_which_device_each_line_is_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(folder, monkeypatch, 2, [1, 2], bench_concurrent=True)
    os.mkfifo(folder / "meet-2")  # neither gets past it alone
    opening = "\n".join(run.opening())
    assert "timed at the same time on 2 GPUs" in opening and "never compared" in opening
    said: list[str] = []
    run.measure(said.append, None)
    assert said[0] == "compiling and checking on 2 devices at once"
    assert sorted(line.split(" ", 1)[0] for line in said[1:]) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    assert [line.split("]")[0].split("[")[1] for line in said[1:]] == [f"{n}/4" for n in range(1, 5)]
    run.collect()
    rows = [run.row(identifier) for identifier in run.cases]
    assert all(row is not None and row.concurrent_gpus == 2 for row in rows)
    run.finish(interrupted=False)
    assert len(list((folder / "results").rglob("*.parquet"))) == 2


@pytest.mark.parametrize("concurrent", [False, True])
def test_enough_failures_end_it_on_every_device(
    folder: Path, monkeypatch: pytest.MonkeyPatch, concurrent: bool
) -> None:
    (folder / "fail-2").touch()
    sizes = list(range(1, 101))
    run = begun(folder, monkeypatch, 2, sizes, bench_concurrent=concurrent)
    said: list[str] = []
    run.measure(said.append, 1)
    assert run.stopped == "stopped after 1 failures" and "wrong: made so" in said[-1]
    run.finish(interrupted=False)
    frame = parquet.read([folder / "results"])
    assert "wrong" in set(frame["status"]) and len(frame) < 2 * len(sizes)


def test_one_device_cannot_be_timed_at_the_same_time_as_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refusal, match=r"--bench-concurrent .* cuda:0 \(Made up\) would be the only device"):
        begun(folder, monkeypatch, 1, [1], bench_concurrent=True)
    assert not (folder / "results").exists()


def test_a_run_is_not_gone_on_with_beside_other_gpus(folder: Path) -> None:
    (session,) = opened(folder, small(folder, [1, 2]), count=1)
    next(session.walk())
    journal = session.interrupted()
    with pytest.raises(
        StoreError, match=r"was measured on one GPU at a time, this is 2 GPUs at the same time"
    ):
        opened(folder, small(folder, [1, 2]), count=2, resume=True)
    assert journal is not None and journal.exists() and len(recover(journal).rows) == 1
    (again,) = opened(folder, small(folder, [1, 2]), count=1, resume=True)
    assert [row.configuration for _, row in again.walk()] == ["GPU-0"] and len(again.made) == 2
    again.close()
