"""A row that `append` has taken is on the disk, and comes back, or its loss is told."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.store import journal as journals
from bench.store import schema
from bench.store.journal import Journal, Recovered, finish, recover
from bench.store.schema import ARROW, READABLE, Measurement
from tests.bench.rows import row, rows, written


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


def forged(path: Path, *contents: dict[str, Any]) -> Path:
    """A journal as another version of the checkout might have written it."""
    head = {journals.HEAD: schema.SCHEMA}
    path.write_bytes(b"".join(journals._line(*one) for one in enumerate((head, *contents))))
    return path


def test_any_row_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    made = [any_row() for _ in range(100)]
    with Journal(tmp_path / "r.journal") as journal:
        for one in made[:50]:
            journal.append(one)
        journal.append(*made[50:], sync=False)
        assert journal.rows == 100
    found = recover(tmp_path / "r.journal")
    assert found.rows == made and not found.damage
    assert [repr(one) for one in found.rows] == [repr(one) for one in made]  # also tells -0.0 from 0.0
    journal_nan = row(set_aside_s=[math.nan, 1.0], median_s=math.nan)
    written(tmp_path / "nan.journal", [journal_nan])
    (back,) = recover(tmp_path / "nan.journal").rows
    assert repr(back) == repr(journal_nan)


def test_text_that_is_no_unicode_does_not_stop_a_run(tmp_path: Path) -> None:
    made = [row(reason="\udc80 in a file's name"), row(set_aside=["a\ud800"], visits=1)]
    written(tmp_path / "r.journal", made)
    found = recover(tmp_path / "r.journal")
    assert [one.reason for one in found.rows] == ["? in a file's name", ""]
    assert found.rows[1].set_aside == ["a?"]
    assert finish(tmp_path / "r.journal", made) is not None  # nor the parquet file


def test_a_row_is_on_the_disk_before_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "r.journal")
    synced: list[int] = []
    really = os.fsync

    def fsync(number: int) -> None:
        synced.append(os.fstat(number).st_size)
        really(number)

    monkeypatch.setattr(os, "fsync", fsync)
    for count in range(1, 4):
        journal.append(row())
        assert len(recover(journal.path).rows) == journal.rows == count
        assert synced[-1] == journal.path.stat().st_size and len(synced) == count
    journal.append(row(), sync=False)
    assert len(synced) == 3 and len(recover(journal.path).rows) == 4
    journal.append()
    assert synced[-1] == journal.path.stat().st_size and len(synced) == 4


def test_every_byte_of_a_journal_changed_costs_one_row_and_is_said(tmp_path: Path) -> None:
    made = rows(3)
    path = tmp_path / "r.journal"
    data = written(path, made)
    for at, byte in enumerate(data):
        with path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), bytes([byte ^ random.randrange(1, 256)]), at)
            found = recover(path)
            os.pwrite(file.fileno(), bytes([byte]), at)
        line = data.count(b"\n", 0, at)
        lost = {line, line + (data[at] == ord("\n"))}  # a line without its end takes the next along
        assert found.rows == [one for number, one in enumerate(made, 1) if number not in lost], at
        gone = sorted(lost & {1, 2, 3})
        if 3 in gone:
            says = f"row {gone[0]} is damaged or cut off, and nothing whole comes after it"
        elif not gone:
            says = "the head is damaged; no row is lost"
        else:
            says = "rows 1 to 2 are lost" if len(gone) == 2 else f"row {gone[0]} is damaged and lost"
        assert found.damage == [f"{path}: {says}"], at


def test_a_journal_cut_anywhere_gives_its_whole_rows(tmp_path: Path) -> None:
    made = rows(3)
    data = written(tmp_path / "r.journal", made)
    ends = [at for at, byte in enumerate(data) if byte == ord("\n")]
    path = tmp_path / "r.journal"
    for cut in reversed(range(len(data))):
        os.truncate(path, cut)
        found = recover(path)
        whole = sum(end <= cut for end in ends)
        assert found.rows == made[: max(0, whole - 1)], cut
        torn = cut not in (0, *ends, *(end + 1 for end in ends))
        what = f"row {whole}" if whole else "the head"
        says = f"{path}: {what} is damaged or cut off, and nothing whole comes after it"
        assert found.damage == [says] * torn, cut


def test_a_journal_damaged_in_many_places_never_changes_a_row(tmp_path: Path) -> None:
    made = rows(12)
    data = written(tmp_path / "r.journal", made)
    path = tmp_path / "bad.journal"
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(random.randrange(1, 4)):
            at, length = random.randrange(len(data)), random.choice([1, 10, 512, 3000])
            end = min(len(data), at + length)
            new = random.choice([bytes(length), random.randbytes(length), b"", b"\n" * length, data[:length]])
            changed[at:end] = new
        path.write_bytes(changed)
        found = recover(path)
        places = [made.index(one) for one in found.rows]
        assert places == sorted(set(places))
        assert found.damage or found.rows == made[: len(places)]  # cut at a row's end, as by a kill


def test_damage_that_costs_no_row_is_said(tmp_path: Path) -> None:
    path, made = tmp_path / "r.journal", rows(2)
    head, first, second = written(path, made).splitlines(keepends=True)
    for between, says in (
        (first, "row 1 is there twice; it is counted once"),
        (b"no row\n", "there is damage before row 2; no row is lost"),
    ):
        path.write_bytes(b"".join((head, first, between, second)))
        assert recover(path) == Recovered(made, [f"{path}: {says}"])
    path.unlink()
    assert recover(path) == Recovered([], [f"{path}: cannot be read: No such file or directory"])


# ---- journals of other versions


def test_a_row_of_another_version_is_read_as_far_as_it_can_be(tmp_path: Path) -> None:
    full = {name: value for name, value in dataclasses.asdict(row()).items() if value is not None}
    later = full | {"later": 3.5}
    earlier = {name: value for name, value in full.items() if name != "samples_s"}
    bare = {name: value for name, value in full.items() if name != "device"}
    wrong = {
        "flop": {"'x'": "x", "1.5": 1.5, "True": True},
        "samples_s": {"1.0": 1.0, "[None]": [None]},
        "settled": {"1": 1},
        "clock": {"1": 1},
    }
    others = [full | {"schema": number} for number in (99, 99, 1)]
    others += [full | {name: value} for name, values in wrong.items() for value in values.values()]
    path = forged(tmp_path / "r.journal", later, earlier, bare, *others)
    found = recover(path)
    assert found.rows == [Measurement(**full), Measurement(**earlier)]
    assert found.rows[1].samples_s is None
    said = [sentence.removeprefix(f"{path}: ") for sentence in found.damage]
    assert said == [
        "the column later is unknown to this checkout and left out (1 row)",
        "rows without the column device are left out (1 row)",
        f"rows of schema 99 are left out; {READABLE} (2 rows)",
        f"rows of schema 1 are left out; {READABLE} (1 row)",
        *(
            f"rows whose {name} is {value} instead of {ARROW.field(name).type} are left out (1 row)"
            for name, values in wrong.items()
            for value in values
        ),
    ]
