"""Rows while a run lasts: each is on the disk before the next case begins, whatever happens then.

A journal is text. Every line is a digest, a space, and a row as JSON: `[number, {column: value, ...}]`, null
columns left out. The digest makes a changed byte visible, the line's end limits the loss to one row, and the
number says how many rows a damaged stretch held. Line 0 is the head: the schema, and what the run's sweeps
declare for the result file. A number is written so that exactly the same one is read back; NaN and infinity
are spelled as Python's json does.
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
from bench.store import schema_1
from bench.store.parquet import NO_SWEEPS, Sweeps, read_rows, sync_folder, write
from bench.store.schema import ARROW, FIELDS, SCHEMA, Measurement, record

HEAD, SWEEPS = "roofbench journal, schema", "sweeps"
"""Keys of the head."""
RESERVE_BYTE = 1 << 20
"""Less space than this, and a run is not begun: it would soon be over."""
_TYPES = {column.name: column.type for column in ARROW}
_NULLABLE = frozenset(column.name for column in ARROW if column.nullable)
ARROW_STREAM = b"\xff\xff\xff\xff"
"""What journals began with before they were text."""


class NameTaken(UserError):
    """Another run's journal has this name."""


class Journal:
    """Rows of a run in progress, each on disk before `append` returns. A context manager."""

    path: Path
    rows: int
    """Rows that are safe."""

    def __init__(self, path: Path, sweeps: Sweeps = NO_SWEEPS) -> None:
        """Open a new journal; UserError if the folder cannot be written, or has no space to speak of.

        NameTaken if a journal of this name is there.
        """
        self.path, self.rows = path, 0
        self._end = 0
        self._synced = 0, 0
        """Rows and bytes that are on the disk, not only with the system."""
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
        """A new journal called `name`, or `name-2` and so on where a run in this folder has that name.

        Of several processes that ask at once for the same, each gets another. UserError as for any journal.
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
            path.unlink()  # a run of this name ended, between the look and the opening
            made.close()
        raise AssertionError("numbers do not end")

    def append(self, *rows: Measurement, sync: bool = True) -> None:
        """Write rows; with `sync` they are on the disk, else safe from the process's death alone.

        UserError says what is safe if they cannot be written (the disk is full, the file went away). What
        was appended before stays readable, and so will be what is appended later. UserError, too, if a
        value does not fit its column: better here than when the run is over.
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
        """Take the place of an older journal, whose rows this one has copied.

        The caller has `claimed` it. With `damage` the older one is kept as NAME.damaged. UserError if it
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
        """Let go of it: from now on the next run may turn it into a result file."""
        self._file.close()

    def _put(self, data: bytes, sync: bool) -> None:
        """Write behind what is safe; OSError leaves that as it was."""
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
        except OSError:  # of what was written since the last time, nothing is known
            self.rows, end = self._synced
            self._cut_back(end)
            raise

    def _cut_back(self, end: int) -> None:
        """Remove what cannot be trusted. If even that fails, the next row is written over it."""
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
    """What a journal still says."""

    rows: list[Measurement] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    """What of it could not be read, a sentence each."""


def recover(path: Path) -> Recovered:
    """Every whole row of a journal, in order, however it ended and whatever became of it since."""
    found = Recovered()
    try:
        data = path.read_bytes()
    except OSError as error:
        found.damage.append(f"{path}: cannot be read: {error.strerror}")
        return found
    expected, broken, unread = 0, False, Counter[str]()
    for line in filter(None, data.split(b"\n")):
        entry = _entry(line)
        if entry is None:
            broken = True
            continue
        number, content = entry
        if number != expected or broken:
            found.damage.append(f"{path}: {_gap(expected, number)}")
        if number and number >= expected:
            try:
                found.rows.append(_measurement(content, unread))
            except ValueError as reason:
                unread[str(reason)] += 1
        expected, broken = max(expected, number + 1), False
    if broken and not expected and data.startswith(ARROW_STREAM):
        found.damage.append(f"{path}: is of an older kind (Arrow): the checkout that wrote it can read it")
    elif broken:
        what = f"row {expected}" if expected else "the head"
        found.damage.append(f"{path}: {what} is damaged or cut off, and nothing whole comes after it")
    for what, count in unread.items():
        found.damage.append(f"{path}: {what} ({count} {'rows' if count > 1 else 'row'})")
    return found


def declared_sweeps(journal: Path) -> Sweeps:
    """What its head says that the sweeps declare; nothing if that is damaged, or the journal is gone."""
    try:
        with journal.open("rb") as file:
            head = _entry(file.readline().rstrip(b"\n"))
    except OSError:
        return NO_SWEEPS
    if head is None or head[0] != 0:
        return NO_SWEEPS
    if head[1].get(HEAD) == 1:
        return schema_1.sweeps()
    sweeps: Sweeps = head[1].get(SWEEPS, NO_SWEEPS)
    return sweeps


def _gap(expected: int, number: int) -> str:
    """What is wrong where row `number` stands behind `expected - 1`, with or without damage in between."""
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

    By the time one of them is looked at, another run may have taken it: claim it first.
    """
    found = []
    for path in sorted(folder.glob("*.journal")):
        with claimed(path) as ended:
            if ended:
                found.append(path)
    return found


def finish(journal: Path, rows: Sequence[Measurement], damage: Sequence[str] = ()) -> Path | None:
    """Write rows, joined by the caller, as the run's parquet file; remove the journal. None without rows.

    The caller holds the journal: it is its own, still open, or it is `claimed`; so at no moment is it
    another run's to recover. With `damage` it is kept as NAME.damaged, so that nothing is destroyed that a
    person might still read. UserError if the file cannot be written: the journal then stays as it is.
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
    """Write rows under this name, or, of those that are not there yet, as `NAME.rest`, `NAME.rest-2`.

    Such a file exists if a run was killed after writing it and before removing its journal. `NAME-2` is what
    another run may be called.
    """
    rests = _numbered(f"{path.stem}.rest")
    while path.exists():
        with suppress(UserError):  # damaged: it stays as it is
            there = {(row.run_id, row.case) for row in read_rows(path)}
            rows = [row for row in rows if (row.run_id, row.case) not in there]
        if not rows:
            return path
        path = path.with_name(f"{next(rests)}.parquet")
    return write(path, rows, sweeps)


def _is_taken(path: Path, but: str = "") -> bool:
    """Whether a run has this journal's name: going on, or ended with a file; `but` is a suffix left out."""
    return any(path.with_suffix(s).exists() for s in (".journal", ".copy", ".parquet") if s != but)


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Hold a journal while the block runs; False if it is not to be had.

    That is: its run is going on, another run has claimed it, it is gone, or we may not read it. Whoever runs
    has locked its journal, and the kernel gives the lock back when the process dies, however it dies.
    """
    try:
        file = path.open("rb")
    except OSError:
        yield False
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it until just now may have finished it: what was opened is then no longer there.
            ours = path.is_file() and os.path.samestat(path.stat(), os.fstat(file.fileno()))
        except OSError:
            ours = False
        yield ours


def _beside(path: Path) -> Path:
    """A name for a damaged journal that is not taken."""
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
    """Number and content of a line; None unless it is as it was written."""
    digest, _, text = line.partition(b" ")
    if digest != _digest(text):
        return None
    number, content = json.loads(text)
    return number, content


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()


def _measurement(content: Mapping[str, Any], unread: Counter[str]) -> Measurement:
    """The row; ValueError if this version of the checkout cannot read it. Counts what it leaves out."""
    if content.get("schema") == 1:
        content = schema_1.upgraded_row(content)
    if content.get("schema") != SCHEMA:
        raise ValueError(f"rows of schema {content.get('schema')} are left out; this checkout reads {SCHEMA}")
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
    """Says of each value that its column cannot hold exactly what it is, and what could be there."""
    return [
        f"{name} is {value!r:.60} instead of {_TYPES[name]}"
        for name, value in values.items()
        if not (name in _NULLABLE if value is None else _holds(_TYPES[name], value))
    ]


def _holds(kind: pa.DataType, value: Any) -> bool:
    if pa.types.is_list(kind):
        return isinstance(value, list) and all(_holds(kind.value_type, one) for one in value)
    if pa.types.is_floating(kind):
        return isinstance(value, float) or (type(value) is int and abs(value) <= 2**53)
    if pa.types.is_integer(kind):
        return type(value) is int and -(2**63) <= value < 2**63
    return isinstance(value, bool if pa.types.is_boolean(kind) else str)
