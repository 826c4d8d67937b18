"""Rows go into a parquet file and come back, or the file is said to be damaged."""

from __future__ import annotations

import math
import os
import random
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.errors import UserError
from bench.store import parquet
from bench.store.columns import readme_with_columns
from bench.store.parquet import read_frame
from bench.store.schema import FIELDS
from tests.bench.rows import row, rows

ROOT = Path(__file__).parents[2]


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    made = [row(), row(status="skipped", reason="too slow", median_s=None, samples_s=None)]
    path = parquet.write(tmp_path / "r.parquet", made)
    frame = read_frame([path])
    assert frame["median_s"][0] == made[0].median_s
    assert frame["median_s"].isna()[1] and frame["samples_s"][1] is None
    assert list(frame["samples_s"][0]) == made[0].samples_s
    assert (frame[["m", "n", "k"]].iloc[0] == [1, 2, 3]).all() and frame["layout"][0] == "NN"
    assert parquet.read_rows(path) == made


def test_result_files_are_never_rewritten(tmp_path: Path) -> None:
    parquet.write(tmp_path / "r.parquet", [row()])
    before = (tmp_path / "r.parquet").read_bytes()
    with pytest.raises(UserError, match="never rewritten"):
        parquet.write(tmp_path / "r.parquet", [row()])
    assert (tmp_path / "r.parquet").read_bytes() == before


def test_files_of_different_operators_and_newer_columns_join(tmp_path: Path) -> None:
    parquet.write(tmp_path / "a.parquet", [row()])
    parquet.write(tmp_path / "b.parquet", [row(operator="stream", parameters='{"kind":"copy","length":7}')])
    older = pq.read_table(tmp_path / "a.parquet").drop_columns(["moved_written"])
    pq.write_table(older.append_column("later", pa.array([1.5])), tmp_path / "c.parquet")
    frame = read_frame([tmp_path])
    assert frame["m"].isna().tolist() == [False, True, False]
    assert frame["later"].isna().tolist() == [True, True, False]
    assert frame["moved_written"].isna().all() and list(frame["byte"]) == [row().byte] * 3
    pd.testing.assert_frame_equal(read_frame([tmp_path / f"{name}.parquet" for name in "abc"]), frame)


@pytest.mark.parametrize("schema", ["99", "1"])
def test_a_file_of_another_schema_is_refused(tmp_path: Path, schema: str) -> None:
    path = parquet.write(tmp_path / "r.parquet", [row()])
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"roofbench.schema": schema}), path)
    with pytest.raises(UserError) as error:
        read_frame([path])
    reads = "this checkout reads schema 2; commit 1b5c065 reads schema 1, too"
    assert str(error.value) == f"{path}: has schema {schema}; {reads}"


# ---- damage


def test_every_byte_of_a_result_file_changed_is_said(tmp_path: Path) -> None:
    """A seventh of them, all of the seal and the end; only its first word may change: that changes no row."""
    path = parquet.write(tmp_path / "r.parquet", [row(samples_s=[0.25])])
    data, table = path.read_bytes(), pq.read_table(path)
    mark, unsaid = data.index(b"roofseal"), []
    with path.open("r+b", buffering=0) as file:
        near = {*range(mark - 40, mark + 40), *range(len(data) - 40, len(data))}
        for at in sorted(near | {*range(random.randrange(7), len(data), 7)}):
            byte = data[at]
            os.pwrite(file.fileno(), bytes([byte ^ random.randrange(1, 256)]), at)
            try:
                ((_, found),) = parquet.tables([path])
            except UserError as error:
                said = str(error)
                assert str(path) in said and "\n" not in said
                assert "is damaged" in said or "not a whole parquet file" in said
            else:
                assert found.equals(table)
                unsaid.append(at)
            os.pwrite(file.fileno(), bytes([byte]), at)
    assert unsaid == list(range(mark, mark + len(b"roofseal")))


def test_a_result_file_cut_anywhere_is_said(tmp_path: Path) -> None:
    path = parquet.write(tmp_path / "r.parquet", [row(samples_s=[0.25])])
    size = path.stat().st_size
    for cut in (*range(size - 1, size - 200, -1), *range(size - 200, -1, -random.randrange(7, 12)), 0):
        os.truncate(path, cut)
        with pytest.raises(UserError, match=r"r\.parquet: (is damaged|not a whole parquet file)"):
            read_frame([path])


def test_a_file_without_a_seal_reads_as_it_did(tmp_path: Path) -> None:
    made = rows(3)
    path = parquet.write(tmp_path / "r.parquet", made)
    pq.write_table(pq.read_table(path), path)
    assert b"roofseal" not in path.read_bytes() and parquet.read_rows(path) == made
    folders = (ROOT / "results" / "reference").glob("*/*")
    for older in [next(folder.glob("*.parquet"), None) for folder in folders if folder.is_dir()]:
        assert older is None or len(read_frame([older])) > 0


def test_a_number_that_is_none_is_a_missing_value(tmp_path: Path) -> None:
    path = parquet.write(tmp_path / "r.parquet", [row(median_s=math.nan, power_w=1.5)])
    (read,) = parquet.read_rows(path)
    assert read.median_s is None and read.power_w == 1.5


def damaged(path: Path) -> Path:
    data = bytearray(path.read_bytes())
    data[random.randrange(4, data.index(b"roofseal"))] ^= random.randrange(1, 256)
    path.write_bytes(data)
    return path


def test_one_bad_night_does_not_hide_a_year(tmp_path: Path) -> None:
    nights = [parquet.write(tmp_path / f"{n}.parquet", [row(run_id=f"{n}")]) for n in range(5)]
    bad = damaged(nights.pop(random.randrange(5)))
    for given in ([tmp_path], [bad, *nights]):
        with pytest.raises(UserError, match=r"\.parquet: is damaged"):
            read_frame(given)
        said: list[str] = []
        frame = read_frame(given, left_out=said.append)
        assert said == [f"{bad}: is damaged: its bytes are not those that were written"]
        assert sorted(frame["run_id"]) == [night.stem for night in nights]


def test_files_that_are_all_bad_and_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    bad = damaged(parquet.write(tmp_path / "bad.parquet", [row()]))
    good = parquet.write(tmp_path / "good" / "r.parquet", [row()])
    (tmp_path / "empty").mkdir()
    said: list[str] = []
    for given, says in (
        ([bad], "is damaged"),
        ([good, tmp_path / "none.parquet"], r"none\.parquet: no such file"),
        ([], "no result file given"),
        ([good, tmp_path / "empty"], r"no \.parquet file in this folder"),
    ):
        with pytest.raises(UserError, match=says):
            read_frame(given, left_out=said.append)
    assert not said


# ---- where nothing can be written


@pytest.mark.parametrize("beside", [True, False])
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, beside: bool) -> None:
    path = tmp_path / ("r.parquet" if beside else "file/r.parquet")
    if beside:
        (tmp_path / "r.part").symlink_to("/dev/full")
    else:
        (tmp_path / "file").write_text("")
    why = "No space left on device" if beside else "File exists|Not a directory"
    with pytest.raises(UserError, match=f"r.parquet: cannot be written: ({why})$"):
        parquet.write(path, [row()])
    assert [p.name for p in tmp_path.iterdir()] == ([] if beside else ["file"])


# ---- columns


def test_the_readme_of_results_lists_the_columns_as_they_are() -> None:
    text = (ROOT / "results" / "README.md").read_text()
    assert readme_with_columns(text) == text, "run `python -m bench.store.columns`"


def test_the_way_to_read_a_folder_keeps_every_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As results/README.md shows it; pandas alone would drop columns, as it also says."""
    folder = tmp_path / "results" / "a-device"
    parquet.write(folder / "1.parquet", rows(2))
    parquet.write(folder / "2.parquet", [row(operator="softmax", parameters='{"length":5,"rows":7}')])
    assert "length" not in pd.read_parquet(folder).columns
    older = ROOT / "results" / "reference" / "nights" / "cpu-intel-xeon-2-core"
    shutil.copy(min(older.glob("*.parquet")), folder / "3.parquet")
    block = (ROOT / "results" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    told: dict[str, pd.DataFrame] = {}
    exec(block, told)
    assert {*FIELDS, "m", "k", "length", "rows", "c"} <= {*told["rows"].columns}
    assert len(told["rows"]) == 33 and 7 in set(told["rows"]["rows"])
