"""Packs: all runs of a device in a month as one file, with their samples in a second one.

    DIR/<device>/2026-11.parquet    every row of every run; all columns but lists of numbers
    DIR/<device>/2026-11.samples    parquet too: those lists, row by row

Whatever reads result files reads packs: `bench.store.parquet` fetches the second file where lists are
requested. A pack is written when its month is over, and is never rewritten: files of that month which
come later make `2026-11-2.parquet`. Its metadata lists the files that it was made of, with their digests.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.errors import UserError
from bench.format import count_text
from bench.store import parquet
from bench.store.parquet import (
    PACK,
    QUICKEST,
    SAMPLES,
    SCHEMA_KEY,
    Sweeps,
    digest,
    packed_originals,
    sweeps_of,
)
from bench.store.schema import ARROW, FIELDS, SCHEMA, WITHOUT_SAMPLES

LISTS = tuple(name for name in FIELDS if name not in WITHOUT_SAMPLES)
"""Columns of the second file."""
REST = ".rest"
"""Part of the name of a file with the rows of a run that its own file lacks (bench/store/journal.py)."""


class Original(NamedTuple):
    """A result file that a pack holds."""

    path: str
    """Its path below the packed folder."""
    blake2b: str
    """Hash of its bytes, 16 bytes, in hexadecimal."""
    byte: int
    rows: int
    sweeps: int
    """Index into the pack's declarations of sweeps."""


@dataclass(frozen=True)
class _File:
    """A result file that can be packed."""

    path: Path
    name: str
    """Its path below the packed folder."""
    blake2b: str
    device: str
    month: str
    """The UTC month in which its run began, `2026-11`."""
    run_id: str
    unit: str


class Packed(NamedTuple):
    """One pack, new or already there."""

    path: Path
    originals: Sequence[Path]
    """The files that it holds, of those given."""
    byte: int
    """Their bytes."""
    packed_byte: int
    """Bytes of both files of the pack; 0 for one that was there."""


def pack(
    paths: Sequence[Path], folder: Path, left_out: Callable[[str], object], now: datetime | None = None
) -> Iterator[Packed]:
    """Pack these result files, or folders of them, below `folder`; by device and month.

    `left_out` gets a sentence for whatever stays as it is: files that are damaged, imported, of a month that
    is not over (`now`, default: the clock's), or whose run is in another file. Files that a pack there holds
    already are found in it and not packed again. UserError if no file can be read, or a pack not written.
    """
    over = f"{now or datetime.now(UTC):%Y-%m}"
    files = list(_files(paths, left_out))
    for month, number in sorted(Counter(file.month for file in files if file.month >= over).items()):
        files_text = count_text(number, "file")
        left_out(f"{files_text} of {month}, which is not over: a month is packed when no run can be added")
    of_pack = attrgetter("device", "month")
    ready = sorted((file for file in files if file.month < over), key=of_pack)
    for (device, month), group in groupby(ready, of_pack):
        yield from _month(folder / device, month, list(group), left_out)


def _files(paths: Sequence[Path], left_out: Callable[[str], object]) -> Iterator[_File]:
    columns = ("device", "run_id", "device_id", "source")
    for path, table in parquet.tables(paths, left_out, columns):
        if PACK in table.schema.metadata:
            continue
        runs = table.group_by(list(columns), use_threads=False).aggregate([]).to_pylist()
        months = {month_of(run["run_id"]) for run in runs}
        if any(run["source"] is not None for run in runs):
            left_out(f"{path}: imported timings belong to no month")
        elif len(runs) != 1:
            left_out(f"{path}: holds {len(runs)} runs or units, and a file that is packed holds one")
        elif not (month := months.pop()):
            left_out(f"{path}: nothing in it tells when the run {runs[0]['run_id']} began")
        else:
            root = next(root for root in paths if path == root or root in path.parents)
            name = str(path.relative_to(root)) if path != root else path.name
            (run,) = runs
            yield _File(
                path, name, digest(path.read_bytes()), run["device"], month, run["run_id"], run["device_id"]
            )


def month_of(run_id: str) -> str:
    """The UTC month, `2026-11`, in which a run of this name began; empty if the name does not say."""
    try:
        return f"{datetime.strptime(run_id.partition('-')[0], '%Y%m%dT%H%M%S%z'):%Y-%m}"
    except ValueError:
        return ""


def _month(
    folder: Path, month: str, files: Sequence[_File], left_out: Callable[[str], object]
) -> Iterator[Packed]:
    """The packs of a month that hold these files: those that are there, and a new one for the others."""
    holds: dict[str, Path] = {}
    for path in sorted([*folder.glob(f"{month}.parquet"), *folder.glob(f"{month}-*.parquet")]):
        holds |= {original.blake2b: path for original in originals(path)}
    known = [file for file in files if file.blake2b in holds]
    for path in sorted({holds[file.blake2b] for file in known}):
        here = [file.path for file in known if holds[file.blake2b] == path]
        yield Packed(path, here, sum(each.stat().st_size for each in here), 0)
    chosen: dict[tuple[str, str, str], _File] = {}
    for file in sorted(files, key=attrgetter("run_id", "name")):
        rest = "".join(file.path.stem.partition(REST)[1:])
        first = chosen.setdefault((file.run_id, file.unit, rest), file)
        if first is not file and file.blake2b not in holds:
            left_out(f"{file.path}: holds the run {file.run_id}, which {first.path} holds too")
    new = [file for file in chosen.values() if file.blake2b not in holds]
    if not new:
        return
    every, listed, sweeps = [], [], list[Sweeps]()
    for file in new:
        ((_, table),) = parquet.tables([file.path])
        ((_, declared, _),) = sweeps_of(table)
        if declared not in sweeps:
            sweeps.append(declared)
        byte = file.path.stat().st_size
        listed.append(Original(file.name, file.blake2b, byte, len(table), sweeps.index(declared)))
        every.append(table.replace_schema_metadata(None))
    path = write(free_name(folder, month), joined(every), listed, sweeps)
    packed_byte = sum(each.stat().st_size for each in (path, path.with_suffix(SAMPLES)))
    yield Packed(path, [file.path for file in new], sum(each.byte for each in listed), packed_byte)


def free_name(folder: Path, month: str) -> Path:
    """The first unused name of a pack of this month: `2026-11.parquet`, `2026-11-2.parquet` ..."""
    names = (folder / (f"{month}.parquet" if at == 1 else f"{month}-{at}.parquet") for at in count(1))
    return next(path for path in names if not path.exists())


def originals(path: Path) -> list[Original]:
    """The files that a pack was made of; none if it is another result file. UserError as for `tables`."""
    ((_, table),) = parquet.tables([path], columns=["run_id"])
    return [Original(**original) for original in packed_originals(table)]


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all of them, with every column that one of them has.

    A parameter that is a number in one file and a word in another becomes text, as `parameters` keeps both.
    """
    types: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for column in table.schema:
            types.setdefault(column.name, set()).add(column.type)
    of = {
        name: pa.string() if len(kinds) > 1 and not all(map(_is_number, kinds)) else None
        for name, kinds in types.items()
    } | {column.name: column.type for column in ARROW}
    same_types = [
        table.cast(pa.schema([pa.field(c.name, of[c.name] or c.type) for c in table.schema]))
        for table in tables
    ]
    return pa.concat_tables(same_types, promote_options="permissive").combine_chunks()


def _is_number(of: pa.DataType) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of))


def write(path: Path, table: pa.Table, listed: Sequence[Original], sweeps: Sequence[Sweeps]) -> Path:
    """Write both files of a pack, and read them back before the first one gets its name.

    The rows of `table` are those of the originals, in their order. UserError if they cannot be written, or
    are not the same when they are read; nothing is left then.
    """
    beside, part = path.with_suffix(SAMPLES), path.with_suffix(".part")
    lists = table.select(LISTS)
    of_lists = dict(use_dictionary=False, use_byte_stream_split=["samples_s.list.element"])
    samples = parquet.sealed(_bytes(lists, {}, **of_lists))
    contents = {
        "samples": digest(samples),
        "originals": [original._asdict() for original in listed],
        "sweeps": sweeps,
    }
    facts = {SCHEMA_KEY.decode(): str(SCHEMA), PACK.decode(): json.dumps(contents, separators=(",", ":"))}
    rows = table.drop_columns(list(LISTS)).append_column(QUICKEST, quickest_s(table))
    try:
        parquet.write_bytes(beside, samples)
        parquet.write_bytes(part, parquet.sealed(_bytes(rows, facts)))
        ((_, again),) = parquet.tables([part])
        if not same(again, table):
            raise UserError(f"{path}: what was written does not read back as it was given")
        part.rename(path)
        parquet.sync_folder(path.parent)
    except (OSError, UserError) as error:
        for each in (part, beside):
            each.unlink(missing_ok=True)
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def _bytes(table: pa.Table, facts: Mapping[str, str], **options: Any) -> bytes:
    """A parquet file with these facts in its metadata, and not in Arrow's copy of the schema too."""
    sink = pa.BufferOutputStream()
    options |= {"compression": "zstd", "compression_level": 3, "write_page_checksum": True}
    table = table.replace_schema_metadata(None)
    with pq.ParquetWriter(sink, table.schema, store_schema=False, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(facts)
    return bytes(sink.getvalue())


def quickest_s(table: pa.Table) -> pa.Array:
    """`Measurement.quickest_s` of each ceiling, null for other rows: roofs without reading samples."""
    ceilings = pc.and_(pc.not_equal(table["role"], "measurement"), pc.equal(table["status"], "ok"))
    at = np.flatnonzero(ceilings.to_numpy())
    values = np.full(len(table), np.nan)
    values[at] = [row.quickest_s for row in parquet.rows(table.take(at))]
    return pa.array(values, mask=np.isnan(values))


def same(table: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same columns with the same values, NaN and null being different."""
    if set(table.column_names) != set(other.column_names) or len(table) != len(other):
        return False
    return all(_bits(table[name]).equals(_bits(other[name])) for name in table.column_names)


def _bits(column: pa.ChunkedArray) -> pa.Array:
    """The column with the bits of its floating-point numbers, which are equal where these are the same."""
    array = column.combine_chunks()
    if pa.types.is_float64(array.type):
        return array.view(pa.int64())
    if pa.types.is_list(array.type) and pa.types.is_float64(array.type.value_type):
        return array.view(pa.list_(pa.int64()))
    return array


def remove(packed: Packed) -> Iterator[Path]:
    """Delete the originals of a pack, which was read back when it was written; yields each that is gone.

    One whose bytes are no longer those that were packed stays. UserError if one cannot be deleted.
    """
    digests = {original.blake2b for original in originals(packed.path)}
    for path in packed.originals:
        if digest(path.read_bytes()) in digests:
            try:
                path.unlink()
            except OSError as error:
                raise UserError(f"{path}: cannot be removed: {error.strerror}") from error
            yield path
