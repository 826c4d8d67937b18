"""Inputs of launches: a cold ring never meets its own data, an arena hands out nothing twice."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from bench.sampling.protocol import Protocol
from bench.spec import Uniform
from bench.worker import cache_ring
from bench.worker.buffer_ring import BufferRing
from bench.worker.cache_ring import Arena, Plan, plan
from tests.bench.simulated import Doubling, SimulatedCuda, doubling, simulated_bench


@pytest.mark.parametrize("byte", [1, 100, 10_000, 1 << 20, 1 << 24, 1 << 28])
def test_a_cold_ring_never_meets_its_own_data(byte: int) -> None:
    protocol = Protocol()
    cache = 50 << 20
    found = plan(byte, cache, True, 100 << 30, protocol)
    between = (found.slots - 1) * byte
    assert found.flushed or between >= protocol.ring_factor * cache or byte >= protocol.ring_factor * cache
    assert found.slots <= protocol.most_slots
    assert found.slots * byte <= 50 << 30


def test_a_ring_stays_within_half_of_the_memory() -> None:
    assert plan(1 << 20, 50 << 20, True, 20 << 20, Protocol()) == Plan(10, True)
    with pytest.raises(MemoryError, match=r"needs 0\.9 GB of the 1\.0 GB that are free"):
        plan(900_000_000, 50 << 20, True, 1_000_000_000, Protocol())


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn)


@pytest.mark.parametrize(("dtype", "most"), [*((dtype, 1) for dtype in FLOATS), (torch.int8, 127)])
def test_the_arena_hands_out_uniform_values_never_twice_in_one_reservation(
    dtype: torch.dtype, most: int
) -> None:
    """Whole numbers as far from 0 either way: no bias."""
    arena = Arena(torch.device("cpu"), dtype, random.randrange(1 << 30), 0)
    arena.reserve(1 << 20)
    first, second = arena.view((100, 333)), arena.view((7, 3))
    assert first.shape == (100, 333) and first.is_contiguous()
    assert second.data_ptr() >= first.data_ptr() + first.nbytes
    assert second.data_ptr() % cache_ring.ALIGN_BYTE == first.data_ptr() % cache_ring.ALIGN_BYTE
    values = first.double() / most
    assert -1 <= values.min() < -0.9 and 0.9 < values.max() <= 1
    assert abs(values.mean()) < 0.05 and values.unique().numel() > 100
    assert (values == 0).double().mean() < 0.01
    if most > 1:
        assert values.min() == -1 and values.max() == 1


def test_the_arena_goes_on_past_its_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arena, "period", 101)
    arena = Arena(torch.device("cpu"), torch.float32, 1, 0)
    for elements in (50, 101, 330, 1000):
        arena.reserve(4 * elements)
        values = arena.view((elements,))
        assert values.abs().max() <= 1 and values.std() > 0.4
        if elements > 101:
            assert torch.equal(values[101:], values[:-101])


def test_tensors_of_another_type_differ_from_each_other() -> None:
    """Else a weight and a bias would be one, and a kernel that takes one for the other would be right."""
    bench = simulated_bench(cuda := SimulatedCuda())
    operator = doubling(cuda)
    given: list[torch.Tensor] = []

    def inputs(problem: Doubling, uniform: Uniform) -> tuple[torch.Tensor, ...]:
        given.extend(uniform(64, dtype=torch.float64) for _ in range(2))
        return (uniform(problem.size),)

    BufferRing(bench, replace(operator, inputs=inputs), "good", Doubling(dtype="float32", size=8), 2)
    assert len({tuple(tensor.tolist()) for tensor in given}) == 4
    assert all(-1 <= float(tensor.min()) < -0.5 < 0.5 < float(tensor.max()) <= 1 for tensor in given)


def test_more_inputs_than_a_problem_counts_are_refused_however_many_a_slot_has() -> None:
    bench = simulated_bench(cuda := SimulatedCuda())
    operator, problem = doubling(cuda), Doubling(dtype="float32", size=999)

    def slots(sizes: list[int]) -> BufferRing:
        operator_of_many = replace(operator, inputs=lambda _, uniform: tuple(map(uniform, sizes)))
        built = {"good": lambda problem, x, *rest: operator.implementations["good"](problem, x)}
        return BufferRing(bench, replace(operator_of_many, implementations=built), "good", problem, 3)

    many = slots([1] * 999).inputs
    assert len({tensor.data_ptr() for inputs in many for tensor in inputs}) == 3 * 999
    with pytest.raises(MemoryError, match="elements requested"):
        slots([1 << 20])


def test_arenas_of_other_types_are_given_back_when_memory_is_short() -> None:
    bench = simulated_bench(SimulatedCuda())
    bench.arena(torch.float32, 1 << 12)
    assert bench.arena(torch.float64, 1 << 12).byte >= 1 << 12
    assert len(bench._arenas) == 2
    bench.free_byte = lambda: 1 << 12
    bench.arena(torch.float16, 1 << 12)
    assert list(bench._arenas) == [(torch.float16, "uniform")]
