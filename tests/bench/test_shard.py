"""Runs that share out a suite, and runs that begin side by side in one folder."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

import kernels
from bench.errors import UserError
from bench.runner.options import Options, run_for
from bench.runner.resume import RunFacts, begin, go_on
from bench.runner.run import Run
from bench.runner.shard import Shard
from bench.store import parquet
from bench.store.journal import Journal, recover
from tests.bench import several
from tests.bench.rows import row, rows, written
from tests.bench.several import opened, small
from tests.drawing import is_deep

ROOT = Path(__file__).parents[2]


# ---- which cases


@pytest.mark.parametrize(
    "text",
    ["", "1", "1/", "/2", "0/2", "3/2", "-1/2", "1/0", "0/0", "1/-2", "a/b", "1/2/3", "1.0/2", " 1/2", "²/3"],
)
def test_what_says_no_part_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UserError) as refused:
        run_for(Options(shard=text), kernels.problem)
    says = f"--bench-shard {text}: give I/N, part I of N, as in 1/4 (I from 1 to N)"
    assert str(refused.value) == says


def test_a_part_is_told_from_the_run_it_measured() -> None:
    parts = random.randrange(1, 1000)
    shard = Shard(random.randrange(1, parts + 1), parts)
    assert Shard.of(str(shard)) == shard
    for name in ("20261121T130717Z-8fb513ecc4e6", "20261121T130717Z-unknown-gpu3"):
        assert Shard.of_run(name) is None and Shard.of_run(f"{name}-2") is None
        assert Shard.of_run(name + shard.suffix) == Shard.of_run(f"{name}{shard.suffix}-12") == shard
    assert Shard(2, 4).suffix == "-s2of4"
    with pytest.raises(ValueError, match="0/3: there is no such part"):
        Shard(0, 3)


def test_a_case_keeps_its_part_from_one_version_to_the_next() -> None:
    """Else the history of a sharded suite would begin anew. Blake2b of 8 bytes, big-endian, modulo 7."""
    parts = [next(p for p in range(1, 8) if f"case {n}" in Shard(p, 7)) for n in range(12)]
    assert parts == [6, 3, 4, 7, 7, 7, 1, 7, 4, 1, 4, 5]


def chosen(folder: Path, shard: str | None) -> tuple[Run, list[str], list[str]]:
    """The run over our sweeps, those of its cases that run, and those that get a row without running."""
    some = [] if is_deep() else ["gemm", "softmax"]
    options = Options(device="cpu", results=folder, shard=shard, sweeps=some)
    run = run_for(options, kernels.problem, opens=False)
    return run, run.order(run.cases), [case.key for case in run.elsewhere]


def test_over_our_sweeps_the_parts_are_the_whole_and_share_ceilings_alone(tmp_path: Path) -> None:
    parts = random.choice((2, 3))
    whole, running, elsewhere = chosen(tmp_path, None)
    keys = {name: one.key for name, one in whole.cases.items()}
    ceilings = {name for name, one in whole.cases.items() if one.role != "measurement"}
    assert ceilings and len(keys) > 1000
    seen: Counter[str] = Counter()
    unable: Counter[str] = Counter()
    for part in range(1, parts + 1):
        run, ours, theirs = chosen(tmp_path, f"{part}/{parts}")
        assert len(set(ours)) == len(ours)
        assert theirs, "of what cannot run here there will be rows"
        assert run.other_shards == len(keys) - len(ours) - len(theirs) > 0
        seen.update(ours)
        unable.update(set(theirs))
    roofs = {keys[name] for name in ceilings}
    assert set(seen) == set(running) and set(unable) == set(elsewhere)
    assert all(n == (parts if name in ceilings else 1) for name, n in seen.items())
    assert all(n == (parts if key in roofs else 1) for key, n in unable.items())


def test_a_part_has_its_name_in_the_run_and_says_how_many_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = several.stand_in(tmp_path, monkeypatch)
    cases = small(folder, list(range(1, 21)))
    run = opened(folder, cases, shard=Shard(2, 4))
    assert run.run_id.endswith("-s2of4")
    assert run.interrupted() == folder / "results" / "made-up" / f"{run.run_id}.journal"


# ---- beside other runs


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
    path = tmp_path / "a-s1of2.journal"
    words = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        yield path
        process.kill()


ANY = RunFacts("x", Shard(1, 2), "x", None)


def test_a_run_that_is_going_on_is_left_alone(alive: Path, tmp_path: Path) -> None:
    before = alive.read_bytes()
    for begun in (begin(tmp_path, "b"), go_on(tmp_path, "b", ANY)):
        assert begun.left == [] and begun.rows == []
        begun.journal.path.unlink()
        begun.journal.close()
    assert alive.read_bytes() == before and os.listdir(tmp_path) == [alive.name]


def test_what_is_resumed_is_of_this_shard_and_device(tmp_path: Path) -> None:
    for name, of in {"1": "x", "2-s1of2": "y", "3-s1of2": "x", "4-s2of2": "x", "5-s1of3": "x"}.items():
        written(tmp_path / f"{name}.journal", rows(2, device_id=of, run_id=name))
    for name in ("6-s1of2", "7"):
        written(tmp_path / f"{name}.journal", [])  # nothing to go on with
    written(tmp_path / "0-s1of2.journal", rows(3, device_id="x", run_id="0-s1of2"))
    begun = go_on(tmp_path, "new", ANY)
    assert begun.run_id == "3-s1of2" and len(begun.rows) == 2
    assert [(one.path.name, one.rows, one.resumed) for one in begun.left] == [
        ("0-s1of2.parquet", 3, False),
        ("3-s1of2.journal", 2, True),
    ]
    there = {"0-s1of2.parquet", *(f"{n}.journal" for n in ("1", "2-s1of2", "3-s1of2", "4-s2of2", "5-s1of3"))}
    assert set(os.listdir(tmp_path)) == there
    again = go_on(tmp_path, "new", ANY)  # the first is going on with it
    assert again.run_id == "new" and again.rows == []
    other = go_on(tmp_path, "new", RunFacts("x", None, "x", None))
    assert other.run_id == "1" and [one.resumed for one in other.left] == [True]
    for one in (begun, again, other):
        one.journal.close()


def test_a_new_run_makes_files_of_all_that_was_left(tmp_path: Path) -> None:
    for name in ("1", "2-s1of2"):
        written(tmp_path / f"{name}.journal", rows(2, device_id=name))
    data = written(tmp_path / "3.journal", rows(2))
    (tmp_path / "3.journal").write_bytes(data[:-5])
    begun = begin(tmp_path, "3")
    assert [(one.path.name, one.rows, len(one.damage)) for one in begun.left] == [
        ("1.parquet", 2, 0),
        ("2-s1of2.parquet", 2, 0),
        ("3.parquet", 1, 1),
    ]
    assert begun.run_id == "3-2" and begun.journal.path == tmp_path / "3-2.journal"
    begun.journal.close()


def test_a_stale_copy_is_no_hindrance_and_a_failed_one_leaves_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "1-s1of2.journal"
    data = written(path, [row(), row()])
    path.with_suffix(".copy").write_bytes(b"half")
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", Mock(side_effect=UserError("no space")))
        with pytest.raises(UserError, match="no space"):
            go_on(tmp_path, "new", ANY)
    assert path.read_bytes() == data
    begun = go_on(tmp_path, "new", ANY)
    begun.journal.close()
    assert len(recover(path).rows) == 2 and os.listdir(tmp_path) == [path.name]
