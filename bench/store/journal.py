"""Journal of a run: each row is on the disk before the next case begins, so that no crash loses it.

A journal is text. Every line is a digest, a space, and a row as JSON: `[number, {column: value, ...}]`, null
columns left out. The digest reveals a changed byte, the end of the line limits the loss to one row, and the
number tells how many rows a damaged part held. Line 0 is the head: the schema, and what the run's sweeps
declare for the result file. Numbers are read back exactly as they were; NaN and infinity are spelled as in
Python's json.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.errors import UserError
from bench.store.parquet import NO_SWEEPS, Sweeps, read_rows, sync_folder, write
from bench.store.records import record
from bench.store.schema import ARROW, FIELDS, READABLE, SCHEMA, Measurement, RunKey

HEAD, SWEEPS = "roofbench journal, schema", "sweeps"
"""Keys of the head."""
RESERVE_BYTE = 1 << 20
"""A run does not begin with less space than this."""
_TYPES = {column.name: column.type for column in ARROW}
_NULLABLE = frozenset(column.name for column in ARROW if column.nullable)


class NameTaken(UserError):
    """Another run's journal has this name."""


class Journal:
    """Rows of a run in progress, each on disk before `append` returns. A context manager."""

    path: Path
    rows: int
    """Number of rows that are safe."""

    def __init__(self, path: Path, sweeps: Sweeps = NO_SWEEPS) -> None:
        """Open a new journal; UserError if the folder cannot be written, or has less space than RESERVE_BYTE.

        NameTaken if a journal of this name exists.
        """
        self.path, self.rows = path, 0
        self._end = 0
        self._synced = 0, 0
        """Rows and bytes that are synced to the disk."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb", buffering=0)
        except OSError as error:
            there = isinstance(error, FileExistsError) and path.parent.is_dir()
            kind = NameTaken if there else UserError
            raise kind(f"{path.parent}: results cannot be written here: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)  # held until closed or dead: not another run's to recover
            with tempfile.TemporaryFile(dir=path.parent) as probe:
                probe.write(bytes(RESERVE_BYTE))
                probe.flush()
                os.fsync(probe.fileno())
            self._put(_line(0, {HEAD: SCHEMA, SWEEPS: dict(sweeps) or None}), sync=True)
            sync_folder(path.parent)
        except OSError as error:
            path.unlink(missing_ok=True)
            self._file.close()
            raise UserError(f"{path.parent}: results cannot be written here: {error.strerror}") from error
        if not self._is_in_place():  # before it was locked, another run took it for one that had ended
            self._file.close()
            raise NameTaken(f"{path}: was taken by another run")

    @classmethod
    def named(cls, folder: Path, name: str, sweeps: Sweeps = NO_SWEEPS) -> Journal:
        """A new journal called `name`, or `name-2` and so on if a run in this folder has that name.

        Several processes that ask for the same name at once get different ones. UserError as for any journal.
        """
        for free in _numbered(name):
            path = folder / f"{free}.journal"
            if _is_taken(path):
                continue
            try:
                made = cls(path, sweeps)
            except NameTaken:
                continue
            if not _is_taken(path, but=".journal"):
                return made
            path.unlink()  # a run of this name ended between our look and the opening
            made.close()
        raise AssertionError("numbers do not end")

    def append(self, *rows: Measurement, sync: bool = True) -> None:
        """Write rows; with `sync` they are on the disk, else they survive only the death of the process.

        UserError says which rows are safe if these cannot be written (the disk is full, the file is gone).
        Rows appended before stay readable, and so will rows appended later. UserError, too, if a value does
        not fit its column: better here than when the run is over.
        """
        records = [record(row) for row in rows]
        for values in records:
            if wrong := _misfits(values):
                raise UserError(f"{self.path}: a row whose {wrong[0]} cannot be kept")
        if not self._is_in_place():
            raise UserError(f"{self.path}: was moved or removed meanwhile; it held {self.rows} rows")
        lines = [_line(number, values) for number, values in enumerate(records, self.rows + 1)]
        try:
            self._put(b"".join(lines), sync)
        except OSError as error:
            safe = f"{self.rows} rows are safe in {self.path}"
            raise UserError(f"{self.path.parent}: {error.strerror}; {safe}") from error
        self.rows += len(rows)
        if sync:
            self._synced = self.rows, self._end

    def replace(self, path: Path, damage: Sequence[str] = ()) -> None:
        """Replace an older journal, whose rows this one has copied.

        The caller has `claimed` the older one. With `damage` it is kept as NAME.damaged. UserError if it
        cannot be replaced.
        """
        try:
            if damage:
                path.rename(_beside(path))
            self.path = self.path.rename(path)
            sync_folder(path.parent)
        except OSError as error:
            raise UserError(f"{self.path}: cannot be renamed to {path}: {error.strerror}") from error

    def close(self) -> None:
        """Release the journal: from now on the next run may turn it into a result file."""
        self._file.close()

    def _put(self, data: bytes, sync: bool) -> None:
        """Write after the safe rows; an OSError leaves these as they were."""
        begin, number = self._end, self._file.fileno()
        try:
            rest = memoryview(data)
            while rest:
                done = os.pwrite(number, rest, self._end)
                rest, self._end = rest[done:], self._end + done
        except OSError:
            self._cut_back(begin)
            raise
        try:
            if sync:
                os.fsync(number)
        except OSError:  # nothing is known of what was written since the last sync
            self.rows, end = self._synced
            self._cut_back(end)
            raise

    def _cut_back(self, end: int) -> None:
        """Remove what may be damaged. If even that fails, the next row is written over it."""
        self._end = end
        with suppress(OSError):
            os.ftruncate(self._file.fileno(), end)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Recovered:
    """The rows that a journal still holds, and its damage."""

    rows: list[Measurement] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    """A sentence for each part that could not be read."""


def recover(path: Path) -> Recovered:
    """Every whole row of a journal, in order, however its run ended and whatever damaged it since."""
    rescued = Recovered()
    try:
        data = path.read_bytes()
    except OSError as error:
        rescued.damage.append(f"{path}: cannot be read: {error.strerror}")
        return rescued
    expected, broken, unread = 0, False, Counter[str]()
    for line in filter(None, data.split(b"\n")):
        entry = _entry(line)
        if entry is None:
            broken = True
            continue
        number, content = entry
        if number != expected or broken:
            rescued.damage.append(f"{path}: {_gap(expected, number)}")
        if number and number >= expected:
            try:
                rescued.rows.append(_measurement(content, unread))
            except ValueError as reason:
                unread[str(reason)] += 1
        expected, broken = max(expected, number + 1), False
    if broken:
        what = f"row {expected}" if expected else "the head"
        rescued.damage.append(f"{path}: {what} is damaged or cut off, and nothing whole comes after it")
    for what, count in unread.items():
        rescued.damage.append(f"{path}: {what} ({count} {'rows' if count > 1 else 'row'})")
    return rescued


def declared_sweeps(journal: Path) -> Sweeps:
    """The sweeps that a journal's head declares; none if the head is damaged, or the journal is gone."""
    try:
        with journal.open("rb") as file:
            head = _entry(file.readline().rstrip(b"\n"))
    except OSError:
        return NO_SWEEPS
    if head is None or head[0] != 0:
        return NO_SWEEPS
    sweeps: Sweeps = head[1].get(SWEEPS, NO_SWEEPS)
    return sweeps


def _gap(expected: int, number: int) -> str:
    """The sentence on row `number` standing behind row `expected - 1`, with or without damage in between."""
    if number < expected:
        return f"row {number} is there twice; it is counted once"
    if number == expected:
        return f"there is damage before row {number}; no row is lost"
    first, last = max(expected, 1), number - 1
    if first > last:
        return "the head is damaged; no row is lost"
    return f"row {first} is damaged and lost" if first == last else f"rows {first} to {last} are lost"


def unfinished(folder: Path) -> list[Path]:
    """Journals, oldest first, whose run has ended without replacing them by a parquet file.

    Another run may take one meanwhile: hold it by `claimed` before reading it.
    """
    paths = []
    for path in sorted(folder.glob("*.journal")):
        with claimed(path) as ended:
            if ended:
                paths.append(path)
    return paths


def finish(journal: Path, rows: Sequence[Measurement], damage: Sequence[str] = ()) -> Path | None:
    """Write rows, joined by the caller, as the run's parquet file; remove the journal. None without rows.

    The caller holds the journal: it is its own, still open, or it is `claimed`; so no other run can recover
    it meanwhile. With `damage` it is kept as NAME.damaged, as a person might still read it. UserError if the
    file cannot be written: the journal then stays as it is.
    """
    path = None
    if rows:
        try:
            path = _write_missing(journal.with_suffix(".parquet"), rows, declared_sweeps(journal))
        except UserError as error:
            raise UserError(f"{error}; the rows are safe in {journal}") from error
    try:
        if damage and journal.exists():
            journal.rename(_beside(journal))
        else:
            journal.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{journal}: cannot be removed, though its rows are in {path}") from error
    return path


def _write_missing(path: Path, rows: Sequence[Measurement], sweeps: Sweeps) -> Path:
    """Write rows under this name, or the rows that such a file lacks as `NAME.rest`, `NAME.rest-2`.

    Such a file exists if a run was killed after writing it and before removing its journal. `NAME-2` may be
    the name of another run.
    """
    rests = _numbered(f"{path.stem}.rest")
    while path.exists():
        with suppress(UserError):  # damaged: it stays as it is
            there = {(RunKey.of(row), row.case) for row in read_rows(path)}
            rows = [row for row in rows if (RunKey.of(row), row.case) not in there]
        if not rows:
            return path
        path = path.with_name(f"{next(rests)}.parquet")
    return write(path, rows, sweeps)


def _is_taken(path: Path, but: str = "") -> bool:
    """Whether a run has this journal's name, still going on or ended with a file; `but`: suffix to ignore."""
    return any(path.with_suffix(s).exists() for s in (".journal", ".copy", ".parquet") if s != but)


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Hold a journal while the block runs; yields False if that is not possible.

    That is: its run is going on, another run has claimed it, it is gone, or we may not read it. A run holds a
    lock on its journal, which the kernel releases when the process dies, however it dies.
    """
    try:
        file = path.open("rb")
    except OSError:
        yield False
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder may have just finished it: the opened file then no longer has this name.
            ours = path.is_file() and os.path.samestat(path.stat(), os.fstat(file.fileno()))
        except OSError:
            ours = False
        yield ours


def _beside(path: Path) -> Path:
    """An unused name for a damaged journal."""
    names = map(path.with_name, _numbered(f"{path.name}.damaged"))
    return next(beside for beside in names if not beside.exists())


def _numbered(name: str) -> Iterator[str]:
    """`name`, `name-2`, `name-3` and so on."""
    return (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))


# ---- one line


def _line(number: int, content: Mapping[str, Any]) -> bytes:
    known = {name: value for name, value in content.items() if value is not None}
    text = json.dumps([number, known], separators=(",", ":")).encode()
    return _digest(text) + b" " + text + b"\n"


def _entry(line: bytes) -> tuple[int, Mapping[str, Any]] | None:
    """Number and content of a line; None if it is damaged."""
    digest, _, text = line.partition(b" ")
    if digest != _digest(text):
        return None
    number, content = json.loads(text)
    return number, content


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()


def _measurement(content: Mapping[str, Any], unread: Counter[str]) -> Measurement:
    """The row; ValueError if this checkout cannot read it. Counts in `unread` the columns it leaves out."""
    if content.get("schema") != SCHEMA:
        raise ValueError(f"rows of schema {content.get('schema')} are left out; {READABLE}")
    strangers = [name for name in content if name not in FIELDS]
    unread.update(f"the column {name} is unknown to this checkout and left out" for name in strangers)
    known = {name: value for name, value in content.items() if name in FIELDS}
    if wrong := _misfits(known):
        raise ValueError(f"rows whose {wrong[0]} are left out")
    try:
        return Measurement(**known)
    except TypeError:
        needed = [column.name for column in ARROW if not column.nullable and column.name not in known]
        raise ValueError(f"rows without the column {needed[0]} are left out") from None


def _misfits(values: Mapping[str, Any]) -> list[str]:
    """A clause for each value that its column cannot hold exactly, with the type of the column."""
    return [
        f"{name} is {value!r:.60} instead of {_TYPES[name]}"
        for name, value in values.items()
        if not (name in _NULLABLE if value is None else _holds(_TYPES[name], value))
    ]


def _holds(kind: pa.DataType, value: Any) -> bool:
    if pa.types.is_list(kind):
        return isinstance(value, list) and all(_holds(kind.value_type, item) for item in value)
    if pa.types.is_floating(kind):
        return isinstance(value, float) or (type(value) is int and abs(value) <= 2**53)
    if pa.types.is_integer(kind):
        return type(value) is int and -(2**63) <= value < 2**63
    return isinstance(value, bool if pa.types.is_boolean(kind) else str)
