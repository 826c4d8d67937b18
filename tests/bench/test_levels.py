"""The third level for all rows of a run: which rows it takes how, and what it says binds them."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.device.datasheet import Datasheet, find_datasheet
from bench.model import calibration, tile_wave
from bench.model.calibration import UNFITTED
from bench.model.ceiling import Ceiling, Duration
from bench.model.ceilings import Ceilings
from bench.model.predict import (
    bound_by,
    calibrated,
    completed,
    products,
    stated_tile,
    structured,
)
from bench.model.tile_wave import Machine
from bench.spec import ITEM_BYTE, Dtype
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from kernels.stream.problem import Stream
from tests.bench.machines import bfloat16, calibration_shapes, framed, moved, sizes, timed

PEAK, READS, COPY = 7e14, 3.2e12, 2.9e12
CACHED = {2**20: 4e12, 2**24: 6e12}


def ceiling(per_s: float) -> Ceiling:
    return Ceiling(per_s, per_s, per_s, "a row")


ROOF = Ceilings(
    launch_s=2e-6,
    launch=Duration(2e-6, 1.9e-6, 2.1e-6, "a row"),
    peak_flop_per_s={("matrix", "bfloat16"): ceiling(PEAK), ("vector", "float32"): ceiling(5e13)},
    bandwidth_byte_per_s={0.0: ceiling(READS), 0.5: ceiling(COPY)},
    cached={held: ceiling(per_s) for held, per_s in CACHED.items()},
)


@pytest.fixture(scope="module")
def sheet() -> Datasheet:
    found = find_datasheet("NVIDIA H100 80GB HBM3")
    assert found
    return found


def told(rows: list[Measurement], roof: Ceilings = ROOF, sheet: Datasheet | None = None) -> pd.DataFrame:
    """The rows with the columns of the level."""
    frame = framed(rows)
    frame.index = frame.index[::-1] + 7  # columns go by their rows' index, whatever it is
    return pd.concat([frame, structured(frame, lambda _: roof, sheet)], axis=1)


def gemm(*mnk: float, dtype: Dtype = "bfloat16") -> Gemm:
    m, n, k = (int(size) for size in mnk)
    return Gemm(m=m, n=n, k=k, dtype=dtype, layout="TN")


def gemms(shapes: np.ndarray, **facts: Any) -> list[Measurement]:
    """A row each, without a time."""
    return [timed(gemm(*shape), "cublas", None, **facts) for shape in shapes]


def start(roof: Ceilings, sheet: Datasheet | None, dtype: str = "bfloat16") -> Machine:
    found = calibration.started(roof, dtype, 132, 50 * 2**20, sheet)
    assert found
    return found


def shape_rows(of: Machine, count: int = 64, **facts: Any) -> list[Measurement]:
    """The calibration shapes as this machine runs them."""
    shapes = calibration_shapes()[:count]
    times = tile_wave.predict(of, bfloat16(shapes)).seconds
    return [
        timed(gemm(*s), "cublas", float(t), "ceilings/gemm_shapes", **facts)
        for s, t in zip(shapes, times, strict=True)
    ]


# ---- matrix products of a GPU


def test_without_shapes_it_is_ceilings_and_priors(chance: np.random.Generator, sheet: Datasheet) -> None:
    shapes = sizes(chance, 50)
    found = told(gemms(shapes), sheet=sheet)
    machine = start(ROOF, sheet)
    answer = tile_wave.predict(machine, bfloat16(shapes))
    assert found["structured_s"].to_numpy() == pytest.approx(UNFITTED * answer.seconds)
    assert (found["priors_s"] == found["structured_s"]).all()
    assert list(found["structured_limiter"]) == bound_by(machine, answer)
    assert not found["calibrating"].any()


def test_the_shapes_calibrate_and_are_not_scored(chance: np.random.Generator, sheet: Datasheet) -> None:
    true = moved(
        start(ROOF, sheet), chance, {"launch_s": 0.3, "step_s": 0.4, "tile_s": 0.5, "flop_per_s": 0.06}
    )
    shapes = sizes(chance, 60, 2**14)
    exact = tile_wave.predict(true, bfloat16(shapes)).seconds
    ours, others = gemms(shapes), shape_rows(true)
    found = told(
        [*ours, *others, *(dataclasses.replace(one, role="measurement") for one in others[:3])], sheet=sheet
    )
    # A case of the shape of one that calibrates is no test of what it taught.
    assert list(found["calibrating"]) == [False] * 60 + [True] * 64 + [True] * 3
    off = found[["structured_s", "priors_s"]].iloc[:60].div(exact, axis=0).sub(1).abs().mean()
    assert off["structured_s"] < 0.02 and off["structured_s"] < 0.5 * off["priors_s"]
    wild = told([*(dataclasses.replace(one, median_s=1.0) for one in ours), *others], sheet=sheet)
    assert list(wild["structured_s"].iloc[:60]) == list(found["structured_s"].iloc[:60])
    # Without their times the rest is as if they were not there.
    blank = [dataclasses.replace(one, median_s=None) for one in others]
    bare = told([*ours, *blank], sheet=sheet)
    assert (bare["structured_s"] == bare["priors_s"]).all() and bare["calibrating"].sum() == 64
    pd.testing.assert_series_equal(bare["priors_s"].iloc[:60], found["priors_s"].iloc[:60], check_index=False)


def test_tiles_that_are_stated_are_used(sheet: Datasheet) -> None:
    shape = (4096, 1000, 700)
    some = bfloat16(np.array(shape))
    machine = start(ROOF, sheet)
    free = tile_wave.predict(machine, some).seconds[0]
    for implementation, configuration, tile in (
        ("cublaslt-256x128", "", (256, 128)),
        ("triton-64x64", "pointer 64x64x32 w4 s3", (64, 64)),
        ("triton", "pointer 256x128x64 w8 s3", (256, 128)),
        ("triton-persistent", "persistent 128x64x64 w8 s3 g8", (128, 64)),
        ("inductor", "triton_mm 64x128x32 w4 s3", (64, 128)),
        ("triton", "split-k 256x128x64 w8 s3", None),
        ("triton", "stream-k 256x128x64 w8 s3", None),
        ("triton-split-k", "256x128x64 w8 s3", None),
        ("triton-stream-k", "256x128x64 w8 s3", None),
        ("cublas", "", None),
        ("cublaslt", "algorithm 66 256x128", None),
        ("cublaslt-best", "", None),
    ):
        assert stated_tile(implementation, configuration) == tile
        row = timed(gemm(*shape), implementation, None, configuration=configuration)
        (seconds,) = told([row], sheet=sheet)["structured_s"]
        wanted = tile_wave.predict(machine, some, tile).seconds[0]
        assert seconds == pytest.approx(wanted * (1.0 if tile else UNFITTED)), (implementation, configuration)
        assert (wanted == free) == (tile is None)


def test_other_data_types_go_by_their_own_measured_peaks(
    chance: np.random.Generator, sheet: Datasheet
) -> None:
    """Without a fit; a peak that is only stated says nothing, and neither does the fit of another type."""
    peaks = {("matrix", "tf32"): ceiling(3e14)} | dict(ROOF.peak_flop_per_s)
    roof = dataclasses.replace(ROOF, peak_flop_per_s=peaks)
    shapes = sizes(chance, 20)
    dtypes: list[Dtype] = ["bfloat16", "bfloat16", "tf32", "float16", "float8_e4m3", "float32"]
    rows = [timed(gemm(*s, dtype=dtype), "cublas", None) for dtype in dtypes for s in shapes]
    found = told(rows, roof, sheet)
    for dtype, some in found.groupby("dtype"):
        assert (products(some).item_byte == ITEM_BYTE[str(dtype)]).all()  # type: ignore[index]
        if dtype in ("bfloat16", "float16", "tf32"):
            of = start(roof, sheet, "tf32" if dtype == "tf32" else "bfloat16")
            wanted = UNFITTED * tile_wave.predict(of, products(some)).seconds
            assert some["structured_s"].to_numpy() == pytest.approx(wanted)
        else:
            assert some["structured_s"].isna().all()
    assert (found["structured_limiter"] == "").sum() == found["structured_s"].isna().sum() == 40
    fitted = told([*rows, *shape_rows(start(ROOF, sheet))], roof, sheet).iloc[: len(rows)]
    known = fitted["structured_s"].notna().groupby(fitted["dtype"]).all()
    assert known.to_dict() == {dtype: dtype in ("bfloat16", "float16") for dtype in dtypes}
    assert fitted["priors_s"].to_numpy() == pytest.approx(found["priors_s"].to_numpy(), nan_ok=True)


def test_float8_is_calibrated_by_its_own_shapes(chance: np.random.Generator, sheet: Datasheet) -> None:
    """Shapes of both types: each is fitted to its own; without those of float8 nothing is said of it."""
    peaks = {("matrix", "float8_e4m3"): ceiling(1.3e15)} | dict(ROOF.peak_flop_per_s)
    roof = dataclasses.replace(ROOF, peak_flop_per_s=peaks)
    slow = dataclasses.replace(start(roof, sheet, "float8_e4m3"), launch_s=9e-6, tile_s=5e-6)
    kinds = gemms(sizes(chance, 40, 2**13)), shape_rows(start(ROOF, sheet))
    eights = [
        dataclasses.replace(
            row, **Gemm(**json.loads(row.parameters) | {"dtype": "float8_e4m3"}).facts("cublas")
        )
        for row in (*kinds[0], *kinds[1])
    ]
    exact = tile_wave.predict(slow, products(framed(eights))).seconds
    eights = [dataclasses.replace(row, median_s=float(s)) for row, s in zip(eights, exact, strict=True)]
    found = told([*eights, *kinds[1]], roof, sheet)
    assert found["structured_s"].to_numpy()[:40] == pytest.approx(exact[:40], rel=0.1)
    assert found["calibrating"].sum() == 128
    without = told([*eights[:40], *kinds[1]], roof, sheet)
    assert without["structured_s"].isna().tolist() == [True] * 40 + [False] * 64


def test_where_the_data_lie(sheet: Datasheet) -> None:
    problem = gemm(4096, 4, 1024)
    for facts, working_set in (
        ({"cache": "cold"}, math.inf),
        ({"cache": "warm"}, problem.byte),
        ({"cache": "cold", "ring_byte": 10**9}, 10**9),
        ({"cache": "warm", "ring_byte": 10**7}, 10**7),
        ({"cache": "cold", "ring_byte": 10**7, "flushed": True}, math.inf),
        ({"cache": "cold", "ring_byte": 10**7, "flushed": False}, 10**7),
        ({"cache": "warm", "flushed": True}, math.inf),
    ):
        row = timed(problem, "cublas", None, **facts)
        of = products(framed([row]))
        assert list(of.working_set) == [working_set], facts
        assert [*of.byte, *of.item_byte] == [problem.byte, 2.0]
        (seconds,) = told([row], sheet=sheet)["structured_s"]
        assert seconds == pytest.approx(UNFITTED * tile_wave.predict(start(ROOF, sheet), of).seconds[0])
    # What an implementation reads again comes from memory only as far as the cache does not hold it.
    again = timed(problem, "cublas", None, byte_moved=3 * 10**8, byte_again=10**8, cache_byte=10**8)
    assert products(framed([again])).byte == pytest.approx([2.5e8])


def test_a_peak_and_a_bandwidth_are_needed(sheet: Datasheet) -> None:
    rows = [timed(gemm(64, 64, 64), "cublas", 1e-5), *shape_rows(start(ROOF, sheet))]
    rows.append(timed(Stream(kind="copy", length=2**20, dtype="float32"), "aten", 1e-5))
    for roof in (Ceilings(), dataclasses.replace(ROOF, bandwidth_byte_per_s={})):
        found = told(rows, roof, sheet)
        assert found[["structured_s", "priors_s"]].isna().all(axis=None)
        assert set(found["structured_limiter"]) == {""}
    found = told(rows, dataclasses.replace(ROOF, peak_flop_per_s={}), sheet)
    assert found["structured_s"].isna().tolist() == [True] * 65 + [False]


def test_each_term_binds_somewhere() -> None:
    """Products by what was made to be their largest term; in the order of the README's list."""
    machine = start(ROOF, None)
    ring = {"cache": "warm", "ring_byte": 10**6}
    cases = {
        "launch": (gemm(8, 8, 8), "cublas", {}),
        "compute": (gemm(8192, 8192, 8192), "cublas", {}),
        "memory": (gemm(16384, 1, 16384), "cublas", {}),
        "L2": (gemm(16384, 1, 1024), "cublas", ring),
        "wave tail": (gemm(2560, 256, 8192), "cublaslt-256x128", {}),
    }
    rows = [timed(problem, how, None, **facts) for problem, how, facts in cases.values()]
    assert list(told(rows)["structured_limiter"]) == list(cases)
    # Summing parts is overhead as launching is.
    split = tile_wave.predict(machine, bfloat16(np.array([128, 128, 65536])))
    assert split.parts[0] > 1 and bound_by(machine, split) != ["launch"]
    slow = dataclasses.replace(machine, split_s=float(split.compute_s[0] + split.memory_s[0]))
    assert bound_by(slow, split) == ["launch"]
    assert bound_by(slow, split._replace(parts=np.array([1]))) != ["launch"]


# ---- imported runs, which have no probes


def test_shapes_stand_in_for_probes(sheet: Datasheet) -> None:
    true = start(ROOF, sheet)
    rows = shape_rows(true)
    frame = framed(rows)
    found = completed(dataclasses.replace(ROOF, launch=None, launch_s=None, bandwidth_byte_per_s={}), rows)
    times = frame["median_s"]
    assert found.launch_s == times.min()
    assert list(found.bandwidth_byte_per_s) == [0.0]
    large = frame[frame["byte"] >= 2 * 50 * 2**20]
    reads = found.bandwidth_byte_per_s[0.0]
    assert reads.per_s == (large["byte"] / large["median_s"]).max() == reads.low_per_s == reads.high_per_s
    assert 0.9 * READS < reads.per_s <= READS
    assert "-n1-" in reads.row  # the longest of the matrices times vectors
    # The cache of what fits into it is no memory: a small shape may be as quick as it likes.
    quick = [row if row.byte >= 2 * 50 * 2**20 else dataclasses.replace(row, median_s=1e-12) for row in rows]
    assert completed(Ceilings(), quick).bandwidth_byte_per_s == found.bandwidth_byte_per_s
    plain, fitted = calibrated(frame, found, sheet)
    assert fitted.fitted
    # The quickest shape is not yet an empty launch: what its tiles and bytes explain is taken off.
    assert (
        plain.machine.launch_s == pytest.approx(true.launch_s, rel=0.05) and times.min() > 1.1 * true.launch_s
    )
