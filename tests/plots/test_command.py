"""`python -m plots` as a person types it."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from bench.datasheet import find_datasheet
from bench.spec import parameters_text
from bench.store import write
from kernels.stream.problem import Stream
from plots.__main__ import SWEEPS, app, save
from plots.frame import PlotError, load
from tests.plots.synthetic import CPU, H100, NO_TIME, row, small


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_ten_rows_regenerate_every_figure(tmp_path: Path) -> None:
    file = write(tmp_path / "run.parquet", small())
    done = invoke(file, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    made = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*"))
    stems = ["ceilings/gemm", "ceilings/stream", "gemm/some"]
    wanted = [f"{s}-{q}.{e}" for s in stems for q in ("duration", "rate") for e in ("png", "svg")]
    assert made == sorted([*wanted, "roofline-float32.png", "roofline-float32.svg"])
    assert f"{tmp_path / 'out'}: 7 figures, PNG and SVG (10 of 10 rows measured)" in done.output
    for png in (tmp_path / "out").rglob("*.png"):
        inked = (imread(png)[..., :3] < 0.9).any(axis=-1)
        assert 0.005 < inked.mean() < 0.5, png
        # Nothing is cut off at the edge.
        assert not inked[[0, -1]].any() and not inked[:, [0, -1]].any(), png
    assert "onednn" in (tmp_path / "out" / "roofline-float32.svg").read_text()


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    (run,) = load([write(tmp_path / "run.parquet", small())], find_datasheet)
    first, second = (save(run, tmp_path / name, SWEEPS) for name in ("a", "b"))
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_runs_are_drawn_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = write(tmp_path / "a.parquet", small()), write(tmp_path / "b.parquet", small(H100))
    assert invoke(a, b).exit_code == 0
    run = "2026-11-21T10-00-00Z-4f2a91c"
    for device in ("amd-epyc-9r14", "h100-sxm"):
        assert (tmp_path / "figures" / device / run / "gemm" / "some-rate.png").exists()


def refused(*arguments: object) -> str:
    done = invoke(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.output
    return str(done.stderr)


def test_refusals_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("not parquet")
    assert "text.parquet: not a whole parquet file" in refused(tmp_path / "text.parquet")
    assert "no such file" in refused(tmp_path / "none.parquet")
    (tmp_path / "empty").mkdir()
    assert "no .parquet file" in refused(tmp_path / "empty")
    table = pa.table({"x": [1]})
    pq.write_table(table.replace_schema_metadata({"roofbench.schema": "99"}), tmp_path / "other.parquet")
    assert "schema 99" in refused(tmp_path / "other.parquet")
    pq.write_table(table.replace_schema_metadata({"roofbench.schema": "1"}), tmp_path / "torn.parquet")
    assert "lacks the column" in refused(tmp_path / "torn.parquet")
    skipped = [dataclasses.replace(r, **NO_TIME) for r in small()]
    said_ = refused(write(tmp_path / "skipped.parquet", skipped))
    assert "no row has a time" in said_ and "10 skipped" in said_
    assert "nothing to draw" in refused(write(tmp_path / "no_rows.parquet", []))
    (tmp_path / "file").write_text("")
    file = write(tmp_path / "run.parquet", small())
    assert "cannot be written" in refused(file, "-o", tmp_path / "file" / "below")


def test_columns_that_disagree_are_refused(tmp_path: Path) -> None:
    other = row(CPU, "x", Stream(kind="copy", length=9, dtype="float32"), "aten")
    other = dataclasses.replace(other, parameters=parameters_text({"m": "a word"}))
    files = [write(tmp_path / "a.parquet", small()), write(tmp_path / "b.parquet", [other])]
    with pytest.raises(PlotError, match="different types"):
        load(files, find_datasheet)


def test_drawing_imports_neither_torch_nor_operators() -> None:
    program = (
        "import sys, plots.__main__\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'triton', 'kernels', 'pynvml'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=SWEEPS.parent, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
