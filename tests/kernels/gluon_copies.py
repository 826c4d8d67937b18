"""Barriers, fences and bulk copies of Gluon, in Python: what they do to the emulator.

With several blocks they mean what Triton 3.7.1's compiled code says: `mbarrier.arrive` stays within its
block; of a barrier that two blocks share only the first block waits and expects, for both, and copies of both
complete it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton.experimental.gluon.language.nvidia import ampere, hopper

from tests.kernels.gluon_agents import Agent, current
from tests.kernels.gluon_language import Barriers, Held, stands_for
from tests.kernels.gluon_machine import Fault
from tests.kernels.gluon_memory import Descriptor, spoil


@stands_for(hopper.mbarrier.allocate_mbarrier)
def allocate_mbarrier(batch: int | None = None, two_ctas: bool = False) -> Barriers:
    return Barriers(current().named(), batch or 1, two_ctas)


@stands_for(hopper.mbarrier.init)
def init(barrier: Barriers, count: int) -> None:
    agent = current()
    agent.step("init", barrier=barrier.in_block(agent.cta), amount=count)


@stands_for(hopper.mbarrier.wait)
def wait(barrier: Barriers, phase: Any, pred: Any = True, deps: Any = ()) -> None:
    agent = current()
    if pred and (agent.cta == 0 or not barrier.shared):
        agent.step("wait", barrier=barrier.waited(agent.cta), amount=int(phase) & 1)


@stands_for(hopper.mbarrier.arrive, ampere.mbarrier.arrive)
def arrive(barrier: Barriers, *, count: int = 1, pred: Any = True) -> None:
    agent = current()
    if pred:
        agent.step("arrive", barrier=barrier.in_block(agent.cta), amount=count)


@stands_for(hopper.mbarrier.expect)
def expect(barrier: Barriers, bytes_per_cta: int | None = None, pred: Any = True) -> None:
    agent = current()
    assert bytes_per_cta is not None
    if pred and (agent.cta == 0 or not barrier.shared):
        byte = bytes_per_cta * (agent.launch.ctas if barrier.shared else 1)
        agent.step("expect", barrier=barrier.waited(agent.cta), amount=byte)


@stands_for(hopper.fence_async_shared)
def fence_async_shared(cluster: bool = False) -> None:
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
    descriptor: Descriptor,
    coordinates: Sequence[Any],
    barrier: Barriers,
    result: Held,
    pred: Any = True,
) -> None:
    agent = current()
    _fits(agent, descriptor, result)
    if not pred:
        return
    at = [int(one) for one in coordinates]
    target = result.of(agent.cta)
    spoil(target)

    def effect() -> None:
        result.put(agent.cta, descriptor.read(at, agent.cta))

    brings = ((barrier.waited(agent.cta), target.numel() * target.element_size()),)
    agent.issue("load", writes=(result.region(agent.cta),), brings=brings, effect=effect)


@stands_for(hopper.tma.async_copy_shared_to_global)
def async_copy_shared_to_global(descriptor: Descriptor, coordinates: Sequence[Any], source: Held) -> None:
    agent = current()
    _fits(agent, descriptor, source)
    at = [int(one) for one in coordinates]

    def effect() -> None:
        descriptor.write(at, agent.cta, source.of(agent.cta))

    agent.issue("store", reads=(source.region(agent.cta),), effect=effect)


def _fits(agent: Agent, descriptor: Descriptor, memory: Held) -> None:
    if descriptor.block_shape != memory.shape or descriptor.dtype != memory.dtype:
        raise Fault(f"{agent.at()}: blocks of {descriptor.block_shape} and memory of {memory.shape}")
    if descriptor.layout != memory.layout:
        raise Fault(f"{agent.at()}: the descriptor's blocks and shared memory are laid out differently")


@stands_for(hopper.tma.store_wait)
def store_wait(pendings: int) -> None:
    current().drain("store", pendings)
