"""`python -m bench import SOURCE FOLDER`: public files in, rows out, and nothing dropped silently."""

from __future__ import annotations

import bz2
import gzip
import json
import math
import random
from collections import Counter
from pathlib import Path

import openpyxl
import pyarrow.compute as pc
import pytest

import kernels
from bench.device.datasheet import find_datasheet
from bench.errors import UserError
from bench.interop.import_source import Aside, SourceOutcome, imported
from bench.interop.imported_problems import with_imported
from bench.interop.source_file import described, names
from bench.judge.read_runs import runs
from bench.store.parquet import tables
from bench.store.schema import Measurement
from tests.bench.public_tables import imports

FIND = with_imported(kernels.problem)
PUBLISHED = Path(__file__).parents[3] / "shared" / "published_gpu"
A100 = "NVIDIA A100-SXM4-80GB"
MADE = Path(__file__).with_name("made_source.yaml").read_text()


def outcome_of(tmp_path: Path, **files: bytes) -> SourceOutcome:
    """What is imported of these files, by `MADE`; `_DOT_` and `_IN_` in a name stand for `.` and `/`."""
    (tmp_path / "clone").mkdir(parents=True, exist_ok=True)
    (tmp_path / "made.yaml").write_text(MADE)
    for name, content in files.items():
        path = tmp_path / "clone" / name.replace("_DOT_", ".").replace("_IN_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    outcome = imported(described("made", tmp_path), tmp_path / "clone", tmp_path / "results", FIND)
    outcome.rows = list(outcome.rows)
    return outcome


def rows_of(outcome: SourceOutcome) -> list[Measurement]:
    return [row for each in outcome.rows for row in each.rows]


def ms(byte: float) -> float:
    """A time in which an A100 can move these bytes."""
    sheet = find_datasheet(A100)
    assert sheet and sheet.bandwidth_byte_per_s
    return 1e3 * byte / sheet.bandwidth_byte_per_s * random.uniform(1.1, 3)


def csv_of(*lines: str, head: str = "op,B,H,Latency") -> bytes:
    return "\n".join([head, *lines, ""]).encode()


def test_every_line_is_a_row_or_set_aside_with_its_reason(tmp_path: Path, seed: int) -> None:
    lines, kinds = [], Counter[str]()
    for number in range(200):
        kind = random.choice(["relu", "tanh", "add", "network", "unheard", "too fast", "no time", "half"])
        kinds[kind] += 1
        b, h = 100_000 + number, random.randint(1024, 4096)
        tensors = 3 if kind == "add" else 2
        time = {"too fast": ms(8 * b * h) / 10, "no time": math.nan}.get(kind, ms(4 * tensors * b * h))
        name = kind if kind in ("relu", "tanh", "add", "network", "unheard") else "relu"
        lines.append(f"{name},{b + 0.5 if kind == 'half' else b},{h},{time!r}")
    outcome = outcome_of(tmp_path, data_IN_vector_IN_a100_DOT_csv=csv_of(*lines))
    assert Counter(row.operator for row in rows_of(outcome)) == Counter(
        {"activations": kinds["relu"] + kinds["tanh"], "elementwise": kinds["add"]}
    )
    aside = Counter[str]()
    for what, count in outcome.aside.items():
        assert what.device == A100
        aside[what.reason] += count
    fast = {"too fast": "faster than 105% of the datasheet's bandwidth", "no time": "no time above zero"}
    halves = [count for reason, count in aside.items() if reason.startswith("n must be a whole number, not ")]
    assert sum(halves) == kinds["half"]
    for kind, reason in fast.items():
        assert aside[reason] == kinds[kind]
    assert aside["a whole network, which has no counted work"] == kinds["network"]
    assert aside["no rows are described for such a line"] == kinds["unheard"]
    assert len(rows_of(outcome)) + sum(outcome.aside.values()) == len(lines)


def test_a_row_says_whose_it_is_and_what_its_time_means(tmp_path: Path, seed: int) -> None:
    b, h = random.randint(10_000, 20_000), random.randint(1024, 4096)
    took = ms(8 * b * h)
    lines = csv_of(f"relu,{b},{h},{took!r},torch 2.1", head="op,B,H,Latency,note")
    (row,) = rows_of(outcome_of(tmp_path, vector__a100_DOT_csv=lines))
    assert (row.device_name, row.device_kind, row.sm_count) == (A100, "cuda", 108)
    assert row.median_s == pytest.approx(took * 1e-3) and row.low_s is None
    problem = kernels.problem("activations")(
        dtype="float32", function="relu", direction="forward", n=b, c=h, h=1, w=1
    )
    assert (row.byte, row.flop, json.loads(row.parameters)["n"]) == (problem.byte, problem.flop, b)
    how = (row.timed_by, row.statistic, row.clocks, row.time_includes)
    assert how == ("events", "mean", "free", "launch")
    assert row.kernels == f"relu [{b}]" and row.libraries == "their torch 2.1" and row.cache == "warm"
    assert row.source and row.source.startswith(
        "Somebody; vector__a100.csv; https://example.org/timings 0123456"
    )


def test_a_clone_and_the_flattened_files_are_the_same_rows(tmp_path: Path, seed: int) -> None:
    lines = csv_of(*(f"relu,{9_000 + number},2048,{ms(8 * 9_000 * 2048)!r}" for number in range(5)))
    clone = outcome_of(tmp_path / "1", data_IN_vector_IN_a100_DOT_csv=lines)
    flat = outcome_of(tmp_path / "2", vector__a100_DOT_csv_DOT_gz=gzip.compress(lines))
    both = [[(row.case, row.median_s) for row in rows_of(outcome)] for outcome in (clone, flat)]
    assert both[0] == both[1] and len(both[0]) == 5


def test_a_time_that_holds_a_launch_is_worth_something_from_ten_launches_on(
    tmp_path: Path, seed: int
) -> None:
    """The launch takes as long as the shortest time, but no longer than a launch can take."""
    cases = [(40_000, 200.0), (41_000, 0.02), (42_000, 0.19), (43_000, 0.21)]
    for least_ms, worthless in ((0.02, {41_000, 42_000}), (1.0, set())):
        there = [(n, ms) for n, ms in cases if least_ms == 0.02 or ms > 100]
        lines = [f"relu,{n},16,{time!r}" for n, time in there]
        outcome = outcome_of(tmp_path / str(least_ms), vector__a100_DOT_csv=csv_of(*lines))
        (run,) = runs(rows_of(outcome))
        flagged = {json.loads(row.parameters)["n"] for row in run.rows if "overhead" in run.flags_of(row)}
        assert flagged == worthless and all(row.clock_start_s is not None for row in run.rows)


def test_times_of_one_case_are_one_row_with_their_median(tmp_path: Path, seed: int) -> None:
    times = sorted(ms(8 * 9_000 * 2048) for _ in range(3))
    random.shuffle(shuffled := list(times))
    outcome = outcome_of(
        tmp_path, vector__a100_DOT_csv=csv_of(*(f"relu,9000,2048,{each!r}" for each in shuffled))
    )
    (row,) = rows_of(outcome)
    assert row.median_s == pytest.approx(times[1] * 1e-3)
    assert [(what.reason, count) for what, count in outcome.aside.items()] == [
        ("repeats a case: the median of its times counts", 2)
    ]


def test_nested_mappings_printed_lines_and_workbooks_are_read(tmp_path: Path, seed: int) -> None:
    ns, printed_ms, gemm_ms = (random.uniform(1e6, 2e6), random.uniform(3.0, 4.0), random.uniform(30.0, 40.0))
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Results FP32"
    for cells in (
        ["Precision", "Float"],
        [],
        ["Dense", None, "M", "N", "K", "Time  (msec)"],
        [None, "Speech", 5124, 700, 2048, gemm_ms],
        [],
        ["Sparse", None, "M", "N", "K", "Time  (msec)"],
        [None, None, 5124, 700, 2048, 1.0],
    ):
        sheet.append(cells)
    book.create_sheet("Specs").append(["GPU Model", A100])
    (tmp_path / "clone").mkdir()
    book.save(tmp_path / "clone" / "book.xlsx")
    took = {"time": {"ns": ns}}
    tree = {"device": A100, "(4096, 8192)": {"forward": took, "backward": took, "both": None}}
    outcome = outcome_of(
        tmp_path,
        nested_DOT_json=json.dumps(tree).encode(),
        printed_DOT_txt=f"[RELU, float]\n300000 | {printed_ms}\n[NOVEL]\n300000 | 7.0\n".encode(),
    )
    by_operator = {row.operator: row for row in rows_of(outcome)}
    assert by_operator["softmax"].median_s == pytest.approx(ns * 1e-9)
    assert (by_operator["softmax"].timed_by, by_operator["softmax"].cache) == ("kernel", "cold")
    assert by_operator["activations"].median_s == pytest.approx(printed_ms * 1e-3)
    assert by_operator["gemm"].median_s == pytest.approx(gemm_ms * 1e-3)
    assert json.loads(by_operator["gemm"].parameters)["m"] == 5124
    assert Counter(row.operator for row in rows_of(outcome)) == Counter(softmax=2, activations=1, gemm=1)
    files = [each.path for each in outcome.rows]
    assert len(set(files)) == len(files) == 2, "a file for each way of timing"
    assert sum(outcome.aside.values()) == 3, "the unknown function, the sparse product, and what did not run"


def test_a_line_with_several_times_is_as_many_lines(tmp_path: Path, seed: int) -> None:
    quick, slow, other = random.sample([3.0, 4.0, 5.0, 6.0, 7.0], 3)
    text = f"300000=aten:{quick};triton:{slow};naive:900\n300001=aten:{other}\n"
    outcome = outcome_of(tmp_path, packed_DOT_txt_DOT_bz2=bz2.compress(text.encode()))
    times = {
        (row.implementation, json.loads(row.parameters)["n"]): row.median_s * 1e3 for row in rows_of(outcome)
    }
    expected = {("aten", 300_000): quick, ("triton", 300_000): slow, ("aten", 300_001): other}
    assert times == pytest.approx(expected)
    assert outcome.aside == {Aside(A100, "", "a kernel of another kind"): 1}


def test_two_kernels_are_never_one_case_because_neither_has_a_name(tmp_path: Path) -> None:
    """As all_benchmark_data_cutile.csv of Liger's clones has them (BSD 2-clause), with made-up times."""
    columns = "kernel_name kernel_provider kernel_operation_mode metric_name metric_unit x_name x_label "
    columns += "x_value y_value_50 y_value_20 y_value_80 extra_benchmark_config_str gpu_name timestamp "
    columns += "liger_version"
    config = '"{""hidden_size"": 4096, ""dtype"": ""torch.bfloat16"", ""eps"": 1e-06, ""bsz"": 1}"'
    times = {"torch": 0.016, "liger_triton": 0.022, "liger_cutile": 0.02, "unheard_of": 0.01}
    lines = [
        f"layer_norm,{by},forward,speed,ms,T,Sequence length,1024,{ms},0,0,{config},NVIDIA B200,2026,0.8.0"
        for by, ms in times.items()
    ]
    (tmp_path / "all_benchmark_data_cutile.csv").write_bytes(csv_of(*lines, head=columns.replace(" ", ",")))
    outcome = imported(described("liger"), tmp_path, tmp_path / "results", FIND)
    told = {row.implementation: row.median_s for row in rows_of(outcome)}
    assert told == {"aten": 16e-6, "liger": 22e-6, "liger_cutile": 20e-6}
    assert outcome.aside == {Aside("NVIDIA B200", "layernorm", "no rows are described for such a line"): 1}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (csv_of("relu,9000,2048,1.0,7", head="op,B,H,Latency,power"), "has the column 'power'"),
        (csv_of("relu,9000,1.0", head="op,B,Latency"), "lacks the column H"),
        (b"\x1f\x8b damaged", "vector__a100.csv"),
        (csv_of("relu,many,2048,1.0", "relu,9000,2048,1.0"), "cannot be written: Unknown format code 'f'"),
    ],
)
def test_a_file_that_is_not_as_described_is_left_out_whole(tmp_path: Path, content: bytes, says: str) -> None:
    """One bad file does not hide the good one, and no row of it is kept."""
    good = csv_of(f"relu,9000,2048,{ms(8 * 9_000 * 2048)!r}")
    outcome = outcome_of(tmp_path, vector__a100_DOT_csv=content, data_IN_vector__t4_DOT_csv=good)
    assert [row.device_name for row in rows_of(outcome)] == ["t4"]
    assert any("left out" in remark and says in remark for remark in outcome.remarks), outcome.remarks
    with pytest.raises(UserError, match="holds no file of made that could be read"):
        outcome_of(tmp_path / "alone", vector__a100_DOT_csv=content)


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ("unit: ms", "unit: msec", "tables.0.rows.0.unit: Input should be 's', 'ms', 'us' or 'ns'"),
        ("licence: MIT", "license: MIT", "licence: Field required"),
        ("nested\\\\.json", "nested(", "no regular expression"),
        ("who: Somebody", "who: [", "not YAML"),
    ],
)
def test_a_mistake_in_a_description_is_one_sentence(
    tmp_path: Path, was: str, becomes: str, says: str
) -> None:
    assert was.replace("\\\\", "\\") in MADE
    (tmp_path / "made.yaml").write_text(MADE.replace(was.replace("\\\\", "\\"), becomes, 1))
    with pytest.raises(UserError, match=r"made\.yaml") as refused:
        described("made", tmp_path)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_every_description_names_operators_that_exist() -> None:
    for name in names():
        source = described(name)
        assert len(source.commit) == 40 or source.installed or not source.paths
        for table in source.tables:
            for entry in table.rows:
                fields = FIND(entry.operator).model_fields
                assert set(entry.parameters) <= set(fields), (name, entry.operator)
                lacking = {k for k, field in fields.items() if field.is_required()} - set(entry.parameters)
                assert not lacking, (name, entry.operator, lacking)


def test_the_command_refuses_a_folder_without_a_file_of_the_source(tmp_path: Path) -> None:
    code, _, refusal = imports(names()[0], tmp_path, "--bench-results", tmp_path / "results")
    assert code == 2 and refusal.startswith(f"error: {tmp_path}: holds no file of {names()[0]}")
    assert imports(names()[0], tmp_path / "nowhere")[0] == 2
    assert not (tmp_path / "results").exists()


def test_all_sources_fail_together_if_nothing_can_be_read_of_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not there, or is already, is no failure, nor one whose lines are of no operator here."""
    monkeypatch.setattr("bench.cli.imports.names", lambda: ["host_transfers", "pipedream"])
    table, head = tmp_path / "host_transfers" / "benchmark.csv", "bytes,h2d_pinned_gbps"
    table.parent.mkdir()

    def ends(*lines: str) -> int:
        others = ",h2d_pageable_gbps,d2h_pageable_gbps,d2h_pinned_gbps" if "gbps" in lines[0] else ""
        table.write_text("\n".join([lines[0] + others, *lines[1:], ""]))
        return imports("all", tmp_path, "--bench-results", tmp_path / "results")[0]

    assert imports("all", tmp_path / "a slip")[0] == 2
    assert ends(head, "1,0.01,,,") == 0 and not (tmp_path / "results").exists()
    assert ends("size,rate", "4096,2.5") == 1
    assert ends(head, "4096,-1,,,") == 1
    assert ends(head, "4096,2.5,,,") == 0 and (tmp_path / "results").exists()
    assert ends(head, "4096,2.5,,,") == 0


def test_warm_data_comes_from_memory_as_far_as_the_cache_does_not_hold_it(tmp_path: Path) -> None:
    """A layer of twice the cache may take half of what memory takes, and no less."""
    sheet = find_datasheet(A100)
    assert sheet and sheet.bandwidth_byte_per_s
    n = 2 * sheet.l2_byte // (8 * 1024)
    least_ms = 1e3 * sheet.l2_byte / sheet.bandwidth_byte_per_s
    lines = [f"relu,{n},1024,{0.97 * least_ms!r}", f"tanh,{n},1024,{0.93 * least_ms!r}"]
    outcome = outcome_of(tmp_path, vector__a100_DOT_csv=csv_of(*lines))
    assert [json.loads(row.parameters)["function"] for row in rows_of(outcome)] == ["relu"]


def sample_of(name: str, folder: Path) -> Path:
    """The folder with links to a few public files: of each of the source's tables the smallest file.

    Of documents, most of which hold no times, it is up to eight of all sizes; of a long text or table the
    first line and up to a thousand others.
    """
    whole = PUBLISHED / name
    files = sorted(
        (path.stat().st_size, path.relative_to(whole)) for path in whole.rglob("*") if path.is_file()
    )
    for table in described(name).tables:
        alike = [path for _, path in files if table.match(path)]
        assert alike, f"no public file of {name} is of the table {table.files}"
        for path in alike[:: math.ceil(len(alike) / 8) if table.reader.kind == "documents" else len(alike)]:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            packed = {".bz2": bz2, ".gz": gzip}.get(path.suffix)
            if packed and table.reader.kind in ("csv", "text"):
                lines = packed.decompress((whole / path).read_bytes()).splitlines(keepends=True)
                some = lines[:1] + lines[1 :: 1 + len(lines) // 1000]
                (folder / path).write_bytes(packed.compress(b"".join(some)))
            elif not (folder / path).exists():
                (folder / path).symlink_to(whole / path)
    return folder


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the public files are not beside this checkout")
@pytest.mark.parametrize("much", ["sample", pytest.param("whole", marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", [name for name in names() if not described(name).installed])
def test_the_public_files_are_imported(name: str, much: str, tmp_path: Path) -> None:
    """Rows come of them, no file is left out, and each line without a row has a known reason."""
    folder = PUBLISHED / name if much == "whole" else sample_of(name, tmp_path / "sample")
    results = tmp_path / "results"
    code, told, err = imports(name, folder, "--bench-results", results)
    assert code == 0 and "left out " not in err, err
    for reason in ("no rows are described for such a line", "cannot be nan"):
        assert reason not in told, told
    columns = ["status", "median_s", "source", "timed_by"]
    for _, table in tables([results], columns=columns):
        assert len(table) and set(table["status"].to_pylist()) == {"ok"}
        assert pc.min(table["median_s"]).as_py() > 0 and not any(table[name].null_count for name in columns)
