"""Which of our kernels multiplies a shape: plain rules prune, the device times six, the choice is kept.

**Candidates.** `variants` lists the kernels that suit a shape, and each kernel its tiles, all of which fit
registers and shared memory. `pruned` leaves out tiles that are mostly outside the matrix and puts the others
in order: first the largest of those that occupy the device. Of several kernels the first tiles are taken in
turn. The first six that run are timed (bench/autotune/tuning.py); the others are for when one of them does
not run.

**Sharing.** Answers are stored by class of shapes (`shape_class`, sizes within a quarter) *and* by list of
candidates. So do float16 and bfloat16 share, of which the programs are the same but for a letter of an
instruction.

A kernel that is asked for by its own name has its first six configurations timed; a tile that is asked for by
name the few ways to compute it.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from typing import NamedTuple

import torch

from bench.autotune.tuning import TIMED, tuned
from bench.spec import Launch, Unsupported
from kernels.gemm import pointer, split_k, tma
from kernels.gemm.operands import Operands, Prepared, has_wide_loads
from kernels.gemm.problem import FORCED_TILES, Gemm
from kernels.gemm.tiles import Tile, tiles_of

Capability = tuple[int, int]

OCCUPIED = 0.75
"""Share of the SMs that a tile must occupy to be tried before smaller ones; assumed, and only an order."""


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
    proposed = ", ".join(map(str, choices[:TIMED]))
    return tuned(
        ("gemm", name, shape_class(problem), of.addend, "of", proposed),
        choices,
        lambda choice: prepare(of, choice, at.sm_count).launch(),
        lambda choice: prepare(of, choice, at.sm_count).compile(),
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
    of_kernels = [
        [Choice(kernel, tile) for tile in pruned(problem, kernel, at)]
        for kernel in ((wanted,) if wanted else variants(problem, *at))
    ]
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*of_kernels))
    return tuple(choice for choice in in_turn if choice is not None)


def pruned(problem: Gemm, kernel: str, at: Device) -> list[Tile]:
    """The kernel's tiles that are worth trying for this shape, the likeliest first.

    Not those of which half or more would lie outside the matrix along M or N, unless none is smaller. Of the
    rest those come first that occupy OCCUPIED of the SMs, in the order of their list: the largest reuse
    operands most. Then, the smallest first, those that leave more of them idle. Of alike tiles, which differ
    in depth or warps, one comes before any second, so that the six that are timed are of different sizes.
    """
    listed = _tiles(problem, kernel, at.capability)
    most_m = 2 * max(problem.m, min((tile.m for tile in listed), default=0))
    most_n = 2 * max(problem.n, min((tile.n for tile in listed), default=0))
    inside = [tile for tile in listed if tile.m < most_m and tile.n < most_n]

    def programs(tile: Tile) -> int:
        parts = split_k.parts(problem, tile, at.sm_count) if kernel == "split-k" else 1
        return tiles_of(problem, tile) * parts

    filling = [tile for tile in inside if programs(tile) >= OCCUPIED * at.sm_count]
    others = sorted((tile for tile in inside if tile not in filling), key=lambda tile: tile.m * tile.n)
    alike: Counter[tuple[int, int]] = Counter()
    places = {}
    for tile in (*filling, *others):
        places[tile] = alike[tile.m, tile.n]
        alike[tile.m, tile.n] += 1
    return sorted(places, key=places.__getitem__)


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


def _forced(problem: Gemm, tile: str, capability: Capability) -> list[Choice]:
    """This tile, one program each; by bulk copies where possible, as the best that this tile can do."""
    kernels = ("pointer",) if problem.missing("triton-tma", "cuda", capability) else ("tma", "pointer")
    shape = tuple(map(int, tile.split("x")))
    found = ([Choice(k, one) for one in _tiles(problem, k, capability) if one[:2] == shape] for k in kernels)
    return next(filter(None, found), [])


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
