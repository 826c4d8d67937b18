"""Result files: one immutable parquet file for each run, written and read. During a run: journal.py.

Nothing is read by pyarrow's threads: now and then a process whose work is done is aborted as it ends
("terminate called without an active exception") because one of them has not ended (apache/arrow#34314).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.errors import UserError, meant
from bench.store.schema import ARROW, FIELDS, READABLE, SCHEMA, Measurement, RunKey

if TYPE_CHECKING:
    import pandas as pd

Sweeps = Mapping[str, Any]
"""Sweep -> its title, plots and claims as `bench.sweep.grammar.Sweep.declared` gives them."""
NO_SWEEPS: Sweeps = {}
SCHEMA_KEY, _SWEEPS = b"roofbench.schema", b"roofbench.sweeps"
"""Keys of a file's metadata."""
_MARK = b"roofseal"
_DIGEST_BYTE = 16
_SEAL_BYTE = len(_MARK) + _DIGEST_BYTE
# Parquet's pages can have checksums, but not its footer, and a reader that is given a broken footer may do
# anything. So a digest of every other byte is checked before anything is parsed. It lies between the last
# column and the footer, where readers, who find columns by their offsets, never look.


def write(path: Path, rows: Sequence[Measurement], sweeps: Sweeps = NO_SWEEPS) -> Path:
    """Write a run's parquet file atomically. UserError if it exists or cannot be written.

    The entries of `sweeps` that have rows are kept in the file, for the figures.
    """
    if path.exists():
        raise UserError(f"{path}: exists; result files are never rewritten")
    beside = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.write(sealed(_parquet(rows, sweeps)))
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


class Rows(Sequence[Measurement]):
    """The rows of a table from `tables`, each made when it is asked for: all at once may fill the memory."""

    def __init__(self, table: pa.Table) -> None:
        """`table` has every column of a result file."""
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, place: int) -> Measurement:  # type: ignore[override]
        return next(rows(self.table.slice(range(len(self))[place], 1)))

    def __iter__(self) -> Iterator[Measurement]:
        return rows(self.table)


def as_table(rows: Sequence[Measurement]) -> pa.Table:
    """The rows as a result file has them: a column for each of a Measurement, and one for each parameter."""
    if isinstance(rows, Rows):
        return rows.table
    parameters = [json.loads(row.parameters) for row in rows]
    table = plain_table(rows)
    for name in sorted({n for p in parameters for n in p} - set(FIELDS)):
        table = table.append_column(name, pa.array([p.get(name) for p in parameters]))
    return table


def plain_table(rows: Sequence[Measurement]) -> pa.Table:
    """The rows without the columns of parameters; a lone surrogate, which is no character, becomes `?`."""
    columns = {name: list(map(_plain, map(attrgetter(name), rows))) for name in FIELDS}
    return pa.Table.from_pydict(columns, schema=ARROW)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, list) and value and isinstance(value[0], str):
        return list(map(_plain, value))
    return value


def _parquet(rows: Sequence[Measurement], sweeps: Sweeps) -> bytes:
    table = as_table(rows)
    names = sorted({row.sweep for row in rows} & sweeps.keys())
    facts = {SCHEMA_KEY: str(SCHEMA).encode(), _SWEEPS: json.dumps({n: sweeps[n] for n in names}).encode()}
    sink = pa.BufferOutputStream()
    text = [column.name for column in table.schema if pa.types.is_string(column.type)]
    pq.write_table(
        table.replace_schema_metadata(facts),
        sink,
        compression="zstd",
        use_dictionary=text,  # timings are mostly distinct: no dictionary encoding
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


def read_frame(paths: Iterable[Path], left_out: Callable[[str], object] | None = None) -> pd.DataFrame:
    """The rows of all these files, with every column that one of them has.

    Paths and refusals as for `tables`. pandas and pyarrow take the columns of a folder from its first file.
    """
    every = [table for _, table in tables(paths, left_out)]
    frame: pd.DataFrame = pa.concat_tables(every, promote_options="permissive").to_pandas(use_threads=False)
    return frame


def sweeps_of(table: pa.Table) -> Sweeps:
    """What the sweeps of the rows of a table from `tables` declared when these were measured."""
    declared: Sweeps = json.loads(table.schema.metadata.get(_SWEEPS, b"{}"))
    return declared


def runs_of(table: pa.Table) -> list[RunKey]:
    """The runs that have rows in a table from `tables`."""
    found = table.group_by(list(RunKey._fields), use_threads=False).aggregate([]).to_pylist()
    return list(dict.fromkeys(RunKey(run["device"], run["device_id"] or "", run["run_id"]) for run in found))


def tables(
    paths: Iterable[Path],
    left_out: Callable[[str], object] | None = None,
    columns: Sequence[str] | None = None,
    own: bool = False,
) -> Iterator[tuple[Path, pa.Table]]:
    """Each result file, or every .parquet below a folder, with its table; `columns`: only these.

    `own`: without the rows of files in which all are imported, and so without reading them.

    UserError names the file that is missing, damaged, no result file, or of another schema. With `left_out`,
    files that exist but cannot be read are left out, each with a sentence to `left_out`, and UserError is
    raised only if no file is left: one bad night must not hide a year.
    """
    refusals = []
    any_read = False
    for path in paths:
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        if not files:
            there = ", but the journal of a run that did not end: --bench-resume makes it one"
            there = there if any(path.rglob("*.journal")) else ""
            raise UserError(f"{path}: no .parquet file in this folder{there}")
        for file in files:
            try:
                table = _read_table(file, columns, own)
            except UserError as refusal:
                if left_out is None or not file.exists():
                    raise
                refusals.append(refusal)
                continue
            any_read = True
            yield file, table
    if not any_read:
        raise refusals[0] if refusals else UserError("no result file given")
    if left_out is not None:
        for sentence in map(str, refusals):
            left_out(sentence)


def read_rows(path: Path, run: RunKey | None = None) -> list[Measurement]:
    """The rows of one result file as they were written, or of one run in it. UserError as for `tables`."""
    table = _read_table(path, list(FIELDS))
    return list(rows(table if run is None else of_run(table, run)))


def of_run(table: pa.Table, run: RunKey) -> pa.Table:
    """The rows of one run of a table from `tables`."""
    each = (pc.equal(pc.fill_null(table[name], ""), value) for name, value in run._asdict().items())
    same = functools.reduce(pc.and_, each)
    return table if pc.all(same).as_py() else table.filter(same)


def rows(table: pa.Table) -> Iterator[Measurement]:
    """The rows of a table from `tables`. A missing value is None, whether the file has null or NaN for it.

    Nullable columns need not have been read: they are None. UserError if another column is missing.
    """
    given = set(table.column_names)
    there = {name: table[name] for name in FIELDS if name in given}
    if required := [name for name in FIELDS if name not in there and not ARROW.field(name).nullable]:
        raise UserError(f"rows lack the column {required[0]}")
    # What is None unless it is given need not be kept by a row: of a hundred columns half are.
    common: dict[str, Any] = {name: None for name in FIELDS if getattr(Measurement, name, "") is not None}
    columns = {}
    for name, column in there.items():
        if _is_constant(column):  # most facts about the machine: a list of them is not worth making
            common[name] = column[0].as_py()
        elif column.null_count < len(column):
            columns[name] = _values(column)
    for values in zip(*columns.values(), strict=True) if columns else [()] * len(table):
        # As unpickling does: setting a hundred attributes of a frozen class singly takes ten times as long.
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


def _read_table(path: Path, columns: Sequence[str] | None = None, own: bool = False) -> pa.Table:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        near = meant(path.stem, sorted(each.stem for each in path.parent.glob("*")))
        raise UserError(f"{path}: no such file{near}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    table = _parsed(path, data, None if columns is None else set(columns), own)
    schema = (table.schema.metadata or {}).get(SCHEMA_KEY, b"").decode(errors="replace")
    if schema != str(SCHEMA):
        given = f"schema {schema}" if schema else "no roofbench schema"
        raise UserError(f"{path}: has {given}; {READABLE}")
    there = set(table.column_names)
    for column in ARROW if columns is None else [ARROW.field(name) for name in columns]:
        if column.nullable and column.name not in there:  # added since the file was written
            table = table.append_column(column, pa.nulls(len(table), column.type))
            there.add(column.name)
    if missing := [name for name in columns or FIELDS if name not in there]:
        raise UserError(f"{path}: lacks the column {missing[0]}")
    return table if columns is None else table.select(columns)


def _parsed(path: Path, data: bytes, columns: Set[str] | None, own: bool) -> pa.Table:
    """The columns of a parquet file that it has of these. UserError if its bytes are damaged."""
    if is_broken(data):
        raise UserError(f"{path}: is damaged: its bytes are not those that were written")
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        wanted = [each for each in file.schema_arrow if columns is None or each.name in columns]
        counts = _null_counts(file.metadata)
        groups = [] if own and counts.get("source") == 0 else range(file.num_row_groups)
        # What has no value need not be decoded: of imported rows most.
        full = [each.name for each in wanted if counts.get(each.name) != file.metadata.num_rows]
        read = file.read_row_groups(groups, full, use_threads=False)
        nulls = {kind: pa.nulls(len(read), kind) for kind in {each.type for each in wanted}}
        arrays = [read[each.name] if each.name in full else nulls[each.type] for each in wanted]
        return pa.Table.from_arrays(arrays, schema=pa.schema(wanted, file.schema_arrow.metadata))
    except Exception as error:  # pyarrow may raise anything on damaged bytes
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: not a whole parquet file ({reason})") from error


def _null_counts(file: pq.FileMetaData) -> Counter[str]:
    """How many rows of a file have no value in each column; columns that do not say it are left out."""
    nulls: Counter[str] = Counter()
    for group in map(file.row_group, range(file.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if (told := column.statistics) is not None and told.has_null_count:
                nulls[column.path_in_schema] += told.null_count
    return nulls


def sealed(data: bytes) -> bytes:
    """A whole parquet file with its seal put in."""
    cut = _footer_at(data)
    return data[:cut] + _MARK + _digest(data) + data[cut:]


def is_broken(data: bytes) -> bool:
    """Whether a file's bytes differ from those that were sealed. Where there is no seal, none is broken."""
    cut = _footer_at(data)
    begin = cut - _SEAL_BYTE
    if data[begin : begin + len(_MARK)] != _MARK:
        return False
    return data[cut - _DIGEST_BYTE : cut] != _digest(data[:begin] + data[cut:])


def _footer_at(data: bytes) -> int:
    """Offset of the footer: a parquet file's last 8 bytes are the footer's length and a magic word."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTE).digest()
