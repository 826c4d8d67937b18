"""Every tile and share that kernels on rows may try, and what they promise of their compiled form.

The fullest tiles, where a spill would show first, are compiled for every architecture; the others each for
two, in turn. Lengths that are a multiple of 16 bytes but no power of two must load 16 bytes at once as well.

Of kernels that hold rows in shared memory (`held`) every input is copied asynchronously, 16 bytes at a time
and all of it before anything is waited for; nothing is copied twice; in a cluster the barrier stands between
what blocks tell and what they are told. The gradient of layer normalization keeps enough under way for a
B200's memory. Shares of many chunks may spill a few registers, outside of loops. `every` has every share that
a row of any length can be given: about 1560 compilations, twenty minutes of one core.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench.spec import ITEM_BYTE, Dtype, Launch
from kernels.layernorm import backward_shared, backward_two_pass, shared_memory
from kernels.layernorm import launch as of_layernorm
from kernels.layernorm.problem import LONGEST_IN_REGISTERS, LayerNorm
from kernels.layernorm.rows import Tile
from kernels.layernorm.shared_memory import Share
from kernels.quantize import casting
from kernels.quantize.problem import Quantize
from kernels.softmax import launch as of_softmax
from kernels.softmax.problem import Softmax
from kernels.tensors import empty
from tests.kernels.compiled import (
    CAPABILITIES,
    Built,
    Family,
    Form,
    Promise,
    launched,
    length_faults,
    narrow_faults,
    resource_faults,
    without_memory,
)
from tests.kernels.in_flight import NEEDED_BYTE, in_flight

Kind = type[LayerNorm] | type[Softmax]
WAYS = ("forward", "backward")
BOTH = ("float16", "float32")
DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
FULL = {
    (LayerNorm, "forward"): (16384, 16001),
    (LayerNorm, "backward"): (8192, 4001),
    (Softmax, "forward"): (16384, 16001),
    (Softmax, "backward"): (16384, 16001),
}
"""The longest row that registers hold, and an odd one in the largest block for that."""
MULTIPROCESSORS = 132
INPUTS = {"normalize_shared": 1, "forward_shared": 1, "backward_shared": 2}
"""Of kernels that hold rows, how many tensors' rows each holds."""
FEW_SPILLS = 8
"""Of a share of 10 or more chunks: each is executed once a row, by a thread of 80 elements or more."""


def row(kind: Kind, direction: str, length: int, dtype: str) -> LayerNorm | Softmax:
    """One row."""
    return kind.model_validate({"direction": direction, "rows": 1, "length": length, "dtype": dtype})


def launch(problem: LayerNorm | Softmax, tile: Tile | Share) -> Launch:
    """What would be launched with this tile."""
    tensors = without_memory(problem)
    if isinstance(problem, Softmax):
        return of_softmax.with_tile(problem, tensors, tile)
    return of_layernorm.with_tile(problem, tensors, tile, MULTIPROCESSORS)


def forms(
    problem: LayerNorm | Softmax, tile: Tile | Share, capabilities: tuple[int, ...] = CAPABILITIES
) -> Iterator[Form]:
    """The kernels of the launch with this tile."""
    for call in launched(launch(problem, tile)):
        name, _ = call.name.split(maxsplit=1)
        if isinstance(tile, Tile):
            element, promises = of_tile(name, problem, tile)
        elif name == "add_partial_sums":  # is there with tiles
            continue
        else:
            element, promises = of_share(name, tile)
        least = 70 if isinstance(tile, Tile) else 80 if tile.blocks == 1 else 90
        yield Form(f"{call.name} {problem}", call, promises, capabilities, least, element)


def of_tile(name: str, problem: LayerNorm | Softmax, tile: Tile) -> tuple[int, tuple[Promise, ...]]:
    """The elements of a thread of a kernel without loops, and what it promises."""
    straight = name in ("normalize", "forward", "backward")
    element = tile.rows * tile.block // (32 * tile.warps) if straight else 0
    if problem.length * problem.item_byte % 16 or name == "add_partial_sums":  # stores as few as it can share
        return element, (resource_faults,)
    if name == "row_sums" and isinstance(
        problem, LayerNorm
    ):  # stores single numbers, and loads x, dy and weight
        walk = backward_two_pass.walking(problem)
        loads = 3 * walk.block * problem.item_byte // (16 * 32 * walk.warps)
        return 0, (resource_faults, partial(narrow_faults, loads=loads, stores=0))
    few = (partial(length_faults, element=element, most=35),) if straight else ()
    return element, (resource_faults, narrow_faults, *few)


def of_share(name: str, share: Share) -> tuple[int, tuple[Promise, ...]]:
    """The same of a kernel that holds rows in shared memory."""
    meets = partial(_meets, share.blocks)
    if name == "gradient_shared":
        busy = partial(_busy, share.warps)
        return 0, (resource_faults, narrow_faults, meets, _arrived, _works_meanwhile, busy)
    element = share.chunks * share.chunk // (32 * share.warps)
    spills = partial(_spills, FEW_SPILLS * (share.chunks >= 10))
    copies = partial(_copies, INPUTS[name] * share.chunks)
    few = (partial(length_faults, element=element, most=25),) if share.blocks == 1 else ()
    return element, (spills, narrow_faults, copies, meets, _arrived, *few)


def chosen(kind: Kind) -> Iterator[Form]:
    """About 100."""
    turns = itertools.cycle(CAPABILITIES)
    for direction in WAYS:
        full, ragged = FULL[kind, direction]
        of = partial(row, kind, direction)
        for length in (64, 1024, full // 2, 32768):
            for tile in tiles(of(length, "float32")):
                for dtype in BOTH:
                    yield from forms(of(length, dtype), tile, (next(turns),))
                next(turns)  # so that a data type meets all of them
        for dtype in BOTH:
            yield from forms(of(full, dtype), Tile(1, full, 16))
            yield from forms(of(32768, dtype), tiles(of(32768, dtype))[-1])
        small = Tile(4 if direction == "forward" else 2, 1024, 4)
        for dtype, length in (("bfloat16", 1000), ("float32", 1004), ("float16", 1001)):
            yield from forms(of(length, dtype), small, (90,))
        for dtype, length in (("bfloat16", 32776), ("float16", 32775)):
            yield from forms(of(length, dtype), tiles(of(length, dtype))[1], (90,))
        # Ragged and odd, as full as can be: narrow loads must not spill either.
        block = 1 << (ragged - 1).bit_length()
        yield from forms(of(ragged, "float16"), Tile(1, block, 16), (70, 90))


def tiles(problem: LayerNorm | Softmax) -> list[Tile]:
    """Those among the candidates, without shares."""
    module = of_softmax if isinstance(problem, Softmax) else of_layernorm
    return [tile for tile in module.candidates(problem) if isinstance(tile, Tile)]


PASSES: tuple[tuple[Kind, str, int], ...] = (
    (LayerNorm, "forward", 1),
    (Softmax, "forward", 1),
    (Softmax, "backward", 2),
)
"""By kernels that hold one row at a time; and how many tensors' rows that is."""


def gradients(lengths: tuple[int, ...]) -> Iterator[Form]:
    """The gradient of layer normalization, which takes one row after the other, for either architecture."""
    turns = itertools.cycle((90, 100, 100, 90))
    for length, dtype in itertools.product(lengths, DTYPES):
        problem = LayerNorm(direction="backward", rows=1, length=length, dtype=dtype)
        for share in backward_shared.candidates(problem):
            yield from forms(problem, share, (next(turns),))


def chosen_shares() -> Iterator[Form]:
    """Shares of rows on and beside powers of two, and the largest, in turn for each architecture."""
    for kind, direction, tensors in PASSES:
        turns = itertools.cycle((90, 100, 80))
        for number, length in enumerate((16392, 32768, 40960, 81920, 131072, 262152)):
            for dtype in DTYPES:
                for place, share in enumerate(shared_memory.candidates(length, ITEM_BYTE[dtype], tensors)):
                    byte = share.chunks * share.chunk * tensors * ITEM_BYTE[dtype]
                    if place == number % 3 or byte == shared_memory.MOST_BYTE:
                        capability = max(80 if share.blocks == 1 else 90, next(turns))
                        yield from forms(row(kind, direction, length, dtype), share, (capability,))
    yield from gradients((8200, 65536, 131072))


def every_share() -> Iterator[Form]:
    """Every share of rows beyond the registers; they change at most behind multiples of 1024 elements."""
    for (kind, direction, tensors), dtype in itertools.product(PASSES, DTYPES):
        byte, first = ITEM_BYTE[dtype], LONGEST_IN_REGISTERS["forward"]
        longest = shared_memory.LARGEST_CLUSTER * shared_memory.MOST_BYTE // (byte * tensors)
        lengths = (
            base + more for base in range(first, longest, 1024) for more in (shared_memory.vector(byte), 1024)
        )
        several = {
            share: length for length in lengths for share in shared_memory.candidates(length, byte, tensors)
        }
        for share, length in sorted(several.items()):
            capabilities = tuple(one for one in CAPABILITIES if one >= (80 if share.blocks == 1 else 90))
            yield from forms(row(kind, direction, length, dtype), share, capabilities)
    for form in gradients((8200, 32768, 65536, 131072)):
        yield replace(form, capabilities=(90, 100))


def _spills(most: int, built: Built) -> list[str]:
    """Whether more registers are spilled, or any of them in a loop."""
    return resource_faults(built, parked_byte=built.stack_byte if 0 < built.spills <= most else 0)


def _busy(warps: int, built: Built) -> list[str]:
    """Whether less is under way on a multiprocessor than a B200's memory needs."""
    byte = in_flight(built, 100, warps).byte
    return [] if byte >= NEEDED_BYTE[100] else [f"{byte:.0f} bytes in flight"]


def _copies(count: int, built: Built) -> list[str]:
    """Whether the copies are not those of each element once, before the first wait."""
    names = [line.name for line in built.program]
    copies = [at for at, name in enumerate(names) if name.startswith("LDGSTS") and "128" in name.split(".")]
    faults = [] if len(copies) == count else [f"{len(copies)} copies of 16 bytes, promised {count}"]
    waits = [at for at, name in enumerate(names) if name.startswith("DEPBAR.LE")]
    return faults if copies and waits and copies[-1] < waits[0] else [*faults, "a wait before the last copy"]


def _arrived(built: Built) -> list[str]:
    """Whether threads read what others copied, or copy over what others read, without a barrier between."""
    steps = re.findall(r"cp\.async\.wait_group|cp\.async\.cg|bar\.sync|ld\.shared\.v", built.ptx)
    wrong = {("cp.async.wait_group", "ld.shared.v"), ("ld.shared.v", "cp.async.cg")}
    unmet = sum(pair in wrong for pair in itertools.pairwise(steps))
    return [f"{unmet} uses of shared memory without a barrier"] if unmet or "bar.sync" not in steps else []


def _works_meanwhile(built: Built) -> list[str]:
    """Whether nothing is computed between arriving at the cluster's barrier and waiting there."""
    names = [line.name for line in built.program]
    arrives, waits = (at for at, name in enumerate(names) if name.startswith("UCGABAR"))
    between = names[arrives:waits]
    sums = sum(name.startswith("FFMA") for name in between)
    reads = sum(name.startswith("LDS") for name in between)
    return [] if sums >= 16 and reads >= 4 else [f"{sums} products and {reads} reads beside the barrier"]


def _meets(blocks: int, built: Built) -> list[str]:
    """Whether a cluster's barrier does not stand between what is told and what is asked."""
    names = [line.name for line in built.program]
    barrier = [name for name in names if name.startswith("UCGABAR")]
    asked = [at for at, name in enumerate(names) if name.startswith("LDG.") and "STRONG" in name]
    if blocks == 1:
        return ["a single block meets others"] if barrier or asked else []
    if [name.split("_")[1] for name in barrier] != ["ARV", "WAIT"]:
        return [f"{barrier} instead of one arrival and one wait"]
    told = [at for at, name in enumerate(names) if name == "STG.E"]
    arrives, waits = (names.index(name) for name in barrier)
    first = sum(at < arrives for at in told)
    return [] if first and asked and min(asked) > waits else ["asks before the barrier, or tells after it"]


def quantized() -> Iterator[Form]:
    """Every tile of quantisation, about 60."""
    turns = itertools.cycle(((90,), (100,), (90,)))
    for dtype, to in (("bfloat16", "float8_e4m3"), ("float32", "float8_e5m2"), ("float16", "int8")):
        old = () if to == "float8_e4m3" else (80,)
        given = {"rows": 64, "dtype": dtype, "to": to}
        for scaling in ("row", "tensor", *(["mx"] if to != "int8" else [])):
            problem = Quantize.model_validate({"length": 4096, "scaling": scaling, **given})
            for tile in casting.candidates(problem):
                also = () if scaling == "row" else old
                yield from casts(problem, tile, (*also, *next(turns)))
        for length, capabilities in ((16384, (*old, 90, 100)), (16001, (90,))):
            problem = Quantize.model_validate({"length": length, "scaling": "row", **given})
            yield from casts(problem, Tile(1, 16384, 16), capabilities)


def casts(problem: Quantize, tile: Tile, capabilities: tuple[int, ...]) -> Iterator[Form]:
    """The kernels of a quantisation; y is of one byte, so a thread of 8 elements writes 8."""
    (x,) = without_memory(problem)
    aligned = problem.length * problem.item_byte % 16 == 0
    wide = (partial(narrow_faults, stores=0, narrow=None),) if aligned else ()
    least = 90 if problem.to == "float8_e4m3" else 80
    for call in launched(casting.with_tile(problem, x, empty(problem, x), tile)):
        yield Form(f"{call.name} {problem}", call, (resource_faults, *wide), capabilities, least)


FAMILIES = {
    "layernorm": Family.of(partial(chosen, LayerNorm)),
    "softmax": Family.of(partial(chosen, Softmax)),
    "held": Family(chosen_shares, every_share),
    "quantize": Family.of(quantized),
}
