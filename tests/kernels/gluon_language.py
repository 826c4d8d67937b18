"""The part of Gluon that our kernels use, in Python: values, memory, partitions.

Each function does to the emulator what its namesake does on a device. Barriers and copies are in
gluon_copies.py, products in gluon_products.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell, hopper

from tests.kernels.gluon_agents import Agent, current
from tests.kernels.gluon_machine import Fault
from tests.kernels.gluon_memory import (
    KINDS,
    Memory,
    Pointer,
    Tensor,
    View,
    bases,
    share,
    spoil,
)

STANDS_FOR: dict[int, Any] = {}
"""By the identity of a function of Gluon's what an emulated kernel calls in its place."""


def stands_for(*originals: Any) -> Callable[[Any], Any]:
    """Marks what takes these functions' place, and that of Triton's own functions of their names."""

    def mark(ours: Any) -> Any:
        for one in originals:
            STANDS_FOR[id(one)] = ours
            if one.__module__ == "triton.language.core":
                STANDS_FOR[id(getattr(tl, one.__name__))] = ours
        return ours

    return mark


class Held(View):
    """Shared or tensor memory, to read and write from registers."""

    def load(self, layout: Any = None) -> Tensor:
        agent = current()
        agent.read(self)
        value = self.of(agent.cta).clone()
        expected = [own for _, own in share(self.shape, bases(layout), agent.cta)]
        if layout is not None and agent.launch.ctas > 1 and expected != list(value.shape):
            raise Fault(
                f"{agent.at()}: a block has {list(value.shape)} of it in memory, {expected} in registers"
            )
        return Tensor(value, self.dtype, list(self.shape), layout)

    def store(self, value: Tensor, pred: Any = True) -> None:
        agent = current()
        if value.shape != self.shape or value.dtype != self.dtype:
            raise Fault(f"{agent.at()}: {value.dtype} {value.shape} is stored in {self.dtype} {self.shape}")
        if pred:
            agent.write(self)
            self.put(agent.cta, value.value)

    def slice(self, start: int, length: int, dim: int | None = None) -> View:
        last = len(self.shape) - 1 if not self.memory.shared else 0
        return self.part(last if dim is None else dim, start, length)

    def _reinterpret(self, dtype: Any, shape: Sequence[int], layout: Any) -> View:
        """Another reading of this memory, with numbers of its own; a write to one spoils the other."""
        launch = current().launch
        name = f"{self.memory.name}{self.box} as {dtype} {shape}"
        if name not in launch.memory:
            shares = [torch.zeros(list(shape), dtype=KINDS[dtype]) for _ in range(launch.ctas)]
            for one in shares:
                spoil(one)
            whole = (self.memory, self.box)
            made = Memory(
                self.memory.name, dtype, list(shape), layout, self.memory.shared, shares, within=whole
            )
            launch.memory[name] = made
            self.memory.aliases.append((made, self.box))
        memory = launch.memory[name]
        return replace(self, memory=memory, shape=list(shape), layout=layout, made=(), dims=None)


class Barriers:
    """An array of barriers, or one of them."""

    def __init__(self, name: str, count: int, shared: bool, number: int | None = None) -> None:
        self.name, self.count, self.shared, self.number = name, count, shared, number

    def index(self, at: Any) -> Barriers:
        if not 0 <= int(at) < self.count:
            raise Fault(f"{current().at()}: barrier {at} of {self.name}, which are {self.count}")
        return Barriers(self.name, self.count, self.shared, int(at))

    def in_block(self, cta: int) -> int:
        """The machine's number of it in this block."""
        space = current().launch.machine.space
        return space.barrier(f"{self.name}[{self.number or 0}]", cta)

    def waited(self, cta: int) -> int:
        """Where this block's copies complete it and its leader waits."""
        return self.in_block(0 if self.shared else cta)


# Values.


@stands_for(gl.full)
def full(shape: Sequence[int], value: Any, dtype: Any, layout: Any = None) -> Tensor:
    own = [size for _, size in share(shape, bases(layout), current().cta)]
    return Tensor(torch.full(own, value, dtype=KINDS[dtype]), dtype, list(shape), layout)


@stands_for(gl.zeros)
def zeros(shape: Sequence[int], dtype: Any, layout: Any = None) -> Tensor:
    return full(shape, 0, dtype, layout)


@stands_for(gl.arange)
def arange(start: int, end: int, layout: Any = None) -> Tensor:
    ((first, own),) = share([end - start], bases(layout), current().cta)
    value = torch.arange(start + first, start + first + own, dtype=torch.int32)
    return Tensor(value, gl.int32, [end - start], layout)


@stands_for(gl.load)
def load(pointer: Pointer, mask: Any = None, other: Any = None, **_: Any) -> Tensor:
    found, byte = pointer.load(mask, other)
    current().launch.traffic.pointed += byte
    return found


for _original, _ours in (
    (gl.minimum, min),
    (gl.maximum, max),
    (gl.static_range, range),
    (gl.num_warps, lambda: current().warps),
    (gl.program_id, lambda axis=0: current().launch.program[axis]),
    (gl.num_programs, lambda axis=0: current().launch.grid[axis]),
):
    stands_for(_original)(_ours)


# Memory.


@stands_for(gl.allocate_shared_memory)
def allocate_shared_memory(dtype: Any, shape: Sequence[int], layout: Any) -> Any:
    agent = current()
    name = agent.named()
    if isinstance(layout, hopper.mbarrier.MBarrierLayout):
        of = bases(layout)
        return Barriers(name, shape[0] if len(shape) > 1 else 1, any(one == [0] for one in of))
    return _allocated(agent, name, dtype, shape, layout, bases(layout), shared=True)


@stands_for(blackwell.allocate_tensor_memory)
def allocate_tensor_memory(dtype: Any, shape: Sequence[int], layout: Any) -> Held:
    agent = current()
    rows, columns = getattr(layout, "cta_split_num", None) or (1, 1)
    split = [[1, 0]] * (rows > 1) + [[0, 1]] * (columns > 1)
    agent.launch.paired |= bool(getattr(layout, "two_ctas", False))
    return _allocated(agent, agent.named(), dtype, shape, layout, split, shared=False)


def _allocated(
    agent: Agent,
    name: str,
    dtype: Any,
    shape: Sequence[int],
    layout: Any,
    of: list[list[int]],
    *,
    shared: bool,
) -> Held:
    wide = [[0] * (len(shape) - len(one)) + one for one in of]
    own = [size for _, size in share(shape, wide, 0)]
    memory = agent.launch.memory.get(name)
    if memory is None:
        shares = [torch.zeros(own, dtype=KINDS[dtype]) for _ in range(agent.launch.ctas)]
        for one in shares:
            spoil(one)
        memory = agent.launch.memory[name] = Memory(name, dtype, list(shape), layout, shared, shares)
    box = tuple((0, size) for size in own)
    return Held(memory, agent.launch.machine.space, list(shape), layout, box, dims=tuple(range(len(shape))))


@stands_for(gl.warp_specialize)
def warp_specialize(partitions: Sequence[Any], worker_num_warps: Any, worker_num_regs: Any = None) -> Any:
    return current().specialize(list(partitions), list(worker_num_warps))
