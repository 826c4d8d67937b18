"""Which ceilings a run of a few cases measures: those that its cases are held against, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import kernels
from bench.device.detect import Device
from bench.runner.ceilings import needed_ceilings
from bench.sweep.load import SWEEPS, Case, load_all
from tests.bench.several import H100, gpu

CPU = replace(gpu(0), kind="cpu", index=None, capability=None)


@pytest.fixture(scope="module")
def every() -> list[Case]:
    return [case for sweep in load_all(SWEEPS, kernels.problem, 2) for case in sweep.cases]


def needed(every: Sequence[Case], device: Device, **of: object) -> list[Case]:
    """The ceilings of the measured cases with these parameters."""
    asked = [
        case
        for case in every
        if case.role == "measurement"
        and of.items() <= {**case.problem.parameters(), "sweep": case.sweep, "cache": case.cache}.items()
    ]
    assert asked
    return needed_ceilings(asked, [case for case in every if case.role != "measurement"], device)


def words(cases: Sequence[Case]) -> list[str]:
    """What each ceiling is, in order: a launch, a pass of memory, a product of a data type."""
    return [
        str(case.problem.parameters().get("kind") or f"{case.problem.operator} {case.problem.dtype}")
        for case in cases
    ]


def test_a_softmax_needs_a_launch_and_a_copy(every: list[Case]) -> None:
    found = needed(every, CPU, sweep="softmax/rows", dtype="float32", direction="forward")
    assert words(found) == ["launch float32", "copy"]


def test_products_need_the_peaks_of_their_data_types(every: list[Case]) -> None:
    found = needed(every, CPU, sweep="gemm/square", dtype="bfloat16")
    assert words(found)[:2] == ["launch float32", "copy"]
    assert {case.problem.dtype for case in found if case.problem.flop} == {"bfloat16"}
    assert {case.role for case in found} == {"roof"} and "write" not in words(found)


def test_only_warm_cases_need_the_caches_on_a_cpu(every: list[Case]) -> None:
    warm = [case for case in every if case.role == "measurement" and case.cache == "warm"]
    caches = {case.sweep for case in needed_ceilings(warm, every, CPU) if case.role == "probe"}
    assert caches == {"ceilings/cache"}


def test_the_threads_are_those_of_the_cases(every: list[Case]) -> None:
    one = [case for case in every if case.role == "measurement" and case.threads == "one"]
    assert one and {case.threads for case in needed_ceilings(one, every, CPU)} == {"one"}


def test_a_gpus_products_need_what_the_model_of_tiles_is_made_of(every: list[Case]) -> None:
    found = needed(every, H100, sweep="gemm/square", dtype="bfloat16")
    roles = [case.role for case in found]
    assert {"roof", "probe", "calibration"} == set(roles)
    assert roles == sorted(roles, key=("roof", "probe", "calibration").index) or roles.index("roof") == 0
    of_float32 = needed(every, H100, sweep="softmax/rows", dtype="float32")
    assert {case.role for case in of_float32} == {"roof"}


def test_a_case_that_cannot_run_needs_nothing(every: list[Case]) -> None:
    assert needed(every, replace(CPU, memory_byte=1), sweep="gemm/square") == []
