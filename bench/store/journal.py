"""Journal of a run: each row is on the disk before the next case begins, so that no crash loses it.

A journal is text. Every line is a digest, a space, and JSON: a row, null columns left out, or what the run's
sweeps declare for the result file. The digest reveals a changed byte, and a line begins with its newline, so
that what was left half-written costs one row. Numbers are read back exactly as they were; NaN and infinity
are spelled as in Python's json.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.store.parquet import NO_SWEEPS, Sweeps, plain_table, write
from bench.store.schema import ARROW, FIELDS, SCHEMA, Measurement

SWEEPS = "sweeps"
"""Key of what sweeps declare; no column has this name."""
_REQUIRED = frozenset(column.name for column in ARROW if not column.nullable)


class Journal:
    """Rows of a run in progress, each on disk before `append` returns."""

    def __init__(self, path: Path, file: FileIO, sweeps: Sweeps = NO_SWEEPS) -> None:
        """Write on in a file that is open, at its end, and locked; OSError if that is not possible."""
        self.path, self.sweeps, self._file = path, sweeps, file
        self._put([{SWEEPS: dict(sweeps)}], sync=True)

    @classmethod
    def named(cls, folder: Path, name: str, sweeps: Sweeps = NO_SWEEPS) -> Journal:
        """A new journal called `name`, or `name-2` and so on if a run in this folder has that name.

        Several processes that ask for the same name at once get different ones. UserError if the folder
        cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for number in itertools.count(1):
                path = folder / f"{name if number == 1 else f'{name}-{number}'}.journal"
                if (file := _opened(path, "xb")) is None:
                    continue
                if not path.with_suffix(".parquet").exists():
                    return cls(path, file, sweeps)
                path.unlink()
                file.close()
        except OSError as error:
            raise UserError(f"{folder}: results cannot be written here: {error.strerror}") from error
        raise AssertionError("numbers do not end")

    @classmethod
    def again(cls, path: Path, claim: FileIO, sweeps: Sweeps) -> Journal:
        """Go on with a journal that is `claimed`, and hold it from now on. UserError if the disk is full."""
        file = FileIO(os.dup(claim.fileno()), "ab")
        try:
            return cls(path, file, sweeps)
        except OSError as error:
            file.close()
            raise UserError(f"{path}: cannot be written: {error.strerror}") from error

    def append(self, *rows: Measurement, sync: bool = True) -> None:
        """Write rows; with `sync` they are on the disk, else they survive only the death of the process.

        UserError if they cannot be written (the disk is full): rows appended before stay readable. An error
        of pyarrow if a value does not fit its column: better here than when the run is over.
        """
        contents = plain_table(rows).to_pylist()
        try:
            self._put(contents, sync)
        except OSError as error:
            safe = f"the rows before are safe in {self.path}"
            raise UserError(f"{self.path.parent}: {error.strerror}; {safe}") from error

    def close(self) -> None:
        """Release the journal: from now on the next run may turn it into a result file."""
        self._file.close()

    def _put(self, contents: Sequence[Mapping[str, Any]], sync: bool) -> None:
        rest = memoryview(b"".join(map(_line, contents)))
        while rest:
            rest = rest[self._file.write(rest) :]
        if sync:
            os.fsync(self._file.fileno())


@dataclass
class Recovered:
    """What a journal still holds, and its damage."""

    rows: list[Measurement] = field(default_factory=list)
    sweeps: Sweeps = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    """A sentence if there are lines that could not be read."""


def recover(path: Path) -> Recovered:
    """Every whole row of a journal, in order, however its run ended and whatever damaged it since."""
    found, unread = Recovered(), 0
    lines = [line for line in path.read_bytes().split(b"\n") if line]
    for line in lines:
        digest, _, text = line.partition(b" ")
        entry = json.loads(text) if digest == _digest(text) else {}
        content = entry[1] if isinstance(entry, list) else entry  # a number before it: of November 2026
        if SWEEPS in content:
            found.sweeps = content[SWEEPS]
        elif _REQUIRED <= content.keys() <= FIELDS.keys() and content["schema"] == SCHEMA:
            found.rows.append(Measurement(**content))
        else:
            unread += 1
    if unread:
        what = "lines cannot be read: damaged, cut off, or of another version of roofbench"
        found.damage.append(f"{path}: {unread} of {len(lines)} {what}")
    return found


def finish(
    journal: Path, rows: Sequence[Measurement], sweeps: Sweeps = NO_SWEEPS, damage: Sequence[str] = ()
) -> Path | None:
    """Write rows, joined by the caller, as the run's parquet file; remove the journal. None without rows.

    The caller holds the journal: it is its own, still open, or it is `claimed`; so no other run can recover
    it meanwhile. If the file is there, the run was killed before it could remove its journal. With `damage`
    the journal is kept as NAME.damaged, as a person might still read it. UserError if the file cannot be
    written: the journal then stays as it is.
    """
    path = journal.with_suffix(".parquet")
    if rows and not path.exists():
        try:
            write(path, rows, sweeps)
        except UserError as error:
            raise UserError(f"{error}; the rows are safe in {journal}") from error
    if damage and journal.exists():
        journal.replace(damaged_name(journal))
    else:
        journal.unlink(missing_ok=True)
    return path if rows else None


def damaged_name(journal: Path) -> Path:
    """Where a damaged journal is kept."""
    return journal.with_suffix(".journal.damaged")


@contextmanager
def claimed(path: Path) -> Iterator[FileIO | None]:
    """Hold a journal, open, while the block runs; yields None if that is not possible.

    That is: its run is going on, another run has claimed it, it is gone, or we may not write it. A run holds
    a lock on its journal, which the kernel releases when the process dies, however it dies.
    """
    try:
        file = _opened(path, "r+b")
    except OSError:
        file = None
    with file or nullcontext():
        yield file


def _opened(path: Path, mode: str) -> FileIO | None:
    """The file, locked; None if another run has it. OSError if it cannot be opened."""
    try:
        file = FileIO(path, mode)
    except FileExistsError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The last holder may have just finished it: the opened file then no longer has this name.
        if os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    file.close()
    return None


def _line(content: Mapping[str, Any]) -> bytes:
    known = {name: value for name, value in content.items() if value is not None}
    text = json.dumps(known, separators=(",", ":")).encode()
    return b"\n" + _digest(text) + b" " + text


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()
