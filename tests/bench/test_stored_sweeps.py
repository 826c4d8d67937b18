"""Result files keep what their sweeps declared, and the role of each row."""

from __future__ import annotations

from pathlib import Path

from bench.judge.read_runs import read
from bench.runner.resume import begin
from bench.store import parquet
from bench.store.journal import Journal
from bench.store.parquet import Sweeps, read_frame
from bench.store.schema import RunKey
from tests.bench.rows import row
from tests.our_sweeps import role

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


def declared_in(folder: Path) -> dict[RunKey, Sweeps]:
    """What the sweeps of each run declared."""
    return {run.key: run.sweeps for run in read([folder])}


def test_roles_of_every_committed_result_are_those_of_its_sweeps() -> None:
    found = set()
    for _, table in parquet.tables([REFERENCE], columns=("sweep", "role")):
        found |= set(zip(table["sweep"].to_pylist(), table["role"].to_pylist(), strict=True))
    assert {sweep: role(sweep) for sweep, _ in found} == dict(found)
    assert {"roof", "calibration", "measurement"} <= {of for _, of in found}


def test_every_committed_result_knows_what_its_sweeps_wanted_drawn() -> None:
    paths = sorted(REFERENCE.rglob("*.parquet"))
    declared = declared_in(REFERENCE)
    for _, table in parquet.tables(paths, columns=(*RunKey._fields, "sweep")):
        for *run, sweep in {tuple(one.values()) for one in table.to_pylist()}:
            # A sweep from another folder has none in its name; nothing was known of its plot then.
            assert sweep in declared[RunKey(*run)] or sweep.startswith("imported/") or "/" not in sweep
    plotted = [one for of_run in declared.values() for one in of_run.values() if one.get("plot")]
    assert len(plotted) > 5 * len(paths)


SWEEPS = {"gemm/mine": {"title": "Mine", "plot": [{"x": "m"}]}, "gemm/absent": {"title": "Absent"}}


def test_a_file_keeps_what_the_sweeps_of_its_rows_declare(tmp_path: Path) -> None:
    mine = row(sweep="gemm/mine", run_id="a", device="d")
    parquet.write(tmp_path / "a.parquet", [mine, row(sweep="gemm/other", run_id="a", device="d")], SWEEPS)
    parquet.write(tmp_path / "b.parquet", [row(sweep="gemm/mine", run_id="b", device="d")])
    found = declared_in(tmp_path)
    assert found == {("d", "x", "a"): {"gemm/mine": SWEEPS["gemm/mine"]}, ("d", "x", "b"): {}}


def test_a_recovered_run_knows_its_sweeps_unless_they_are_damaged_and_no_row_is_lost(tmp_path: Path) -> None:
    for name, damage in (("r", b"Mine"), ("s", b"Nine")):
        journal = Journal.named(tmp_path, name, SWEEPS)
        journal.append(row(sweep="gemm/mine", run_id=name, device="d"))
        journal.close()
        journal.path.write_bytes(journal.path.read_bytes().replace(b"Mine", damage))
    begin(tmp_path, "next")[0].close()
    declared = {("d", "x", "r"): {"gemm/mine": SWEEPS["gemm/mine"]}, ("d", "x", "s"): {}}
    assert declared_in(tmp_path) == declared
    assert len(read_frame([tmp_path])) == 2
