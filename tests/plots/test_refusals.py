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


def failed_run(path: Path) -> None:
    rows = [
        dataclasses.replace(r, **(NO_TIME | {"status": "crashed", "reason": "signal 11"})) for r in small()
    ]
    write(path, rows)


def no_rows(path: Path) -> None:
    write(path, [])


def zero_bytes(path: Path) -> None:
    path.write_bytes(b"")


def noise(path: Path) -> None:
    path.write_bytes(b"PAR1" + random.Random(SEED).randbytes(5000) + b"PAR1")


def half_a_file(path: Path) -> None:
    whole = write(path.with_name("whole.parquet"), small()).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def strangers_parquet(path: Path) -> None:
    pq.write_table(pa.table({"m": [1, 2], "latency": [0.1, 0.2]}), path)


def later_schema(path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata({"roofbench.schema": "99"}), path)


def csv(path: Path) -> None:
    path.write_text("device,operator,implementation,dtype,seconds\nNVIDIA H100,gemm,cublas,float16,1e-3\n")


def empty_folder(path: Path) -> None:
    path.mkdir()


def folder_of_text(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("nothing")


def nothing(path: Path) -> None:
    assert not path.exists()


MAKERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "failed.parquet": (failed_run, "no row has a time, so there is nothing to draw (10 crashed)"),
    "no_rows.parquet": (no_rows, "nothing to draw"),
    "zero.parquet": (zero_bytes, "not a whole parquet file"),
    "noise.parquet": (noise, "not a whole parquet file"),
    "half.parquet": (half_a_file, "half.parquet"),
    "stranger.parquet": (strangers_parquet, "has no roofbench schema"),
    "later.parquet": (later_schema, "has schema 99"),
    "results.csv": (csv, "not a whole parquet file"),
    "empty": (empty_folder, "no .parquet file in this folder"),
    "texts": (folder_of_text, "no .parquet file in this folder"),
    "absent.parquet": (nothing, "no such file"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_cannot_be_drawn_is_one_sentence(name: str, tmp_path: Path) -> None:
    make, says = MAKERS[name]
    make(tmp_path / name)
    done = CliRunner().invoke(app, [str(tmp_path / name), "-o", str(tmp_path / "out")])
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(f"error: {tmp_path / name}")
    assert says in done.stderr and "Traceback" not in done.output
    assert not done.stdout and not (tmp_path / "out").exists()


def test_a_bad_file_does_not_hide_a_good_one(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    zero_bytes(folder / "a.parquet")
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
