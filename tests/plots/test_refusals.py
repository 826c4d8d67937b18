"""Whatever is given to `python -m plots`: figures, or one sentence and exit code 2."""

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from bench.store.parquet import write
from plots.__main__ import app
from plots.cli.arguments import newest
from tests.drawing import run_seed
from tests.plots.synthetic import NO_TIME, small

SEED = run_seed()


def half_a_file(path: Path) -> bytes:
    whole = write(path.with_name("whole.parquet"), small()).read_bytes()
    return whole[: len(whole) // 2]


def foreign_table(path: Path, schema: dict[str, str]) -> bytes:
    pq.write_table(pa.table({"m": [1, 2], "latency": [0.1, 0.2]}).replace_schema_metadata(schema), path)
    return path.read_bytes()


FAILED = [dataclasses.replace(one, **NO_TIME, reason="signal 11") for one in small()]
FAILED = [dataclasses.replace(one, status="crashed") for one in FAILED]
CSV = b"device,operator,implementation,dtype,seconds\nNVIDIA H100,gemm,cublas,float16,1e-3\n"
FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "failed.parquet": (
        lambda path: write(path, FAILED),
        "no row has a time, so there is nothing to draw (10 crashed)",
    ),
    "no_rows.parquet": (lambda path: write(path, []), "nothing to draw"),
    "zero.parquet": (lambda path: path.write_bytes(b""), "not a whole parquet file"),
    "noise.parquet": (
        lambda path: path.write_bytes(b"PAR1" + random.Random(SEED).randbytes(5000) + b"PAR1"),
        "not a whole parquet file",
    ),
    "half.parquet": (lambda path: path.write_bytes(half_a_file(path)), "half.parquet"),
    "stranger.parquet": (lambda path: foreign_table(path, {}), "has no roofbench schema"),
    "later.parquet": (lambda path: foreign_table(path, {"roofbench.schema": "99"}), "has schema 99"),
    "results.csv": (lambda path: path.write_bytes(CSV), "not a whole parquet file"),
    "empty": (Path.mkdir, "no .parquet file in this folder"),
    "texts/notes.txt": (lambda path: path.write_text("nothing"), "no .parquet file in this folder"),
    "ended/a.journal": (lambda path: path.write_text(""), "but the journal of a run that did not end"),
    "absent.parquet": (lambda path: None, "no such file"),
}
"""Name -> what makes a file or a folder of it, and what is said of that."""


@pytest.mark.parametrize("name", FILES)
def test_what_cannot_be_drawn_is_one_sentence(name: str, tmp_path: Path) -> None:
    make, says = FILES[name]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    make(tmp_path / name)
    given = tmp_path / name.partition("/")[0]
    done = CliRunner().invoke(app, [str(given), "-o", str(tmp_path / "out")])
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(f"error: {given}")
    assert says in done.stderr and "Traceback" not in done.output
    assert not done.stdout and not (tmp_path / "out").exists()


def test_a_bad_file_does_not_hide_a_good_one(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "a.parquet").touch()
    write(folder / "b.parquet", small())
    done = CliRunner().invoke(app, [str(folder), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("left out")]
    assert "a.parquet: not a whole parquet file" in told and "Traceback" not in done.output
    assert list((tmp_path / "out").rglob("*.png"))


def test_of_a_folder_the_newest_run_of_each_device_is_drawn(tmp_path: Path) -> None:
    made = ["cpu/20260101T000000Z-a", "cpu/20260102T000000Z-b", "gpu/20260101T000000Z-c"]
    made += ["gpu/imported-table", "reference/nights/20270101T000000Z-d"]
    for name in made:
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    drawn = {file.relative_to(tmp_path).with_suffix("").as_posix() for file in newest(tmp_path)}
    assert drawn == {made[1], made[2], made[3]}
    assert newest(tmp_path / "reference") == [tmp_path / f"{made[4]}.parquet"]
    assert newest(tmp_path / "cpu" / "20260101T000000Z-a.parquet") == [tmp_path / f"{made[0]}.parquet"]


def test_all_files_of_the_newest_run_are_drawn(tmp_path: Path) -> None:
    """Rows that were saved after a kill, and GPUs that were measured together."""
    runs = {
        "killed": ["20260102T000000Z-b", "20260102T000000Z-b.rest", "20260102T000000Z-b.rest-2"],
        "gpus": ["20260102T000000Z-b-gpu0", "20260102T000000Z-b-gpu1"],
    }
    old = ["20260101T000000Z-b", "20260101T000000Z-b-gpu0", "20260101T000000Z-a.rest"]
    for folder, names in runs.items():
        (tmp_path / folder).mkdir()
        for name in (*names, *(other for other in old if other < names[0])):
            (tmp_path / folder / f"{name}.parquet").touch()
        assert sorted(file.stem for file in newest(tmp_path / folder)) == sorted(names)
