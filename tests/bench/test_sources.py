"""Sources one by one: DeepBench, DeepGEMM and TorchTitan, gpu-benches, KernelBench, PipeDream."""

from __future__ import annotations

import json
import random
from pathlib import Path

import openpyxl
import pytest

from bench.errors import UserError
from bench.interop.import_source import Aside, SourceOutcome, imported
from bench.interop.imported_problems import Recurrence
from bench.interop.source_file import described
from tests.bench.test_importing_sources import FIND, rows_of


def outcome_of(source: str, folder: Path) -> SourceOutcome:
    outcome = imported(described(source), folder, folder / "results", FIND)
    outcome.rows = list(outcome.rows)
    return outcome


# ---- DeepBench's workbooks: headings in several spellings, titles in rows of their own, words for times


SECTIONS = {
    "Dense Matrix Multiplication": [
        "M", "N", "K ", "A Transpose", "B Transpose", None, "Time (msec)", "TERAFLOPS"
    ],
    "Recurrent Layers - LSTM": [
        "Hidden Units", "N", "Timesteps", None, "Time Forward (msec) ", "Time Backward  wrt Inputs (msec)",
        "Time Backward wrt weights (msec)", "TERAFLOPS FWD",
    ],
    "Convolution": [
        "W", "H", "C (channels)", "N", "K  (number of filters)", "S (Filter width)", "R", "pad_w", "pad_h",
        "Horizontal Stride", "Vertical stride", "Forward (msec)", "wrt Inputs (msec)",
        "wrt Parameters (msec)", "Forward Algorithm",
    ],
}  # fmt: skip


def outcome_of_workbook(
    folder: Path, path: str, sheets: dict[str, tuple[str, dict[str, list[list[object]]]]], **specs: object
) -> SourceOutcome:
    """What becomes of a workbook: title of a sheet -> its precision, and lines below `SECTIONS`' headings."""
    book = openpyxl.Workbook()
    for title, (precision, sections) in sheets.items():
        sheet = book.create_sheet(title)
        sheet.append(["Precision", precision])
        for section, lines in sections.items():
            if section == "Convolution":
                sheet.append([section])
                sheet.append([None, None, *SECTIONS[section]])
            else:
                sheet.append([section, None, *SECTIONS[section]])
            for line in lines:
                sheet.append([None, "some use", *line])
            sheet.append([])
            sheet.append([None, None, None, "* = a remark"])
    for key, value in specs.items():
        (book["Specs"] if "Specs" in book.sheetnames else book.create_sheet("Specs")).append(
            [key.replace("_", " "), value]
        )
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    book.save(folder / path)
    return outcome_of("deepbench", folder)


@pytest.mark.parametrize("title", ["Results FP32", "FP32"])
def test_each_table_of_each_sheet(title: str, tmp_path: Path, seed: int) -> None:
    ms = [random.uniform(1.0, 2.0) for _ in range(9)]
    tables: dict[str, list[list[object]]] = {
        "Dense Matrix Multiplication": [[5124, 35, 2048, "T", "N", None, ms[0], 1.0]],
        "Recurrent Layers - LSTM": [[512, 16, 25, None, ms[1], ms[2], ms[3], 1.0]],
        "Convolution": [[700, 161, 1, 4, 30, 20, 5, 0, 0, 2, 2, ms[4], "N/A*", ms[5], "WINOGRAD"]],
    }
    half: dict[str, list[list[object]]] = {
        "Dense Matrix Multiplication": [[5124, 35, 2048, "N", "T", None, ms[6], 1.0]],
        "Convolution": [
            [700, 161, 1, 4, 30, 20, 5, 0, 0, 2, 2, ms[7], "N/A*", ms[8], "IMPLICIT_PRECOMP_GEMM"]
        ],
    }
    sheets = {
        title: ("Float", tables),
        "Results - FP16 ip, Mixed math": ("16 bit inputs, 16 bit multiplication, 32 bit addition", half),
    }
    path = "results/train/DeepBench_NV_TitanNext.xlsx"
    found = outcome_of_workbook(
        tmp_path, path, sheets, CUDA_Version="10.1.243", Cudnn_Version="7.6.2.24", Motherboard="a board"
    )
    (rows,) = (each.rows for each in found.rows)
    assert {row.device for row in rows} == {"titannext"}
    assert {row.libraries for row in rows} == {"CUDA 10.1.243, cuDNN 7.6.2.24"}
    # In NT m and n are lengths of rows: of float16 both are padded to multiples of 8, and k is not.
    products = {row.dtype: row for row in rows if row.operator == "gemm"}
    assert (products["float32"].product_m, products["float32"].product_n) == (5124, 35)
    assert (products["float16"].product_m, products["float16"].product_n) == (5128, 40)
    assert products["float16"].product_k == 2048
    assert products["float16"].median_s == pytest.approx(ms[6] * 1e-3)
    # An LSTM of 512 has four matrices 512 x 512, times 16 sequences of 25 steps, in each of three passes.
    recurrent = [row for row in rows if row.operator == "recurrence"]
    assert {row.flop for row in recurrent} == {2 * 4 * 512 * 512 * 16 * 25}
    assert sorted(row.median_s for row in recurrent) == pytest.approx(sorted(1e-3 * each for each in ms[1:4]))
    # Windows of 20 x 5, 2 points apart, on 700 x 161: 341 x 79. float16 has 8 channels for 1 and 32 for 30.
    outputs = 4 * 341 * 79
    convolutions = [row for row in rows if row.operator == "convolution"]
    for flop, places in ((2 * outputs * 30 * 1 * 100, (4, 5)), (2 * outputs * 32 * 8 * 100, (7, 8))):
        times = sorted(row.median_s for row in convolutions if row.flop == flop)
        assert times == pytest.approx(sorted(1e-3 * ms[place] for place in places))
    assert found.aside == {Aside("TitanNext", "convolution", "no time above zero"): 2}


def test_what_int8_computes_is_set_aside(tmp_path: Path) -> None:
    tables: dict[str, list[list[object]]] = {
        "Dense Matrix Multiplication": [[5124, 700, 2048, "N", "N", None, 0.5, 1.0]],
        "Recurrent Layers - LSTM": [[512, 1, 25, None, 0.5, None, None, 1.0]],
    }
    words = "GEMM, Conv: Int8 multiplication, 32 bit accumulation; Sparse Ops, RNN: single precision"
    found = outcome_of_workbook(
        tmp_path, "inference/server/DeepBench_NV_X.xlsx", {"Results - Mixed": (words, tables)}
    )
    assert [row.operator for row in rows_of(found)] == ["recurrence"]
    assert list(found.aside.values()) == [1]


def test_what_a_recurrence_counts() -> None:
    sizes = {"dtype": "float16", "cell": "gru", "batch": 2, "hidden": 8, "steps": 3}
    forward, dx, dw = (
        Recurrence.model_validate({**sizes, "direction": direction})
        for direction in ("forward", "activation_gradient", "weight_gradient")
    )
    weights, state, y = 3 * 8 * 8, 2 * 8, 3 * 2 * 8
    assert forward.flop == dx.flop == dw.flop == 2 * weights * 2 * 3
    assert (forward.byte_read, forward.byte_written) == (2 * (y + state + weights), 2 * (y + state + 3 * y))
    assert (dx.byte_read, dx.byte_written) == (2 * (y + state + weights + 3 * y), 2 * (y + state + 3 * y))
    assert (dw.byte_read, dw.byte_written) == (2 * (y + 3 * y), 2 * weights)
    assert forward.byte_moved("cudnn-standard") - forward.byte == 2 * 2 * weights
    assert dw.byte_moved("cudnn-standard") == dw.byte


# ---- documents: tables in Markdown


def times_of(outcome: SourceOutcome) -> dict[str, float | None]:
    """The seconds of each row, by implementation and parameters."""
    return {f"{row.implementation} {row.parameters}": row.median_s for row in rows_of(outcome)}


def document(tables: list[dict[str, object]]) -> str:
    """Markdown with these tables, and what is none: scripts, one without its end, and a line with a bar."""
    lines = ["# Timings", "", "```sh", "# not closed", "```sh", "# no heading", "a | b", "--- | ---", "```"]
    lines += ["```one line```", "```another```", "x | y", ""]
    for table in tables:
        header, rows = table["header"], table["rows"]
        assert isinstance(header, list) and isinstance(rows, list)
        lines += [f"## {table['section']}", "", "| " + " | ".join(f"**{name}**" for name in header) + " |"]
        lines += ["|" + " ---: |" * len(header), *("| " + " | ".join(row) + " |" for row in rows), ""]
    return "\n".join(lines)


def test_tables_in_markdown_are_read_and_code_is_not(tmp_path: Path) -> None:
    rates = [random.randint(100, 400) for _ in range(3)]  # beyond 430 the small product beats the memory
    tables: list[dict[str, object]] = [
        {
            "section": "Normal GEMMs",
            "header": ["M", "N", "K", "Computation", "Speedup"],
            "rows": [["64", "2112", "7168", f"{rates[0]} TFLOPS", "2x"], ["64", "64", "64", "not run", ""]],
        }
    ]
    for layout, rate in zip(("contiguous", "masked"), rates[1:], strict=True):
        header = ["#Groups", "M per group", "N", "K", "Computation"]
        rows = [["4", "256", "4096", "7168", f"{rate} TFLOPS"]]
        tables.append({"section": f"Grouped GEMMs ({layout} layout)", "header": header, "rows": rows})
    (tmp_path / "README.md").write_text(document(tables))

    outcome = outcome_of("deepgemm", tmp_path)

    flops = [2 * 64 * 2112 * 7168, *[2 * 4 * 256 * 4096 * 7168] * 2]
    expected = [1e-12 * flop / rate for flop, rate in zip(flops, rates, strict=True)]
    assert sorted(filter(None, times_of(outcome).values())) == pytest.approx(sorted(expected))
    assert {aside.reason: n for aside, n in outcome.aside.items()} == {"no time of a product": 1}


# ---- gpu-benches' printed tables: a rate for each pass beside the other, in an older form and a newer


NEWER = "{threads:>4} {threads:>9} {blocks:>7} {occupancy:>8}%     |  GB/s: {rates}"
OLDER = "{threads:>9} {threads:>11} {occupancy:>7} %  |  GB/s: {rates}"


def outcome_of_printed(folder: Path, **files: str) -> SourceOutcome:
    for name, text in files.items():
        (folder / f"gpu-{name}.txt").write_text(text)
    return outcome_of("gpu_benches", folder)


@pytest.mark.parametrize(
    ("form", "length", "kinds", "timed_by", "aside"),
    [
        (NEWER, 2**28 + 2, {"write", "read", "copy"}, "events", 3),
        (OLDER, 2**27 + 2, {"write", "read", "copy", "triad"}, "wall", 2),
    ],
)
def test_both_forms_of_a_stream_are_read_as_what_they_are(
    tmp_path: Path, form: str, length: int, kinds: set[str], timed_by: str, aside: int
) -> None:
    rates = [random.randint(100, 800) for _ in range(6)]
    line = form.format(threads=1024, blocks=2, occupancy=100.0, rates="   ".join(map(str, rates)))

    outcome = outcome_of_printed(tmp_path, stream__v100=f"block threads | init read\n{line}\n")

    rows = rows_of(outcome)
    kinds_of = {json.loads(row.parameters)["kind"]: row for row in rows}
    assert set(kinds_of) == kinds
    for kind, rate in zip(("write", "read", "copy"), rates, strict=False):
        row = kinds_of[kind]
        assert row.median_s == pytest.approx(row.byte / rate / 1e9)
        assert row.byte == {"write": 8, "read": 8, "copy": 16}[kind] * length
    assert {row.timed_by for row in rows} == {timed_by}
    assert sum(outcome.aside.values()) == aside
    assert not [remark for remark in outcome.remarks if "left out" in remark]


def test_blocks_are_told_by_place_from_the_end_and_a_line_that_was_cut_off_is_none(tmp_path: Path) -> None:
    rates = [random.randint(20, 60) for _ in range(7)]
    lines = f"4096  64kB  {'  '.join(map(str, rates))}  \n8192  128kB  50  60\n"

    rows = rows_of(
        outcome_of_printed(tmp_path, **{"small-kernels__v100": lines, "small-kernels__v100_pt": lines})
    )

    threads = [16, 32, 64, 128, 256, 512, 1024]
    for how, includes in (("launches", "launch, gaps"), ("pt", "synchronization")):
        found = {row.implementation: row for row in rows if row.implementation.startswith(how)}
        assert set(found) == {f"{how}-{number}-threads" for number in threads}
        for number, rate in zip(threads, rates, strict=True):
            row = found[f"{how}-{number}-threads"]
            assert row.median_s == pytest.approx(16 * 4096 / rate / 1e9)
            assert row.time_includes == includes


def test_a_latency_is_cycles_by_the_clock_and_a_footprint_whole_lines(tmp_path: Path) -> None:
    line = "  1000000  1380      2.1     20.2    28.0 27.5 27.0 30.0\n"

    (row,) = rows_of(outcome_of_printed(tmp_path, latency__v100=f"clock: 1380 1380 \n{line}"))

    assert json.loads(row.parameters) == {"dtype": "float32", "footprint_byte": 17 * 128, "steps": 1_000_000}
    assert row.median_s == pytest.approx(27.5e6 / 1380e6)


def test_reads_from_caches_have_no_roof_and_a_rate_by_footprint(tmp_path: Path) -> None:
    text = "  512 kB   1536 kB   12ms   0.0%   4315.9 GB/s   0 GB/s   0 GB/s   0 GB/s   0 GB/s \n"

    (row,) = rows_of(outcome_of_printed(tmp_path, **{"l2-cache__v100": text}))

    assert json.loads(row.parameters)["footprint_byte"] == 1536 * 1024
    assert row.median_s == pytest.approx(1536 * 1024 / 4315.9e9)
    assert row.arithmetic == "unbounded"


# ---- KernelBench's tables: shapes and cache by commit and host, and problems without a time


RELU = "19_ReLU.py"
POOLING = "42_Max_Pooling_2D.py"


def outcome_of_table(
    folder: Path, host: str, problems: dict[str, dict[str, object] | None], how: str = "torch"
) -> SourceOutcome:
    path = folder / host / f"baseline_time_{how}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"level1": problems}))
    return outcome_of("kernelbench", folder)


def timed(mean: float) -> dict[str, object]:
    plain = dict.fromkeys(("std", "min", "max"), mean)
    return {"mean": mean, **plain, "num_trials": 100, "hardware": "Made-up GPU", "device": "cuda:0"}


def test_what_did_not_run_is_counted_and_no_column(tmp_path: Path, seed: int) -> None:
    mean = random.uniform(5, 50)
    problems = {RELU: timed(mean), "23_Softmax.py": None}
    how = "torch_compile_inductor_default"
    outcome = outcome_of_table(tmp_path, "results/timing/H100_Modal", problems, how)
    (row,) = rows_of(outcome)
    assert (row.operator, row.implementation, row.median_s) == ("activations", "inductor", mean / 1e3)
    assert {aside.reason: count for aside, count in outcome.aside.items()} == {"it did not run": 1}


@pytest.mark.parametrize(
    ("host", "elements", "cache"),
    [
        ("results/timing/H100_Modal", 4096 * 393216, "cold"),
        ("commit-4082b87/results/timing/L40S_modal", 4096 * 393216, "cold"),
        ("commit-7c914ea/results/timing/A6000_babel", 4096 * 393216, "warm"),
        ("commit-7dd9cfa/results/timing/L40S_modal", 16 * 16384, "warm"),
        ("commit-433d28b/results/timing/RTX_3090_Ti", 16 * 16384, "warm"),
    ],
)
def test_commit_and_host_decide_shapes_and_cache(
    host: str, elements: int, cache: str, tmp_path: Path, seed: int
) -> None:
    problems = {RELU: timed(random.uniform(5, 50)), POOLING: timed(random.uniform(50, 500))}
    outcome = outcome_of_table(tmp_path, host, problems)
    rows = {row.operator: row for row in rows_of(outcome)}
    assert (rows["activations"].byte, rows["activations"].cache) == (2 * 4 * elements, cache)
    # Of the old shapes this pooling has a dilation.
    assert ("pooling" in rows) == (elements > 10**6)
    assert sum(outcome.aside.values()) == 2 - len(rows)


@pytest.mark.parametrize("host", ["results/timing/L40S_modal", "commit-7c914ea/results/timing/RTX_3090_Ti"])
def test_a_table_whose_shapes_are_not_known_is_not_read(host: str, tmp_path: Path) -> None:
    """Of old or of new shapes, by the commit; or of old shapes beside new ones."""
    with pytest.raises(UserError, match="holds no file of kernelbench that could be read"):
        outcome_of_table(tmp_path, host, {RELU: timed(10.0)})


# ---- PipeDream's profiles: sizes follow from bytes and texts, and a time may hold more than its layer's


def test_a_layer_is_a_row_where_nothing_else_runs_in_its_time(tmp_path: Path, seed: int) -> None:
    ms = [random.uniform(20.0, 30.0) for _ in range(10)]
    norm = "BatchNorm2d(128, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)"
    side, n = 28, 256  # ResNet-18's batch
    bytes_out = 4 * n * 128 * side * side
    layers = [
        ("Input", 5.0, 0.0),
        ("Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False)", ms[0], ms[1]),
        ("Conv2d(64, 128, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), bias=False)", ms[2], ms[3]),
        (norm, ms[4], ms[5]),
        ("Add(inplace)", 0.0, 0.0),
        ("ReLU(inplace)", ms[6], ms[7]),
        ("ReLU(inplace)", ms[8], ms[9]),
    ]
    lines = [
        f"node{number} -- {layer} -- forward_compute_time={forward}, backward_compute_time={backward}, "
        f"activation_size={bytes_out}.000, parameter_size=0.000"
        for number, (layer, forward, backward) in enumerate(layers, start=1)
    ]
    folder = tmp_path / "profiler" / "image_classification" / "profiles" / "resnet18"
    folder.mkdir(parents=True)
    (folder / "graph.txt").write_text("\n".join([*random.sample(lines, len(lines)), "\tnode1 -- node2"]))
    outcome = outcome_of("pipedream", tmp_path)
    rows = rows_of(outcome)
    convolution, *others = sorted(rows, key=lambda row: row.operator != "convolution")
    # A window of 3 x 3 that moves 2 points over 56 x 56, an even size, gives 28 x 28.
    assert convolution.flop == 2 * n * side * side * 128 * 64 * 9
    assert '"h":56' in convolution.parameters
    assert convolution.median_s == pytest.approx(ms[2] * 1e-3)
    # No rows: the first layer, the ReLU that has the addition in its time, a convolution's two gradients.
    assert sorted(row.median_s for row in others) == pytest.approx(
        sorted(1e-3 * time for time in (ms[4], ms[5], ms[8], ms[9]))
    )
    assert sum(outcome.aside.values()) == 2 * len(layers) - len(rows)
