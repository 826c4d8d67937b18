"""`python -m bench predict`: a sweep on a device that may be nowhere near, and what its numbers rest on."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import kernels
from bench.__main__ import app
from bench.cli.predict import COLUMNS, Basis, basis, datasheet_named, prediction_lines, predictions
from bench.errors import UserError
from bench.format import share_text
from bench.model import tile_wave
from bench.model.calibration import UNFITTED
from bench.model.predict import products
from bench.model.roofline import datasheet_s
from bench.model.scale_to_device import transferred
from bench.runner.session import RESULTS
from bench.store import parquet
from bench.sweep.load import Case, Loaded, load_all
from kernels.gemm.problem import Gemm
from tests.bench.machines import bfloat16, calibration_shapes, machine, timed

PUBLIC = RESULTS / "reference" / "public"
CPU = RESULTS / "reference" / "cpu-intel-xeon-2-core"

SWEEP = """\
title: A little of everything
source: {document: d, range: ours}
operator: gemm
implementations: [cublas, cublaslt-256x128]
cases:
  - {m=n=k: [64, 1000, 8192], dtype: [float16, bfloat16, float32]}
"""
UNTIMED = "No timing from NVIDIA {} GB is known, so the error of this prediction is unknown."
KNOWN = SWEEP.replace("[float16, bfloat16, float32]", "[float16, bfloat16]")
"""Of data types that are calibrated."""
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
    """Exit code, lines, and what stands on standard error."""
    done = CliRunner().invoke(app, ["predict", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout.splitlines(), done.stderr


def refusal(*words: Any) -> str:
    code, lines, err = said(*words)
    assert (code, lines) == (2, []) and len(err.splitlines()) == 1
    return err.strip().removeprefix("error: ")


@pytest.fixture(scope="module")
def h100() -> Basis:
    return basis(datasheet_named("h100_sxm5"), [PUBLIC / "nvidia-h100-80gb-hbm3"], pytest.fail)


@pytest.fixture(scope="module")
def v100() -> Basis:
    return basis(datasheet_named("v100_sxm2_16gb"), [PUBLIC / "nvidia-a100-sxm4-80gb"], pytest.fail)


def loaded(*texts: str, folder: Path) -> list[Loaded]:
    for number, text in enumerate(texts):
        (folder / f"s{number}.yaml").write_text(text)
    paths = [folder / f"s{number}.yaml" for number in range(len(texts))]
    return load_all(paths, kernels.problem, 132)


def cases_of(text: str, folder: Path) -> list[Case]:
    ((_, cases),) = loaded(text, folder=folder)
    return cases


# ---- refusals


def test_an_unknown_device_names_those_there_are(sweep: Path) -> None:
    for name in ("gtx_4090", "NVIDIA", "mi300x", "AMD Instinct MI300X"):
        told = refusal(sweep, "--on", name, "--from", PUBLIC)
        assert told.startswith(f"--on: bench/device/datasheets has no CUDA GPU {name!r}")
        assert "; it has a10, " in told and "h100_sxm5" in told and "mi300x" not in told.split("it has")[1]
    assert "--on DEVICE is needed" in refusal(sweep, "--from", PUBLIC)


def test_without_a_gpu_among_the_results(sweep: Path, tmp_path: Path) -> None:
    told = refusal(sweep, "--on", "h200", "--from", CPU)
    assert told == f"{CPU}: holds no run of a GPU with its ceilings, so nothing can be predicted from it"
    # Its products, but nothing that calibrates.
    rows = [timed(Gemm(m=8, n=8, k=8, dtype="bfloat16"), "cublas", 1e-5)]
    path = parquet.write(tmp_path / "run.parquet", rows)
    assert "holds no run of a GPU" in refusal(sweep, "--on", "h200", "--from", path, "--from", CPU)
    assert "nowhere: no such file" in refusal(sweep, "--on", "h200", "--from", "nowhere")
    assert "has no sweep 'nothing'" in refusal("nothing", "--on", "h200", "--from", PUBLIC)


@pytest.mark.parametrize(
    "name", ["h100_sxm5", "H100-SXM5", "NVIDIA H100 80GB HBM3", "nvidia h100 sxm5 80 gb"]
)
def test_a_device_by_any_of_its_names(name: str) -> None:
    assert datasheet_named(name).slug == "h100_sxm5"


def test_half_a_name_is_none() -> None:
    with pytest.raises(UserError, match=r"CUDA GPU 'h100' .did you mean h100_nvl or h100_pcie"):
        datasheet_named("h100")


# ---- the numbers


def test_on_its_own_device_it_is_its_own_calibration(h100: Basis, tmp_path: Path) -> None:
    assert h100.own
    cases = cases_of(SWEEP, tmp_path)
    found = predictions(h100, cases)
    assert len(found) == len(cases) == 18
    plain, by = h100.of.calibrations
    for case, row in zip(cases, found.itertuples(), strict=True):
        problem = case.problem
        of, unfitted = by.of(problem.dtype), plain.of(problem.dtype)
        assert isinstance(problem, Gemm)
        stated_s = datasheet_s(problem.flop, problem.byte, "matrix", problem.dtype, h100.wanted)
        assert row.datasheet_s == stated_s
        assert row.predicted_s > h100.of.ceilings.launch_s > 0
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
        # A stated tile leaves nothing to be learned: what is left at the shapes is the library's choice.
        assert (row.learned_s == row.structured_s) == bool(tile)
        assert math.isnan(row.learned_low_s) if tile else row.learned_low_s < row.learned_s
        assert row.structured_limiter and not row.calibrating


def test_elsewhere_it_is_scaled(v100: Basis, tmp_path: Path) -> None:
    assert not v100.own and v100.of.sheet.slug == "a100_sxm4_80gb"
    cases = [case for case in cases_of(SWEEP, tmp_path) if case.problem.dtype != "bfloat16"]
    found = predictions(v100, cases)
    by = transferred(v100.of.calibrations[-1], v100.of.sheet, v100.wanted)
    assert by.dtype == "float16"
    halves = found[found["dtype"] == "float16"]
    free = halves[halves["implementation"] == "cublas"]
    seconds = tile_wave.predict(by.machine, products(free)).seconds
    assert free["structured_s"].to_numpy() == pytest.approx(seconds)
    assert set(found["sm_count"]) == {80} and set(found["cache_byte"]) == {6291456}
    assert halves[["datasheet_s", "predicted_s", "structured_s"]].notna().all(axis=None)
    assert found["learned_s"].isna().all()
    # L1 by hand: the largest product by its peak, an activation by the bandwidth, both scaled.
    launch_s, stated = v100.of.ceilings.launch_s, v100.of.sheet.bandwidth_byte_per_s
    assert launch_s and stated
    large = halves.iloc[-1]
    peak = v100.of.calibrations[-1].peaks["float16"] * 125 / 312
    assert large["predicted_s"] == pytest.approx(launch_s + large["flop"] / peak, rel=1e-3)
    relu = predictions(v100, cases_of(OTHER, tmp_path)).iloc[0]
    reads = v100.of.ceilings.bandwidth_byte_per_s[0.0].per_s * 900e9 / stated
    assert relu["predicted_s"] == pytest.approx(launch_s + relu["byte"] / reads)
    assert relu["structured_s"] == pytest.approx(relu["predicted_s"])
    # Not a word of a data type whose peak nobody knows.
    whole_numbers = dataclasses.replace(cases[0], problem=Gemm(m=64, n=64, k=64, dtype="int8"))
    (whole,) = predictions(v100, [whole_numbers]).itertuples()
    assert math.isnan(whole.structured_s) and math.isnan(whole.predicted_s) and whole.structured_limiter == ""


def test_other_operators_are_predicted_too(h100: Basis, tmp_path: Path) -> None:
    found = predictions(h100, cases_of(OTHER, tmp_path))
    assert (found[["datasheet_s", "predicted_s", "structured_s"]] > 0).all(axis=None)
    assert found["learned_s"].isna().all()
    assert (found["structured_s"] == found["predicted_s"]).all()


# ---- what is said


def shown(lines: Iterable[str]) -> list[str]:
    """The lines without the margin, the rule and the empty lines of the table."""
    text = [line.removeprefix(" ") if line.startswith(" ") else line for line in lines]
    return [line for line in text if line.strip(" ─")]


def test_the_table(h100: Basis, tmp_path: Path) -> None:
    given = loaded(KNOWN, OTHER, folder=tmp_path)
    lines = shown(prediction_lines(h100, given, each=False))
    assert lines[0] == "NVIDIA H100 SXM5 80 GB: one launch of each case, predicted; --cases lists every case"
    head, first, second = lines[1:4]
    assert [first.split()[1], second.split()[1]] == ["12", "3"]
    assert max(map(len, lines[1:4])) <= 120
    bound = " " + first[head.index("bound by") :]
    assert sum(int(n) for n in re.findall(r" (\d+)", bound)) == 12
    sums = [predictions(h100, some.cases)[[*COLUMNS]].sum() for some in given]
    for line, total in zip((first, second), sums, strict=True):
        assert seconds_in(line) == pytest.approx([one for one in total if one], rel=0.006)
    assert lines[4].startswith("one launch of each of 15 cases: L0 ")
    total = sums[0] + sums[1]
    assert seconds_in(lines[4].split(": ", 1)[1]) == pytest.approx(list(total), rel=0.006)
    assert lines[4].count(" for 15 of them") == 3 and "L3" in lines[4] and " for 12 of them" in lines[4]


def seconds_in(line: str) -> list[float]:
    """The three times of a line."""
    unit = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    return [float(n) * unit[u] for n, u in re.findall(r"(\d+\.?\d*) (ns|us|ms|s)\b", line)]


def test_each_case_has_a_line(h100: Basis, tmp_path: Path) -> None:
    given = loaded(KNOWN, OTHER, folder=tmp_path)
    lines = shown(prediction_lines(h100, given, each=True))
    named = [line for line in lines if line.startswith("  ") and not line.startswith("   ")]
    cases = [case for some in given for case in some.cases]
    assert [line[2:].split("   ")[0].strip() for line in named] == [case.name for case in cases]
    rows = [row for some in given for row in predictions(h100, some.cases).to_dict("records")]
    for line, row in zip(named, rows, strict=True):
        known = [row[column] for column in COLUMNS if row[column] == row[column]]
        assert seconds_in(line) == pytest.approx(known, rel=0.006)
        assert line.endswith(row["structured_limiter"])


def test_what_a_device_cannot_run_is_left_out(v100: Basis, tmp_path: Path) -> None:
    lines = shown(prediction_lines(v100, loaded(SWEEP, OTHER, folder=tmp_path), each=True))
    assert not [line for line in lines if "-bfloat16-NN-" in line]
    assert [line for line in lines if "-float16-NN-" in line]
    only = SWEEP.replace("[float16, bfloat16, float32]", "bfloat16")
    none = shown(prediction_lines(v100, loaded(only, folder=tmp_path), each=False))
    assert none[1].startswith("one launch of each of 0 cases: L0 - for 0 of them")


def test_a_sum_with_a_gap_is_no_sum(h100: Basis, tmp_path: Path) -> None:
    """A datasheet without bfloat16: L0 cannot say half of the cases, the others can."""
    rates = {key: rate for key, rate in h100.wanted.rates.items() if key[1] != "bfloat16"}
    poor = dataclasses.replace(h100, wanted=dataclasses.replace(h100.wanted, rates=rates))
    _, _, line, last, *_ = shown(prediction_lines(poor, loaded(KNOWN, folder=tmp_path), each=False))
    found = predictions(poor, cases_of(KNOWN, tmp_path))
    sums = found[[*COLUMNS]].sum()
    assert line.split()[1:3] == ["12", "-"]
    assert seconds_in(line) == pytest.approx(list(sums)[1:], rel=0.006)
    assert re.findall(r"for (\d+) of them", last) == ["6", "12", "12", "12"]
    assert seconds_in(last.split(": ", 1)[1]) == pytest.approx(list(sums), rel=0.006)


def test_it_says_what_it_rests_on(h100: Basis, v100: Basis) -> None:
    one, two, three, four = h100.lines()
    assert one == (
        "L1 and L2 from the calibration of NVIDIA H100 80GB HBM3 (imported: aiconfigurator-core 0.12.0, "
        "vLLM 0.24.0; fitted to 64 shapes)."
    )
    errors = h100.of.errors(h100.of.calibrations[-1])
    assert errors
    assert two == (
        "On 300 bfloat16 matrix multiplications that were timed there, L2 is off by "
        f"{share_text(errors.mape)} on average: "
        f"half by less than {share_text(errors.median)}, one in ten by more than {share_text(errors.p90)}."
    )
    assert three.startswith("L2 and L3 know data types with calibration shapes (bfloat16; float16 as")
    assert four.startswith("Other operators were not compared: the error of their predictions is unknown.")
    one, two, *_ = v100.lines()
    assert one.endswith(", scaled to NVIDIA V100 SXM2 16 GB by the datasheets.")
    assert two == UNTIMED.format("V100 SXM2 16")


def test_how_far_off_elsewhere(h100: Basis) -> None:
    h200 = basis(datasheet_named("h200"), [PUBLIC / "nvidia-h200"], pytest.fail)
    both = dataclasses.replace(h100, others=[h100.of, h200.of])
    # On a device that was timed too, but is told from another.
    there = dataclasses.replace(both, wanted=h200.wanted)
    off = h200.of.errors(transferred(h100.of.calibrations[-1], h100.of.sheet, h200.wanted))
    assert off
    share = share_text(off.mape)
    assert f"that were timed there, L2 is off by {share} on average" in list(there.lines())[1]
    # On one that was not: as far as on those that were.
    unseen = dataclasses.replace(both, wanted=datasheet_named("h100_pcie"))
    assert list(unseen.lines())[1] == (
        "No timing from NVIDIA H100 PCIe 80 GB is known. Scaled to 1 other device in the same way, L2 was "
        f"off by {share} to {share} on average, in the middle {share}."
    )


def test_a_run_of_ours_without_a_fit(chance: np.random.Generator, tmp_path: Path, sweep: Path) -> None:
    """Ceilings of a peak, of shapes too few to fit, and no word of an import."""
    of = machine(chance)
    times = tile_wave.predict(of, bfloat16(calibration_shapes())).seconds
    shapes = [map(int, shape) for shape in calibration_shapes()[:20]]
    problems = [Gemm(m=m, n=n, k=k, dtype="bfloat16", layout="TN") for m, n, k in shapes]
    rows = [
        timed(problem, "cublas", float(seconds), "ceilings/gemm_shapes")
        for problem, seconds in zip(problems, times, strict=False)
    ]
    path = parquet.write(tmp_path / "ours" / "r.parquet", rows)
    code, lines, _ = said(sweep, "--on", "h100_sxm5", "--from", path)
    assert code == 0
    assert "(run r; its ceilings and shared priors, no fit)." in lines[-4]
    assert lines[-3] == UNTIMED.format("H100 SXM5 80")


def test_the_command(sweep: Path) -> None:
    code, lines, err = said(sweep, "--on", "h200", "--from", PUBLIC / "nvidia-h200", "--cases")
    assert code == 0 and not err
    assert len(shown(lines)) == 2 + 1 + 18 + 1 + 4
    code, few, _ = said(sweep, "--on", "h200", "--from", PUBLIC / "nvidia-h200")
    assert code == 0 and len(shown(few)) == 8
    code, _, err = said(sweep, "--on", "h200", "--from", PUBLIC / "nvidia-h200", "--from", CPU)
    assert code == 0 and not err
