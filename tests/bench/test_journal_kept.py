"""What a journal keeps where nothing more can be written, and what becomes of it from run to run."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.errors import UserError
from bench.store import parquet
from bench.store.journal import Journal, NameTaken, Recovered, claimed, finish, recover, unfinished
from bench.store.parquet import read_frame
from tests.bench.rows import row, rows, written

ROOT = Path(__file__).parents[2]


# ---- where nothing can be written


def in_a_limited_process(limit_byte: int, code: str, path: Path) -> list[Any]:
    """What `code` leaves in `said`, run where no file may grow beyond `limit_byte`."""
    program = f"""
import json, resource
from pathlib import Path
from bench.errors import UserError
from bench.store.journal import *
from tests.bench.rows import row
path, said, free = Path({str(path)!r}), [], resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_byte}, free[1]))
{code}
print(json.dumps(said))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def test_a_file_that_may_not_grow_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "r.journal"
    code = """
journal = Journal(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 9000, free[1]))
try:
    while True:
        journal.append(row())
except UserError as error:
    said += [str(error), journal.rows, len(recover(path).rows), recover(path).damage]
resource.setrlimit(resource.RLIMIT_FSIZE, free)
journal.append(row())
said += [journal.rows, len(recover(path).rows), recover(path).damage]
"""
    sentence, safe, there, damage, *afterwards = in_a_limited_process(1 << 30, code, path)
    assert sentence == f"{tmp_path}: File too large; {safe} rows are safe in {path}"
    assert 2 < safe == there and not damage
    assert afterwards == [safe + 1, safe + 1, []]


def test_too_little_space_is_refused_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    code = """
try:
    Journal(path)
except UserError as error:
    said.append(str(error))
"""
    assert in_a_limited_process(100_000, code, tmp_path / "r.journal") == [
        f"{tmp_path}: results cannot be written here: File too large"
    ]
    assert not list(tmp_path.iterdir())


def full_after(byte: int) -> Callable[[int, bytes, int], int]:
    """An os.pwrite of a disk that has room for so many bytes more, and takes half of what does not fit."""
    left = byte
    really = os.pwrite

    def pwrite(number: int, data: bytes, offset: int) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = really(number, bytes(data)[:left], offset)
        left -= done
        return done

    return pwrite


def broken(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("truncates", [True, False])
def test_a_full_disk_takes_no_row_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, truncates: bool
) -> None:
    """Also where not even half a line can be removed: the next row is written over it."""
    made = [*rows(2), row(reason="long " * 50)]
    journal = Journal(tmp_path / "r.journal")
    journal.append(*made[:2])
    safe = journal.path.stat().st_size

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full_after(random.randrange(1, 300)))
        if not truncates:
            patch.setattr(os, "ftruncate", broken)
        with pytest.raises(UserError) as error:
            journal.append(row())
    assert str(error.value) == f"{tmp_path}: No space left on device; 2 rows are safe in {journal.path}"
    assert recover(journal.path).rows == made[:2]
    assert (journal.path.stat().st_size == safe) == truncates
    assert bool(recover(journal.path).damage) == (not truncates)
    journal.append(made[2])
    assert recover(journal.path) == Recovered(made)


def test_what_the_disk_did_not_confirm_is_not_called_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rows(5)
    journal = Journal(tmp_path / "r.journal")
    journal.append(*made[:2])
    journal.append(*made[2:3], sync=False)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(UserError, match="Input/output error; 2 rows are safe in"):
            journal.append(made[3])
    assert journal.rows == 2 and recover(journal.path) == Recovered(made[:2])
    journal.append(*made[2:])
    assert recover(journal.path) == Recovered(made)


@pytest.mark.parametrize("where", ["file/r.journal", "file/deeper/r.journal", "there.journal"])
def test_where_no_file_can_be_made_a_journal_is_refused(tmp_path: Path, where: str) -> None:
    """Below a file there can be none, which is no name that is taken; a journal is never written over."""
    data = written(tmp_path / "there.journal", rows(2))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="results cannot be written here: ") as error:
        Journal(tmp_path / where)
    assert str((tmp_path / where).parent) in str(error.value)
    assert isinstance(error.value, NameTaken) == (where == "there.journal")
    assert (tmp_path / "there.journal").read_bytes() == data
    with pytest.raises(UserError, match="results cannot be written here: ") as error:
        Journal.named(tmp_path / "file", "r")
    assert not isinstance(error.value, NameTaken)


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_journal_that_went_away_is_noticed(tmp_path: Path, how: str) -> None:
    journal = Journal(tmp_path / "r.journal")
    journal.append(row())
    if how == "moved":
        journal.path.rename(tmp_path / "elsewhere")
    else:
        journal.path.unlink()
    if how == "replaced":
        journal.path.write_bytes(b"")
    with pytest.raises(UserError, match=r"r.journal: was moved or removed meanwhile; it held 1 rows"):
        journal.append(row())


def test_a_value_that_does_not_fit_its_column_is_refused_now_not_at_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "r.journal")
    bad: list[tuple[str, Any]] = [("flop", 2**63), ("flop", 1.0), ("reason", None), ("median_s", "1")]
    bad += [("samples_s", [1.0, "2"]), ("settled", 0), ("median_s", 2**53 + 1)]
    for name, value in bad:
        with pytest.raises(UserError, match=f"a row whose {name} is "):
            journal.append(row(**{name: value}))
    journal.append(row(flop=2**63 - 1, median_s=2**53, settled=False))
    assert journal.rows == len(recover(journal.path).rows) == 1 and not recover(journal.path).damage


# ---- from run to run


def test_a_running_journal_is_not_recovered_by_another_run(tmp_path: Path) -> None:
    (tmp_path / "folder.journal").mkdir()
    written(tmp_path / "a.journal", rows(1))
    with Journal(tmp_path / "live.journal") as journal:
        journal.append(row())
        assert list(unfinished(tmp_path)) == [tmp_path / "a.journal"]
        with claimed(journal.path) as ended:
            assert not ended
    assert list(unfinished(tmp_path)) == [tmp_path / "a.journal", tmp_path / "live.journal"]


def test_a_resumed_journal_takes_the_old_ones_place(tmp_path: Path) -> None:
    made = rows(3)
    old = tmp_path / "r.journal"
    data = written(old, made[:2])
    with Journal(tmp_path / "r.copy") as journal:
        journal.append(*made[:2])
        with claimed(old) as ended:
            assert ended
            journal.replace(old)
        journal.append(made[2])
        assert journal.path == old and list(unfinished(tmp_path)) == []
    assert recover(old) == Recovered(made) and os.listdir(tmp_path) == ["r.journal"]
    with Journal(tmp_path / "r.copy") as journal:
        journal.append(*made[:1])
        journal.replace(old, damage=["row 2 is lost"])
    kept = tmp_path / "r.journal.damaged"
    assert kept.read_bytes().startswith(data) and recover(old).rows == made[:1]


def test_two_runs_cannot_resume_the_same_journal(tmp_path: Path) -> None:
    old = tmp_path / "r.journal"
    written(old, rows(1))
    with claimed(old) as first, claimed(old) as second:
        assert first and not second
        with Journal(tmp_path / "r.copy") as journal:
            journal.append(*rows(2))
            journal.replace(old)
            with claimed(old) as third:  # what lies there now is the first's, who has locked it
                assert not third
    assert unfinished(tmp_path) == [old] and len(recover(old).rows) == 2


def test_a_journal_that_was_taken_before_it_was_locked_is_not_written_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run, which looks for what was left, finds it unlocked for a moment, and empty."""
    path = tmp_path / "r.journal"
    really = fcntl.flock

    def late(file: Any, how: int) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(fcntl, "flock", really)
            with claimed(path) as ended:
                assert ended and finish(path, recover(path).rows) is None
        really(file, how)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", late)
        with pytest.raises(NameTaken, match=r"r.journal: was taken by another run"):
            Journal(path)
    assert not list(tmp_path.iterdir())


def test_of_runs_that_ask_for_one_name_each_gets_another(tmp_path: Path) -> None:
    with Journal.named(tmp_path, "r") as first, Journal.named(tmp_path, "r") as second:
        assert (first.path.name, second.path.name) == ("r.journal", "r-2.journal")
        with pytest.raises(NameTaken):
            Journal(first.path)
        for journal in (first, second):
            journal.append(row(run_id=journal.path.stem))
        assert finish(second.path, recover(second.path).rows) == tmp_path / "r-2.parquet"
        with Journal.named(tmp_path, "r") as third:  # a result file has its name for ever
            assert third.path.name == "r-3.journal"
            third.path.unlink()
        assert finish(first.path, recover(first.path).rows) == tmp_path / "r.parquet"
    assert sorted(os.listdir(tmp_path)) == ["r-2.parquet", "r.parquet"]


def test_a_damaged_journal_is_kept_beside_its_rows(tmp_path: Path) -> None:
    made = rows(3)
    for again in range(1, 4):
        data = written(tmp_path / "r.journal", made)[: -random.randrange(2, 100)]
        (tmp_path / "r.journal").write_bytes(data)
        found = recover(tmp_path / "r.journal")
        assert found.rows == made[:2] and found.damage
        assert finish(tmp_path / "r.journal", found.rows, found.damage) == tmp_path / "r.parquet"
        kept = tmp_path / ("r.journal.damaged" + (f"-{again}" if again > 1 else ""))
        assert kept.read_bytes() == data and not list(unfinished(tmp_path))
        assert parquet.read_rows(tmp_path / "r.parquet") == made[:2]


def test_a_run_killed_between_its_file_and_its_journals_end_has_each_row_once(tmp_path: Path) -> None:
    made = rows(4)
    journal, path = tmp_path / "r.journal", tmp_path / "r.parquet"
    written(journal, made[:3])
    parquet.write(path, made[:3])
    assert finish(journal, made[:3]) == path and sorted(os.listdir(tmp_path)) == ["r.parquet"]
    written(journal, made)  # it was resumed in between
    assert finish(journal, made) == tmp_path / "r.rest.parquet"
    assert parquet.read_rows(tmp_path / "r.rest.parquet") == made[3:]
    assert len(read_frame([tmp_path])) == 4 and not journal.exists()
    other = [replace(row, run_id="another") for row in made]
    written(journal, other)
    assert finish(journal, other) == tmp_path / "r.rest-2.parquet", "another run's rows are not those there"
    assert parquet.read_rows(tmp_path / "r.rest-2.parquet") == other
    for _again in range(2):  # the second time none of them is lacking
        unit = [replace(row, device_id="another") for row in made]
        written(journal, unit)
        assert finish(journal, unit) == tmp_path / "r.rest-3.parquet", "nor are another unit's"
    assert parquet.read_rows(tmp_path / "r.rest-3.parquet") == unit


def test_a_full_disk_at_the_end_leaves_the_journal(tmp_path: Path) -> None:
    """/dev/full is a disk without space: what is written beside goes there."""
    made = rows(2)
    journal = tmp_path / "r.journal"
    data = written(journal, made)
    (tmp_path / "r.part").symlink_to("/dev/full")
    with pytest.raises(UserError) as error:
        finish(journal, made)
    says = f"{tmp_path}/r.parquet: cannot be written: No space left on device; the rows are safe in {journal}"
    assert str(error.value) == says
    assert journal.read_bytes() == data and os.listdir(tmp_path) == ["r.journal"]
    (tmp_path / "r.part").write_bytes(b"half a file of a run that was killed")
    assert finish(journal, made) == tmp_path / "r.parquet"
    assert parquet.read_rows(tmp_path / "r.parquet") == made and os.listdir(tmp_path) == ["r.parquet"]
