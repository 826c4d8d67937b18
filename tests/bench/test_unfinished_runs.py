"""Runs that begin side by side in one folder, and runs that were left unfinished there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from bench.errors import UserError
from bench.runner.resume import RunFacts, begin
from bench.store import parquet
from tests.bench.rows import row, rows, written

ROOT = Path(__file__).parents[2]


RACE = """
import os, sys
from pathlib import Path
from bench.store.journal import finish, recover
from bench.runner.resume import begin
from tests.bench.rows import row
folder = Path(sys.argv[1])
start, go = os.pipe()
children = []
for me in range(4):
    children.append(os.fork())
    if not children[-1]:
        os.close(go)
        os.read(start, 1)  # until the parent has closed its end: all begin at once
        for turn in range(4):
            journal, _, left = begin(folder, "r")
            assert not left, left
            journal.append(row(run_id=journal.path.stem, sweep=str(me), fill=str(turn)))
            finish(journal.path, recover(journal.path).rows)
            journal.close()
        os._exit(0)
os.close(go)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_processes_that_begin_at_once_under_one_name_all_keep_their_rows(tmp_path: Path) -> None:
    """Each also looks for what was left by others, who are all alive."""
    words = [sys.executable, "-c", RACE, str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    made = [one for path in tmp_path.iterdir() for one in parquet.read_rows(path)]
    assert len(made) == 16 == len({one.run_id for one in made}) == len({(o.sweep, o.fill) for o in made})
    assert all(path.suffix == ".parquet" for path in tmp_path.iterdir())


ANY = RunFacts("x", "x", 1)
HOLDER = """
import sys
from pathlib import Path
from bench.store.journal import Journal
from tests.bench.rows import row
journal = Journal.named(Path(sys.argv[1]), "a")
journal.append(row())
print("here", flush=True)
sys.stdin.read()
"""


def test_a_run_that_is_going_on_is_left_alone(tmp_path: Path) -> None:
    """That of another process, which holds its journal."""
    words, path = [sys.executable, "-c", HOLDER, str(tmp_path)], tmp_path / "a.journal"
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        before = path.read_bytes()
        for resumes in (None, ANY):
            journal, kept, left = begin(tmp_path, "b", resumes=resumes)
            assert left == [] and kept == []
            journal.path.unlink()
            journal.close()
        process.kill()
    assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]


def test_what_is_resumed_is_of_this_device(tmp_path: Path) -> None:
    for name, of in {"1": "x", "2": "y", "3": "x", "4": "z"}.items():
        written(tmp_path / f"{name}.journal", rows(2, device_id=of, run_id=name))
    with (tmp_path / "3.journal").open("ab") as file:
        file.write(b"\ntorn")
    written(tmp_path / "5.journal", [])  # nothing to go on with
    first, kept, left = begin(tmp_path, "new", resumes=ANY)
    assert first.path.stem == "3" and len(kept) == 2
    assert [(one.path.name, one.rows, one.resumed, len(one.damage)) for one in left] == [
        ("1.parquet", 2, False, 0),
        ("3.journal", 2, True, 1),
    ]
    there = {"1.parquet", "3.journal.damaged", *(f"{n}.journal" for n in ("2", "3", "4"))}
    assert set(os.listdir(tmp_path)) == there
    again, kept, _ = begin(tmp_path, "new", resumes=ANY)  # the first is going on with it
    assert again.path.stem == "new" and kept == []
    other, _, left = begin(tmp_path, "new", resumes=RunFacts("y", "x", 1))
    assert other.path.stem == "2" and [one.resumed for one in left] == [True]
    for journal in (first, again, other):
        journal.close()


def test_a_new_run_makes_files_of_all_that_was_left(tmp_path: Path) -> None:
    for name in ("1", "2"):
        written(tmp_path / f"{name}.journal", rows(2, device_id=name))
    data = written(tmp_path / "3.journal", rows(2))
    (tmp_path / "3.journal").write_bytes(data[:-5])
    journal, _, left = begin(tmp_path, "3")
    journal.close()
    assert [(one.path.name, one.rows, len(one.damage)) for one in left] == [
        ("1.parquet", 2, 0),
        ("2.parquet", 2, 0),
        ("3.parquet", 1, 1),
    ]
    assert journal.path == tmp_path / "3-2.journal"


@pytest.mark.parametrize("resumes", [None, ANY])
def test_a_run_killed_between_its_file_and_its_journals_end_has_each_row_once(
    tmp_path: Path, resumes: RunFacts | None
) -> None:
    """It had come to its end: there is nothing to go on with."""
    made = rows(3)
    written(tmp_path / "r.journal", made)
    parquet.write(tmp_path / "r.parquet", made)
    journal, kept, left = begin(tmp_path, "r", resumes=resumes)
    journal.close()
    assert journal.path.name == "r-2.journal" and not kept and [one.resumed for one in left] == [False]
    assert sorted(os.listdir(tmp_path)) == ["r-2.journal", "r.parquet"]
    assert parquet.read_rows(tmp_path / "r.parquet") == made


def test_a_run_that_cannot_be_gone_on_with_keeps_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "1.journal"
    data = written(path, [row(), row()])
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(UserError, match=r"1\.journal: cannot be written: No space left"):
            begin(tmp_path, "new", resumes=ANY)
    assert path.read_bytes().startswith(data)
    journal, kept, _ = begin(tmp_path, "new", resumes=ANY)
    journal.close()
    assert len(kept) == 2 and os.listdir(tmp_path) == [path.name]
