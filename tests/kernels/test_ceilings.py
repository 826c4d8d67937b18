"""Pointer chases, multiply-adds and STREAM: their counts, their references, no rate of what only waits."""

from functools import partial

import pytest
import torch

from bench.model.ceiling import Ceiling
from bench.model.ceilings import Ceilings
from bench.model.roofline import calibrated
from bench.worker.check import outputs_of
from kernels.fma.operator import OPERATOR as FMA
from kernels.fma.problem import FusedMultiplyAdd
from kernels.latency.operator import OPERATOR as LATENCY
from kernels.latency.problem import Latency
from kernels.stream.operator import OPERATOR as STREAM
from kernels.stream.problem import Stream
from tests.kernels.problems import inputs_of, usual
from tests.kernels.tensors import relative_error, uniform

latency = partial(usual, "latency")


@pytest.mark.parametrize("problem", [*LATENCY.examples, latency()], ids=str)
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
    assert LATENCY.reference(problem, table, begin).tolist() == ends


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


fma = partial(usual, "fma")


def computed(problem: FusedMultiplyAdd, x: torch.Tensor, pairs: int) -> torch.Tensor:
    """The chain as problem.py defines it, rounded after every multiply-add as the device does."""
    for _ in range(pairs):
        x = (x.double() * 4 + 1).float()
        x = (x.double() / 4 + (2.0**-12 - 0.25)).float()
    return x


@pytest.mark.parametrize("flop_per_byte", [1, 3, 16, 2048])
def test_the_intensity_is_what_is_asked_for(flop_per_byte: int) -> None:
    problem = fma(flop_per_byte=flop_per_byte)
    assert problem.flop / problem.byte == flop_per_byte
    assert problem.flop == 2 * 2 * problem.pairs * problem.length


@pytest.mark.parametrize("flop_per_byte", [1, 64, 2048])
def test_the_reference_is_the_chain_and_a_pair_more_or_less_is_seen(flop_per_byte: int, seed: int) -> None:
    problem = fma(flop_per_byte=flop_per_byte)
    (x,) = inputs_of(problem, seed)
    allowed = FMA.tolerance(problem, "triton")
    assert relative_error(FMA, problem, (x,), (computed(problem, x, problem.pairs),)) <= allowed
    for pairs in (problem.pairs - 1, problem.pairs + 1):
        assert relative_error(FMA, problem, (x,), (computed(problem, x, pairs),)) > 10 * allowed


def stream(kind: str = "copy", length: int = 1000, dtype: str = "float32", programs: int = 0) -> Stream:
    return Stream(kind=kind, length=length, dtype=dtype, programs=programs)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_sum_of_almost_nothing_is_right_and_one_that_leaves_half_out_is_not(dtype: str, seed: int) -> None:
    problem = stream("read", 20_000, dtype)
    half = uniform(problem, seed)(10_000).abs()
    x = torch.cat([half, -half.flip(0)])
    (y,) = outputs_of(STREAM.implementations["aten"](problem, x).call())
    assert relative_error(STREAM, problem, (x,), (y,)) <= STREAM.tolerance(problem, "aten")
    wrong = half.sum(dim=0, keepdim=True)
    assert relative_error(STREAM, problem, (x,), (wrong,)) > STREAM.tolerance(problem, "aten")


def test_a_triton_launch_fills_the_device_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    copying = pytest.importorskip("kernels.stream.copying")
    asked = []
    monkeypatch.setattr(copying, "launch_with", lambda programs, *_: asked.append(programs))
    properties = type("Properties", (), {"multi_processor_count": 132})()
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    x = torch.empty(1)
    for programs in (0, 1, 7):
        STREAM.implementations["triton"](stream(length=1, programs=programs), x)
    assert asked == [132, 1, 7]
