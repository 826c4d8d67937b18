"""Rows survive: journal, crash, parquet, and back."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kernels
from bench import store
from bench.spec import parameters_text
from bench.store import ARROW, FIELDS, Journal, Measurement, StoreError

ROOT = Path(__file__).parents[2]


def row(**facts: Any) -> Measurement:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Measurement):
        if field.default is dataclasses.MISSING:
            values[field.name] = 0 if field.type == "int" else "x"
    values |= {"operator": "gemm", "status": "ok", "parameters": '{"k":3,"layout":"NN","m":1,"n":2}'}
    values |= {"median_s": random.random(), "samples_s": [random.random() for _ in range(5)]}
    return Measurement(**(values | facts))


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [row(), row(status="skipped", reason="too slow", median_s=None, samples_s=None)]
    with Journal(tmp_path / "r.journal") as journal:
        for one in rows:
            journal.append(one)
    assert store.recover(tmp_path / "r.journal") == rows
    path = store.finish(tmp_path / "r.journal")
    assert path == tmp_path / "r.parquet" and not (tmp_path / "r.journal").exists()
    frame = store.read([path])
    assert frame["median_s"][0] == rows[0].median_s
    assert frame["median_s"].isna()[1] and frame["samples_s"][1] is None
    assert list(frame["samples_s"][0]) == rows[0].samples_s
    assert (frame[["m", "n", "k"]].iloc[0] == [1, 2, 3]).all() and frame["layout"][0] == "NN"


def test_a_row_is_on_disk_before_append_returns(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "r.journal")
    for count in range(1, 4):
        journal.append(row())
        assert len(store.recover(tmp_path / "r.journal")) == count


def test_a_journal_torn_anywhere_gives_its_whole_rows(tmp_path: Path) -> None:
    whole = tmp_path / "r.journal"
    ends = []
    with Journal(whole) as journal:
        for _ in range(3):
            journal.append(row())
            ends.append(whole.stat().st_size)
    data = whole.read_bytes()
    for cut in sorted({0, 1, *ends, *(random.randrange(len(data)) for _ in range(60))}):
        torn = tmp_path / "torn.journal"
        torn.write_bytes(data[:cut])
        assert len(store.recover(torn)) == sum(end <= cut for end in ends), cut


def test_a_running_journal_is_not_recovered_by_another_run(tmp_path: Path) -> None:
    with Journal(tmp_path / "live.journal") as journal:
        journal.append(row())
        assert list(store.unfinished(tmp_path)) == []
    assert list(store.unfinished(tmp_path)) == [tmp_path / "live.journal"]


def test_an_empty_journal_leaves_nothing(tmp_path: Path) -> None:
    Journal(tmp_path / "r.journal").close()
    assert store.finish(tmp_path / "r.journal") is None
    assert list(tmp_path.iterdir()) == []


def test_result_files_are_never_rewritten(tmp_path: Path) -> None:
    store.write(tmp_path / "r.parquet", [row()])
    before = (tmp_path / "r.parquet").read_bytes()
    with pytest.raises(StoreError, match="never rewritten"):
        store.write(tmp_path / "r.parquet", [row()])
    assert (tmp_path / "r.parquet").read_bytes() == before


def test_files_of_different_operators_and_newer_columns_join(tmp_path: Path) -> None:
    store.write(tmp_path / "a.parquet", [row()])
    store.write(tmp_path / "b.parquet", [row(operator="stream", parameters='{"kind":"copy","length":7}')])
    newer = pq.read_table(tmp_path / "a.parquet")
    newer = newer.append_column("later", pa.array([1.5]))
    pq.write_table(newer, tmp_path / "c.parquet")
    frame = store.read([tmp_path / n for n in ("a.parquet", "b.parquet", "c.parquet")])
    assert len(frame) == 3
    assert frame["m"].isna().tolist() == [False, True, False]
    assert frame["later"].isna().tolist() == [True, True, False]
    assert len(store.read([tmp_path])) == 3


@pytest.mark.parametrize(
    ("name", "make", "says"),
    [
        ("no.parquet", lambda p: None, "no such file"),
        ("no", lambda p: p.mkdir(), "no .parquet file in this folder"),
        ("text.parquet", lambda p: p.write_text("x"), "not a whole parquet file"),
        ("empty.parquet", lambda p: p.write_bytes(b""), "not a whole parquet file"),
        ("foreign.parquet", lambda p: pd.DataFrame({"a": [1]}).to_parquet(p), "no roofbench schema"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, make: Any, says: str) -> None:
    make(tmp_path / name)
    with pytest.raises(StoreError, match=says) as error:
        store.read([tmp_path / name])
    assert str(tmp_path / name) in str(error.value) and "\n" not in str(error.value)


def test_a_file_from_before_a_column_was_added_reads_it_as_null(tmp_path: Path) -> None:
    path = store.write(tmp_path / "old.parquet", [row()])
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["moved_written"]), path)
    frame = store.read([path])
    assert frame["moved_written"].isna().all() and list(frame["byte"]) == [row().byte]


def test_a_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    store.write(tmp_path / "r.parquet", [row()])
    table = pq.read_table(tmp_path / "r.parquet")
    pq.write_table(table.replace_schema_metadata({"roofbench.schema": "99"}), tmp_path / "r.parquet")
    with pytest.raises(StoreError, match="has schema 99; this checkout reads schema 1"):
        store.read([tmp_path / "r.parquet"])


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="results cannot be written here"):
        Journal(tmp_path / "file" / "r.journal")


def test_no_column_hides_behind_a_dataframe_attribute_or_a_parameter() -> None:
    parameters = {name for op in kernels.names() for name in kernels.problem(op).model_fields}
    taken = set(dir(pd.DataFrame))
    assert not (set(FIELDS) | parameters) & taken
    assert (parameters & set(FIELDS)) == {"dtype"}


def test_every_column_says_what_it_is_and_failures_may_be_null() -> None:
    assert all(field.metadata["says"] for field in FIELDS.values())
    assert ARROW.field("median_s").nullable and not ARROW.field("status").nullable


def test_the_readme_of_results_lists_the_columns_as_they_are() -> None:
    text = (ROOT / "results" / "README.md").read_text()
    assert store.readme_with_columns(text) == text, "run `python -m bench columns`"


def test_parameters_have_one_text() -> None:
    problem = kernels.problem("gemm")(dtype="float32", m=1, n=2, k=3)
    text = parameters_text(problem.parameters())
    assert text == '{"beta":0,"dtype":"float32","k":3,"layout":"NN","m":1,"n":2,"pitch":"tight"}'
    assert kernels.problem("gemm")(**json.loads(text)) == problem
