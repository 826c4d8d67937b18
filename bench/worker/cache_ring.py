"""Ring for cold caches: sets of tensors that launches use in turn, so that each finds its data in memory.

A ring of R slots holds at least `ring_factor` x the last-level cache. Every launch uses the next slot,
and the place in the ring is kept from one sample to the next; a ring that started again at slot 0 for
every sample would be warm but labelled cold, the commonest mistake of its kind. Where that many slots cannot
be built (tiny problems), the cache is flushed before each turn, outside the timed part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bench.sampling.protocol import Protocol
from bench.worker.clock import Calls, Clock

ALIGN_BYTE = 256
"""Alignment of cudaMalloc: views must not be worse aligned than allocations of their own."""
LONG_SAMPLE_S = 0.02
"""Longest sample that a coarse clock asks for: its error then widens the interval instead."""
LARGEST_INTEGER = 127
"""Random integers lie between minus this and this."""


DATA: Mapping[str, tuple[str, Callable[[torch.Tensor, float], torch.Tensor]]] = {
    "uniform": ("uniform[-1,1]", lambda drawn, tiny: drawn),
    "normal": ("normal(0,1)", lambda drawn, tiny: math.sqrt(2) * torch.erfinv(drawn * (1 - 2**-23))),
    "hundred": ("uniform[-100,100]", lambda drawn, tiny: 100 * drawn),
    "shifted": ("uniform[999,1001]", lambda drawn, tiny: 1000 + drawn),
    "spikes": ("uniform[-1,1] with 10000 at every 509th", lambda drawn, tiny: _spiked(drawn)),
    "zeros": ("zeros", lambda drawn, tiny: torch.zeros_like(drawn)),
    "denormal": ("denormal", lambda drawn, tiny: tiny * drawn),
}
"""What an arena may hold, by name: as a text, and as a function of numbers uniform in [-1, 1] and of the
smallest normal number of its type. Integers are uniform or zeros."""


def _spiked(drawn: torch.Tensor) -> torch.Tensor:
    """One large value in some row, whatever their length; a prime apart, so that columns differ."""
    drawn[7::509] = 1e4
    return drawn


def fill(dtype: torch.dtype, data: str = "uniform") -> str:
    """The distribution of an arena's numbers, as a text."""
    if dtype.is_floating_point or data == "zeros":
        return DATA[data][0]
    return f"uniform[-{LARGEST_INTEGER},{LARGEST_INTEGER}]"


@dataclass(frozen=True)
class Plan:
    """The number of slots, and whether the cache must be flushed before each turn."""

    slots: int
    flushed: bool

    def within(self, launches: int) -> Plan:
        """No more slots than this many launches can visit; a ring so cut is flushed before each turn."""
        return Plan(launches, True) if 1 <= launches < self.slots else self


def plan(byte: int, cache_byte: int, cold: bool, free_byte: int, protocol: Protocol) -> Plan:
    """Slots for a problem whose tensors hold `byte` bytes, within half of `free_byte`.

    Warm: one slot. Nothing to cool (byte = 0): one slot. MemoryError if not even one fits.
    """
    if byte > 0.8 * free_byte:
        raise MemoryError(f"needs {byte / 1e9:.1f} GB of the {free_byte / 1e9:.1f} GB that are free")
    if not cold or byte == 0:
        return Plan(1, False)
    wanted = protocol.ring_factor * cache_byte
    slots = max(1, min(protocol.ring_slots(cache_byte, byte), int(free_byte / 2 / byte)))
    # the ring's other slots must displace this one before its turn comes again
    return Plan(slots, flushed=(slots - 1) * byte < wanted and byte < wanted)


class Arena:
    """Random memory of one data type, handed out as views: filled once, it serves every slot and case.

    It is filled as far as needed and then kept: a CPU would spend more time on fresh pages than on kernels.
    What it holds follows from type and seed alone, whatever was reserved before; nobody may write to it.
    """

    period = 4_194_301
    """Elements of the random pattern: a prime, so that no two slots of one size hold the same values."""
    drawn = 1 << 16
    """Elements of the pattern that are drawn at once: drawing more or fewer would give other numbers."""

    def __init__(
        self, device: torch.device, dtype: torch.dtype, seed: int, first_byte: int, data: str = "uniform"
    ) -> None:
        """At least `first_byte` bytes are allocated when memory is first needed; `data`: see DATA."""
        self.data = data
        self.device, self.dtype, self.seed, self.first_byte = device, dtype, seed, first_byte
        self._memory = torch.empty(0, dtype=dtype, device=device)
        self._filled = self._reserved = self._used = 0

    @property
    def byte(self) -> int:
        """Bytes it holds."""
        return self._memory.nbytes

    def reserve(self, byte: int) -> None:
        """Make room for `byte` bytes, and hand out memory from the beginning again."""
        elements = -(-byte // self.dtype.itemsize)
        if elements + self.drawn > self._memory.numel():  # the last draw may go beyond what is needed
            self._memory = torch.empty(0, dtype=self.dtype, device=self.device)  # give back, then take
            count = max(elements, self.first_byte // self.dtype.itemsize)
            self._memory = torch.empty(count + self.drawn, dtype=self.dtype, device=self.device)
            self._filled = 0
        self._fill(elements)
        self._reserved, self._used = elements, 0

    def _fill(self, elements: int) -> None:
        """Random numbers for the first period, then copies of it, for this many elements at least."""
        while self._filled < elements:
            most = self.drawn if self._filled < self.period else elements - self._filled
            count = min(most, self.period - self._filled % self.period)
            part = self._memory[self._filled : self._filled + count]
            if self._filled < self.period:
                generator = torch.Generator(self.device).manual_seed(self.seed + self._filled)
                if not self.dtype.is_floating_point and self.data == "zeros":
                    part.zero_()
                elif not self.dtype.is_floating_point:
                    part.random_(-LARGEST_INTEGER, LARGEST_INTEGER + 1, generator=generator)
                elif self.dtype.itemsize == 1 or self.data != "uniform":  # torch draws no 8-bit floats
                    wide_type = torch.float64 if self.dtype == torch.float64 else torch.float32
                    wide = torch.empty(count, dtype=wide_type, device=self.device)
                    drawn = wide.uniform_(-1.0, 1.0, generator=generator)
                    part.copy_(DATA[self.data][1](drawn, torch.finfo(self.dtype).tiny))
                else:
                    part.uniform_(-1.0, 1.0, generator=generator)
            else:
                offset = self._filled % self.period
                part.copy_(self._memory[offset : offset + count])
            self._filled += count

    def view(self, shape: Sequence[int]) -> torch.Tensor:
        """The next contiguous tensor of this shape; MemoryError past what is reserved."""
        count, begin = math.prod(shape), self._used
        if begin + count > self._reserved:
            raise MemoryError(f"{begin + count} elements requested, {self._reserved} reserved")
        step = ALIGN_BYTE // self.dtype.itemsize
        self._used = -(-(begin + count) // step) * step
        return self._memory[begin : begin + count].view(*shape)


class RingSampler:
    """The ring's calls cut into samples, endlessly; each call times the next sample."""

    def __init__(self, clock: Clock, calls: Calls, per_sample: int, flushed: bool) -> None:
        """Samples have about `per_sample` launches: whole turns (graph), or equal parts of a turn.

        Neither has more than the clock's `most_launches`, unless a single turn of a graph has.
        """
        ring = len(calls)
        if clock.whole_turns or per_sample >= ring:
            # a flush helps only the launches before the ring's second turn
            turns = 1 if flushed else min(math.ceil(per_sample / ring), clock.most_launches // ring)
            groups = [list(calls) * max(1, turns)]
        else:
            parts = max(ring // per_sample, math.ceil(ring / clock.most_launches))
            edges = [round(i * ring / parts) for i in range(parts + 1)]
            groups = [list(calls[a:b]) for a, b in itertools.pairwise(edges)]
        self.sizes = [len(group) for group in groups]
        made = partial(clock.batch, cold=ring > 1)
        self.batches = [made(group, flushed and i == 0) for i, group in enumerate(groups)]
        self._next = 0
        self.visited = 0
        """Number of slots that have run, from the first on."""
        self._ring = ring
        self.captured: list[Any] | None = self.batches[0].written if clock.whole_turns else None
        """Outputs of the calls of a captured turn, known before it is timed."""

    @property
    def per_sample(self) -> int:
        """Launches in the largest sample."""
        return max(self.sizes)

    def __call__(self) -> tuple[float, float]:
        """(seconds per launch, seconds in all) of the next sample."""
        at = self._next
        seconds = self.batches[at]()
        self.visited = max(self.visited, min(self._ring, sum(self.sizes[: at + 1])))
        self._last = at
        self._next = (at + 1) % len(self.batches)
        return seconds / self.sizes[at], seconds

    @property
    def last(self) -> tuple[int, Any]:
        """(slot, outputs) of the launch that ran last."""
        slot = (sum(self.sizes[: self._last + 1]) - 1) % self._ring
        return slot, self.batches[self._last].written[-1]


def least_sample_s(clock: Clock, protocol: Protocol) -> float:
    """Seconds of the shortest sample that this clock tells well enough."""
    return max(protocol.least_sample_s, min(LONG_SAMPLE_S, protocol.steps * clock.resolution_s))


def launches_per_sample(clock: Clock, calls: Calls, protocol: Protocol) -> int:
    """Number of launches that make a sample long enough for this clock.

    It times growing batches from the ring, each once. Where batches are whole turns it starts from one turn.
    """
    least = least_sample_s(clock, protocol)
    count = len(calls) if clock.whole_turns else 1
    while True:
        took = clock.batch([calls[i % len(calls)] for i in range(count)], False)()
        more = math.ceil(count * min(100.0, 1.2 * least / max(took, 1e-9)))
        if took >= least or more > clock.most_launches:
            return count
        count = max(count + 1, more)
