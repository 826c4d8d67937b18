"""`python -m bench predict` of sweeps on a GPU that may be nowhere near, and what its numbers rest on."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import kernels
from bench.__main__ import app
from bench.cli.predict import basis, datasheet_named, prediction_lines, predictions
from bench.format import share_text
from bench.model import tile_wave
from bench.model.calibrated_runs import Known
from bench.model.calibration import UNFITTED
from bench.model.roofline import datasheet_s
from bench.runner.run import RESULTS
from bench.store import parquet
from bench.sweep.load import Case, load
from kernels.gemm.problem import Gemm
from tests.bench.machines import bfloat16, calibration_shapes, machine, timed

PUBLIC = RESULTS / "reference" / "public"
CPU = RESULTS / "reference" / "cpu-intel-xeon-2-core"
H100 = datasheet_named("h100_sxm5")

SWEEP = """\
title: A little of everything
source: {document: d, range: ours}
operator: gemm
implementations: [cublas, cublaslt-256x128]
cases:
  - {m=n=k: [64, 1000, 8192], dtype: [float16, bfloat16, float32]}
"""
OTHER = """\
title: Activations
source: {document: d, range: ours}
operator: activations
implementations: [aten]
cases:
  - {function: [relu, sigmoid], n: 1048576, dtype: float16}
  - {function: relu, n: 1048576, dtype: bfloat16}
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "little.yaml"
    path.write_text(SWEEP)
    return path


def said(*words: Any) -> tuple[int, list[str], str]:
    """Exit code, lines without margins and rules, and what stands on standard error."""
    done = CliRunner().invoke(app, ["predict", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, shown(done.stdout.splitlines()), done.stderr


def shown(lines: list[str]) -> list[str]:
    text = [line.removeprefix(" ") if line.startswith(" ") else line for line in lines]
    return [line for line in text if line.strip(" ─")]


def seconds_in(line: str) -> list[float]:
    unit = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    return [float(n) * unit[u] for n, u in re.findall(r"(\d+\.?\d*) (ns|us|ms|s)\b", line)]


@pytest.fixture(scope="module")
def known() -> Known:
    found = basis(H100, [PUBLIC / "nvidia-h100-80gb-hbm3"], pytest.fail)
    assert found is not None
    return found


def cases_of(text: str, folder: Path) -> list[Case]:
    path = folder / "cases.yaml"
    path.write_text(text)
    return load(path, kernels.problem, 132).cases


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--on", "gtx_4090"), "--on: bench/device/datasheets has no CUDA GPU 'gtx_4090'"),
        (("--on", "AMD Instinct MI300X"), "has no CUDA GPU 'AMD Instinct MI300X'"),
        (("--on", "h100"), "CUDA GPU 'h100' (did you mean h100_nvl or h100_pcie?)"),
        ((), "--on DEVICE is needed"),
        (("--on", "h200", "--from", "nowhere"), "nowhere: no such file"),
        (("nothing", "--on", "h200"), "has no sweep 'nothing'"),
    ],
)
def test_refusals_are_one_sentence(sweep: Path, words: tuple[str, ...], says: str) -> None:
    code, lines, err = said(sweep, *words)
    assert (code, lines) == (2, []) and len(err.splitlines()) == 1 and says in err


@pytest.mark.parametrize("name", ["H100-SXM5", "NVIDIA H100 80GB HBM3", "nvidia h100 sxm5 80 gb"])
def test_a_device_by_any_of_its_names(name: str) -> None:
    assert datasheet_named(name).slug == H100.slug


def test_each_level_by_its_own_calibration(known: Known, tmp_path: Path) -> None:
    cases = cases_of(SWEEP, tmp_path)
    found = predictions(H100, known, cases)
    assert len(found) == len(cases) == 18
    plain, by = known.calibrations
    for case, row in zip(cases, found.itertuples(), strict=True):
        problem = case.problem
        of, unfitted = by.of(problem.dtype), plain.of(problem.dtype)
        assert isinstance(problem, Gemm) and known.ceilings.launch_s
        assert row.datasheet_s == datasheet_s(problem.flop, problem.byte, "matrix", problem.dtype, H100)
        assert row.predicted_s > known.ceilings.launch_s
        if problem.dtype == "float32":  # bfloat16's shapes say nothing of it
            assert of is unfitted is None and math.isnan(row.structured_s) and not row.structured_limiter
            continue
        assert of and unfitted
        of_item = {"item_byte": np.array([float(problem.item_byte)]), "byte": np.array([float(problem.byte)])}
        some = bfloat16(np.array([problem.m, problem.n, problem.k]))._replace(**of_item)
        tile = (256, 128) if case.implementation == "cublaslt-256x128" else None
        assert row.structured_s == pytest.approx(tile_wave.predict(of.machine, some, tile).seconds[0])
        priors_s = tile_wave.predict(unfitted.machine, some, tile).seconds[0]
        assert row.priors_s == pytest.approx((1.0 if tile else UNFITTED) * priors_s)
        assert row.structured_limiter and not row.calibrating
    others = predictions(H100, known, cases_of(OTHER, tmp_path))
    assert (others[["datasheet_s", "predicted_s", "structured_s"]] > 0).all(axis=None)
    assert (others["structured_s"] == others["predicted_s"]).all()


def test_the_table_its_sums_and_what_they_rest_on(sweep: Path, known: Known) -> None:
    code, lines, err = said(sweep, "--on", "h100_sxm5", "--from", PUBLIC, "--cases")
    assert code == 0 and not err
    assert lines[0] == "NVIDIA H100 SXM5 80 GB: one launch of each case, predicted"
    total, *named = lines[2:-5]
    (last, rests, off, dtypes, others) = lines[-5:]
    found = predictions(H100, known, cases_of(SWEEP, sweep.parent))
    for line, row in zip(named, found.to_dict("records"), strict=True):
        times = [row[name] for name in ("datasheet_s", "predicted_s", "structured_s")]
        assert seconds_in(line) == pytest.approx([one for one in times if one == one], rel=0.006)
        assert line.endswith(row["structured_limiter"])
    # A sum with a gap is no sum: float32 has no structure.
    sums = [found[name].sum() for name in ("datasheet_s", "predicted_s", "structured_s")]
    assert total.split()[1] == "18" and seconds_in(total) == pytest.approx(sums[:2], rel=0.006)
    assert re.findall(r"for (\d+) of them", last) == ["18", "18", "12"]
    assert seconds_in(last.split(": ", 1)[1]) == pytest.approx(sums, rel=0.006)
    assert rests == (
        "L1 and L2 from the calibration of NVIDIA H100 80GB HBM3 (imported: aiconfigurator-core 0.12.0, "
        "vLLM 0.24.0; fitted to 64 shapes)."
    )
    errors = known.errors(known.calibrations[-1])
    assert errors and off == (
        "On 300 bfloat16 matrix multiplications that were timed there, L2 is off by "
        f"{share_text(errors.mape)} on average: "
        f"half by less than {share_text(errors.median)}, one in ten by more than {share_text(errors.p90)}."
    )
    assert dtypes.startswith("L2 knows data types with calibration shapes (bfloat16; float16 as")
    assert others.startswith("Other operators were not compared: the error of their predictions is unknown.")


@pytest.mark.parametrize("results", [CPU, PUBLIC / "nvidia-h200"])
def test_without_its_own_ceilings_only_the_datasheet_speaks(sweep: Path, results: Path) -> None:
    code, lines, _ = said(sweep, "--on", "v100_sxm2_16gb", "--from", results)
    assert code == 0 and lines[-2].endswith("L1 - for 0 of them; L2 - for 0 of them")
    assert "L0" in lines[-2] and " for 12 of them" in lines[-2]  # a V100 has no bfloat16
    assert lines[-1].startswith(
        "No run of NVIDIA V100 SXM2 16 GB with its ceilings is among the results: L1 and L2 are unknown."
    )
    poor = dataclasses.replace(H100, rates={key: r for key, r in H100.rates.items() if key[1] != "bfloat16"})
    loaded = [load(sweep, kernels.problem, 132)]
    assert "-" in shown(list(prediction_lines(poor, None, loaded, each=False)))[2].split()[2]


def test_a_run_of_ours_without_a_fit(chance: np.random.Generator, tmp_path: Path, sweep: Path) -> None:
    """Ceilings of a peak, of shapes too few to fit, and no word of an import; ours before others'."""
    of = machine(chance)
    times = tile_wave.predict(of, bfloat16(calibration_shapes())).seconds
    shapes = [map(int, shape) for shape in calibration_shapes()[:20]]
    problems = [Gemm(m=m, n=n, k=k, dtype="bfloat16", layout="TN") for m, n, k in shapes]
    rows = [
        timed(problem, "cublas", float(seconds), "ceilings/gemm_shapes")
        for problem, seconds in zip(problems, times, strict=False)
    ]
    path = parquet.write(tmp_path / "ours" / "r.parquet", rows)
    code, lines, _ = said(sweep, "--on", "h100_sxm5", "--from", path, "--from", PUBLIC)
    assert code == 0 and "(run r; its ceilings and shared priors, no fit)." in lines[-3]
