"""What the planner makes of the blocks of the first minutes on GPUs that are not here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kernels
from bench.cli.list_cases import of_datasheet
from bench.cli.predict import datasheet_named
from bench.runner.forecast import Prices
from bench.sampling.protocol import protocol
from bench.selfcheck.blocks import BLOCKS, DUEL, MEMORY_LIMITED, QUANTIZATION, TOUR
from bench.sweep import load as sweep
from bench.sweep.load import Case


def is_ours(case: Case) -> bool:
    return case.implementation.startswith("triton")


def is_inductor(case: Case) -> bool:
    return case.implementation.startswith("inductor")


@pytest.mark.parametrize("gpu", ["h100_sxm5", "h200"])
@pytest.mark.parametrize(
    ("block", "names", "asked", "sides"),
    [
        ("tour", TOUR, lambda case: not is_ours(case) and not is_inductor(case), {False}),
        ("gemm-duel", DUEL, lambda case: not is_inductor(case), {False, True}),
        ("memory-duel", MEMORY_LIMITED, lambda case: not is_inductor(case), {False, True}),
        ("quantization", QUANTIZATION, lambda case: True, {True}),
    ],
)
def test_a_block_has_time_for_every_case_of_both_sides(
    gpu: str, block: str, names: tuple[str, ...], asked: Callable[[Case], bool], sides: set[bool]
) -> None:
    """A duel of which one side is left out, and a curve of two points, answer nothing."""
    device = of_datasheet(datasheet_named(gpu))
    paths = dict.fromkeys(path for name in ("ceilings", *names) for path in sweep.select(name))
    cases = [
        case
        for loaded in sweep.load_all(list(paths), kernels.problem, device.sm_count)
        for case in loaded.cases
        if not case.missing("cuda", device.capability) and case.threads == "all"
    ]
    ceilings = [case for case in cases if case.role != "measurement"]
    others = [
        case
        for case in cases
        if case.role == "measurement" and case.problem.dtype == "float16" and asked(case)
    ]
    (command, *_) = next(one for one in BLOCKS if one.name == block).commands
    prices = Prices(device, protocol("cuda"), command.budget_s(command.limit_s))
    prices.limit_ceilings(cases)
    found = prices.forecast([*ceilings, *others])
    assert found.planned.cases == found.possible.cases == len(others) > 0
    assert {is_ours(case) for case in others} == sides
