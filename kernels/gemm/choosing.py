"""Which of our kernels multiplies a shape: a rule prunes, the device times six, the choice is kept.

**Candidates.** `variants` lists the kernels that suit a shape, and each kernel its tiles. `cost` puts them in
order at exactly this shape and number of SMs: how many waves of tiles there are, and what the steps of a tile
take. The six cheapest are timed, at most three of one kernel and one of each of its tiles, since an error of
the rule for a kernel or a tile applies to all of its configurations. The others follow by cost, for when one
of the six does not run.

**Sharing.** Answers are stored by class of shapes (`shape_class`, sizes within a quarter) *and* by list of
candidates: the two sides of the edge of a wave or of a tile are tuned apart, and shapes between edges share.
So do float16 and bfloat16, of which the programs are the same but for a letter of an instruction.

**Cost.** Tuning takes some 0.5 s (bench/launching/timing.py) and what is new to be compiled. It is in the row
(`Launch.tuning_s`), never in a measured time.

A kernel that is asked for by its own name has its six cheapest configurations timed, alike tiles too; a tile
that is asked for by name the few ways to compute it.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from bench.launching.tuning import tuned
from bench.spec import Launch, Unsupported
from kernels.gemm import pointer, split_k, tiles, tma
from kernels.gemm.operands import Operands, has_wide_loads
from kernels.gemm.problem import FORCED_TILES, Gemm
from kernels.gemm.tiles import Tile, tiles_of
from kernels.prepared import Prepared

Capability = tuple[int, int]

PROPOSED = 6
"""Candidates that are timed for a shape."""
OF_A_KERNEL = 3
"""The most of them that are of one kernel, for `triton`."""
VARIANTS: Mapping[str, str] = {
    "pointer": "any size, alignment, architecture and batch: whatever bulk copies cannot move",
    "tma": "bulk copies where small tiles share an SM, so that one block writes while another multiplies",
    "persistent": "bulk copies where tiles are large and many: a pipeline filled once an SM, not once a tile",
    "split-k": "fewer tiles than SMs and a long K",
}
"""Our kernels and what each is for."""
FMA_PER_BYTE: Mapping[str, float] = {
    **{"float8_e4m3": 64, "int8": 64, "float16": 32, "bfloat16": 32},
    **{"tf32": 16, "float32": 2, "float64": 1},
}
"""Multiply-adds that an SM does while it loads a byte of operands from the L2 cache: of Hopper, 2048 of 16
bits and 64 bytes a cycle. Others differ by up to a factor of two. For ordering what is tried, no more."""
FILL_STEPS = 4
"""Steps along K that it takes to fill a pipeline, about as many as are in flight."""
STEP_BYTE = 2048
"""What a step takes besides, in bytes that could be loaded meanwhile: assumed, not measured. It keeps small
tiles from being free."""


class Choice(NamedTuple):
    """One kernel with one tile."""

    kernel: str
    """Its name without the `triton-` before it."""
    tile: Tile

    def __str__(self) -> str:
        """`persistent 128x256x64 w8 s3`, as rows show it."""
        return f"{self.kernel} {self.tile}"


def variants(problem: Gemm, capability: Capability, sm_count: int) -> tuple[str, ...]:
    """The kernels worth trying for this shape, the likeliest first.

    Fewer tiles of 128 x 128 than SMs: split K if it is long enough; and plain tiles, which win where the last
    to arrive would wait longer than splitting saves. Otherwise plain tiles, moved by bulk copies where
    device, type and rows allow, else by pointers. Of a batch all are plain, by pointers.
    """
    if problem.batch > 1:
        return ("pointer",)
    bulk = not problem.missing("triton-tma", "cuda", capability)
    if tiles_of(problem, Tile(128, 128, 64, 8, 3)) < sm_count:
        single = ("tma", "pointer") if bulk else ("pointer",)
        return ("split-k", *single) if problem.k >= 512 else single
    return ("persistent", "tma") if bulk else ("pointer",)


def launch(of: Operands, name: str) -> Launch:
    """D in `of.d` by the implementation of this name, `triton` or `triton-...`, on the current device.

    The first launch that is proposed something new compiles and times it (about a second).
    Unsupported if nothing listed can run here.
    """
    problem, at = of.problem, _device(of)
    choices = choices_of(problem, name, at)
    if not choices:
        raise Unsupported(
            f"{name} has no configuration for {problem.dtype} {problem.layout} on compute capability "
            f"{at.capability[0]}.{at.capability[1]}"
        )
    proposed = ", ".join(map(str, choices[:PROPOSED]))
    return tuned(
        ("gemm", name, shape_class(problem), of.addend, "of", proposed),
        choices,
        lambda choice: prepare(of, choice, at.sm_count).launch(),
        lambda choice: prepare(of, choice, at.sm_count).compile(),
        PROPOSED,
    )


class Device(NamedTuple):
    """What a choice depends on."""

    capability: Capability
    sm_count: int


def _device(of: Operands) -> Device:
    found = torch.cuda.get_device_properties(of.d.device)
    return Device((found.major, found.minor), found.multi_processor_count)


@functools.lru_cache(maxsize=4096)  # each slot of a ring asks
def choices_of(problem: Gemm, name: str, at: Device) -> tuple[Choice, ...]:
    """Every kernel and tile that `name` stands for, those that are proposed first.

    None if its lists have none for this problem.
    """
    wanted = name.removeprefix("triton").removeprefix("-")
    if wanted in FORCED_TILES:
        return tuple(_forced(problem, wanted, at.capability))
    several = (wanted,) if wanted else variants(problem, *at)
    listed = [Choice(one, tile) for one in several for tile in _tiles(problem, one, at.capability)]
    # Of equals the first: of the kernels by `variants`, of the tiles by their lists.
    found = sorted(listed, key=lambda choice: cost(problem, choice, at.sm_count))
    return tuple(found if wanted else _different_first(found))


def cost(problem: Gemm, choice: Choice, sm_count: int) -> float:
    """What a launch takes, in bytes that an SM could load from L2 meanwhile: to order candidates by.

    A step of a tile along K takes as long as loading its operands or multiplying them, whichever is longer.
    With T tiles on P SMs an SM has ceil(T / P) of them, each with a pipeline to fill and a tile to write; one
    program an SM fills it once. Parts of K are programs of their own, whose sums are written and read.
    """
    kernel, tile = choice
    count = split_k.parts(problem, tile, sm_count) if kernel == "split-k" else 1
    loaded = (tile.m + tile.n) * tile.k * problem.item_byte
    step = max(loaded, tile.m * tile.n * tile.k / FMA_PER_BYTE[problem.dtype]) + STEP_BYTE
    waves = math.ceil(tiles_of(problem, tile) * count / sm_count)
    steps = math.ceil(math.ceil(problem.k / tile.k) / count)
    fills = 1 if kernel == "persistent" else waves
    written = tile.m * tile.n * problem.output_item_byte
    exchanged = (count + 1) * tile.m * tile.n * split_k.sum_byte(problem) if count > 1 else 0
    return (waves * steps + fills * FILL_STEPS) * step + waves * written + exchanged


def _tiles(problem: Gemm, kernel: str, capability: Capability) -> tuple[Tile, ...]:
    if kernel in ("tma", "persistent"):
        return tma.candidates(problem, capability, persistent=kernel == "persistent")
    if kernel == "split-k":
        return split_k.candidates(problem, capability)
    return pointer.candidates(problem, capability)


def prepare(of: Operands, choice: Choice, sm_count: int) -> Prepared:
    """D in `of.d` by this choice. The tensors' device must be the current one."""
    kernel, tile = choice
    if kernel in ("tma", "persistent"):
        return tma.prepare(of, tile, sm_count, persistent=kernel == "persistent")
    if kernel == "split-k":
        return split_k.prepare(of, tile, sm_count)
    return pointer.prepare(of, tile, sm_count)


def _different_first(choices: Sequence[Choice]) -> list[Choice]:
    """The proposals of `triton`, then all others, both in the order in which they come."""
    proposed: list[Choice] = []
    of_kernel: Counter[str] = Counter()
    seen: set[tuple[str, int, int]] = set()
    for choice in choices:
        tile = choice.kernel, choice.tile.m, choice.tile.n
        if len(proposed) < PROPOSED and of_kernel[choice.kernel] < OF_A_KERNEL and tile not in seen:
            proposed.append(choice)
            of_kernel[choice.kernel] += 1
            seen.add(tile)
    return proposed + [choice for choice in choices if choice not in proposed]


def _forced(problem: Gemm, tile: str, capability: Capability) -> list[Choice]:
    """This tile, one program each; by bulk copies where possible, as the best that this tile can do."""
    m, n = map(int, tile.split("x"))
    if not problem.missing("triton-tma", "cuda", capability):
        found = tma.forced(problem, capability, m, n)
        if found:
            return [Choice("tma", one) for one in found]
    wide = has_wide_loads(problem)
    return [
        Choice("pointer", one)
        for one in tiles.forced(capability, problem.dtype, problem.layout, m, n, wide=wide)
    ]


def shape_class(problem: Gemm) -> str:
    """Problems that may share a choice: each size rounded up to a quarter of an octave, the rest the same.

    1024, 1280, 1536, 1792, 2048: sizes of one class differ by a quarter at most. Where rows, or rows and
    sizes, are no multiples of 16 bytes, it is another class. The two types of 16 bits are one.
    """
    sizes = "x".join(str(_rounded(size)) for size in (problem.m, problem.n, problem.k))
    rows = all(byte % 16 == 0 for byte in problem.row_byte())
    aligned = "aligned" if has_wide_loads(problem) else "aligned rows" if rows else "unaligned"
    several = "" if problem.batch == 1 else f" batch {_rounded(problem.batch)}"
    dtype = "16-bit" if problem.dtype in ("float16", "bfloat16") else problem.dtype
    return f"{dtype} {problem.layout} {sizes} {aligned}{several}"


def _rounded(size: int) -> int:
    step: int = max(1, 2 ** (size - 1).bit_length() // 8)
    return -(-size // step) * step
