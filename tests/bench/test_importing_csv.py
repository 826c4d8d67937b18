"""`python -m bench import csv`: numbers in, rows out, every mistake with its line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kernels
from bench.device.datasheet import find_datasheet
from bench.store import parquet, schema
from bench.store.parquet import read_frame
from tests.bench.public_tables import imports

HEAD = "device,operator,implementation,dtype,m,n,k,layout,seconds"
LINE = "NVIDIA H200,gemm,cublas,bfloat16,64,128,256,TN,1e-5"


def said(file: Path, results: Path, *words: str, tool: str = "csv") -> tuple[int, str, str]:
    return imports(tool, file, "--bench-results", results, *words)


def wrote(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "numbers.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def rows(tmp_path: Path, *lines: str) -> list[schema.Measurement]:
    """The rows of the one file that becomes of these lines."""
    code, _, err = said(wrote(tmp_path, *lines), tmp_path / "out")
    assert code == 0, err
    (path,) = (tmp_path / "out").rglob("*.parquet")
    return parquet.read_rows(path)


def refusal(tmp_path: Path, *lines: str, words: tuple[str, ...] = ()) -> str:
    """The sentence by which these lines are refused, without the file's folder. Nothing is written."""
    code, out, err = said(wrote(tmp_path, *lines), tmp_path / "out", *words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1 and err.startswith(f"error: {tmp_path}/numbers.csv")
    assert not (tmp_path / "out").exists()
    return err.strip().removeprefix(f"error: {tmp_path}/")


def test_gemm_is_counted_by_its_problem(tmp_path: Path, chance: np.random.Generator) -> None:
    sizes = np.unique(chance.integers(1, 10**5, (30, 3)), axis=0)
    times = chance.uniform(3, 10, len(sizes))  # of the largest, 2 s at the peak
    lines = [
        f"NVIDIA H200,gemm,cublas,float16,{m},{n},{k},NT,{time!r}"
        for (m, n, k), time in zip(sizes.tolist(), times.tolist(), strict=True)
    ]
    found = rows(tmp_path, HEAD, *lines)
    for row, (m, n, k), time in zip(found, sizes.tolist(), times.tolist(), strict=True):
        problem = kernels.problem("gemm")(dtype="float16", layout="NT", m=m, n=n, k=k)
        assert json.loads(row.parameters) == problem.parameters()
        assert row.median_s == time
        assert (row.flop, row.byte) == (problem.flop, problem.byte)
        assert row.byte_moved == problem.byte_moved("cublas")
        assert (row.byte_written, row.byte_again, row.moved_written) == (problem.byte_written, 0, 2 * m * n)


def test_what_is_said_and_what_is_not(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, HEAD, LINE)
    sheet = find_datasheet("NVIDIA H200")
    assert sheet is not None
    assert (row.device, row.device_kind, row.sm_count) == ("nvidia-h200", "cuda", sheet.sm_count)
    assert row.cache_byte == sheet.l2_byte
    assert row.source is not None and row.source.split("; ")[0] == "numbers.csv"
    assert (row.sweep, row.role, row.cache, row.status) == ("imported/csv", "measurement", "warm", "ok")
    assert row.low_s is row.high_s is row.samples_s is row.sm_clock_hz is None
    assert row.utc == row.driver == row.clock == row.fill == row.commit == ""
    (path,) = (tmp_path / "out").rglob("*.parquet")
    assert path == tmp_path / "out" / "imported" / "nvidia-h200" / f"{row.run_id}.parquet"


def test_every_column(tmp_path: Path) -> None:
    head = (
        "device;operator;implementation;dtype;function;direction;n;c;h;w;microseconds;low_s;high_s;sweep;role;cache;"
        "threads;device_kind;source;note;library;driver"
    )
    line = (
        "Epyc 9;activations;aten;float32;relu;forward;1;2;3;4;1000;0.0009;0.0011;a/b;roof;cold;"
        "7;cpu; J. Doe ;quick;oneDNN 3;6.8"
    )
    (row,) = rows(tmp_path, head, line)
    assert row.median_s == pytest.approx(1e-3, rel=1e-12) and (row.low_s, row.high_s) == (0.0009, 0.0011)
    assert (row.sweep, row.role, row.cache) == ("a/b", "roof", "cold")
    assert (row.threads, row.device_kind) == (7, "cpu")
    assert (row.libraries, row.driver) == ("oneDNN 3", "6.8")
    assert row.source is not None and row.source.startswith("J. Doe; ") and row.source.endswith("; quick")
    assert (row.operator, row.arithmetic, row.rate) == ("activations", "vector", "byte")


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("apart", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_what_spreadsheets_write(tmp_path: Path, ends: str, apart: str, mark: str) -> None:
    file = tmp_path / "numbers.csv"
    text = mark + "".join(line.replace(",", apart) + ends for line in (HEAD, LINE))
    file.write_bytes(text.encode())
    assert said(file, tmp_path / "out")[0] == 0
    ((path,),) = [list((tmp_path / "out").rglob("*.parquet"))]
    (row,) = parquet.read_rows(path)
    assert (row.median_s, row.dtype, row.device_name) == (1e-5, "bfloat16", "NVIDIA H200")


@pytest.mark.parametrize(("device", "near"), [("NVIDIA H2000", "h200"), ("V100", "v100_sxm2_16gb")])
def test_a_slip_in_a_device_s_name_is_remarked_on(device: str, near: str, tmp_path: Path) -> None:
    code, _, err = said(wrote(tmp_path, HEAD, changed("device", device)), tmp_path / "out")
    says = f"{device}: no file in bench/device/datasheets has this name (did you mean {near}"
    assert code == 0 and says in err


def test_an_unknown_device_is_called_as_in_its_first_line(tmp_path: Path) -> None:
    other = changed("device", "my-x9000").replace("64", "8")
    found = rows(tmp_path, HEAD, changed("device", "My X9000"), other)
    assert [row.device_name for row in found] == ["My X9000"] * 2


@pytest.mark.parametrize(
    "name", ["h100_sxm5", "H100 SXM5 80 GB", "nvidia-h100-80gb-hbm3", "NVIDIA H100 80GB HBM3"]
)
def test_a_gpu_by_any_of_its_names_has_its_driver_s(name: str, tmp_path: Path) -> None:
    (row,) = rows(tmp_path, HEAD, changed("device", name))
    assert (row.device, row.device_name) == ("nvidia-h100-80gb-hbm3", "NVIDIA H100 80GB HBM3")


def test_a_device_each_and_one_that_is_unknown(tmp_path: Path) -> None:
    file = wrote(tmp_path, HEAD, LINE, LINE.replace("H200", "X9000"))
    code, out, err = said(file, tmp_path / "out")
    assert code == 0
    files = [str(path) for path in sorted((tmp_path / "out").rglob("*.parquet"))]
    assert len(files) == 2 and out.endswith(
        f"csv: 2 rows in 2 files\nnow: python -m plots {' '.join(files)}\n"
    )
    assert len(err.splitlines()) == 1
    assert err.startswith("NVIDIA X9000: no file in bench/device/datasheets has this name")
    found = read_frame([tmp_path / "out"]).set_index("device")
    assert found.loc["nvidia-x9000", "sm_count"] == 0 and found.loc["nvidia-h200", "sm_count"] == 132
    assert found["run_id"].nunique() == 1


def test_the_same_file_twice_is_refused_by_its_content(tmp_path: Path) -> None:
    first = wrote(tmp_path, HEAD, LINE)
    other = first.rename(tmp_path / "renamed.csv")
    assert said(other, tmp_path / "out")[0] == 0
    code, out, err = said(wrote(tmp_path, HEAD, LINE), tmp_path / "out")
    assert (code, out) == (2, "") and "already imported as" in err and len(err.splitlines()) == 1
    assert said(wrote(tmp_path, HEAD, LINE.replace("1e-5", "2e-5")), tmp_path / "out")[0] == 0
    assert len(list((tmp_path / "out").rglob("*.parquet"))) == 2


def changed(column: str, value: str) -> str:
    names, cells = HEAD.split(","), LINE.split(",")
    cells[names.index(column)] = value
    return ",".join(cells)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (changed("operator", "gem"), "no operator 'gem' (did you mean gemm?); it has activations, attention"),
        (changed("implementation", "cudnn"), "gemm has no implementation 'cudnn'; it has cublas"),
        (changed("implementation", "onednn"), "onednn runs on cpu, not on cuda"),
        (changed("m", ""), "gemm needs m"),
        (changed("m", "64.0"), "m must be a whole number, not 64.0"),
        (changed("layout", "XY"), "layout cannot be 'XY'; it is one of NN, NT, TN, TT"),
        (changed("seconds", ""), "a line needs time"),
        (changed("seconds", "nan"), "time must be a finite number, not 'nan'"),
        (changed("seconds", "quick"), "time must be a number, not 'quick'"),
        (changed("device", ""), "a line needs device"),
        (changed("device", "???"), "device '???' has no letter or digit"),
        (LINE, "is the case of line 2 again; one line a case"),
        (LINE + ",", "has 10 cells; the first line names 9"),
        ('"NVIDIA H200', "unexpected end of data"),
    ],
)
def test_a_mistake_in_a_line(tmp_path: Path, line: str, says: str) -> None:
    """Its own line is named, and the sound line before it is not written."""
    sentence = refusal(tmp_path, HEAD, LINE, line)
    assert sentence.startswith("numbers.csv:3: ") and says in sentence


@pytest.mark.parametrize(
    ("head", "cell", "says"),
    [
        ("low_s", "1e-6", "an interval has two ends"),
        ("low_s,high_s", "2e-5,3e-5", "do not enclose the time"),
        ("low_s,high_s", "0,1", "low_s must be above 0, not '0'"),
        ("sweep", "../x", "sweep '../x': a name is letters"),
        ("device_kind", "cpu", "NVIDIA H200 SXM 141 GB is a GPU"),
        ("window", "3", "gemm has no parameter 'window'; it has dtype, m, n, k"),
    ],
)
def test_a_mistake_in_a_further_column(tmp_path: Path, head: str, cell: str, says: str) -> None:
    sentence = refusal(tmp_path, f"{HEAD},{head}", f"{LINE},{cell}")
    assert sentence.startswith("numbers.csv:2: ") and says in sentence


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (HEAD.replace("seconds", "secnds"), "such a file has no column 'secnds' (did you mean seconds"),
        (HEAD.replace("device", "driver"), "does not say device: give --map device=..., a column or a value"),
        (HEAD.replace("seconds", "note"), "does not say microseconds: give --map microseconds=..., a column"),
        (HEAD.replace("layout", "microseconds"), "one column is the time or a rate: nanoseconds"),
        (HEAD.replace("layout", "m"), "each column needs a name of its own, not device, operator"),
        (HEAD.replace("layout", ""), "each column needs a name of its own, not device, operator"),
    ],
)
def test_a_mistake_in_the_first_line(tmp_path: Path, head: str, says: str) -> None:
    sentence = refusal(tmp_path, head, LINE)
    assert sentence.startswith("numbers.csv:1: ") and says in sentence


def test_files_that_are_no_table(tmp_path: Path) -> None:
    assert "numbers.csv: is empty" in refusal(tmp_path, "", " ")
    assert "numbers.csv: has no line below its first" in refusal(tmp_path, HEAD)
    assert "does not say device: give --map device=..., a column or a value; there is x, " in refusal(
        tmp_path, HEAD.replace("device", "x"), words=("--map", "note=x")
    )
    file = tmp_path / "numbers.csv"
    file.write_bytes(b"\xff\xfe\x00d\x00e")
    code, _, err = said(file, tmp_path / "out")
    assert code == 2 and "is not text in UTF-8" in err and len(err.splitlines()) == 1
    for missing in (tmp_path / "nothing.csv", tmp_path):
        code, _, err = said(missing, tmp_path / "out")
        assert code == 2 and "cannot be read" in err and len(err.splitlines()) == 1


def test_a_decimal_comma_is_refused_and_not_misread(tmp_path: Path) -> None:
    head, line = HEAD.replace(",", ";"), LINE.replace(",", ";").replace("1e-5", "0,00001")
    assert "must be a number, not '0,00001'" in refusal(tmp_path, head, line)


def test_an_implementation_for_both_kinds_on_an_unknown_device(tmp_path: Path) -> None:
    head = "device,operator,implementation,dtype,rows,length,direction,seconds"
    line = "Some Chip,softmax,aten,float32,8,16,forward,1e-5"
    assert "say which it is in a column device_kind" in refusal(tmp_path, head, line)
    # One that runs on one kind only needs no word.
    only = LINE.replace("NVIDIA H200", "Some Chip").replace("cublas", "onednn")
    for place, kind, lines in (
        ("a", "cpu", (f"{head},device_kind", f"{line},cpu")),
        ("b", "cuda", (f"{head},device_kind", f"{line},cuda")),
        ("c", "cpu", (HEAD, only)),
    ):
        (tmp_path / place).mkdir()
        (row,) = rows(tmp_path / place, *lines)
        assert row.device_kind == kind
