"""`python -m plots` as a person types it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from bench.device.datasheet import find_datasheet
from bench.judge.read_runs import load
from bench.spec import parameters_text
from bench.store.parquet import write
from bench.store.schema import SCHEMA
from kernels.gemm.problem import Gemm
from kernels.stream.problem import Stream
from plots.__main__ import app
from plots.base.saving import save_in
from plots.figures.every_figure import pages
from tests.plots.synthetic import CPU, H100, H200, NO_TIME, Machine, ceilings, row, small

ROOT = Path(__file__).parents[2]


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def ten_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result file of a small run."""
    kept = {"gemm/some": {"title": "Some", "plot": [{"x": "n", "lines": ["dtype"]}, {"x": "k"}]}}
    return write(tmp_path_factory.mktemp("ten") / "run.parquet", small(), kept)


def test_ten_rows_regenerate_every_figure(ten_rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = invoke(ten_rows, "-o", out)
    assert done.exit_code == 0, done.output
    made = sorted(str(p.relative_to(out)) for p in out.rglob("*.*"))
    names = [f"{s}-{q}" for s in ("ceilings/gemm", "ceilings/stream") for q in ("duration", "rate")]
    names += ["gemm/some-1-duration", "gemm/some-2-duration"]
    wanted = [f"{name}.{e}" for name in names for e in ("png", "svg")]
    assert made == sorted([*wanted, "roofline-float32.png", "roofline-float32.svg"])
    assert f"{out}: {len(names) + 1} figures, PNG and SVG (10 of 10 rows measured)" in done.output
    for png in out.rglob("*.png"):
        inked = (imread(png)[..., :3] < 0.9).any(axis=-1)
        assert 0.005 < inked.mean() < 0.5, png
        # Nothing is cut off at the edge.
        assert not inked[[0, -1]].any() and not inked[:, [0, -1]].any(), png
    assert "onednn" in (out / "roofline-float32.svg").read_text()
    # The same rows give the same bytes.
    (run,) = load([ten_rows], find_datasheet)
    said: list[str] = []
    again = save_in(tmp_path / "again", pages(run), said.append)
    assert len(said) == len(again) // 2 and said[0].endswith("figure 1, roofline-float32")
    assert [p.read_bytes() for p in again] == [
        (out / p.relative_to(tmp_path / "again")).read_bytes() for p in again
    ]


def gpu(folder: Path, machine: Machine, name: str, *, roofs: bool = True, **facts: Any) -> Path:
    """A result file with a few rows of one data type: each figure takes its time."""
    sizes = (Gemm(m=s, n=s, k=s, dtype="float16") for s in (96, 192, 384, 768))
    rows = [one for one in ceilings(machine) if roofs and (one.dtype == "float16" or not one.flop)]
    rows += [row(machine, "gemm/some", size, "cublas", low_s=None, high_s=None) for size in sizes]
    return write(folder / name, [dataclasses.replace(one, **facts) for one in rows])


def test_several_runs_are_drawn_apart_and_compared_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [
        gpu(tmp_path, one, name, roofs=False) for one, name in ((H200, "z.parquet"), (H100, "a.parquet"))
    ]
    done = invoke(*files)
    assert done.exit_code == 0, done.output
    compared = Path("figures", "compared")
    stems = {path.stem for path in compared.iterdir()}
    assert "generations" in stems
    assert "Speed-up over h200" in (compared / "generations.svg").read_text()
    assert f"{compared}: {len(stems)} figures of 2 runs together, PNG and SVG" in done.output
    for device in ("nvidia-h200", "h100-sxm"):
        assert Path("figures", device, "2026-11-21T10-00-00Z-4f2a91c", "gemm", "some-duration.svg").exists()


def two_hosts(folder: Path) -> list[Path]:
    """Runs of two hosts of one kind of CPU that began in the same second."""
    files = []
    for host in ("1f3c9a02b4d5", "9b2e00c1d7aa"):
        rows = [dataclasses.replace(one, device_id=host) for one in small() if one.sweep == "gemm/some"]
        kept = {"gemm/some": {"title": f"On {host}", "plot": [{"x": "n", "lines": ["dtype"]}]}}
        files.append(write(folder / host / CPU.facts["device"] / "run.parquet", rows, kept))
    return files


def test_hosts_that_began_in_the_same_second_are_drawn_in_folders_of_their_own(tmp_path: Path) -> None:
    two_hosts(tmp_path / "results")
    done = invoke(tmp_path / "results", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "together" not in done.output
    device, run = CPU.facts["device"], small()[0].run_id
    drawn = []
    for host in ("1f3c9a02b4d5", "9b2e00c1d7aa"):
        folder = tmp_path / "out" / device / f"{run}-{host[:8]}"
        assert f"{folder}: " in done.output
        drawn.append((folder / "gemm" / "some-duration.svg").read_text())
        assert f"On {host}" in drawn[-1] and "4 of 4 rows measured" in done.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {device}


def test_devices_without_a_common_case_are_told_of(tmp_path: Path) -> None:
    files = [
        write(
            tmp_path / f"{m}.parquet",
            [row(machine, "gemm/some", Gemm(m=m, n=8, k=8, dtype="float16"), "cublas")],
        )
        for machine, m in ((H100, 8), (H200, 16))
    ]
    done = invoke(*files, "-o", tmp_path / "out")
    assert done.exit_code == 0
    assert "nvidia-h200 has no case in common with h100-sxm: no speed-ups are drawn" in done.stderr
    assert not (tmp_path / "out" / "compared" / "generations.svg").exists()


def test_score_prints_a_table_and_writes_the_same_as_json(tmp_path: Path) -> None:
    files = [
        gpu(tmp_path, H100, "a.parquet"),
        gpu(tmp_path, H200, "b.parquet", source="somebody 1.0; a file"),
    ]
    done = invoke("score", *files, "--json", tmp_path / "scores.json")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "scores.json").read_text())
    sources = {"h100-sxm": None, "nvidia-h200": "somebody 1.0"}
    assert list(dict.fromkeys(one["device"] for one in found)) == list(sources)
    for device, source in sources.items():
        some = [one for one in found if one["device"] == device]
        assert [one["level"] for one in some][:2] == ["L0", "L1"]
        assert {(one["operator"], one["source"]) for one in some} == {("gemm", source)}
        assert len({one["n"] for one in some}) == 1
    lines = [line.split() for line in done.output.splitlines()]
    for one in found:
        (shown,) = [line for line in lines if line[:3] == [one["operator"], one["device"], one["level"]]]
        errors = [f"{one[name]:.1f}" for name in ("mape", "median", "p90")]
        assert shown[3:8] == [str(one["n"]), *errors, f"{one['ratio']:.3f}"]
        assert (shown[8:] == ["imported:", "somebody", "1.0"]) == (one["source"] is not None)
    assert done.output.count("Scored: ") == 1


def refused(*arguments: object) -> str:
    done = invoke(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.output
    return str(done.stderr)


def test_refusals_are_one_sentence(tmp_path: Path) -> None:
    """Of files that are none of ours: test_refusals.py."""
    table = pa.table({"x": [1]})
    pq.write_table(
        table.replace_schema_metadata({"roofbench.schema": str(SCHEMA)}), tmp_path / "torn.parquet"
    )
    assert "lacks the column" in refused(tmp_path / "torn.parquet")
    skipped = write(tmp_path / "skipped.parquet", [dataclasses.replace(r, **NO_TIME) for r in small()])
    for words in ((), ("score",)):
        assert "no row has a time" in refused(*words, skipped)
    (tmp_path / "file").write_text("")
    file = write(tmp_path / "run.parquet", small())
    assert "cannot be written" in refused(file, "-o", tmp_path / "file" / "below")
    nowhere = invoke("score", file, "--json", tmp_path / "file" / "below")
    assert nowhere.exit_code == 2 and "below: cannot be written: " in nowhere.stderr


def test_parameters_of_one_name_may_differ_in_type(tmp_path: Path) -> None:
    other = row(CPU, "x", Stream(kind="copy", length=9, dtype="float32"), "aten")
    other = dataclasses.replace(other, run_id="other", parameters=parameters_text({"m": "a word"}))
    files = [write(tmp_path / "a.parquet", small()), write(tmp_path / "b.parquet", [other])]
    words, numbers = sorted(load(files, find_datasheet), key=lambda run: len(run.rows))
    assert words.frame["m"].tolist() == ["a word"] and numbers.frame["m"].dropna().dtype == float


def test_several_units_of_a_kind_are_not_drawn_as_one(tmp_path: Path) -> None:
    for unit in range(3):
        rows = [
            dataclasses.replace(each, device_id=f"unit{unit}", host=f"node{unit}", utc=f"2026-11-2{unit}")
            for each in small(H100)
            if each.sweep == "gemm/some"
        ]
        write(tmp_path / f"node{unit}" / "20261121T100000Z-4f2a91c.parquet", rows)
    done = invoke(tmp_path, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "(4 of 4 rows measured)" in done.output
    assert "h100-sxm: results of several units; node2" in done.stderr
    assert "python -m bench fleet RESULT" in done.stderr
