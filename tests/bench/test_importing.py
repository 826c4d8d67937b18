"""`python -m bench import aiconfigurator`: made-up tables in, rows with our counts and their origin out."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import kernels
from bench.interop.import_source import calibration_shapes
from bench.store.parquet import read_frame
from tests.bench.public_tables import OTHERS, VERSION, VLLM, imports, package, put, shapes, table

H200, L40S = "NVIDIA H200", "NVIDIA L40S"
CALIBRATION = "ceilings/gemm_shapes"
CALIBRATIONS = (CALIBRATION, "ceilings/on_request/gemm_shapes_448")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package without tables."""
    made = package(tmp_path / "site")
    monkeypatch.syspath_prepend(made.parent)
    return made


said = partial(imports, "aiconfigurator")


def imported(results: Path) -> pd.DataFrame:
    code, _, err = said("--bench-results", results)
    assert (code, err) == (0, "")
    return read_frame([results])


def test_times_sizes_and_counts(folder: Path, tmp_path: Path, chance: np.random.Generator) -> None:
    """Every row is the problem of its own parameters, as kernels/gemm would count it one by one."""
    made = shapes(chance, 200)
    put(folder, "h200_sxm", table(made, H200))
    rows = imported(tmp_path / "out")
    took_ms = {(one.m, one.n, one.k): one.latency for one in made.itertuples()}
    assert len(rows) == len(took_ms)
    for row in rows.itertuples():
        problem = kernels.problem("gemm")(**json.loads(row.parameters))
        assert (problem.m, problem.n, problem.k) == (row.m, row.n, row.k)  # type: ignore[attr-defined]
        assert row.median_s == took_ms.pop((row.n, row.m, row.k)) / 1e3
        assert (row.dtype, row.layout, row.implementation) == ("bfloat16", "TN", "cublas")
        assert (row.arithmetic, row.rate) == (problem.arithmetic, problem.rate)
        assert (row.flop, row.byte, row.byte_written) == (problem.flop, problem.byte, problem.byte_written)
        assert row.byte_moved == problem.byte_moved("cublas")
        assert row.byte_again == problem.byte_again("cublas")
        assert row.moved_written == problem.moved_written("cublas")
        # Six weights [m, k] take turns; x and the output stay.
        assert row.ring_byte == problem.byte + 5 * row.m * row.k * 2
    assert not took_ms


def test_shapes_that_calibrate_are_rows_of_that_sweep(
    folder: Path, tmp_path: Path, chance: np.random.Generator
) -> None:
    calibrating = [json.loads(text) for text in sorted(calibration_shapes([CALIBRATION], kernels.problem))]
    assert len(calibrating) == 64
    chosen = [calibrating[i] for i in chance.permutation(64)[:20]]
    known = pd.DataFrame([{"m": p["n"], "n": p["m"], "k": p["k"], "latency": 100.0} for p in chosen])
    every = pd.concat([shapes(chance, 50), known], ignore_index=True).drop_duplicates(
        ["m", "n", "k"], keep="last"
    )
    put(folder, "h200_sxm", table(every, H200))
    rows = imported(tmp_path / "out")
    found = rows[rows["sweep"] == CALIBRATION]
    wanted = {(p["m"], p["n"], p["k"]) for p in calibrating}
    there = {(m, n, k) for n, m, k in every[["m", "n", "k"]].itertuples(index=False)}
    assert {(row.m, row.n, row.k) for row in found.itertuples()} == wanted & there
    assert len(wanted & there) >= 20
    more = calibration_shapes(CALIBRATIONS, kernels.problem)
    assert len(more) == 512 and set(calibration_shapes([CALIBRATION], kernels.problem)) < set(more)
    roles = {(CALIBRATION, "calibration"), (OTHERS, "measurement")}
    assert set(zip(rows["sweep"], rows["role"], strict=True)) == roles


def test_a_file_a_device_and_twice_is_once(folder: Path, tmp_path: Path, chance: np.random.Generator) -> None:
    for system, device in (("h200_sxm", H200), ("l40s", L40S)):
        put(folder, system, table(shapes(chance, 9), device))
    out = tmp_path / "out"
    code, told, err = said("--bench-results", out)
    files = sorted(out.rglob("*.parquet"))
    assert [path.relative_to(out).parts[:2] for path in files] == [
        ("imported", "nvidia-h200"),
        ("imported", "nvidia-l40s"),
    ]
    assert (code, err) == (0, "") and "aiconfigurator: 18 rows in 2 files; 18 set aside\n" in told
    before = [path.read_bytes() for path in files]
    for path in files:
        frame = read_frame([path])
        assert set(frame["run_id"]) == {path.stem}
        assert VERSION in path.stem and VLLM in path.stem and path.parent.name in path.stem
    code, told, err = said("--bench-results", out)
    assert (code, told) == (2, "") and f": already imported as {files[0]} and 1 more file; delete that" in err
    assert [path.read_bytes() for path in sorted(out.rglob("*.parquet"))] == before


def test_all_sources_are_those_of_a_folder_and_the_installed_package(
    folder: Path, tmp_path: Path, chance: np.random.Generator
) -> None:
    put(folder, "h200_sxm", table(shapes(chance, 3), H200))
    code, out, err = imports("all", tmp_path / "nothing", "--bench-results", tmp_path / "out")
    assert code == 0 and "aiconfigurator: 3 rows in 1 file; 3 set aside\n3 rows; " in out
    details = (tmp_path / "out/imported/aiconfigurator.txt").read_text()
    assert "set aside 3: quantised in each launch\n" in details
    assert "neusight: left out: " in err and "aiconfigurator: left out" not in err
    code, _, err = imports("neusight")
    assert code == 2 and err.startswith("error: neusight: give the folder of a clone of http")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    code, out, err = said("--bench-results", tmp_path / "out")
    assert (code, out) == (2, "")
    assert "pip install -c constraints.txt aiconfigurator-core" in err and len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def cut(made: pd.DataFrame, tmp_path: Path) -> bytes:
    made.to_parquet(tmp_path / "whole.parquet")
    data = (tmp_path / "whole.parquet").read_bytes()
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda made, tmp: b"", "is no parquet as described"),
        (cut, "is no parquet as described"),
        (lambda made, tmp: made.drop(columns="latency"), "lacks the column latency"),
        (lambda made, tmp: made[made["gemm_dtype"] == "fp8"], "set aside 9: quantised in each launch"),
        (lambda made, tmp: made.assign(op_name="moe"), "set aside 18: no linear layer"),
        (lambda made, tmp: made.assign(device="Intel(R) Arc(TM) Pro B60"), "set aside 18: no NVIDIA GPU"),
    ],
)
def test_a_bad_table_does_not_hide_the_others(
    folder: Path,
    tmp_path: Path,
    chance: np.random.Generator,
    spoil: Callable[[pd.DataFrame, Path], pd.DataFrame | bytes],
    says: str,
) -> None:
    bad = put(folder, "b200_sxm", spoil(table(shapes(chance, 9), "NVIDIA B200"), tmp_path))
    code, _, err = said("--bench-results", tmp_path / "out")
    assert code == 2 and says in err.splitlines()[-1]
    good = table(shapes(chance, 9), H200)
    put(folder, "h200_sxm", good[good["gemm_dtype"] == "bfloat16"])
    code, told, err = said("--bench-results", tmp_path / "out")
    (line,) = [line for line in (told + err).splitlines() if says in line]
    assert code == 0 and (line.startswith(f"left out {bad}: ") or line == says)
    assert set(read_frame([tmp_path / "out"])["device"]) == {"nvidia-h200"}
