"""Which of our kernels multiplies this shape on this device: a rule proposes a few, the device decides.

The rule is `variants`. Of each kernel that it proposes the most promising configurations (`shortlist`) are
timed once for each class of shapes (`shape_class`), and the choice is remembered (kernels/tuning.py). A
kernel that is asked for by its own name is tuned alone, over its whole list.
"""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any, NamedTuple

import torch

from bench.spec import Launch, Unsupported
from kernels.gemm.operands import Operands, has_wide_loads
from kernels.gemm.parts import step, tiles_of
from kernels.gemm.problem import FORCED_TILES, SKINNY, Gemm
from kernels.gemm.tiles import Tile
from kernels.tuning import fastest, tuned

Capability = tuple[int, int]

PLAIN = ("pointer", "tma", "persistent")
"""Kernels whose programs compute whole tiles, each alone; their configuration is a Tile."""
MOST_OF_A_KERNEL = 6
"""Configurations of one kernel that `triton` has timed for a class of shapes."""


class Choice(NamedTuple):
    """One kernel in one configuration."""

    variant: str
    """Without the `triton-` before it: the module's name but for dashes."""
    configuration: Any

    def __str__(self) -> str:
        """As the row shows it: `persistent 128x256x64 w8 s3`."""
        return f"{self.variant} {self.configuration}"


def variants(problem: Gemm, capability: Capability, sm_count: int) -> tuple[str, ...]:
    """The kernels worth trying for this shape, the likeliest first.

    * One side of D up to 64 and the matrix that remains large: its stream from memory is what takes time, so
      the kernel that streams; splitting K as well.
    * Fewer tiles of 128 x 128 than SMs: with K long enough to share out, split it; and plain tiles, which win
      where the last to arrive would wait longer than it saves.
    * Up to four waves of tiles, the last of which may be mostly empty: equal shares of work (stream-K), and
      plain tiles, which are as good where the waves happen to be full.
    * Beyond: tiles, by one program an SM (persistent) where rows allow bulk copies.

    Plain tiles are moved by bulk copies where device, type and rows allow, by pointers where they do not. Of
    a batch all are plain, by pointers.
    """
    if problem.batch > 1:
        return ("pointer",)
    bulk = not problem.missing("triton-tma", "cuda", capability)
    plain = ("persistent", "tma") if bulk else ("pointer",)
    tiles = math.ceil(problem.m / 128) * math.ceil(problem.n / 128)
    if min(problem.m, problem.n) <= SKINNY and max(problem.m, problem.n) * problem.k >= 2**20:
        return ("skinny", "split-k")
    if tiles < sm_count:
        single = ("tma", "pointer") if bulk else ("pointer",)
        return ("split-k", *single) if problem.k >= 512 else single
    if tiles <= 4 * sm_count and problem.k >= 512:
        return ("stream-k", *plain)
    return plain


def launch(problem: Gemm, of: Operands, name: str) -> Launch:
    """D in `of.d` by the implementation of this name, `triton` or `triton-...`, on the current device.

    The first launch of a class of shapes on a device compiles and times what is proposed (seconds).
    Unsupported if nothing listed can run here.
    """
    at = _device(of)
    question, choices = _asked(problem, of, name, at)
    return tuned(question, choices, functools.partial(_launch, of, at), functools.partial(_compile, of, at))


def configuration(problem: Gemm, of: Operands, name: str) -> str:
    """What `launch` chooses: the kernel, its tile (M x N x K), warps, stages, parts."""
    at = _device(of)
    question, choices = _asked(problem, of, name, at)
    return str(fastest(question, choices, functools.partial(_launch, of, at)))


class Device(NamedTuple):
    """What a choice depends on."""

    capability: Capability
    sm_count: int


def _device(of: Operands) -> Device:
    found = torch.cuda.get_device_properties(of.d.device)
    return Device((found.major, found.minor), found.multi_processor_count)


def _asked(problem: Gemm, of: Operands, name: str, at: Device) -> tuple[tuple[object, ...], list[Choice]]:
    """The question for the tuner, and its possible answers."""
    # Of one question the answers must be the same, whichever shape of its class asks first.
    choices = choices_of(representative(problem), name, at.capability, at.sm_count)
    if not choices:
        raise Unsupported(
            f"{name} has no configuration for {problem.dtype} {problem.layout} on compute capability "
            f"{at.capability[0]}.{at.capability[1]}"
        )
    return ("gemm", name, shape_class(problem), of.addend), choices


def choices_of(problem: Gemm, name: str, capability: Capability, sm_count: int) -> list[Choice]:
    """Every kernel and configuration that `name` stands for; none if its lists have none for this problem."""
    asked = name.removeprefix("triton").removeprefix("-")
    if asked in FORCED_TILES:
        return _forced(problem, asked, capability)
    if asked:
        return _listed(problem, asked, capability, sm_count)
    return [
        choice
        for variant in variants(problem, capability, sm_count)
        for choice in shortlist(problem, _listed(problem, variant, capability, sm_count), sm_count)
    ]


def _listed(problem: Gemm, variant: str, capability: Capability, sm_count: int) -> list[Choice]:
    found = _module(variant).candidates(problem, capability, sm_count)
    return [Choice(variant, one) for one in found]


def shortlist(problem: Gemm, choices: list[Choice], sm_count: int) -> list[Choice]:
    """The most promising configurations of one kernel: to time each of 40 would take longer than a sweep.

    Of plain tiles those whose waves take least by count: waves of tiles x steps along K x what a step takes
    of operands or of arithmetic, whichever is more (parts.py). Kernels that cut K come in such an order.
    """
    if choices and choices[0].variant in PLAIN:
        choices = sorted(choices, key=lambda choice: _waves_cost(problem, choice.configuration, sm_count))
    return choices[:MOST_OF_A_KERNEL]


def _waves_cost(problem: Gemm, tile: Tile, sm_count: int) -> float:
    waves = math.ceil(tiles_of(problem, tile) / sm_count)
    return waves * math.ceil(problem.k / tile.k) * step(problem, tile)


def _forced(problem: Gemm, tile: str, capability: Capability) -> list[Choice]:
    """This tile, one program each; by bulk copies where possible, as the best that this tile can do."""
    from kernels.gemm import tiles, tma_tiles

    m, n = map(int, tile.split("x"))
    if not problem.missing("triton-tma", "cuda", capability):
        found = tma_tiles.forced(problem, capability, m, n)
        if found:
            return [Choice("tma", one) for one in found]
    wide = has_wide_loads(problem)
    return [
        Choice("pointer", one)
        for one in tiles.forced(capability, problem.dtype, problem.layout, m, n, wide=wide)
    ]


def shape_class(problem: Gemm) -> str:
    """Problems that share a choice: each size rounded up to a quarter of an octave, the rest the same.

    1024, 1280, 1536, 1792, 2048: sizes of one class differ by a quarter at most. Where rows, or rows and
    sizes, are no multiples of 16 bytes, it is another class.
    """
    sizes = "x".join(str(_rounded(size)) for size in (problem.m, problem.n, problem.k))
    rows = all(byte % 16 == 0 for byte in problem.row_byte())
    aligned = "aligned" if has_wide_loads(problem) else "aligned rows" if rows else "unaligned"
    several = "" if problem.batch == 1 else f" batch {_rounded(problem.batch)}"
    return f"{problem.dtype} {problem.layout} {sizes} {aligned}{several}"


def representative(problem: Gemm) -> Gemm:
    """The largest shape of the problem's class whose sizes are as far from multiples of 16 as its own."""
    sizes = {name: getattr(problem, name) for name in ("m", "n", "k")}
    largest = {name: _rounded(size) - (_rounded(size) - size) % 16 for name, size in sizes.items()}
    return problem.model_copy(update={**largest, "batch": _rounded(problem.batch)})


def _rounded(size: int) -> int:
    step: int = max(1, 2 ** (size - 1).bit_length() // 8)
    return -(-size // step) * step


def _module(variant: str) -> Any:
    return importlib.import_module(f"kernels.gemm.{variant.replace('-', '_')}")


def _launch(of: Operands, at: Device, choice: Choice) -> Launch:
    found: Launch = _module(choice.variant).launch(of, choice.configuration, at.sm_count)
    return found


def _compile(of: Operands, at: Device, choice: Choice) -> None:
    _module(choice.variant).compile(of, choice.configuration, at.sm_count)
