"""A run on this machine's CPU with the real worker, at sizes that take microseconds."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kernels
from bench.device.detect import detect
from bench.runner.run import Run
from bench.store import schema
from bench.store.parquet import read_frame
from bench.sweep.load import Case, load
from tests.bench import several

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
role: roof
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


def session(tmp_path: Path, budget_s: float | None = 10.0, **settings: Any) -> Run:
    device = detect("cpu")
    object.__setattr__(device, "cache_byte", SMALL_CACHE)  # a small ring is all that is wanted here
    made = Run(device, tmp_path / "results", budget_s, **{"precision": 0.99} | settings)
    made.open()
    several.planned(made.rounds, cases(tmp_path))
    return made


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        several.quick(patch)
        yield


class Measured(NamedTuple):
    """A run that measured everything with the real worker."""

    cases: list[Case]
    visits: list[schema.Measurement]
    rows: list[schema.Measurement]
    path: Path | None


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Of the small sweep, and of a product by one thread and by all."""
    folder = tmp_path_factory.mktemp("measured")
    run = session(folder, budget_s=300.0)  # far more than it takes on a busy machine
    path = folder / "sweeps" / "few.yaml"
    path.write_text(SWEEP.replace("implementations:", "threads: [one, all]\nimplementations:"))
    loaded = load(path, kernels.problem, 2, path.parent).cases
    every = [*cases(folder), *[case for case in loaded if case.implementation == "onednn"][:2]]
    several.planned(run.rounds, every)
    visits = list(run.walk())
    rows = run.rows()
    run.close()
    return Measured(every, visits, rows, run.path)


def test_a_run_from_cases_to_parquet(measured: Measured) -> None:
    rows = measured.rows
    by_status: dict[str, list[schema.Measurement]] = {}
    for row in rows:
        by_status.setdefault(row.status, []).append(row)
    assert len(by_status["ok"]) == 7
    assert len(by_status["unsupported"]) == 6  # cublas five times, and Triton's empty kernel
    (slow,) = by_status["skipped"]
    assert "40000" not in slow.reason and slow.reason and slow.median_s is None
    looks = Counter(row.case for row in measured.visits)
    assert all(1 <= looks[row.case] <= 8 for row in by_status["ok"])
    assert all(looks[row.case] == 1 for row in rows if row.status != "ok")
    assert measured.path is not None
    frame = read_frame([measured.path])
    assert len(frame) == len(rows) == len(measured.cases)
    timed = frame[frame["status"] == "ok"]
    # Where the processors are busy, the samples of a case may be worth too few to tell an interval.
    known = timed[timed["low_s"].notna()]
    assert (known["low_s"] <= known["median_s"]).all() and (known["median_s"] <= known["high_s"]).all()
    assert timed[timed["low_s"].isna()]["high_s"].isna().all()
    assert (timed[timed["low_s"].isna()]["stop"] != "converged").all()
    assert (timed["relative_error"] <= timed["tolerance"]).all()
    assert timed["torch"].str.len().min() > 0 and timed["protocol"].nunique() == 1
    # What the telemetry and the clock say crosses the process border with the times.
    assert timed["environment"].str.contains("cpu_capability=").all()
    assert (timed["on_processor"] > 0).all()
    assert timed[["setup_s", "check_s", "measure_s"]].notna().all(axis=None)
    assert timed["enqueue_s"].isna().any()
    assert [sum(counts) for counts in timed["visit_samples"]] == [len(taken) for taken in timed["samples_s"]]
    assert frame[frame["status"] != "ok"]["median_s"].isna().all()
    assert (frame[frame["status"] != "ok"]["reason"].str.len() > 0).all()


def test_a_run_of_another_protocol_is_not_resumed_but_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several.stand_in(tmp_path, monkeypatch)
    run = session(tmp_path)
    assert len(list(itertools.islice(run.walk(), 3))) == 3
    journal = run.interrupted()
    several.once(monkeypatch, 3)
    following = session(tmp_path, resume=True)
    (left,) = following.left
    assert journal is not None and left.path == journal.with_suffix(".parquet") and not left.resumed
    assert following.run_id != run.run_id and following.rows() == []
    following.close()


def test_a_killed_worker_is_a_row_and_the_next_case_has_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have died of what another case had done: one more visit, and the row says so.

    Without a budget, so that there is time for that visit however busy the machine is.
    """
    folder = several.stand_in(tmp_path, monkeypatch)
    made = several.small(folder, [1, 2, 3])
    run = several.opened(folder, made)
    walk = run.walk()
    assert next(walk).status == "ok"
    run.worker.kill()
    died, after = next(walk), next(walk)
    assert died.status == "crashed" and "SIGKILL" in died.reason and died.median_s is None
    assert after.status == "ok"
    assert [(row.case, row.status) for row in walk] == [(died.case, "ok")]
    (joined,) = [row for row in run.rows() if row.case == died.case]
    assert joined.status == "ok" and joined.set_aside == [f"crashed: {died.reason}"]
    run.close()


def test_every_visit_is_on_the_disk_before_the_next_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only with the system: a machine that loses its power loses no row."""
    synced: dict[int, int] = {}
    fsync = os.fsync

    def counted(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        synced[status.st_ino] = status.st_size

    folder = several.stand_in(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "fsync", counted)
    several.once(monkeypatch, 2)
    run = several.opened(folder, several.small(folder, [1, 2, 3]), precision=1.0)
    (journal,) = run.folder.glob("*.journal")
    walk, sizes = run.walk(), set()
    for _ in walk:
        size = journal.stat().st_size
        assert synced[journal.stat().st_ino] == size
        sizes.add(size)
    assert len(sizes) == 6
    run.close()


def test_one_thread_is_another_case_and_computes_with_one(measured: Measured) -> None:
    one, every = some = measured.cases[-2:]
    assert [case.threads for case in some] == ["one", "all"] and one.problem == every.problem
    assert "one-thread" in one.name and one.name.replace("-one-thread", "") == every.name
    assert "CPU only" in one.missing("cuda", (9, 0)) and not one.missing("cpu", None)
    by_case = {row.case: row for row in measured.rows}
    rows = [by_case[case.key] for case in some]
    assert [(row.threads_asked, row.threads) for row in rows] == [("one", 1), ("all", detect("cpu").sm_count)]


def test_starting_a_worker_is_no_cost_of_the_visit_that_needed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one slow start would make the remaining visits look dear, and leave cases out for it."""
    now_s = [0.0]

    class SlowToStart:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
            now_s[0] += 100.0 if request["do"] == "hello" else 1.0
            times = {"median_s": 1e-3, "samples_s": [1e-3] * 20, "launches": 1, "measure_s": 0.5}
            return {} if request["do"] == "hello" else {"status": "ok", "clock": "host", **times}

        def close(self) -> None:
            pass

    monkeypatch.setattr(time, "perf_counter", lambda: now_s[0])
    monkeypatch.setattr("bench.runner.supervisor.Worker", SlowToStart)
    run = session(tmp_path, budget_s=None)
    several.planned(run.rounds, [case for case in cases(tmp_path) if case.implementation == "onednn"])
    assert next(run.walk()).status == "ok"
    _, left_s = run.rounds.left(run.elapsed_s)
    run.interrupted()
    assert run.worker.starting_s == 100.0 and left_s < 100
