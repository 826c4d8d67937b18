"""What devices achieve by class of work: which rows count, and what stands beside their rates."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import kernels
from bench.device.datasheet import find_datasheet
from bench.interop.imported_rows import device_columns, foreign_row
from bench.judge.achieved import LAYERS, Achieved, achieved, rates_of
from bench.judge.read_runs import runs
from bench.spec import parameters_text
from bench.store.schema import Measurement

A100, T4 = "NVIDIA A100-SXM4-80GB", "Tesla T4"


def row(
    device: str, operator: str, seconds: float, columns: dict[str, object], **parameters: object
) -> Measurement:
    problem = kernels.problem(operator)(**parameters)
    facts = problem.facts("cublas" if operator == "gemm" else "aten")
    same = dict.fromkeys(("protocol", "source"), "made")
    same |= {"run_id": f"made-{device}", "cache": "warm", "sweep": "imported/made"}
    names = {"parameters": parameters_text(problem.parameters()), "median_s": seconds}
    return foreign_row(
        facts | device_columns(device, "cuda", find_datasheet(device)) | same | names | columns
    )


def relu(device: str, n: int, rate: float, **columns: object) -> Measurement:
    """A ReLU of n x 1 Mi elements, at this share of the datasheet's bandwidth."""
    sheet = find_datasheet(device)
    assert sheet and sheet.bandwidth_byte_per_s
    seconds = n * 2**23 / (rate * sheet.bandwidth_byte_per_s)
    sizes = {"function": "relu", "direction": "forward", "n": n, "c": 2**20, "h": 1, "w": 1}
    return row(device, "activations", seconds, columns, dtype="float32", **sizes)


def gemm(device: str, m: int, share: float, dtype: str = "float16") -> Measurement:
    sheet = find_datasheet(device)
    assert sheet
    peak = sheet.peak_flop_per_s("matrix", dtype)
    assert peak
    sizes = {"m": m, "n": 4096, "k": 4096, "layout": "NN"}
    return row(device, "gemm", 2 * m * 4096**2 / (share * peak), {}, dtype=dtype, **sizes)


def rates(*rows: Measurement) -> list[Achieved]:
    of = [replace(run, datasheet=find_datasheet(run.device_name)) for run in runs(rows)]
    return achieved(map(rates_of, of), {run.device: run.datasheet for run in of})


def test_rates_are_those_of_the_rows_that_their_limit_decides(seed: int) -> None:
    shares = [random.uniform(0.3, 0.9) for _ in range(9)]
    large = [relu(A100, 40 + place, share) for place, share in enumerate(shares)]
    products = [gemm(A100, 4096 + place, share) for place, share in enumerate(shares)]
    left_out = [
        relu(A100, 1, 0.99),  # within four times the cache
        gemm(A100, 8, 0.99),  # bound by memory
        relu(A100, 80, 0.99, clock_start_s=1.0),  # below ten launches
    ]
    layers, matrix = rates(*large, *products, *left_out)
    sheet = find_datasheet(A100)
    assert sheet and sheet.bandwidth_byte_per_s
    peak = sheet.peak_flop_per_s("matrix", "float16")
    for each, stated in ((layers, sheet.bandwidth_byte_per_s), (matrix, peak)):
        assert stated and each.stated == stated
        assert each.median == pytest.approx(np.median(shares) * stated)
    assert (layers.work, layers.width) == (LAYERS, "")
    assert (matrix.work, matrix.width) == ("matrix multiplications", "16 bits")


def test_the_power_of_a_class_is_that_of_its_own_rows() -> None:
    layers = [relu(A100, 40 + place, 0.5, power_w=250.0) for place in range(9)]
    products = [replace(gemm(A100, 4096 + place, 0.5), power_w=390.0 + place) for place in range(3)]
    assert [each.watts for each in rates(*layers, *products)] == [250.0, 391.0]
    unknown = replace(gemm(A100, 5120, 0.5), power_w=None)
    assert [each.watts for each in rates(*products, unknown)] == [None]


def test_devices_stand_from_the_oldest_to_the_newest_and_unknown_ones_are_left_out() -> None:
    devices = ["NVIDIA B200", A100, "AMD Instinct MI300X", T4]
    rows = [relu(device, 512, 0.5) for device in devices]
    rows.append(
        foreign_row({**rows[0].__dict__, **device_columns("Some GPU", "cuda", None), "run_id": "made-some"})
    )
    shown = rates(*rows)
    assert [each.device for each in shown] == [
        "tesla-t4", "nvidia-a100-sxm4-80gb", "nvidia-b200", "amd-instinct-mi300x",
    ]  # fmt: skip
