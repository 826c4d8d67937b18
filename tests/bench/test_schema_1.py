"""Files and journals of schema 1 are read as if they had been written today."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench.runner.resume import Kind, begin, go_on
from bench.store import parquet
from bench.store.journal import HEAD, Journal, _line, recover
from bench.store.parquet import read_frame
from bench.store.schema import SCHEMA, Measurement, RunKey
from tests.bench.rows import row
from tests.our_sweeps import role

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
ADDED = ("role", "host", "pci_bus", "gpu_uuid", "serial", "job_id", "tags")
ROLES = {
    "ceilings": "roof",
    "ceilings/launch": "roof",
    "ceilings/own": "roof",
    "ceilings/cache": "probe",
    "ceilings/one_sm": "probe",
    "ceilings/one_tile": "probe",
    "ceilings/gemm_shapes": "calibration",
    "gemm/square": "measurement",
    "ceilings_of_mine/x": "measurement",
}
"""How schema 1 told roles: by the sweep's path."""


def rows() -> list[Measurement]:
    return [row(sweep=sweep, run_id="r", device="d", schema=1) for sweep in ROLES]


def old_file(path: Path) -> Path:
    """A result file as schema 1 had it."""
    table = pq.read_table(parquet.write(path, rows())).drop_columns(list(ADDED))
    pq.write_table(table.replace_schema_metadata({"roofbench.schema": "1"}), path)
    return path


def old_journal(path: Path) -> Path:
    """A journal as schema 1 had it."""
    path.parent.mkdir(exist_ok=True)
    records = [{name: value for name, value in vars(one).items() if name not in ADDED} for one in rows()]
    lines = [_line(number, content) for number, content in enumerate([{HEAD: 1}, *records])]
    path.write_bytes(b"".join(lines))
    return path


def test_rows_of_an_old_file_have_the_roles_that_their_paths_meant(tmp_path: Path) -> None:
    path = old_file(tmp_path / "r.parquet")
    found = parquet.read_rows(path)
    assert {one.sweep: one.role for one in found} == ROLES
    assert {one.schema for one in found} == {SCHEMA}
    assert {getattr(one, name) for one in found for name in ADDED[1:]} == {None}
    some = {p: table.to_pydict() for p, table in parquet.tables([path], columns=("role", "median_s"))}
    assert some[path]["role"] == list(ROLES.values()) and list(some[path]) == ["role", "median_s"]


def test_old_and_new_files_join(tmp_path: Path) -> None:
    parquet.write(tmp_path / "new.parquet", [row(sweep="mine", role="probe", host="h")])
    old_file(tmp_path / "old.parquet")
    frame = read_frame([tmp_path])
    assert list(frame["role"]) == ["probe", *ROLES.values()]


def test_roles_of_every_committed_result_are_those_of_its_sweeps() -> None:
    found = set()
    for _, table in parquet.tables([REFERENCE], columns=("sweep", "role")):
        found |= set(zip(table["sweep"].to_pylist(), table["role"].to_pylist(), strict=True))
    assert {sweep: role(sweep) for sweep, _ in found} == dict(found)
    assert {"roof", "calibration", "measurement"} <= {of for _, of in found}


def test_every_committed_result_knows_what_its_sweeps_wanted_drawn() -> None:
    paths = sorted(REFERENCE.rglob("*.parquet"))
    declared = parquet.read_sweeps(paths)
    for _, table in parquet.tables(paths, columns=(*RunKey._fields, "sweep")):
        for *run, sweep in {tuple(one.values()) for one in table.to_pylist()}:
            # A sweep from another folder has none in its name; nothing was known of its plot then.
            assert sweep in declared[RunKey(*run)] or sweep.startswith("imported/") or "/" not in sweep
    plotted = [one for of_run in declared.values() for one in of_run.values() if one.get("plot")]
    assert len(plotted) > 10 * len(paths)


def test_an_old_journal_is_recovered_whole(tmp_path: Path) -> None:
    found = recover(old_journal(tmp_path / "d" / "r.journal"))
    assert not found.damage
    assert {one.sweep: (one.role, one.schema) for one in found.rows} == {
        k: (v, SCHEMA) for k, v in ROLES.items()
    }
    begun = begin(tmp_path / "d", "next")
    begun.journal.close()
    (left,) = begun.left
    assert left.path.suffix == ".parquet" and left.rows == len(ROLES)
    (declared,) = parquet.read_sweeps([left.path]).values()
    assert declared["gemm/square"]["plot"][0]["x"] == "m"


def test_a_run_that_began_under_schema_1_is_gone_on_with(tmp_path: Path) -> None:
    path = old_journal(tmp_path / "r.journal")
    one = rows()[0]
    mine = {"title": "Mine", "plot": [{"x": "k"}]}
    begun = go_on(tmp_path, "next", Kind(one.device_id, None, one.protocol, None), {"gemm/square": mine})
    begun.journal.close()
    assert begun.run_id == "r" and {one.role for one in begun.rows} == set(ROLES.values())
    head = json.loads(path.read_bytes().splitlines()[0].partition(b" ")[2])[1]
    assert head[HEAD] == SCHEMA and head["sweeps"]["gemm/square"] == mine
    assert "ceilings/cache" in head["sweeps"]


# ---- what schema 2 keeps of sweeps


SWEEPS = {"gemm/mine": {"title": "Mine", "plot": [{"x": "m"}]}, "gemm/absent": {"title": "Absent"}}


def test_a_file_keeps_what_the_sweeps_of_its_rows_declare(tmp_path: Path) -> None:
    mine = row(sweep="gemm/mine", run_id="a", device="d")
    parquet.write(tmp_path / "a.parquet", [mine, row(sweep="gemm/other", run_id="a", device="d")], SWEEPS)
    parquet.write(tmp_path / "b.parquet", [row(sweep="gemm/mine", run_id="b", device="d")])
    found = parquet.read_sweeps([tmp_path])
    assert found == {("d", "x", "a"): {"gemm/mine": SWEEPS["gemm/mine"]}, ("d", "x", "b"): {}}


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_that_was_killed_keeps_them_too(tmp_path: Path, resumed: bool) -> None:
    made = row(sweep="gemm/mine", run_id="r", device="d")
    with Journal.named(tmp_path, "r", SWEEPS) as journal:
        journal.append(made)
    if resumed:
        go_on(tmp_path, "next", Kind(made.device_id, None, made.protocol, None)).journal.close()
    begin(tmp_path, "next").journal.close()
    assert parquet.read_sweeps([tmp_path]) == {("d", "x", "r"): {"gemm/mine": SWEEPS["gemm/mine"]}}


def test_a_damaged_head_loses_no_row(tmp_path: Path) -> None:
    with Journal.named(tmp_path, "r", SWEEPS) as journal:
        journal.append(row(sweep="gemm/mine", run_id="r", device="d"))
    data = bytearray(journal.path.read_bytes())
    data[data.index(b"Mine")] ^= 1
    journal.path.write_bytes(data)
    begin(tmp_path, "next").journal.close()
    assert parquet.read_sweeps([tmp_path]) == {("d", "x", "r"): {}}
    assert len(read_frame([tmp_path])) == 1
