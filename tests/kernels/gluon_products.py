"""Matrix products of Hopper and Blackwell in Gluon, in Python: what they do to the emulator.

Numbers are those of the 16-bit, 8-bit or 4-bit operands, sums float32. A product of a pair of blocks is
issued by the first, for both, and its commit arrives in both, as Triton 3.7.1 compiles it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from triton.experimental.gluon.language.nvidia import blackwell, hopper

from tests.kernels.gluon_agents import current
from tests.kernels.gluon_language import Barriers, Held, stands_for
from tests.kernels.gluon_machine import Fault
from tests.kernels.gluon_memory import Pending, Tensor, View


@stands_for(hopper.warpgroup_mma)
def warpgroup_mma(
    a: Any, b: Held, acc: Tensor, *, use_acc: Any = True, is_async: bool = False, **_: Any
) -> Tensor:
    agent = current()
    if [a.shape[0], b.shape[1]] != acc.shape or a.shape[1] != b.shape[0]:
        raise Fault(f"{agent.at()}: {a.shape} times {b.shape} is not {acc.shape}")
    pending = Pending()
    result = Tensor(None, acc.dtype, acc.shape, acc.layout, pending)
    if acc.pending.waited is False and acc.pending not in agent.pending:
        raise Fault(f"{agent.at()}: adds to sums of another partition")

    def effect() -> None:
        left = a.of(agent.cta) if isinstance(a, View) else a.value
        product = multiplied(left, b.of(agent.cta))
        assert acc.held is not None
        result.held = product + acc.held if use_acc else product

    reads = [one.region(agent.cta) for one in (a, b) if isinstance(one, View)]
    agent.issue("wgmma", reads=tuple(reads), effect=effect)
    agent.pending.append(pending)
    return result if is_async else warpgroup_mma_wait(0, deps=(result,))


@stands_for(hopper.warpgroup_mma_wait)
def warpgroup_mma_wait(num_outstanding: int = 0, deps: Sequence[Any] = ()) -> Any:
    agent = current()
    agent.drain("wgmma", num_outstanding)
    for one in agent.pending[: max(0, len(agent.pending) - num_outstanding)]:
        one.waited = True
    del agent.pending[: max(0, len(agent.pending) - num_outstanding)]
    return deps[0] if len(deps) == 1 else tuple(deps)


def multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a b, summed in float32."""
    return a.float() @ b.float()


@stands_for(blackwell.tcgen05_mma)
def tcgen05_mma(a: Held, b: Held, acc: Held, *, mbarriers: Any = None, **named: Any) -> None:
    _tensor_product(a, b, acc, (), multiplied, **named)
    _commits(mbarriers, **named)


@stands_for(blackwell.tcgen05_mma_scaled)
def tcgen05_mma_scaled(
    a: Held,
    b: Held,
    acc: Held,
    a_scale: Held,
    b_scale: Held,
    a_type: str,
    b_type: str,
    *,
    mbarriers: Any = None,
    **named: Any,
) -> None:
    cta = current().cta

    def times(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return scaled(left, a_scale.of(cta), a_type) @ scaled(right.T, b_scale.of(cta), b_type).T

    _tensor_product(a, b, acc, (a_scale, b_scale), times, **named)
    _commits(mbarriers, **named)


def _tensor_product(
    a: Held,
    b: Held,
    acc: Held,
    factors: Sequence[Held],
    times: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    use_acc: Any = True,
    pred: Any = True,
    **_: Any,
) -> None:
    """A product in tensor memory; of a pair the first block issues it for both."""
    agent = current()
    if [a.shape[0], b.shape[1]] != acc.shape or a.shape[1] != b.shape[0]:
        raise Fault(f"{agent.at()}: {a.shape} times {b.shape} is not {acc.shape}")
    if not pred or (acc.layout.two_ctas and agent.cta):
        return
    blocks = range(agent.launch.ctas) if acc.layout.two_ctas else [agent.cta]

    def effect() -> None:
        product = times(torch.cat([a.of(cta) for cta in blocks]), torch.cat([b.of(cta) for cta in blocks], 1))
        for cta, rows in zip(blocks, product.chunk(len(blocks)), strict=True):
            acc.put(cta, acc.of(cta) + rows if use_acc else rows)

    sums = tuple(acc.region(cta) for cta in blocks)
    reads = tuple(one.region(cta) for one in (a, b, *factors) for cta in blocks)
    agent.issue("tcgen05", reads=reads + (sums if use_acc else ()), writes=sums, effect=effect)


def _commits(barriers: Any, *, pred: Any = True, **_: Any) -> None:
    for one in barriers or ():
        tcgen05_commit(one, pred=pred)


def scaled(packed: torch.Tensor, scale: torch.Tensor, kind: str) -> torch.Tensor:
    """Numbers [rows, k] (two 4-bit ones to a byte, the low one first) times their blocks' scales, float32."""
    numbers = packed.float() if kind != "e2m1" else _FOURS[_nibbles(packed)]
    factors = torch.exp2(scale.float() - 127) if scale.dtype == torch.uint8 else scale.float()
    return numbers * factors.repeat_interleave(numbers.shape[1] // factors.shape[1], 1)


_FOURS = torch.tensor([sign * one for sign in (1, -1) for one in (0, 0.5, 1, 1.5, 2, 3, 4, 6)])
"""What the bit patterns of e2m1 stand for (OCP Microscaling Formats, 5.3.3)."""


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()


@stands_for(blackwell.tcgen05_copy)
def tcgen05_copy(source: Held, target: Held) -> None:
    agent = current()
    if source.shape != target.shape or source.dtype != target.dtype:
        raise Fault(f"{agent.at()}: {source.dtype} {source.shape} is copied to {target.dtype} {target.shape}")

    def effect() -> None:
        target.put(agent.cta, source.of(agent.cta))

    agent.issue(
        "tcgen05", reads=(source.region(agent.cta),), writes=(target.region(agent.cta),), effect=effect
    )


@stands_for(blackwell.tcgen05_commit)
def tcgen05_commit(barrier: Barriers, pred: Any = True, descs: Sequence[Any] = ()) -> None:
    agent = current()
    paired = agent.launch.paired
    if pred and not (paired and agent.cta):
        blocks = range(agent.launch.ctas) if paired else [agent.cta]
        agent.issue("tcgen05", arrives=tuple(barrier.in_block(cta) for cta in blocks))
