"""DeepBench's workbooks: headings in several spellings, titles in rows of their own, words for times."""

from __future__ import annotations

import random
from pathlib import Path

import openpyxl
import pytest

import kernels
from bench.interop.import_source import Aside, SourceOutcome, imported
from bench.interop.imported_problems import Recurrence, with_imported
from bench.interop.source_file import described

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


def outcome(
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
    file = folder / "clone" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    book.save(file)
    return imported(
        described("deepbench"), folder / "clone", folder / "results", with_imported(kernels.problem)
    )


@pytest.mark.parametrize("path", ["results/train/DeepBench_NV_TitanNext.xlsx", "train_NV_TitanNext.xlsx"])
def test_each_table_of_each_sheet_in_a_clone_and_flattened(path: str, tmp_path: Path, seed: int) -> None:
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
        "Results FP32": ("Float", tables),
        "Results - FP16 ip, Mixed math": ("16 bit inputs, 16 bit multiplication, 32 bit addition", half),
    }
    found = outcome(
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
    found = outcome(tmp_path, "inference/server/DeepBench_NV_X.xlsx", {"Results - Mixed": (words, tables)})
    assert [row.operator for each in found.rows for row in each.rows] == ["recurrence"]
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
