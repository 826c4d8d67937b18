"""Ceilings of an earlier run: taken while a copy and a product are as fast as they were, else measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.judge import frame
from bench.judge.comparison_side import side
from bench.judge.history.load import histories
from bench.judge.noise import between_runs
from bench.runner.ceilings import CLOSE, RECENT, EarlierCeilings, recent_ceilings
from bench.sampling.protocol import protocol
from bench.store.parquet import read_rows, write
from bench.store.schema import Measurement
from bench.sweep.load import Case
from tests.bench import several
from tests.bench.rows import row

Found = list[Measurement]
Run = Callable[..., tuple[str, Found]]
SLOW = '"parameters"].get("m", 0)\n    slow = 2 if request["parameters"].get("kind") == "copy" else 1'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a float32 product with a worker that computes nothing: (output, rows of the run)."""
    folder, seen = several.stand_in(tmp_path, monkeypatch), set[Path]()

    def ran(*more: str, slow: bool = False) -> tuple[str, Found]:
        if slow:
            worker = folder / "bench" / "worker" / "__main__.py"
            text = (
                worker.read_text().replace('"parameters"].get("m", 0)', SLOW).replace("1e-3", "slow * 1e-3")
            )
            worker.write_text(text)
        given = ["gemm", "m=n=k=8,16", "dtype=float32", "layout=NN", "--implementation", "onednn"]
        given += ["--bench-device", "cpu", "--bench-results", str(folder / "r"), *more]
        done = CliRunner().invoke(app, ["run", *given])
        assert done.exit_code == 0, done.output
        (path,) = set((folder / "r").rglob("*.parquet")) - seen
        seen.add(path)
        return done.output, read_rows(path)

    return ran


def ceilings(rows: Found, *, taken: bool) -> set[str]:
    found = [row for row in rows if row.role != "measurement" and (row.measured_in is not None) == taken]
    return {row.case for row in found}


def test_a_second_run_measures_the_copy_and_the_product_only(run: Run, tmp_path: Path) -> None:
    _, first = run()
    said, second = run()
    assert not ceilings(first, taken=True) and ceilings(second, taken=True)
    assert {row.operator for row in second if row.role != "measurement" and not row.measured_in} == {
        "gemm",
        "stream",
    }
    assert len(ceilings(second, taken=False)) == 2
    assert ceilings(second, taken=True) | ceilings(second, taken=False) == ceilings(first, taken=False)
    assert {row.measured_in for row in second} == {None, first[0].run_id}
    assert f"ceilings of run {first[0].run_id[:16]}" in said.replace("\n", " ")
    assert "confirmed by a copy: " in said and "and a float32 product: " in said.replace("\n", " ")
    # A third run takes them from the first, which measured them.
    _, third = run()
    assert {row.measured_in for row in third} == {None, first[0].run_id}
    one, *others = frame.read([tmp_path / "r"])
    for other in others:
        assert other.ceilings["cold"].launch_s == one.ceilings["cold"].launch_s is not None
        assert (
            other.ceilings["cold"].bandwidth_byte_per_s.keys()
            == one.ceilings["cold"].bandwidth_byte_per_s.keys()
        )


def test_they_are_measured_where_the_copy_has_changed_or_it_is_asked_for(run: Run) -> None:
    _, first = run()
    _, fresh = run("--bench-fresh-ceilings")
    said, slower = run(slow=True)
    for rows in (fresh, slower):
        assert not ceilings(rows, taken=True) and ceilings(rows, taken=False) == ceilings(first, taken=False)
    assert "ceilings are measured anew: a copy reached " in said.replace("\n", " ")


def test_what_another_run_measured_counts_once(run: Run, tmp_path: Path) -> None:
    (_, first), (_, second) = run(), run()
    taken = [row for row in second if row.measured_in]
    assert taken and not between_runs([first, taken])
    runs = frame.read([tmp_path / "r"])
    assert side(runs[1:], "B").looks.keys() == {key[:6] for key in side(runs[1:], "B").looks}
    assert len(side(runs[1:], "B").looks) == len(second) - len(taken)
    (history,) = histories([tmp_path / "r"])
    assert [night.timed for night in history.nights] == [len(first), len(second) - len(taken)]


# ---- which runs, and what they must have in common


DEVICE = replace(several.gpu(0), boot="b")
SETTINGS = protocol("cuda")
FACTS: dict[str, Any] = {
    "role": "roof",
    "operator": "stream",
    "device_kind": "cuda",
    "device_id": DEVICE.id,
    "boot": "b",
    "protocol": SETTINGS.hash,
    "median_s": 1e-3,
    "low_s": 0.99e-3,
    "high_s": 1.01e-3,
    "byte": 10**6,
}


def stored(folder: Path, **facts: Any) -> None:
    given = {"utc": datetime.now(UTC).isoformat()} | FACTS | facts
    write(folder / f"r{len(list(folder.iterdir()))}.parquet", [row(**given)])


@pytest.mark.parametrize(
    "other",
    [
        {"utc": (datetime.now(UTC) - RECENT - timedelta(minutes=1)).isoformat()},
        {"boot": "c"},
        {"boot": None},
        {"device_id": "another"},
        {"protocol": protocol("cuda", 3).hash},
        {"role": "measurement"},
        {"measured_in": "before"},
        {"status": "crashed"},
        {"held_thermal": 1.0},
    ],
)
def test_only_recent_sound_ceilings_of_this_unit_since_its_start(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    stored(tmp_path)
    (only,) = recent_ceilings(tmp_path, DEVICE, SETTINGS)
    stored(tmp_path, **other)
    (tmp_path / "damaged.parquet").write_bytes(b"x")
    assert recent_ceilings(tmp_path, DEVICE, SETTINGS) == [only]
    assert recent_ceilings(tmp_path, replace(DEVICE, boot=""), SETTINGS) == []


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({}, ""),
        ({"torch": "3"}, "torch was x in run 20261126T000000Z and is 3"),
        ({"driver": "3"}, "driver was x in run"),
        ({"power_limit_w": 300.0}, "power-limit was None in run"),
        ({"commit": "another"}, ""),
        ({"median_s": 1.02e-3}, "a copy reached 980.4 MB/s, not 1 GB/s as in run"),
        ({"status": "crashed", "median_s": None}, "the copy has no time (crashed"),
    ],
)
def test_a_sentinel_confirms_within_its_interval_and_alike(now: dict[str, Any], says: str) -> None:
    copy, launch = small_ceilings()
    then = {"run_id": "20261126T000000Z-x", "utc": datetime.now(UTC).isoformat()}
    before = {case.key: row(**FACTS | then | {"sweep": case.key}) for case in (copy, launch)}
    earlier = EarlierCeilings([launch, copy], [before])
    assert earlier.sentinels == [copy]
    rows, sentence = earlier.taken({copy.key: row(**FACTS | then | now)}, "new")
    assert [each.measured_in for each in rows] == ([] if says else ["20261126T000000Z-x"])
    assert says in sentence and (says or "ceilings of run 20261126T000000Z (0 min ago)" in sentence)


def test_a_wide_interval_confirms_nothing_that_is_far_off() -> None:
    copy, launch = small_ceilings()
    wide = FACTS | {"low_s": 0.5e-3, "high_s": 2e-3, "utc": datetime.now(UTC).isoformat()}
    before = {case.key: row(**wide) for case in (copy, launch)}
    for median_s, count in ((1e-3 * (1 + 0.9 * CLOSE), 1), (1e-3 * (1 + 1.1 * CLOSE), 0), (0.85e-3, 0)):
        now = {copy.key: row(**wide | {"median_s": median_s})}
        assert len(EarlierCeilings([launch, copy], [before]).taken(now, "new")[0]) == count


def test_without_a_copy_nothing_is_taken() -> None:
    copy, launch = small_ceilings()
    earlier = EarlierCeilings([launch, copy], [{launch.key: row(**FACTS)}])
    assert not earlier.sentinels and not earlier.offered


def small_ceilings() -> tuple[Case, Case]:
    """The copy and the launch."""
    import kernels
    from bench.sweep.load import load_all, select

    paths = [*select("ceilings/stream"), *select("ceilings/launch")]
    cases = [case for each in load_all(paths, kernels.problem, 2) for case in each.cases]
    copy = next(case for case in cases if case.problem.parameters().get("kind") == "copy")
    return copy, next(case for case in cases if case.problem.operator == "launch")
