"""Result files: rows -> one immutable parquet file for each run -> rows. During a run: journal.py."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.errors import UserError
from bench.store import schema_1, seal
from bench.store.schema import ARROW, FIELDS, SCHEMA, Measurement, record

Sweeps = Mapping[str, Any]
"""Sweep -> its title, plots and claims as `bench.sweep.grammar.Sweep.declared` gives them."""
NO_SWEEPS: Sweeps = {}
_SCHEMA, _RUN, _SWEEPS = b"roofbench.schema", b"roofbench.run", b"roofbench.sweeps"
"""Keys of a file's metadata."""


def write(path: Path, rows: Sequence[Measurement], sweeps: Sweeps = NO_SWEEPS) -> Path:
    """Write a run's parquet file: beside, synced, renamed. UserError if it exists or cannot be written.

    Of `sweeps`, those that have rows are kept in the file, for the figures.
    """
    if path.exists():
        raise UserError(f"{path}: exists; result files are never rewritten")
    beside = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.write(seal.sealed(_parquet(rows, sweeps)))
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def sync_folder(folder: Path) -> None:
    """Put on the disk which files a folder holds: a file that is synced has no name until then."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parquet(rows: Sequence[Measurement], sweeps: Sweeps) -> bytes:
    parameters = [json.loads(row.parameters) for row in rows]
    table = pa.Table.from_pylist([record(row) for row in rows], schema=ARROW)
    for name in sorted({n for p in parameters for n in p} - set(FIELDS)):
        table = table.append_column(name, pa.array([p.get(name) for p in parameters]))
    names = sorted({row.sweep for row in rows} & sweeps.keys())
    facts = {_SCHEMA: str(SCHEMA).encode(), _SWEEPS: json.dumps({n: sweeps[n] for n in names}).encode()}
    if rows:
        run = ("run_id", "commit", "device_name", "driver", "torch", "triton", "libraries")
        facts[_RUN] = json.dumps({k: getattr(rows[0], k) for k in run}).encode()
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(facts), sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def read_sweeps(paths: Iterable[Path]) -> dict[tuple[str, str], Sweeps]:
    """(device, run_id) -> what the sweeps of this run declared when it was made.

    Paths as for `tables`; files that cannot be read are passed over. UserError if none can.
    """
    declared: dict[tuple[str, str], Sweeps] = {}
    for _, table in tables(paths, lambda refusal: None, ("device", "run_id")):
        metadata = table.schema.metadata
        sweeps = schema_1.sweeps() if metadata[_SCHEMA] == b"1" else json.loads(metadata.get(_SWEEPS, b"{}"))
        for run in table.group_by(["device", "run_id"]).aggregate([]).to_pylist():
            key = (run["device"], run["run_id"])
            declared[key] = {**declared.get(key, {}), **sweeps}
    return declared


def tables(
    paths: Iterable[Path],
    left_out: Callable[[str], object] | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[tuple[Path, pa.Table]]:
    """Each result file, or every .parquet below a folder, and what it holds; of `columns` only these.

    UserError names the file that is missing, damaged, no result file, or of another schema. With `left_out`,
    files that are there but cannot be read are left out, each told to it as a sentence, and UserError is
    raised only if no file is left: one bad night must not hide a year.
    """
    refusals = []
    some = False
    for path in paths:
        found = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        if not found:
            raise UserError(f"{path}: no .parquet file in this folder")
        for one in found:
            try:
                table = _read_one(one, columns)
            except UserError as refusal:
                if left_out is None or not one.exists():
                    raise
                refusals.append(refusal)
                continue
            some = True
            yield one, table
    if not some:
        raise refusals[0] if refusals else UserError("no result file given")
    if left_out is not None:
        for said in refusals:
            left_out(str(said))


def read_rows(path: Path) -> list[Measurement]:
    """The rows of one result file as they were written. UserError as for `tables`."""
    return list(rows(_read_one(path, list(FIELDS))))


def rows(table: pa.Table) -> Iterator[Measurement]:
    """The rows of a table from `tables`. A missing value is None, whether the file has null or NaN for it.

    Columns that may be null need not have been read: they are None. UserError if another is not there.
    """
    given = set(table.column_names)
    there = {name: table[name] for name in FIELDS if name in given}
    if required := [name for name in FIELDS if name not in there and not ARROW.field(name).nullable]:
        raise UserError(f"rows lack the column {required[0]}")
    common: dict[str, Any] = dict.fromkeys(FIELDS)
    columns = {}
    for name, column in there.items():
        if _is_constant(column):  # most facts about the machine: a list of them is not worth making
            common[name] = column[0].as_py()
        elif column.null_count < len(column):
            columns[name] = _values(column)
    for values in zip(*columns.values(), strict=True) if columns else [()] * len(table):
        # As unpickling does: to set a hundred attributes of a frozen class singly takes ten times as long.
        row = object.__new__(Measurement)
        attributes = vars(row)
        attributes.update(common)
        attributes.update(zip(columns, values, strict=True))
        yield row


def _is_constant(column: pa.ChunkedArray) -> bool:
    """Whether each row has the same value: a number or text, neither null nor NaN."""
    if column.null_count or pa.types.is_list(column.type):
        return False
    return bool(len(column)) and pc.all(pc.equal(column, column[0])).as_py()


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    # NaN is the one number that differs from itself.
    return [None if v != v else v for v in values] if pa.types.is_floating(column.type) else values


def _read_one(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if seal.is_broken(data):
        raise UserError(f"{path}: is damaged: its bytes are not those that were written")
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        there = set(file.schema_arrow.names)
        wanted = None if columns is None else [name for name in {*columns, "sweep"} if name in there]
        table = file.read(wanted)
    except Exception as error:  # what a reader raises over bytes that mean nothing is anybody's guess
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: not a whole parquet file ({said})") from error
    schema = (table.schema.metadata or {}).get(_SCHEMA, b"").decode(errors="replace")
    if schema not in ("1", str(SCHEMA)):
        given = f"schema {schema}" if schema else "no roofbench schema"
        raise UserError(f"{path}: has {given}; this checkout reads schemas 1 and {SCHEMA}")
    if schema == "1" and "sweep" in there:
        table = schema_1.upgraded(table)
    there = set(table.column_names)
    for column in ARROW if columns is None else [ARROW.field(name) for name in columns]:
        if column.nullable and column.name not in there:  # added since the file was written
            table = table.append_column(column, pa.nulls(len(table), column.type))
            there.add(column.name)
    if missing := [name for name in columns or FIELDS if name not in there]:
        raise UserError(f"{path}: lacks the column {missing[0]}")
    return table if columns is None else table.select(columns)
