"""The third level of what is no matrix product of a GPU: memory, caches, special functions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from bench.device.datasheet import Datasheet, find_datasheet
from bench.model.bound import bounds
from bench.model.ceiling import Ceiling
from bench.model.ceilings import Ceilings
from bench.model.predict import reached
from bench.model.roofline import calibrated_columns
from bench.store.schema import Measurement
from kernels.activations.problem import Activation
from kernels.gemm.problem import Gemm
from kernels.launch.problem import LaunchFloor
from kernels.stream.problem import Stream
from kernels.transfer.problem import Transfer
from tests.bench.machines import framed, timed
from tests.bench.test_levels import CACHED, COPY, ROOF, sheet, told

__all__ = ["sheet"]  # a fixture

CPU = {"device_kind": "cpu", "device_name": "a CPU", "sm_count": 2, "cache_byte": 2**25}
FLOOR_S = 2e-6


def copy(length: int, seconds: float | None = None, name: str = "aten", **facts: Any) -> Measurement:
    return timed(Stream(kind="copy", length=length, dtype="float32"), name, seconds, **facts)


def lengths(chance: np.random.Generator, count: int) -> list[int]:
    """Different lengths, that many, in any order."""
    return [int(x) for x in chance.choice(np.arange(2**22, 2**26), count, replace=False)]


# ---- memory, caches, kernels, units


def test_bytes_over_bandwidth_and_a_launch(chance: np.random.Generator) -> None:
    rows = [copy(length) for length in lengths(chance, 20)]
    found = told(rows)
    assert found["structured_s"].to_numpy() == pytest.approx([FLOOR_S + row.byte / COPY for row in rows])
    assert set(found["structured_limiter"]) == {"memory"}
    (empty,) = told([timed(LaunchFloor(dtype="float32"), "aten", None)]).itertuples()
    assert (empty.structured_s, empty.structured_limiter) == (FLOOR_S, "launch")


def test_what_stays_in_the_cache_comes_from_there() -> None:
    half = 2**25  # bytes of the working set: 0.64 of the cache
    for facts, per_s, binds in (
        ({"cache": "warm", "ring_byte": half}, CACHED[2**24], "L2"),
        ({"cache": "warm"}, CACHED[2**24], "L2"),
        ({"cache": "cold"}, COPY, "memory"),
        ({"cache": "cold", "ring_byte": 2**28}, COPY, "memory"),
        ({"cache": "warm", "flushed": True}, COPY, "memory"),
    ):
        row = copy(half // 8, **facts)
        (one,) = told([row]).itertuples()
        assert one.structured_s == pytest.approx(FLOOR_S + row.byte / per_s), facts
        assert one.structured_limiter == binds
    # Half inside, half outside: each at its own rate.
    half_inside = copy(half // 8, cache="warm", ring_byte=round(1.025 * 50 * 2**20))
    (one,) = told([half_inside]).itertuples()
    rates = (1 / CACHED[2**24] + 1 / COPY) / 2
    assert one.structured_s == pytest.approx(FLOOR_S + half * rates, rel=1e-6)
    (unknown,) = told([copy(half // 8, cache="warm")], dataclasses.replace(ROOF, cached={})).itertuples()
    assert unknown.structured_s == pytest.approx(FLOOR_S + half / COPY)
    (of_cpu,) = told([copy(2**21, cache="warm", **CPU)]).itertuples()
    assert of_cpu.structured_limiter == "cache"


def test_copies_over_the_link_to_the_host_are_not_predicted_from_memory() -> None:
    problem = Transfer(direction="both", memory="pinned", length=2**24, dtype="float32")
    (one,) = told([timed(problem, "aten", 5e-3)]).itertuples()
    assert np.isnan(one.structured_s) and np.isnan(one.priors_s) and one.structured_limiter == ""


def test_each_kernel_is_a_launch() -> None:
    for kernels, count in ((None, 1), ("", 1), ("one [1,1,1]", 1), ("a [1,1,1]; b [2,1,1]; a [1,1,1]", 3)):
        row = copy(2**24, kernels=kernels)
        (one,) = told([row]).itertuples()
        assert one.structured_s == pytest.approx(count * FLOOR_S + row.byte / COPY), kernels
    (one,) = told([copy(2**10, kernels="a; b; c")]).itertuples()
    assert one.structured_limiter == "launch"


def test_special_functions_bind_on_a_gpu(sheet: object) -> None:
    """A half-precision sigmoid wants two of them for four bytes: more than an H100's units can keep up with
    if its memory is quick enough."""
    problem = Activation(function="sigmoid", n=2**26, dtype="float16")
    assert problem.special_functions == 2**27
    roof = dataclasses.replace(
        ROOF,
        bandwidth_byte_per_s={
            s: dataclasses.replace(c, per_s=1e13) for s, c in ROOF.bandwidth_byte_per_s.items()
        },
    )
    row = timed(problem, "aten", None)
    (one,) = told([row], roof, sheet).itertuples()  # type: ignore[arg-type]
    assert one.structured_limiter == "special functions"
    assert one.structured_s == pytest.approx(FLOOR_S + 2**27 / (16 * 132 * 1.98e9))
    for other in (told([row], roof, None), told([dataclasses.replace(row, **CPU)], roof, sheet)):  # type: ignore[arg-type]
        assert list(other["structured_limiter"]) == ["memory"]
    (plain,) = told([row], ROOF, sheet).itertuples()  # type: ignore[arg-type]
    assert plain.structured_limiter == "memory"


def test_matrix_products_of_a_cpu_are_the_second_level(chance: np.random.Generator) -> None:
    sizes = [tuple(int(s) for s in row) for row in chance.integers(1, 3000, (30, 3))]
    problems = [Gemm(m=m, n=n, k=k, dtype="bfloat16") for m, n, k in sizes]
    rows = [timed(p, "onednn", None, **CPU) for p in problems]
    found = told(rows)
    share = np.array([p.byte_written / p.byte for p in problems])
    wanted, limiter = calibrated_columns(
        found["flop"], found["byte"], share, found["arithmetic"], found["dtype"], ROOF
    )
    assert found["structured_s"].to_numpy() == pytest.approx(wanted)
    assert list(found["structured_limiter"]) == list(limiter)
    assert not found["calibrating"].any()
    unknown = told([timed(Gemm(m=8, n=8, k=8, dtype="int8"), "onednn", 1.0, **CPU)])
    assert unknown["structured_s"].isna().all() and list(unknown["structured_limiter"]) == [""]


# ---- what share of its roof a row reached


def test_what_a_cache_held_is_held_against_the_cache() -> None:
    copy = Stream(kind="copy", length=2**22, dtype="float32")
    cold = timed(copy, "aten", FLOOR_S + 2 * copy.byte / COPY)
    assert cold.median_s and reached(cold, ROOF) == pytest.approx(
        (FLOOR_S + copy.byte / COPY) / cold.median_s
    )
    held_s = FLOOR_S + copy.byte / CACHED[2**24]
    warm = dataclasses.replace(cold, cache="warm", ring_byte=2**25, median_s=2 * held_s)
    assert reached(warm, ROOF) == pytest.approx(0.5)
    # With no ceiling of the cache nothing is said: memory's would say more than all.
    assert reached(warm, dataclasses.replace(ROOF, cached={})) is None
    # Warm, but flushed or larger than any cache: memory's, as a cold row.
    for large in (
        dataclasses.replace(warm, flushed=True),
        dataclasses.replace(warm, ring_byte=2 * warm.cache_byte),
    ):
        assert reached(large, ROOF) == reached(dataclasses.replace(large, cache="cold"), ROOF)
    half = dataclasses.replace(warm, ring_byte=int(1.025 * warm.cache_byte))
    share, cold_share = reached(half, ROOF), reached(dataclasses.replace(half, cache="cold"), ROOF)
    assert share is not None and cold_share is not None and 0.5 < share < cold_share


# ---- what bounds a row


def bound(row: Measurement, roof: Ceilings = ROOF, by: Datasheet | None = None) -> str:
    (name,) = bounds(framed([row]), lambda _: roof, by)
    return name


def test_what_a_cache_held_is_bound_by_it_as_far_as_it_did() -> None:
    cold = copy(2**22, 1e-3)
    warm = dataclasses.replace(cold, cache="warm", ring_byte=2**25)
    assert bound(cold) == "memory" and bound(warm) == "cache"
    assert bound(warm, dataclasses.replace(ROOF, cached={})) == "cache"
    for far in ({"flushed": True}, {"ring_byte": 2 * warm.cache_byte}):
        assert bound(dataclasses.replace(warm, **far)) == "memory"  # type: ignore[arg-type]
    assert bound(dataclasses.replace(warm, ring_byte=int(1.025 * warm.cache_byte))) == "memory"
    assert bound(copy(64)) == bound(timed(LaunchFloor(dtype="float32"), "aten", None)) == "launch"


def test_the_device_s_own_ridge_parts_memory_from_compute(chance: np.random.Generator) -> None:
    """By any peak and bandwidth: measured, or the datasheet's where they were not."""
    sheet = find_datasheet("NVIDIA H100 80GB HBM3")
    assert sheet is not None and sheet.bandwidth_byte_per_s
    stated = sheet.peak_flop_per_s("matrix", "float16")
    assert stated
    k = 8192
    for _ in range(20):
        peak, bandwidth = 10 ** chance.uniform(12, 15), 10 ** chance.uniform(11, 13)
        at = Ceiling(peak, peak, peak, ""), Ceiling(bandwidth, bandwidth, bandwidth, "")
        measured = Ceilings(peak_flop_per_s={("matrix", "float16"): at[0]}, bandwidth_byte_per_s={0.5: at[1]})
        for roof, ridge in ((measured, peak / bandwidth), (Ceilings(), stated / sheet.bandwidth_byte_per_s)):
            n = int(chance.choice([16, 64, 256, 1024, 4096, 8192]))
            row = timed(Gemm(m=n, n=n, k=k, dtype="float16"), "cublas", 1e-3)
            wanted = "memory" if row.flop / row.byte < ridge else "compute"
            assert bound(row, roof, sheet) == wanted
    tiny = timed(Gemm(m=16, n=16, k=16, dtype="float16"), "cublas", 1e-3)
    assert bound(tiny, Ceilings(), sheet) == "memory"  # nobody states what a launch takes
    assert bound(tiny, Ceilings(launch_s=FLOOR_S), sheet) == "launch"
    assert bound(tiny, Ceilings()) == ""
