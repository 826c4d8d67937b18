"""Runs that begin side by side in one folder, and runs that were left unfinished there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from bench.errors import UserError
from bench.runner.resume import RunFacts, begin
from bench.store import parquet
from bench.store.journal import Journal, recover
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
            begun = begin(folder, "r")
            assert not begun.left, begun.left
            begun.journal.append(row(run_id=begun.run_id, sweep=str(me), fill=str(turn)))
            finish(begun.journal.path, recover(begun.journal.path).rows)
            begun.journal.close()
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


@pytest.fixture
def alive(tmp_path: Path) -> Iterator[Path]:
    """The journal of another process, which is going on."""
    code = (
        "import sys; from pathlib import Path; from bench.store.journal import Journal;"
        "from tests.bench.rows import row\n"
        "journal = Journal(Path(sys.argv[1])); journal.append(row())\n"
        "print('here', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "a.journal"
    words = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        yield path
        process.kill()


ANY = RunFacts("x", "x", None)


def test_a_run_that_is_going_on_is_left_alone(alive: Path, tmp_path: Path) -> None:
    before = alive.read_bytes()
    for begun in (begin(tmp_path, "b"), begin(tmp_path, "b", resumes=ANY)):
        assert begun.left == [] and begun.rows == []
        begun.journal.path.unlink()
        begun.journal.close()
    assert alive.read_bytes() == before and os.listdir(tmp_path) == [alive.name]


def test_what_is_resumed_is_of_this_device(tmp_path: Path) -> None:
    for name, of in {"1": "x", "2": "y", "3": "x", "4": "z"}.items():
        written(tmp_path / f"{name}.journal", rows(2, device_id=of, run_id=name))
    written(tmp_path / "5.journal", [])  # nothing to go on with
    begun = begin(tmp_path, "new", resumes=ANY)
    assert begun.run_id == "3" and len(begun.rows) == 2
    assert [(one.path.name, one.rows, one.resumed) for one in begun.left] == [
        ("1.parquet", 2, False),
        ("3.journal", 2, True),
    ]
    assert set(os.listdir(tmp_path)) == {"1.parquet", *(f"{n}.journal" for n in ("2", "3", "4"))}
    again = begin(tmp_path, "new", resumes=ANY)  # the first is going on with it
    assert again.run_id == "new" and again.rows == []
    other = begin(tmp_path, "new", resumes=RunFacts("y", "x", None))
    assert other.run_id == "2" and [one.resumed for one in other.left] == [True]
    for one in (begun, again, other):
        one.journal.close()


def test_a_new_run_makes_files_of_all_that_was_left(tmp_path: Path) -> None:
    for name in ("1", "2"):
        written(tmp_path / f"{name}.journal", rows(2, device_id=name))
    data = written(tmp_path / "3.journal", rows(2))
    (tmp_path / "3.journal").write_bytes(data[:-5])
    begun = begin(tmp_path, "3")
    assert [(one.path.name, one.rows, len(one.damage)) for one in begun.left] == [
        ("1.parquet", 2, 0),
        ("2.parquet", 2, 0),
        ("3.parquet", 1, 1),
    ]
    assert begun.run_id == "3-2" and begun.journal.path == tmp_path / "3-2.journal"
    begun.journal.close()


def test_a_stale_copy_is_no_hindrance_and_a_failed_one_leaves_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "1.journal"
    data = written(path, [row(), row()])
    path.with_suffix(".copy").write_bytes(b"half")
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", Mock(side_effect=UserError("no space")))
        with pytest.raises(UserError, match="no space"):
            begin(tmp_path, "new", resumes=ANY)
    assert path.read_bytes() == data
    begun = begin(tmp_path, "new", resumes=ANY)
    begun.journal.close()
    assert len(recover(path).rows) == 2 and os.listdir(tmp_path) == [path.name]
