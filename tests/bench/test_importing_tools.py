"""`python -m bench import TOOL`: what six tools write, any CSV by `--map`, and what no device can do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kernels
from bench.interop.file_format import formats
from bench.interop.import_file import imported
from bench.interop.import_source import Aside
from bench.store import parquet
from tests.bench.test_importing_csv import HEAD, LINE, refusal, said, wrote

H100 = "NVIDIA H100 80GB HBM3"
CUTLASS = """Problem,Provider,OperationKind,Operation,Disposition,Status,m,n,k,A,B,C,batch_count,Runtime,GB/s
1,CUTLASS,gemm,one_nn,passed,success,4096,2048,1024,f16:column,f16:row,f16:column,1,0.05,9
1,CUTLASS,gemm,two_rows,passed,success,4096,2048,1024,bf16:row,bf16:column,bf16:row,1,0.05,9
1,CUTLASS,gemm,three,not_run,error_internal,4096,2048,1024,f16:column,f16:row,f16:column,1,0,0
1,CUTLASS,gemm,four,passed,success,4096,2048,1024,u4:column,u4:row,u4:column,1,0.05,9
1,CUTLASS,gemm,quick,passed,success,4096,2048,1024,f16:column,f16:row,f16:column,1,0.0005,9
"""
GOOGLE = """{"context": {"host_name": "box"}, "benchmarks": [
{"name": "BM_gemm/512", "run_type": "iteration", "real_time": 810, "time_unit": "us"},
{"name": "BM_gemm/512", "run_type": "iteration", "real_time": 830, "time_unit": "us"},
{"name": "BM_gemm/64", "real_time": 9000},
{"name": "BM_gemm_mean", "run_type": "aggregate", "real_time": 820, "time_unit": "us"},
{"name": "BM_gemm/1024", "run_type": "iteration", "error_occurred": true, "real_time": -nan}]}"""
NVBENCH = """{"devices": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "benchmarks": [{"name": "copy",
"states": [{"name": "a", "device": 0, "axis_values": [{"name": "N", "type": "int64", "value": "67108864"}],
 "is_skipped": false, "summaries": [{"tag": "nv/cold/time/gpu/mean", "name": "GPU Time",
 "data": [{"name": "value", "type": "float64", "value": "0.000201"}]}]},
{"name": "b", "device": 0, "axis_values": [{"name": "N", "type": "int64", "value": "1"}], "is_skipped": false,
 "summaries": [{"tag": "nv/cold/time/gpu/mean", "data": [{"name": "value", "value": "NaN"}]}]},
{"name": "c", "device": 0, "is_skipped": true, "summaries": null}]}]}"""
PYTEST = """{"machine_info": {"cpu": {"brand_raw": "AMD EPYC 9354"}}, "benchmarks": [
{"name": "test_gemm[512]", "params": {"size": 512}, "stats": {"min": 0.0009, "median": 0.00099}}]}"""
TRITONBENCH = "x_val;naive-latency;triton-latency;naive-speedup\n(4096, 1024);0.0239 (±2.27%);0.0218;1.0\n"
REPORT = "N,Triton (GB/s),Torch (GB/s)\n1024.000000,800.5,700\n2048.000000,,650.0\n"
GEMM = ("operator=gemm", "dtype=float32", "layout=NN")
SOFTMAX = (f"device={H100}", "operator=softmax", "dtype=float16", "direction=forward")
COPY = ("operator=stream", "implementation=aten", "dtype=float32", "kind=copy")

Read = tuple[str, str, list[str], dict[tuple[object, ...], float], list[str]]
"""Tool, its file, what `--map` says, the seconds of each implementation and size, what is said."""
FILES: list[Read] = [
    (
        *("cutlass-profiler", CUTLASS, [f"device={H100}"]),
        {("one_nn", "NT", 4096, 2048): 5e-5, ("two_rows", "TN", 2048, 4096): 5e-5},
        ["did not run", "a data type or a layout", "of the datasheet's peak in float16: are these seconds?"],
    ),
    (
        "google-benchmark",
        GOOGLE,
        [*GEMM, "device=Xeon", "implementation=onednn", "m=arg1", "n=arg1", "k=arg1"],
        {("onednn", "NN", 512, 512): 820e-6, ("onednn", "NN", 64, 64): 9e-6},
        ["1: an aggregate", "1: did not run", "1: gemm: repeats a case: the median"],
    ),
    (
        *("nvbench", NVBENCH, [*COPY, "length=axis_values.N"]),
        {("aten", "copy", 67108864): 201e-6},
        ["1: was skipped", "1: has no time"],
    ),
    (
        *("pytest-benchmark", PYTEST),
        [*GEMM, "implementation=numpy", "m=params.size", "n=params.size", "k=params.size"],
        {("numpy", "NN", 512, 512): 0.99e-3},
        [],
    ),
    (
        *("tritonbench", TRITONBENCH, [*SOFTMAX, "rows=x1", "length=x2"]),
        {("naive", 4096, 1024): 23.9e-6, ("triton", 4096, 1024): 21.8e-6},
        [],
    ),
    (
        *("perf-report", REPORT, [*SOFTMAX, "rows=4096", "length=N"]),
        {
            ("Triton", 4096, 1024): 2**24 / 800.5e9,
            ("Torch", 4096, 1024): 2**24 / 700e9,
            ("Torch", 4096, 2048): 2**25 / 650e9,
        },
        [],
    ),
]


@pytest.mark.parametrize(("tool", "text", "maps", "found", "says"), FILES, ids=[file[0] for file in FILES])
def test_a_tool_s_file_is_read_by_its_description(
    tool: str,
    text: str,
    maps: list[str],
    found: dict[tuple[object, ...], float],
    says: list[str],
    tmp_path: Path,
) -> None:
    file = wrote(tmp_path, text)
    code, told, err = said(file, tmp_path / "out", *mapped(*maps), tool=tool)
    assert code == 0, err
    times = {}
    for row in parquet.read_rows(next((tmp_path / "out").rglob("*.parquet"))):
        sizes = json.loads(row.parameters)
        chosen = [sizes[name] for name in ("layout", "kind", "rows", "length", "m", "n") if name in sizes]
        times[row.implementation, *chosen] = row.median_s
    assert times == {key: pytest.approx(seconds, rel=1e-6) for key, seconds in found.items()}
    aside = [line for line in told.splitlines() if line.startswith("set aside ")]
    assert len(aside) == len(says)
    assert all(any(sentence in line for line in aside) for sentence in says), told


def mapped(*words: str) -> list[str]:
    return [word for each in words for word in ("--map", each)]


def test_what_a_tool_does_not_say_is_asked_for(tmp_path: Path) -> None:
    file = wrote(tmp_path, GOOGLE)
    for given, says in (
        ("device=Xeon", "--map operator=... --map implementation=... --map dtype=..., a column or a value"),
        ("device=Xeon", "name 'BM_gemm/512'"),
        ("devise=x", "no column 'devise' (did you mean device"),
        ("device", "--map device: give COLUMN=VALUE"),
    ):
        code, _, err = said(file, tmp_path / "out", *mapped(given), tool="google-benchmark")
        assert code == 2 and says in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("heading", "cell", "words"),
    [
        ("time_ms", "0.19", ()),
        ("Latency (us)", "190", ()),
        ("TFLOP/s", "723.352", ()),
        ("took", "190000", ("ns=took",)),
        ("gbytes", "529.8", ("GB/s=gbytes",)),
        ("speed", "723352", ("gflops=speed", "note=other")),
    ],
)
def test_a_time_or_rate_may_have_any_unit(
    heading: str, cell: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    head = f"device,operator,implementation,dtype,m,n,k,layout,{heading}" + ",other" * bool(words)
    line = f"{H100},gemm,cublas,float16,4096,4096,4096,NN,{cell}" + ",x" * bool(words)
    code, _, err = said(wrote(tmp_path, head, line), tmp_path / "out", *mapped(*words))
    assert code == 0, err
    (row,) = parquet.read_rows(next((tmp_path / "out").rglob("*.parquet")))
    assert row.median_s == pytest.approx(190e-6, rel=1e-3)


def test_a_description_of_one_s_own_is_a_format_as_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in bench/interop/formats is a command of its name."""
    (tmp_path / "mine.yaml").write_text(
        "title: my own tool\n"
        "extract: {name: '^(?P<dtype>float16|float32)_(?P<size>\\d+)$'}\n"
        "left_out: {small: size < 100}\n"
        f"values: {{device: {H100}, operator: gemm, implementation: cublas, dtype: dtype, layout: NN,"
        " m: size, n: =2 * size, k: size, milliseconds: took}\n"
    )
    monkeypatch.setattr("bench.interop.file_format.FORMATS", tmp_path)
    file = wrote(tmp_path, "name,took", "float16_4096,0.4", "float32_64,0.1")
    outcome = imported(file, tmp_path / "out", kernels.names(), kernels.problem, "mine")
    ((row,),) = (each.rows for each in outcome.rows)
    assert formats() == ["mine"] and outcome.aside == {Aside("", "", "small"): 1}
    assert (row.dtype, row.median_s, json.loads(row.parameters)["n"]) == ("float16", 0.4e-3, 8192)


def test_what_is_physically_impossible_is_set_aside_with_the_question_it_raises(tmp_path: Path) -> None:
    head, line = HEAD.replace("seconds", "microseconds"), LINE.replace("64,128,256", "4096,4096,4096")
    quick, slow = line.replace("1e-5", "0.1872"), line.replace("1e-5", "187.2").replace("TN", "NN")
    question = (
        "set aside 1: gemm: faster than 105% of the datasheet's peak in bfloat16: are these milliseconds?"
    )
    assert question in refusal(tmp_path, head, quick)
    code, told, _ = said(wrote(tmp_path, head, quick, slow), tmp_path / "out")
    assert code == 0 and f"{question}\n" in told
