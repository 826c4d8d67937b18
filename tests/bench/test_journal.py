"""A row that `append` has taken is on the disk, and comes back, or its loss is told; from run to run."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.errors import UserError
from bench.store import journal as journals
from bench.store import parquet, schema
from bench.store.journal import Journal, Recovered, claimed, finish, recover
from bench.store.schema import ARROW, Measurement
from tests.bench.rows import row, rows, written

ROOT = Path(__file__).parents[2]


def any_float() -> float:
    """Any 64 bits but those of a NaN or an infinity."""
    while not math.isfinite(found := struct.unpack("d", random.randbytes(8))[0]):
        pass
    return float(found)


def any_text() -> str:
    return "".join(random.choice('aé漢🙂"\\\n\r\t\0\x7f\u2028 |{}') for _ in range(random.randrange(12)))


def any_value(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return [any_value(kind.value_type) for _ in range(random.randrange(5))]
    if pa.types.is_floating(kind):
        return random.choice([any_float(), 0.0, -0.0, math.inf, -math.inf, 5e-324])
    if pa.types.is_integer(kind):
        return random.choice([0, random.randrange(-(2**63), 2**63), 2**63 - 1, -(2**63)])
    return random.random() < 0.5 if pa.types.is_boolean(kind) else any_text()


def any_row() -> Measurement:
    """A row with any value in any column, null in some that may be."""
    values = {f.name: None if f.nullable and random.random() < 0.2 else any_value(f.type) for f in ARROW}
    return Measurement(**(values | {"schema": schema.SCHEMA, "parameters": '{"m":1}'}))


def unread(path: Path, count: int, of: int) -> list[str]:
    """What is said of a journal of which so many lines cannot be read."""
    what = "lines cannot be read: damaged, cut off, or of another version of roofbench"
    return [f"{path}: {count} of {of} {what}"] if count else []


def test_any_row_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    made = [*(any_row() for _ in range(100)), row(set_aside_s=[math.nan, 1.0], median_s=math.nan)]
    journal = Journal.named(tmp_path, "r")
    for one in made[:50]:
        journal.append(one)
    journal.append(*made[50:], sync=False)
    found = recover(journal.path)
    journal.close()
    # Their text also tells -0.0 from 0.0, and that NaN is NaN.
    assert [repr(one) for one in found.rows] == [repr(one) for one in made] and not found.damage


def test_text_that_is_no_unicode_does_not_stop_a_run(tmp_path: Path) -> None:
    made = [row(reason="\udc80 in a file's name"), row(set_aside=["a\ud800"], visits=1)]
    written(tmp_path / "r.journal", made)
    found = recover(tmp_path / "r.journal")
    assert [one.reason for one in found.rows] == ["? in a file's name", ""]
    assert found.rows[1].set_aside == ["a?"]
    assert finish(tmp_path / "r.journal", made) is not None  # nor the parquet file


def test_every_byte_of_a_journal_changed_costs_one_row_and_is_said(tmp_path: Path) -> None:
    made = rows(3)
    data = written(path := tmp_path / "r.journal", made)
    for at, byte in enumerate(data):
        changed = bytearray(data)
        changed[at] ^= random.randrange(1, 256)
        path.write_bytes(changed)
        found = recover(path)
        line = data.count(b"\n", 0, at + 1) - 1  # that of what sweeps declare is line 0
        lost = {line, line - (byte == ord("\n"))}  # a line without its beginning takes the one before along
        assert found.rows == [one for number, one in enumerate(made, 1) if number not in lost], at
        assert len(found.damage) == 1, at


def test_a_journal_cut_anywhere_gives_its_whole_rows(tmp_path: Path) -> None:
    made = rows(3)
    data = written(path := tmp_path / "r.journal", made)
    ends = [at for at, byte in enumerate(data) if byte == ord("\n")] + [len(data)]
    for cut in reversed(range(len(data))):
        os.truncate(path, cut)
        found = recover(path)
        whole = sum(end <= cut for end in ends[1:])
        assert found.rows == made[: max(0, whole - 1)], cut
        torn = cut not in (0, *ends, *(end + 1 for end in ends))
        assert found.damage == unread(path, int(torn), whole + 1), cut


def test_rows_of_another_version_are_told_and_kept(tmp_path: Path) -> None:
    full = {name: value for name, value in dataclasses.asdict(row()).items() if value is not None}
    earlier = {name: value for name, value in full.items() if name != "samples_s"}
    bare = {name: value for name, value in full.items() if name != "device"}
    others = [bare, full | {"later": 3.5}, full | {"schema": 99}]
    path = tmp_path / "r.journal"
    numbered = json.dumps([1, full]).encode()  # by a checkout of before
    lines = [*map(journals._line, (full, earlier, *others)), journals._digest(numbered) + b" " + numbered]
    path.write_bytes(b"\n".join(lines))
    found = recover(path)
    assert found.rows == [Measurement(**each) for each in (full, earlier, full)]
    assert found.damage == unread(path, 3, 6)


# ---- where nothing can be written


def test_a_file_that_may_not_grow_keeps_what_it_has(tmp_path: Path) -> None:
    """Nor does what was written of a row that had no room spoil the next, where there is room again."""
    program = f"""
import json, resource
from pathlib import Path
from bench.errors import UserError
from bench.store.journal import Journal, recover
from tests.bench.rows import row
journal, count = Journal.named(Path({str(tmp_path)!r}), "r"), 0
free = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 9000, free[1]))
try:
    while True:
        journal.append(row())
        count += 1
except UserError as error:
    said = [str(error), count, len(recover(journal.path).rows)]
resource.setrlimit(resource.RLIMIT_FSIZE, free)
journal.append(row())
print(json.dumps([*said, len(recover(journal.path).rows)]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sentence, safe, there, afterwards = json.loads(done.stdout)
    assert sentence == f"{tmp_path}: File too large; the rows before are safe in {tmp_path / 'r.journal'}"
    assert 2 < safe == there == afterwards - 1


def test_where_no_file_can_be_made_a_journal_is_refused(tmp_path: Path) -> None:
    """Below a file there can be none, which is no name that is taken."""
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(UserError, match=f"{folder}: results cannot be written here: "):
            Journal.named(folder, "r")


@pytest.mark.parametrize(("name", "value"), [("flop", 2**63), ("median_s", "1"), ("samples_s", [1.0, "2"])])
def test_a_value_that_does_not_fit_its_column_is_refused_now_not_at_the_end(
    tmp_path: Path, name: str, value: Any
) -> None:
    journal = Journal.named(tmp_path, "r")
    with pytest.raises((pa.ArrowException, OverflowError)):
        journal.append(row(**{name: value}))
    journal.append(row())
    journal.close()
    assert len(recover(journal.path).rows) == 1


# ---- from run to run


def free(folder: Path) -> list[str]:
    """The journals that another run may take."""
    names = []
    for path in sorted(folder.glob("*.journal")):
        with claimed(path) as claim:
            names += [path.stem] if claim else []
    return names


def test_a_running_journal_is_not_recovered_by_another_run(tmp_path: Path) -> None:
    (tmp_path / "folder.journal").mkdir()
    written(tmp_path / "a.journal", rows(1))
    journal = Journal.named(tmp_path, "live")
    assert free(tmp_path) == ["a"]
    journal.close()
    assert free(tmp_path) == ["a", "live"]


def test_a_resumed_journal_is_written_on_by_one_run_alone(tmp_path: Path) -> None:
    made, path = rows(3), tmp_path / "r.journal"
    path.write_bytes(written(path, made[:2]) + b"\nhalf a row")
    with claimed(path) as claim, claimed(path) as second:
        assert claim and not second
        journal = Journal.again(path, claim, {"a": {}})
    journal.append(made[2])
    assert free(tmp_path) == []
    journal.close()
    assert recover(path) == Recovered(made, {"a": {}}, unread(path, 1, 6)) and free(tmp_path) == ["r"]


def test_a_journal_that_was_taken_before_it_was_locked_is_not_written_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run, which looks for what was left, finds it unlocked for a moment, and empty."""
    path = tmp_path / "r.journal"
    really = fcntl.flock

    def late(file: Any, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", really)
        with claimed(path) as claim:
            assert claim and finish(path, recover(path).rows) is None
        really(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    journal = Journal.named(tmp_path, "r")
    journal.append(row())
    journal.close()
    assert [len(recover(path).rows) for path in tmp_path.iterdir()] == [1]


def test_of_runs_that_ask_for_one_name_each_gets_another(tmp_path: Path) -> None:
    first, second = (Journal.named(tmp_path, "r") for _ in range(2))
    assert (first.path.name, second.path.name) == ("r.journal", "r-2.journal")
    for journal in (first, second):
        journal.append(row(run_id=journal.path.stem))
        journal.close()
    assert finish(second.path, recover(second.path).rows) == tmp_path / "r-2.parquet"
    third = Journal.named(tmp_path, "r")  # a result file has its name for ever
    third.close()
    assert sorted(os.listdir(tmp_path)) == ["r-2.parquet", "r-3.journal", "r.journal"]


def test_a_damaged_journal_is_kept_beside_its_rows(tmp_path: Path) -> None:
    made, path = rows(3), tmp_path / "r.journal"
    data = written(path, made)[: -random.randrange(2, 100)]
    path.write_bytes(data)
    found = recover(path)
    assert found.rows == made[:2] and found.damage
    assert finish(path, found.rows, found.sweeps, found.damage) == tmp_path / "r.parquet"
    assert (tmp_path / "r.journal.damaged").read_bytes() == data and not path.exists()
    assert parquet.read_rows(tmp_path / "r.parquet") == made[:2]


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
