"""Sets of tensors and the launches that use them, for one case, drawn, poisoned and checked together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bench.spec import Launch, Operator, Problem
from bench.worker.cache_ring import ALIGN_BYTE, RingSampler
from bench.worker.check import escaped, judged, outputs_of, poison
from bench.worker.clock import Calls
from bench.worker.memory import HostMemory
from kernels.tensors import stored_dtype

if TYPE_CHECKING:
    from bench.spec import Tensors
    from bench.worker.measure_case import Bench

MOST_TENSORS = 1024
"""Inputs of a slot for whose alignment there is room; more is a bug in the operator's count of bytes."""
OTHER_DATA = 4
"""Times the tolerance, which is derived for inputs in [-1, 1], that holds for others that are asked for: of
3,300 checks of libraries with normal numbers and zeros 11 were above it, by at most 2.8 times."""


class BufferRing:
    """Sets of tensors and the launches that use them, for one case."""

    def __init__(
        self,
        bench: Bench,
        operator: Operator,
        implementation: str,
        problem: Problem,
        count: int,
        data: str = "uniform",
    ) -> None:
        """Build the inputs, of such `data` (cache_ring.py), and launches of `count` slots."""
        self.bench, self.operator, self.problem, self.data = bench, operator, problem, data
        self.implementation = implementation
        build = operator.implementations[implementation]
        tensors = 8
        while (inputs := self._drawn(count, tensors)) is None:
            tensors *= 2
        self.inputs = inputs
        self._memory = bench.memory
        if count == 1 and operator.counted_on_cpu and bench.device.type == "cpu":
            self._memory = HostMemory()

        def launches() -> list[Launch]:
            return [build(problem, *inputs) for inputs in self.inputs]

        self.launches, self._built_byte = self._memory.kept_by(launches) if self._memory else (launches(), 0)
        self.calls: Calls = [launch.call for launch in self.launches]

    def _drawn(self, count: int, tensors: int) -> list[Tensors] | None:
        """The inputs of `count` slots; None without room for them if so many tensors a slot are aligned.

        They are the same whatever this process drew before.
        """
        stored = stored_dtype(self.problem.dtype)
        byte = count * (self.problem.byte_stored + tensors * ALIGN_BYTE)
        arena = self.bench.arena(stored, byte, self.data)
        beside = arena if self.data == "uniform" else self.bench.arena(stored, byte)
        generator = torch.Generator(self.bench.device).manual_seed(self.bench.seed)
        torch.default_generator.manual_seed(self.bench.seed)  # of what operators choose at random themselves

        def uniform(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
            if dtype in (None, stored):
                return (arena if dtype is None else beside).view(shape)
            # small tensors of another type, as a scale beside 16-bit data
            made = torch.empty(shape, dtype=dtype, device=self.bench.device)
            return made.uniform_(-1.0, 1.0, generator=generator)

        try:
            return [tuple(self.operator.inputs(self.problem, uniform)) for _ in range(count)]
        except MemoryError:
            if tensors >= MOST_TENSORS:
                raise
            return None

    def launch_s(self) -> float:
        """Wall seconds of one launch of slot 0; the first may compile."""
        begin = self.bench.now()
        self.calls[0]()
        self.bench.synchronize()
        return self.bench.now() - begin

    def warm_launch_s(self) -> float:
        """Wall seconds of the second launch of slot 0."""
        self.launch_s()
        return self.launch_s()

    def peak_byte(self) -> int | None:
        """Bytes that the launch of a single slot has allocated, and at most allocates when called once more.

        To be called after `launch_s`, for a first call allocates workspaces that are kept for all
        others.
        """
        if self._memory is None:
            return None
        return self._built_byte + self._memory.raised_by(self.calls[0])

    def written_over_poison(self) -> Tensors:
        """What a launch of slot 0 writes into poisoned outputs."""
        poison(self.launches[0].outputs)
        written = outputs_of(self.calls[0]())
        self.bench.synchronize()
        return written

    def judged_when_poisoned(self) -> tuple[float, float]:
        """(relative error, tolerance) of a launch of slot 0 into poisoned outputs."""
        return self.judged(0, self.written_over_poison())

    def judged(self, slot: int, written: Tensors) -> tuple[float, float]:
        """(relative error, tolerance) of what a launch of this slot wrote."""
        error, allowed = judged(self.operator, self.implementation, self.problem, self.inputs[slot], written)
        return error, allowed if self.data == "uniform" else OTHER_DATA * allowed

    def poison(self, turns: RingSampler) -> None:
        """Poison every output, which also touches its pages, so that no sample has page faults."""
        for outputs in self._outputs(turns):
            poison(outputs)
        self.bench.synchronize()

    def escaped(self, turns: RingSampler) -> int:
        """Number of launches that the clock counts as run but that left their poison."""
        return escaped(self._outputs(turns)[: turns.visited])

    def _outputs(self, turns: RingSampler) -> list[Tensors]:
        """Outputs by slot, allocated beforehand or by captured calls."""
        known = [launch.outputs for launch in self.launches]
        if not any(known) and turns.captured is not None:
            known = [outputs_of(written) for written in turns.captured[: len(self.launches)]]
        return known
