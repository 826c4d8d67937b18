"""Packs: commands find in them what they found in the files that they were made of; nothing is lost."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.__main__ import app
from bench.errors import UserError
from bench.judge.history.load import histories
from bench.store import pack as packing
from bench.store import parquet
from bench.store.pack import originals, pack
from bench.store.parquet import read_frame, read_rows, read_sweeps
from bench.store.schema import WITHOUT_SAMPLES, Measurement
from tests.bench.rows import row

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
LATER = datetime(2027, 1, 1, tzinfo=UTC)
"""When the months of all committed runs are over."""


def command(*words: str | Path) -> Result:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def packs(paths: Sequence[Path], folder: Path) -> list[Path]:
    """The packs of these files, none of which may be left out."""

    def refuse(sentence: str) -> None:
        raise AssertionError(sentence)

    return [found.path for found in pack(paths, folder, refuse, LATER)]


def night(unit: int = 0, day: int = 1, month: int = 1, **facts: object) -> Measurement:
    """A row of a run of January 2020, or another month, on one of several units that begin together."""
    date = f"2020-{month:02d}-{day:02d}T02:00:01+00:00"
    run = {"run_id": f"{date[:10].replace('-', '')}T020000Z-0123456789ab", "utc": date}
    unit_of = {"device": "nvidia-h200", "device_kind": "cuda", "device_id": f"unit{unit}"}
    work = {"sweep": "gemm/square", "cache": "cold", "visits": 2, "visit_samples": [2, 3]}
    return row(**{**run, **unit_of, **work, **facts})


def saved(folder: Path, *rows: Measurement, sweeps: parquet.Sweeps = parquet.NO_SWEEPS) -> Path:
    """A result file of these rows, which are of one run."""
    one = rows[0]
    name = f"{one.run_id}-{one.device_id}.parquet"
    return parquet.write(folder / one.device / name, rows, sweeps)


# ---- what is read from a pack


@pytest.mark.parametrize("runs", ["fresh_nights", "nights"])
def test_every_column_of_every_row_is_read_back(runs: str, tmp_path: Path) -> None:
    paths = packs([REFERENCE / runs], tmp_path)
    before, after = (read_frame([path]) for path in (REFERENCE / runs, tmp_path))
    assert len(paths) == 1 and paths[0].name == "2026-11.parquet"
    pd.testing.assert_frame_equal(after[before.columns], before)
    assert set(after.columns) == set(before.columns)
    every = [row for path in sorted((REFERENCE / runs).rglob("*.parquet")) for row in read_rows(path)]
    assert read_rows(paths[0]) == every


def test_what_sweeps_declared_stays_with_each_run(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    for day, title in ((1, "old"), (2, "new"), (3, "old")):
        saved(folder, night(day=day), sweeps={"gemm/square": {"title": title}})
    (path,) = packs([folder], tmp_path / "packs")
    assert read_sweeps([path]) == read_sweeps([folder])
    titles = [sweeps["gemm/square"]["title"] for _, sweeps in sorted(read_sweeps([path]).items())]
    assert titles == ["old", "new", "old"]
    committed = packs([REFERENCE / "accuracy"], tmp_path / "committed")
    assert read_sweeps(committed) == read_sweeps([REFERENCE / "accuracy"])


@pytest.fixture(scope="module")
def packed_nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = packs([REFERENCE / "fresh_nights"], tmp_path_factory.mktemp("packs"))
    return path


@pytest.mark.parametrize(
    ("words", "singly"),
    [
        ("table", False),
        ("ceilings", False),
        ("claims --json", False),
        ("export github-action-benchmark", False),
        ("compare --all", True),
    ],
)
def test_a_command_says_the_same_of_a_pack(words: str, singly: bool, tmp_path: Path) -> None:
    two = sorted((REFERENCE / "fresh_nights").rglob("*.parquet"))[:2]
    packed = [
        path for each in ([[one] for one in two] if singly else [two]) for path in packs(each, tmp_path)
    ]
    before, after = (command(*words.split(), *paths) for paths in (two, packed))
    assert before.stdout and (after.stdout, after.exit_code) == (before.stdout, before.exit_code)


def test_histories_are_the_same(packed_nights: Path) -> None:
    (before,), (after,) = (histories([path]) for path in (REFERENCE / "fresh_nights", packed_nights))
    assert len(after.nights) == 10
    assert [dataclasses.replace(n, file=None) for n in after.nights] == [
        dataclasses.replace(n, file=None) for n in before.nights
    ]
    pd.testing.assert_frame_equal(after.series, before.series)
    for name in ("log_s", "half", "doubted"):
        pd.testing.assert_frame_equal(*(pd.DataFrame(getattr(each, name)) for each in (after, before)))


def test_units_that_began_in_the_same_second_are_told_apart(tmp_path: Path) -> None:
    for unit, day in itertools.product(range(3), (1, 2)):
        saved(tmp_path / "results", night(unit, day), night(unit, day, sweep="gemm/waves"))
    packs([tmp_path / "results"], tmp_path / "packs")
    before, after = (histories([tmp_path / name]) for name in ("results", "packs"))
    assert [each.unit for each in after] == ["unit0", "unit1", "unit2"]
    for one, other in zip(before, after, strict=True):
        assert len(other.nights) == 2 and (one.log_s == other.log_s).all() and one.log_s.shape == (2, 2)


def test_what_no_number_is_stays_what_it_is(tmp_path: Path) -> None:
    """NaN and null, a parameter that is a word in one file, a file without a column that others have."""
    made = [
        night(1, low_s=math.nan, high_s=None),
        night(2, parameters='{"m":"all"}', samples_s=[]),
        night(3, parameters='{"m":2}', samples_s=None, set_aside=["stolen"], set_aside_s=[0.1]),
    ]
    old = saved(tmp_path / "results", made[0])
    for other in made[1:]:
        saved(tmp_path / "results", other)
    facts = pq.read_schema(old).metadata
    without = pq.read_table(old).drop_columns(["visit_at_s", "ecc"]).replace_schema_metadata(facts)
    pq.write_table(without, old)
    (path,) = packs([tmp_path / "results"], tmp_path / "packs")
    table = next(parquet.tables([path]))[1]
    assert table["m"].to_pylist() == ["1", "all", "2"]
    assert str(table["low_s"].to_pylist()) == "[nan, None, None]" and table["ecc"].null_count == 3
    assert table["samples_s"].to_pylist()[1:] == [[], None]
    assert table["set_aside_s"].to_pylist() == [None, None, [0.1]]


def test_roofs_are_read_without_samples(packed_nights: Path) -> None:
    """The column that bench/queries.sql reads roofs from."""
    stored = pq.read_table(packed_nights)
    assert "samples_s" not in stored.column_names
    for measured, quickest_s in zip(read_rows(packed_nights), stored["quickest_s"].to_pylist(), strict=True):
        wanted = measured.quickest_s if measured.role != "measurement" and measured.is_timed else None
        assert quickest_s == wanted


# ---- what a pack keeps of its originals


def test_the_originals_are_listed_with_their_digests(packed_nights: Path) -> None:
    files = sorted((REFERENCE / "fresh_nights").rglob("*.parquet"))
    listed = originals(packed_nights)
    assert [each.path for each in listed] == [str(f.relative_to(REFERENCE / "fresh_nights")) for f in files]
    assert [each.byte for each in listed] == [f.stat().st_size for f in files]
    assert [each.blake2b for each in listed] == [packing.digest(f.read_bytes()) for f in files]
    assert sum(each.rows for each in listed) == len(read_rows(packed_nights))
    said = json.loads(pq.read_schema(packed_nights).metadata[b"roofbench.pack"])  # for anybody
    assert set(said) == {"samples", "originals", "sweeps"}
    assert set(said["originals"][0]) == {"path", "blake2b", "byte", "rows", "sweeps"}


def test_a_file_for_each_device_and_month(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    for made in (night(month=1, day=31), night(month=2), night(month=2, device="nvidia-a100")):
        saved(folder, made)
    paths = [path.relative_to(tmp_path) for path in packs([folder], tmp_path)]
    assert [str(path) for path in paths] == [
        "nvidia-a100/2020-02.parquet",
        "nvidia-h200/2020-01.parquet",
        "nvidia-h200/2020-02.parquet",
    ]


def test_samples_that_are_lost_are_asked_for_in_one_sentence(packed_nights: Path, tmp_path: Path) -> None:
    path, beside = Path(shutil.copy(packed_nights, tmp_path)), tmp_path / "2026-11.samples"
    whole = packed_nights.with_suffix(".samples").read_bytes()
    beside.write_bytes(whole[:1000] + b"?" + whole[1001:])
    with pytest.raises(UserError, match=r"2026-11.samples: is damaged, or not the file that was written"):
        read_rows(path)
    beside.unlink()
    with pytest.raises(UserError, match=r"its samples cannot be read from .*2026-11.samples: No such file"):
        read_rows(path)
    assert len(next(parquet.tables([path], columns=WITHOUT_SAMPLES))[1]) == 1270
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + b"?" + whole[5001:])
    with pytest.raises(UserError, match="is damaged"):
        next(parquet.tables([path], columns=WITHOUT_SAMPLES))


# ---- what is packed, and what is left alone


def test_what_cannot_be_packed_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    good, damaged = saved(folder, night()), saved(folder, night(1))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    saved(folder, night(2, run_id="mine"))
    saved(folder, night(3, source="somebody"))
    saved(folder, night(4), night(5))
    shutil.copy(good, folder / "copy.parquet")
    before = {path: path.read_bytes() for path in folder.rglob("*.parquet")}
    done = command("pack", folder, "-o", tmp_path / "packs", "--remove")
    assert done.exit_code == 0
    assert f"{tmp_path}/packs/nvidia-h200/2020-01.parquet: 1 file, " in done.stdout.replace("\n", "")
    for sentence in (
        f"{damaged}: ",
        "nothing in it tells when the run mine began",
        "imported timings belong to no month",
        "holds 2 runs or units, and a file that is packed holds one",
        f"holds the run {night().run_id}, which ",
    ):
        assert sentence in done.stderr, done.stderr
    gone = {path for path in before if not path.exists()}
    assert len(gone) == 1 and before[gone.pop()] == before[good]
    assert all(path.read_bytes() == data for path, data in before.items() if path.exists())


def test_a_month_that_is_not_over_waits(tmp_path: Path) -> None:
    saved(tmp_path / "results", night(month=1))
    saved(tmp_path / "results", night(month=2))
    said: list[str] = []
    now = datetime(2020, 2, 29, 23, 59, tzinfo=UTC)
    (found,) = pack([tmp_path / "results"], tmp_path / "packs", said.append, now)
    assert found.path.name == "2020-01.parquet"
    assert said == ["1 file of 2020-02, which is not over: a month is packed when no run can be added"]


def test_what_comes_later_makes_another_pack_and_nothing_is_packed_twice(tmp_path: Path) -> None:
    folder, into = tmp_path / "results", tmp_path / "packs"
    saved(folder, night(1))
    (first,) = packs([folder], into)
    written = first.read_bytes()
    saved(folder, night(2))
    first_again, second = packs([folder], into)
    assert (first_again, second.name) == (first, "2020-01-2.parquet") and first.read_bytes() == written
    assert packs([folder], into) == [second, first]
    assert len(read_frame([into])) == 2 and [len(originals(each)) for each in (first, second)] == [1, 1]


def test_originals_are_removed_only_when_asked_and_unchanged(tmp_path: Path) -> None:
    folder, into = tmp_path / "results", tmp_path / "packs"
    kept, gone = saved(folder, night(1)), saved(folder, night(2))
    assert command("pack", folder, "-o", into).exit_code == 0
    assert kept.exists() and gone.exists()
    done = command("pack", folder, "-o", into, "--remove")
    assert "held 2 files of these already; removed 2 originals" in done.stdout.replace("\n", " ")
    assert not kept.exists() and not gone.exists() and len(read_frame([into])) == 2
    changed = saved(folder, night(3))
    (found,) = pack([folder], into, print, LATER)
    changed.write_bytes(b"another")
    assert list(packing.remove(found)) == [] and changed.read_bytes() == b"another"


def test_packs_are_not_written_among_the_results(tmp_path: Path) -> None:
    path = saved(tmp_path / "results", night(1))
    for folder in (tmp_path / "results", tmp_path / "results" / "packs"):
        done = command("pack", tmp_path / "results", "-o", folder, "--remove")
        assert done.exit_code == 2 and "every run would then be found twice" in done.stderr and path.exists()
    assert command("pack", tmp_path / "results", "-o", tmp_path / "packs", "--remove").exit_code == 0
    assert "nothing to pack" in command("pack", tmp_path / "packs", "-o", tmp_path / "more").stdout


def test_a_pack_that_does_not_read_back_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "results", night(1))
    write = packing._bytes
    monkeypatch.setattr(packing, "_bytes", lambda table, *facts, **how: write(table[:0], *facts, **how))
    done = command("pack", tmp_path / "results", "-o", tmp_path / "packs", "--remove")
    assert done.exit_code == 2 and "does not read back as it was given" in done.stderr
    assert path.exists() and not [each for each in (tmp_path / "packs").rglob("*") if each.is_file()]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"median_s": [1.0, None]}, {"median_s": [1.0, math.nan]}),
        ({"samples_s": [[1.0], [2.0]]}, {"samples_s": [[1.0, 2.0], []]}),
        ({"median_s": [0.0]}, {"median_s": [-0.0]}),
        ({"samples_s": [[0.0]]}, {"samples_s": [[-0.0]]}),
        ({"device": ["a"]}, {"device": ["b"]}),
        ({"device": ["a"]}, {"host": ["a"]}),
    ],
)
def test_tables_that_differ_are_told_apart(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert all(packing.same(pa.table(each), pa.table(each)) for each in (one, other))
    assert not packing.same(pa.table(one), pa.table(other))
