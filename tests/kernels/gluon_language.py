"""The part of Gluon that our kernels use, in Python.

Each function does to the emulator what its namesake does on a device. With several blocks they mean what
Triton 3.7.1's compiled code says: `mbarrier.arrive` stays within its block; of a barrier that two blocks
share only the first block waits and expects, for both, and copies of both complete it; a product of a pair is
issued by the first, for both, and its commit arrives in both. Products are of the numbers that 16-bit, 8-bit
or 4-bit operands stand for, sums float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import ampere, blackwell, hopper

from bench.spec import Dtype
from kernels.gemm.number_types import decoded
from tests.kernels.gluon_agents import Agent, current
from tests.kernels.gluon_machine import Fault
from tests.kernels.gluon_memory import (
    KINDS,
    Descriptor,
    Memory,
    Pending,
    Pointer,
    Tensor,
    View,
    bases,
    share,
    spoil,
    spoiled,
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
    return pointer.load(mask, other)


for _original, _ours in (
    (gl.minimum, min),
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
def allocate_tensor_memory(dtype: Any, shape: Sequence[int], layout: Any) -> View:
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
) -> View:
    wide = [[0] * (len(shape) - len(one)) + one for one in of]
    own = [size for _, size in share(shape, wide, 0)]
    memory = agent.launch.memory.get(name)
    if memory is None:
        memory = Memory(name, dtype, shared, spoiled(own, dtype, agent.launch.ctas))
        agent.launch.memory[name] = memory
    box = tuple((0, size) for size in own)
    return View(memory, agent.launch.machine.space, list(shape), layout, box, dims=tuple(range(len(shape))))


@stands_for(gl.warp_specialize)
def warp_specialize(partitions: Sequence[Any], worker_num_warps: Any, worker_num_regs: Any = None) -> Any:
    return current().specialize(list(partitions), list(worker_num_warps))


# Barriers and fences.


@stands_for(hopper.mbarrier.allocate_mbarrier)
def allocate_mbarrier(batch: int | None = None, two_ctas: bool = False) -> Barriers:
    return Barriers(current().named(), batch or 1, two_ctas)


@stands_for(hopper.mbarrier.init)
def init(barrier: Barriers, count: int) -> None:
    agent = current()
    agent.step("init", barrier=barrier.in_block(agent.cta), amount=count)


@stands_for(hopper.mbarrier.wait)
def wait(barrier: Barriers, phase: Any) -> None:
    agent = current()
    if agent.cta == 0 or not barrier.shared:
        agent.step("wait", barrier=barrier.waited(agent.cta), amount=int(phase) & 1)


@stands_for(hopper.mbarrier.arrive, ampere.mbarrier.arrive)
def arrive(barrier: Barriers, *, count: int = 1, pred: Any = True) -> None:
    agent = current()
    if pred:
        agent.step("arrive", barrier=barrier.in_block(agent.cta), amount=count)


@stands_for(hopper.mbarrier.expect)
def expect(barrier: Barriers, bytes_per_cta: int) -> None:
    agent = current()
    if agent.cta == 0 or not barrier.shared:
        byte = bytes_per_cta * (agent.launch.ctas if barrier.shared else 1)
        agent.step("expect", barrier=barrier.waited(agent.cta), amount=byte)


@stands_for(hopper.fence_async_shared)
def fence_async_shared() -> None:
    current().step("fence")


@stands_for(hopper.mbarrier.fence_init_release_cluster)
def fence_init_release_cluster() -> None:
    if current().launch.ctas == 1:
        raise Fault("fence_init_release_cluster does not compile for one block")


@stands_for(hopper.cluster.arrive)
def cluster_arrive(relaxed: bool = False) -> None:
    current().cluster_arrive()


@stands_for(hopper.cluster.wait)
def cluster_wait() -> None:
    current().cluster_wait()


# Bulk copies.


@stands_for(hopper.tma.async_copy_global_to_shared)
def async_copy_global_to_shared(
    descriptor: Descriptor, coordinates: Sequence[Any], barrier: Barriers, result: View
) -> None:
    agent = current()
    _fits(agent, descriptor, result)
    at = [int(one) for one in coordinates]
    target = result.of(agent.cta)
    spoil(target)

    def effect() -> None:
        result.put(agent.cta, descriptor.read(at, agent.cta))

    brings = ((barrier.waited(agent.cta), target.numel() * target.element_size()),)
    agent.issue("load", writes=(result.region(agent.cta),), brings=brings, effect=effect)


@stands_for(hopper.tma.async_copy_shared_to_global)
def async_copy_shared_to_global(descriptor: Descriptor, coordinates: Sequence[Any], source: View) -> None:
    agent = current()
    _fits(agent, descriptor, source)
    at = [int(one) for one in coordinates]

    def effect() -> None:
        descriptor.write(at, agent.cta, source.of(agent.cta))

    agent.issue("store", reads=(source.region(agent.cta),), effect=effect)


def _fits(agent: Agent, descriptor: Descriptor, memory: View) -> None:
    if descriptor.block_shape != memory.shape or descriptor.dtype != memory.dtype:
        raise Fault(f"{agent.at()}: blocks of {descriptor.block_shape} and memory of {memory.shape}")
    if descriptor.layout != memory.layout:
        raise Fault(f"{agent.at()}: the descriptor's blocks and shared memory are laid out differently")


@stands_for(hopper.tma.store_wait)
def store_wait(pendings: int) -> None:
    current().drain("store", pendings)


# Matrix products.


@stands_for(hopper.warpgroup_mma)
def warpgroup_mma(a: View, b: View, acc: Tensor, *, is_async: bool) -> Tensor:
    agent = current()
    assert is_async
    _multiply(agent, a, b, acc)
    pending = Pending()
    result = Tensor(None, acc.dtype, acc.shape, acc.layout, pending)
    if acc.pending.waited is False and acc.pending not in agent.pending:
        raise Fault(f"{agent.at()}: adds to sums of another partition")

    def effect() -> None:
        assert acc.held is not None
        result.held = multiplied(a.of(agent.cta), b.of(agent.cta)) + acc.held

    agent.issue("wgmma", reads=(a.region(agent.cta), b.region(agent.cta)), effect=effect)
    agent.pending.append(pending)
    return result


@stands_for(hopper.warpgroup_mma_wait)
def warpgroup_mma_wait(num_outstanding: int, deps: Sequence[Tensor]) -> Tensor:
    agent = current()
    agent.drain("wgmma", num_outstanding)
    while len(agent.pending) > num_outstanding:
        agent.pending.pop(0).waited = True
    (sums,) = deps
    return sums


def _multiply(agent: Agent, a: View, b: View, sums: Tensor | View) -> None:
    """Fault unless these shapes multiply."""
    if [a.shape[0], b.shape[1]] != sums.shape or a.shape[1] != b.shape[0]:
        raise Fault(f"{agent.at()}: {a.shape} times {b.shape} is not {sums.shape}")


def multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a b, summed in float32."""
    return a.float() @ b.float()


@stands_for(blackwell.tcgen05_mma)
def tcgen05_mma(a: View, b: View, acc: View, *, use_acc: Any, mbarriers: Any) -> None:
    _tensor_product(a, b, acc, (), multiplied, use_acc)
    for one in mbarriers or ():
        tcgen05_commit(one)


@stands_for(blackwell.tcgen05_mma_scaled)
def tcgen05_mma_scaled(
    a: View, b: View, acc: View, a_scale: View, b_scale: View, a_type: str, b_type: str, *, use_acc: Any
) -> None:
    cta = current().cta

    def times(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        left = decoded(_BLOCK_SCALED[a_type], left, a_scale.of(cta))
        return multiplied(left, decoded(_BLOCK_SCALED[b_type], right.T, b_scale.of(cta)).T)

    _tensor_product(a, b, acc, (a_scale, b_scale), times, use_acc)


_BLOCK_SCALED: dict[str, Dtype] = {"e4m3": "mxfp8", "e2m1": "nvfp4"}
"""Of what a matrix instruction calls them; their numbers are tested in test_gemm_types.py."""


def _tensor_product(
    a: View,
    b: View,
    acc: View,
    factors: Sequence[View],
    times: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    use_acc: Any,
) -> None:
    """A product in tensor memory; of a pair the first block issues it for both."""
    agent = current()
    _multiply(agent, a, b, acc)
    if acc.layout.two_ctas and agent.cta:
        return
    blocks = range(agent.launch.ctas) if acc.layout.two_ctas else [agent.cta]

    def effect() -> None:
        product = times(torch.cat([a.of(cta) for cta in blocks]), torch.cat([b.of(cta) for cta in blocks], 1))
        for cta, rows in zip(blocks, product.chunk(len(blocks)), strict=True):
            acc.put(cta, acc.of(cta) + rows if use_acc else rows)

    sums = tuple(acc.region(cta) for cta in blocks)
    reads = tuple(one.region(cta) for one in (a, b, *factors) for cta in blocks)
    agent.issue("tcgen05", reads=reads + (sums if use_acc else ()), writes=sums, effect=effect)


@stands_for(blackwell.tcgen05_copy)
def tcgen05_copy(source: View, target: View) -> None:
    agent = current()
    if source.shape != target.shape or source.dtype != target.dtype:
        raise Fault(f"{agent.at()}: {source.dtype} {source.shape} is copied to {target.dtype} {target.shape}")

    def effect() -> None:
        target.put(agent.cta, source.of(agent.cta))

    agent.issue(
        "tcgen05", reads=(source.region(agent.cta),), writes=(target.region(agent.cta),), effect=effect
    )


@stands_for(blackwell.tcgen05_commit)
def tcgen05_commit(barrier: Barriers) -> None:
    agent = current()
    paired = agent.launch.paired
    if not (paired and agent.cta):
        blocks = range(agent.launch.ctas) if paired else [agent.cta]
        agent.issue("tcgen05", arrives=tuple(barrier.in_block(cta) for cta in blocks))
