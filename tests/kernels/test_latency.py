"""Pointer chases: the cycle, the reference, and that no rate is made of them."""

from functools import partial

import pytest
import torch

from bench.model.ceilings import Ceiling, Ceilings
from bench.model.roofline import calibrated
from kernels.latency.operator import OPERATOR, reference
from kernels.latency.problem import Latency
from tests.kernels.listing import Line
from tests.kernels.problems import inputs_of, usual

latency = partial(usual, "latency")


@pytest.mark.parametrize("problem", [*OPERATOR.examples, latency()], ids=str)
def test_the_cells_are_one_cycle_and_chains_visit_all_of_it(problem: Latency, seed: int) -> None:
    table, begin = inputs_of(problem, seed)
    assert table.dtype == begin.dtype == torch.int32
    assert table.nbytes == problem.footprint_byte and table.nbytes + begin.nbytes == problem.byte_stored
    at, seen = 0, []
    for _ in range(problem.lines):
        seen.append(at)
        at = int(table.view(-1)[at])
    assert at == 0 and len(set(seen)) == problem.lines and all(one % 32 == 0 for one in seen)
    places = sorted(seen.index(one) for one in begin.tolist())
    arcs = [b - a for a, b in zip(places, [*places[1:], places[0] + problem.lines], strict=True)]
    assert len(places) == problem.chains and (problem.chains == 1 or max(arcs) <= problem.steps)
    ends = []
    for at in begin.tolist():
        for _ in range(problem.steps):
            at = int(table.view(-1)[at])
        ends.append(at)
    assert reference(problem, table, begin).tolist() == ends


def test_the_order_is_random(seed: int) -> None:
    problem = latency()
    table, _ = inputs_of(problem, seed)
    stride = (table[:, 0] - torch.arange(problem.lines) * 32).abs()
    assert (stride <= 64).float().mean() < 0.01


@pytest.mark.parametrize("arithmetic", ["latency", "vector"])
def test_no_roof_is_held_against_a_chain(arithmetic: str) -> None:
    problem = latency()
    assert problem.arithmetic == "latency" and problem.flop == 0
    bandwidth = Ceiling(1e12, 1e12, 1e12, "a copy")
    ceilings = Ceilings("nvidia-h100", "all", "cold", 1e-6, {}, {0.5: bandwidth})
    found = calibrated(0, problem.byte, 0.0, arithmetic, "float32", ceilings)
    assert (found is None) == (arithmetic == "latency")


def test_a_line_is_read_in_each_step_of_each_chain() -> None:
    assert latency().byte_read == 128 * 1000 * 9 and latency().byte_written == 4 * 9
    assert latency(footprint_byte=512 << 20, steps=65_536).chains == 64
    assert latency(footprint_byte=8 << 20, steps=65_536).chains == 1


def test_a_load_that_need_not_wait_is_seen() -> None:
    pytest.importorskip("triton")
    from tests.kernels.ceilings_compiled import independent

    chase = [
        Line(0, "LEA", "R2, P1, R9, R10, 0x2", None),
        Line(16, "LEA.HI.X.SX32", "R3, R9, R11, 0x2, P1", None),
        Line(32, "LDG.E", "R9, desc[UR8][R2.64]", None),
    ]
    assert independent(chase) == 0
    ahead = Line(48, "LDG.E", "R4, desc[UR8][R2.64]", None)
    assert independent([*chase, ahead]) > 0
    stream = Line(16, "LEA.HI.X.SX32", "R3, R7, R11, 0x2, P1", None)
    assert independent([chase[0], stream, chase[2]]) > 0
