"""What kernels that hold rows in shared memory promise of their compiled form, for softmax and layernorm.

Every input is copied asynchronously, 16 bytes at a time and all of it before anything is waited for; nothing
is copied twice; in a cluster the barrier stands between what blocks tell and what they are told. The gradient
of layer normalization keeps enough under way for a B200's memory. Shares of many chunks may spill a few
registers, outside of loops. `every` has every share that a row of any length can be given: about 1560
compilations, twenty minutes of one core.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from bench.spec import ITEM_BYTE, Dtype
from kernels.layernorm import backward_held, forward_held, held
from kernels.layernorm.held import Held
from kernels.layernorm.problem import EPSILON, LONGEST_IN_REGISTERS, LayerNorm
from kernels.softmax import held_rows
from tests.kernels.compiled import Built, pointer
from tests.kernels.in_flight import NEEDED_BYTE, in_flight
from tests.kernels.streaming import Variant, everywhere, family

DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
FEW_SPILLS = 8
"""Of a share of 10 or more chunks: each is executed once a row, by a thread of 80 elements or more."""
FLOAT32 = ("mean_pointer", "rstd_pointer", "partial_pointer", "sums_pointer")


def variant(kernel: Any, dtype: Dtype, length: int, share: Held, tensors: int) -> Variant:
    """This kernel as its launching function calls it; it holds so many tensors' rows."""
    arguments = {
        name: "*fp32" if name in FLOAT32 else pointer(dtype)
        for name in kernel.arg_names
        if name.endswith("_pointer")
    } | {name: "i32" for name in ("rows", "length") if name in kernel.arg_names}
    constants = {
        "EPSILON": EPSILON,
        "VECTOR": held.vector(ITEM_BYTE[dtype]),
        "CHUNKS": share.chunks,
        "CHUNK": share.chunk,
    }
    if share.blocks == 1:
        constants["partial_pointer"] = arguments.pop("partial_pointer") and None
    return Variant(
        name=f"{kernel.fn.__name__} {dtype} {length} {share}",
        kernel=kernel,
        arguments=arguments,
        constants={name: value for name, value in constants.items() if name in kernel.arg_names},
        warps=share.warps,
        blocks=share.blocks,
        element=share.chunks * share.chunk // (32 * share.warps),
        spills=FEW_SPILLS * (share.chunks >= 10),
        most=None if share.blocks > 1 else 25,
        promises=(partial(_copies, tensors * share.chunks), partial(_meets, share.blocks), _arrived),
    )


def gradients(kernel: Any, lengths: tuple[int, ...] = (8200, 65536, 131072)) -> Iterator[Variant]:
    """The gradient of layer normalization, which takes one row after the other, for either architecture."""
    turns = itertools.cycle((90, 100, 100, 90))
    for length in lengths:
        for dtype in DTYPES:
            problem = LayerNorm(direction="backward", rows=1, length=length, dtype=dtype)
            for share in backward_held.candidates(problem):
                made = variant(kernel, dtype, length, share, 2)
                busy = partial(_busy, share.warps)
                promises = (partial(_meets, share.blocks), _arrived, _works_meanwhile, busy)
                yield replace(made, least=90, capabilities=(next(turns),), element=0, promises=promises)


def variants(kernel: Any, tensors: int) -> Iterator[Variant]:
    """Shares of rows on and beside powers of two, and the largest, in turn for each architecture."""
    turns = itertools.cycle((90, 100, 80))
    for number, length in enumerate((16392, 32768, 40960, 81920, 131072, 262152)):
        for dtype in DTYPES:
            for place, share in enumerate(held.candidates(length, ITEM_BYTE[dtype], tensors)):
                byte = share.chunks * share.chunk * tensors * ITEM_BYTE[dtype]
                least = 80 if share.blocks == 1 else 90
                if place == number % 3 or byte == held.MOST_BYTE:
                    made = variant(kernel, dtype, length, share, tensors)
                    yield replace(made, least=least, capabilities=(max(least, next(turns)),))


def every() -> Iterator[Variant]:
    """Every kernel with every share that it can be launched with."""
    for kernel, tensors in (
        (forward_held.normalize_held, 1),
        (held_rows.forward_held, 1),
        (held_rows.backward_held, 2),
    ):
        for dtype in DTYPES:
            for share in shares(dtype, tensors):
                made = variant(kernel, dtype, 0, share, tensors)
                yield replace(made, least=80 if share.blocks == 1 else 90)
    yield from gradients(backward_held.gradient_held, (8200, 32768, 65536, 131072))


def shares(dtype: Dtype, tensors: int) -> list[Held]:
    """Every share of a row beyond the registers; they change at most behind multiples of 1024 elements."""
    byte, first = ITEM_BYTE[dtype], LONGEST_IN_REGISTERS["forward"]
    longest = held.LARGEST_CLUSTER * held.MOST_BYTE // (byte * tensors)
    lengths = (base + more for base in range(first, longest, 1024) for more in (held.vector(byte), 1024))
    return sorted({share for length in lengths for share in held.candidates(length, byte, tensors)})


def _busy(warps: int, built: Built) -> list[str]:
    """Whether less is under way on a multiprocessor than a B200's memory needs, as phrases."""
    byte = in_flight(built, 100, warps).byte
    return [] if byte >= NEEDED_BYTE[100] else [f"{byte:.0f} bytes in flight"]


def _copies(count: int, built: Built) -> list[str]:
    """Whether the copies are not those of each element once, before the first wait, as phrases."""
    names = [line.name for line in built.program]
    copies = [at for at, name in enumerate(names) if name.startswith("LDGSTS") and "128" in name.split(".")]
    found = [] if len(copies) == count else [f"{len(copies)} copies of 16 bytes, promised {count}"]
    waits = [at for at, name in enumerate(names) if name.startswith("DEPBAR.LE")]
    return found if copies and waits and copies[-1] < waits[0] else [*found, "a wait before the last copy"]


def _arrived(built: Built) -> list[str]:
    """Whether threads read what others copied, or copy over what others read, without a barrier between."""
    steps = re.findall(r"cp\.async\.wait_group|cp\.async\.cg|bar\.sync|ld\.shared\.v", built.ptx)
    wrong = {("cp.async.wait_group", "ld.shared.v"), ("ld.shared.v", "cp.async.cg")}
    unmet = sum(pair in wrong for pair in itertools.pairwise(steps))
    return [f"{unmet} uses of shared memory without a barrier"] if unmet or "bar.sync" not in steps else []


def _works_meanwhile(built: Built) -> list[str]:
    """Whether nothing is computed between arriving at the cluster's barrier and waiting there, as phrases."""
    names = [line.name for line in built.program]
    arrives, waits = (at for at, name in enumerate(names) if name.startswith("UCGABAR"))
    between = names[arrives:waits]
    sums = sum(name.startswith("FFMA") for name in between)
    reads = sum(name.startswith("LDS") for name in between)
    return [] if sums >= 16 and reads >= 4 else [f"{sums} products and {reads} reads beside the barrier"]


def _meets(blocks: int, built: Built) -> list[str]:
    """Whether a cluster's barrier does not stand between what is told and what is asked, as phrases."""
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


def sample() -> Iterator[Variant]:
    """Some shares for each kernel."""
    yield from variants(forward_held.normalize_held, 1)
    yield from variants(held_rows.forward_held, 1)
    yield from variants(held_rows.backward_held, 2)
    yield from gradients(backward_held.gradient_held)


FAMILY = family(sample, lambda: everywhere(every()))
