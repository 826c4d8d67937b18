"""How far sources agree: which rows are the same work, and what their ratio is."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import kernels
from bench.__main__ import app
from bench.interop.imported_rows import device_columns, foreign_row
from bench.judge.achieved import Agreement, agreements
from bench.judge.frame import runs
from bench.spec import parameters_text
from bench.store.schema import Measurement

GPU = "NVIDIA A100-SXM4-80GB"


def row(who: str, operator: str, seconds: float, device: str = GPU, **parameters: object) -> Measurement:
    problem = kernels.problem(operator)(**parameters)
    columns = problem.facts("aten") | device_columns(device, "cuda", None)
    names = {"run_id": f"{who}-1", "source": f"{who}; a file", "timed_by": "kernel", "protocol": who}
    more = {"cache": "warm", "sweep": f"imported/{who}/{operator}", "median_s": seconds}
    return foreign_row(columns | names | more | {"parameters": parameters_text(problem.parameters())})


def layer(who: str, batch: int, seconds: float, **more: str) -> Measurement:
    sizes = {"batch": batch, "inputs": 4096, "outputs": 1024, "bias": False}
    return row(who, "linear", seconds, dtype="float16", direction="forward", **sizes, **more)


def product(who: str, n: int, seconds: float, dtype: str = "bfloat16") -> Measurement:
    return row(who, "gemm", seconds, dtype=dtype, layout="TN", m=1024, n=n, k=4096)


def relu(who: str, n: int, c: int, seconds: float, function: str = "relu") -> Measurement:
    sizes = {"n": n, "c": c, "h": 1, "w": 1}
    return row(who, "activations", seconds, dtype="float32", direction="forward", function=function, **sizes)


def of(*rows: Measurement) -> list[Agreement]:
    return list(agreements(runs(rows)))


def test_a_layer_and_its_product_are_the_same_work(seed: int) -> None:
    times = {batch: (random.uniform(1, 2), random.uniform(1, 2)) for batch in range(100, 120)}
    (found,) = of(
        *(layer("A", batch, first) for batch, (first, _) in times.items()),
        *(product("B", batch, second) for batch, (_, second) in times.items()),
        product("B", 7, 1.0),  # nobody else's
        product("B", 100, 1.0, dtype="float32"),
    )
    ratios = [second / first for first, second in times.values()]
    assert (found.operator, found.width, found.cases) == ("gemm", "16 bits", len(times))
    assert (found.first, found.second) == ("A, kernel", "B, kernel")
    assert [found.low, found.median, found.high] == pytest.approx(np.quantile(ratios, (0.1, 0.5, 0.9)))


def test_the_same_bytes_are_the_same_work_whatever_their_shape_and_no_other() -> None:
    (found,) = of(relu("A", 64, 128, 1.0), relu("B", 128, 64, 2.0), relu("B", 128, 65, 9.0))
    assert (found.cases, found.median) == (1, 2.0)
    assert not of(relu("A", 64, 128, 1.0), relu("B", 64, 128, 2.0, function="gelu"))


def test_of_several_implementations_the_fastest_counts_and_suspect_times_do_not() -> None:
    slow = replace(relu("B", 64, 128, 5.0), implementation="inductor")
    (found,) = of(relu("A", 64, 128, 1.0), relu("B", 64, 128, 3.0), slow)
    assert found.median == 3.0
    assert not of(relu("A", 64, 128, 1.0), replace(relu("B", 64, 128, 3.0), clock_start_s=1.0))


def test_devices_are_not_compared_with_one_another() -> None:
    elsewhere = replace(relu("B", 64, 128, 2.0), device="another-gpu", device_name="Another GPU")
    assert not of(relu("A", 64, 128, 1.0), elsewhere)


def test_results_of_one_source_are_refused() -> None:
    done = CliRunner().invoke(app, ["import", "agreement", "results/reference/public/nvidia-l40s"])
    assert done.exit_code == 2 and done.stderr.startswith("error: agreement: no two sources")
