"""A run on this machine's CPU with the real worker, at sizes that take microseconds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernels
from bench import store
from bench.device import detect
from bench.measure.process import Worker, WorkerDied
from bench.session import Session, measured_s
from bench.sweep import Case, load

SWEEP = """\
title: Small things
source: {document: none, range: ours}
operator: gemm
implementations: [onednn, cublas]
cases:
  - {m=n=k: [8, 33], dtype: [float32, float64]}
  - {m=n=k: 40000, dtype: float64}
plot: {x: m}
"""
CEILINGS = """\
title: A floor
source: {document: none, range: ours}
operator: launch
cases:
  - {dtype: float32}
"""
SMALL_CACHE = 1 << 20


def cases(tmp_path: Path) -> list[Case]:
    root = tmp_path / "sweeps"
    (root / "ceilings").mkdir(parents=True, exist_ok=True)
    (root / "small.yaml").write_text(SWEEP)
    (root / "ceilings" / "launch.yaml").write_text(CEILINGS)
    names = ("ceilings/launch.yaml", "small.yaml")
    return [case for name in names for case in load(root / name, kernels.problem, 2, root).cases]


def session(tmp_path: Path, **settings: object) -> Session:
    device = detect("cpu")
    object.__setattr__(device, "cache_byte", SMALL_CACHE)  # a small ring is all that is wanted here
    made = Session(device, tmp_path / "results", 10.0, **settings)  # type: ignore[arg-type]
    made.open()
    made.plan(cases(tmp_path))
    return made


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker("cpu", SMALL_CACHE, 1, threads=1)
    yield made
    made.close()


def measure_request(**changes: object) -> dict[str, object]:
    request: dict[str, object] = {"do": "measure", "operator": "gemm", "implementation": "onednn"}
    request |= {"parameters": {"dtype": "float32", "m": 8, "n": 9, "k": 10, "layout": "TN"}}
    return request | {"cache": "cold", "budget_s": 0.05, "launch_s": 1.0, "least_timed_s": 0.0} | changes


def test_a_run_from_cases_to_parquet(tmp_path: Path) -> None:
    run = session(tmp_path)
    rows = [run.run(case) for case in cases(tmp_path)]
    by_status: dict[str, list[store.Measurement]] = {}
    for row in rows:
        by_status.setdefault(row.status, []).append(row)
    assert len(by_status["ok"]) == 5
    assert len(by_status["unsupported"]) == 6  # cublas five times, and Triton's empty kernel
    (slow,) = by_status["skipped"]
    assert "40000" not in slow.reason and slow.reason and slow.median_s is None
    run.close()
    assert run.path is not None
    frame = store.read([run.path])
    assert len(frame) == len(rows) == len(cases(tmp_path))
    timed = frame[frame["status"] == "ok"]
    assert (timed["low_s"] <= timed["median_s"]).all() and (timed["median_s"] <= timed["high_s"]).all()
    assert (timed["relative_error"] <= timed["tolerance"]).all()
    assert timed["torch"].str.len().min() > 0 and timed["protocol"].nunique() == 1
    assert frame[frame["status"] != "ok"]["median_s"].isna().all()
    assert (frame[frame["status"] != "ok"]["reason"].str.len() > 0).all()
    assert measured_s(rows)["measure_s"] > 0


def test_an_interrupted_run_keeps_its_rows_and_the_next_says_so(tmp_path: Path) -> None:
    run = session(tmp_path)
    first = [run.run(case) for case in cases(tmp_path)[:4]]
    journal = run.interrupted()
    assert journal is not None and store.recover(journal) == first
    following = session(tmp_path)
    (told,) = following.recovered
    assert told.rows == 4 and told.path.suffix == ".parquet" and not journal.exists()
    assert len(store.read([told.path])) == 4
    following.close()


def test_resume_measures_only_what_is_missing(tmp_path: Path) -> None:
    run = session(tmp_path)
    first = [run.run(case) for case in cases(tmp_path)[:4]]
    run.interrupted()
    resumed = session(tmp_path, resume=True)
    assert resumed.run_id == run.run_id and resumed.recovered[0].resumed
    missing = [case for case in cases(tmp_path) if not resumed.done_before(case)]
    assert missing == cases(tmp_path)[4:]
    for case in missing:
        resumed.run(case)
    resumed.close()
    frame = store.read([tmp_path / "results"])
    assert len(frame) == len(cases(tmp_path)) and frame["run_id"].nunique() == 1
    assert frame["median_s"].dropna().iloc[0] == first[0].median_s
    assert [p.suffix for p in (tmp_path / "results").rglob("*") if p.is_file()] == [".parquet"]


def test_a_killed_worker_is_a_row_and_the_next_case_has_a_new_one(tmp_path: Path) -> None:
    run = session(tmp_path)
    some = [case for case in cases(tmp_path) if case.implementation == "onednn"]
    run.run(some[0])
    assert run._worker is not None
    os.kill(run._worker.pid, signal.SIGKILL)
    died, after = run.run(some[1]), run.run(some[2])
    assert died.status == "crashed" and "SIGKILL" in died.reason and died.median_s is None
    assert after.status == "ok"
    run.close()


def test_an_answer_that_takes_too_long_is_a_timeout(worker: Worker) -> None:
    with pytest.raises(WorkerDied, match=r"no answer within 0 s") as death:
        worker.ask({"do": "hello"}, 0.01)
    assert death.value.status == "timeout"
    with pytest.raises(WorkerDied) as death:
        worker.ask({"do": "hello"}, 30)
    assert death.value.status == "crashed"


def test_what_a_library_prints_is_no_answer(worker: Worker) -> None:
    answer = worker.ask(measure_request(parameters={"dtype": "float32", "m": 1, "n": 1, "k": 1}), 60)
    assert answer["status"] == "ok"


def test_an_exception_in_an_operator_is_a_row(worker: Worker) -> None:
    answer = worker.ask(measure_request(implementation="cublas", cache="warm"), 60)
    assert answer["status"] in ("ok", "error")  # torch.mm runs on a CPU too, whatever its name says
    answer = worker.ask({**measure_request(), "implementation": "nonesuch"}, 60)
    assert answer["status"] == "error" and "nonesuch" in answer["reason"]
    assert worker.ask({"do": "hello"}, 60)["threads"] == 1


@pytest.mark.parametrize("name", kernels.names())
def test_every_operator_binds_what_it_declares(name: str) -> None:
    operator = kernels.operator(name)
    assert set(operator.implementations) == {i.name for i in operator.problem.implementations}
    assert operator.examples and all(isinstance(e, operator.problem) for e in operator.examples)
