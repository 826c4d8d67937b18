"""Which of our kernels multiplies a shape on a device: a model proposes six, the device times them.

**Candidates.** `variants` lists the kernels that suit a shape. Each of their configurations has a modelled
cost at exactly this shape and number of SMs (duration.py). The six cheapest are timed, at most three of one
kernel and one of each of its tiles, since an error of the model for a kernel or a tile applies to all of its
configurations. The others follow by cost, for when one of the six does not run. Where the model is off by a
tenth, three candidates lose twice as much as six (`python -m tests.kernels.gemm_choices --spread 0.1`).

**Order.** Which tiles run together, `group`, is the best of three by count and no further candidate. Tiles
are counted down `group` of them along N, then on to the next of M, until a band of `group` rows of tiles is
done (`grouped` in blocks.py, which the kernels use). A wave of P tiles then needs about group x BLOCK_N rows
of op(B) and P / group x BLOCK_M of op(A), each K long. That is least where both are alike, but tiles come
whole, bands end, and D may have fewer rows of tiles than a band: so it is counted, for the first wave, which
is as any other but for the last of a band. What is not in L2 comes from memory, a few times as slowly.

**Sharing.** Answers are stored by class of shapes (`shape_class`, sizes within a quarter) *and* by list of
candidates: the two sides of the edge of a wave or of a tile are tuned apart, and shapes between edges share.
So do float16 and bfloat16, of which the programs are the same but for a letter of an instruction.

**Cost.** Tuning takes some 0.5 s (bench/launching/timing.py) and what is new to be compiled. It is in the row
(`Launch.tuning_s`), never in a measured time. `python -m tests.kernels.gemm_choices` counts it for a suite.

A kernel that is asked for by its own name has its six cheapest configurations timed, alike tiles too; a tile
that is asked for by name the few ways to compute it.

**Verification.** The result of a kernel in Gluon is compared with that of another candidate when the device
is asked. If they differ by more than both may err, it is skipped, and the row says so (`passed_over`). Asked
for by its own name it is not compared: then the check of the row's results says `wrong`, as of any kernel,
before and after it is timed (bench/worker/check.py).
"""

from __future__ import annotations

import functools
import importlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from triton.runtime.errors import OutOfResources

from bench.launching.ending import await_end
from bench.launching.tuning import tuned
from bench.spec import Launch, Unsupported
from kernels.gemm import tiles, tma
from kernels.gemm.duration import slowdown, turned_inside
from kernels.gemm.operands import Operands, has_wide_loads
from kernels.gemm.problem import FORCED_TILES, SKINNY, Gemm
from kernels.gemm.rounding import tolerance
from kernels.gemm.tiles import GROUP, Tile

Capability = tuple[int, int]

PROPOSED = 6
"""Candidates that are timed for a shape."""
OF_A_KERNEL = 3
"""The most of them that are of one kernel, for `triton`."""
VARIANTS: Mapping[str, str] = {
    "pointer": "any size, alignment, architecture and batch: whatever bulk copies cannot move",
    "tma": "bulk copies where small tiles share an SM, so that one block writes while another multiplies",
    "persistent": "bulk copies where tiles are large and many: a pipeline filled once an SM, not once a tile",
    "gluon": "the same, a tile written beside the products of the next; the only one for mxfp8 and nvfp4",
    "stream-k": "a last wave that is mostly empty: every SM gets an equal share of the steps along K",
    "split-k": "fewer tiles than SMs and a long K",
    "skinny": "one side up to 64: tiles no wider, and K in parts only where tiles are few",
    "turned": "8-bit and tf32 operands that are not K-major, where transposing once is quickest",
}
"""Our kernels and what each is for; `python -m tests.kernels.gemm_choices --kernels` counts how often."""
GROUPS = (GROUP, 4, 16)
"""Tiles of N that may run together: as many as the first says, unless another needs less by a tenth."""
COMPARED = ("gluon",)
"""Kernels that no interpreter of Triton's has run, so that their first result on a device is compared."""


class Choice(NamedTuple):
    """One kernel in one configuration."""

    variant: str
    """Without the `triton-` before it: the module's name but for dashes."""
    configuration: Any

    def __str__(self) -> str:
        """`persistent 128x256x64 w8 s3`, as rows show it."""
        return f"{self.variant} {self.configuration}"

    @property
    def tile(self) -> Tile:
        """The tile of the configuration, which may be a tile and nothing else."""
        return self.configuration if isinstance(self.configuration, Tile) else self.configuration.tile

    @property
    def kernel(self) -> str:
        """The kernel that multiplies, be it after another has turned the operands (turned.py)."""
        return self.configuration.variant if isinstance(self.configuration, Choice) else self.variant

    def grouped(self, group: int) -> Choice:
        """The same with so many tiles of N together."""
        if isinstance(self.configuration, Choice):
            return self._replace(configuration=self.configuration.grouped(group))
        tile = self.tile._replace(group=group)
        is_tile = isinstance(self.configuration, Tile)
        return self._replace(configuration=tile if is_tile else self.configuration._replace(tile=tile))


def variants(problem: Gemm, capability: Capability, sm_count: int) -> tuple[str, ...]:
    """The kernels worth trying for this shape, the likeliest first.

    * One side of D up to 64 and the matrix that remains large: reading that from memory takes the time.
    * Fewer tiles of 128 x 128 than SMs: split K if it is long enough; and plain tiles, which win where the
      last to arrive would wait longer than splitting saves.
    * Up to sixteen waves of them (eight of the largest tiles), the last of which may be mostly empty: equal
      shares of work, and plain tiles, which are as good where the waves happen to be full.
    * Beyond: plain tiles.

    Plain tiles are moved by bulk copies where device, type and rows allow, else by pointers. Of a batch all
    are plain, by pointers.
    """
    if problem.batch > 1:
        return ("pointer",)
    bulk = not problem.missing("triton-tma", "cuda", capability)
    gluon = ("gluon",) * (
        capability[0] in (9, 10) and not problem.missing("triton-gluon", "cuda", capability)
    )
    plain = (*gluon, "persistent", "tma") if bulk else ("pointer",)
    count = math.ceil(problem.m / 128) * math.ceil(problem.n / 128)
    if min(problem.m, problem.n) <= SKINNY and max(problem.m, problem.n) * problem.k >= 2**20:
        return ("skinny", "split-k")
    if count < sm_count:
        single = ("tma", "pointer") if bulk else ("pointer",)
        return ("split-k", *single) if problem.k >= 512 else single
    if count <= 16 * sm_count and problem.k >= 512:
        return ("stream-k", *plain)
    return plain


def launch(of: Operands, name: str) -> Launch:
    """D in `of.d` by the implementation of this name, `triton` or `triton-...`, on the current device.

    The first launch that is proposed something new compiles and times it (about a second).
    Unsupported if nothing listed can run here.
    """
    problem, at = of.problem, _device(of)
    question = question_of(problem, name, at, of.addend)
    if not question.choices:
        raise Unsupported(
            f"{name} has no configuration for {problem.dtype} {problem.layout} on compute capability "
            f"{at.capability[0]}.{at.capability[1]}"
        )
    doubt = functools.partial(_disagreement, of, at, question) if name == "triton" else None
    return tuned(
        question.key,
        question.choices,
        lambda choice: _prepare(of, at, choice).launch(),
        lambda choice: _prepare(of, at, choice).compile(),
        PROPOSED,
        doubt,
    )


class Device(NamedTuple):
    """What a choice depends on."""

    capability: Capability
    sm_count: int


class Question(NamedTuple):
    """A question for the tuner."""

    key: tuple[object, ...]
    """What a choice depends on, as `tuned` takes it."""
    choices: tuple[Choice, ...]
    """Its possible answers, the likeliest first; of those that run the first PROPOSED are timed."""


def _device(of: Operands) -> Device:
    found = torch.cuda.get_device_properties(of.d.device)
    return Device((found.major, found.minor), found.multi_processor_count)


@functools.lru_cache(maxsize=4096)  # each slot of a ring asks
def question_of(problem: Gemm, name: str, at: Device, addend: str = "none") -> Question:
    """The question to this device for this shape, by the rule above; no choices if no list has any."""
    choices = choices_of(problem, name, at.capability, at.sm_count)
    proposed = ", ".join(str(choice) for choice in choices[:PROPOSED])
    return Question(("gemm", name, shape_class(problem), addend, "of", proposed), choices)


def choices_of(problem: Gemm, name: str, capability: Capability, sm_count: int) -> tuple[Choice, ...]:
    """Every kernel and configuration that `name` stands for, those that are proposed first.

    None if its lists have none for this problem.
    """
    wanted = name.removeprefix("triton").removeprefix("-")
    if wanted in FORCED_TILES:
        found = _forced(problem, wanted, capability)
    else:
        several = (wanted,) if wanted else variants(problem, capability, sm_count)
        if not wanted and any(turned_inside(problem, capability)):
            several = (*several, "turned")  # beforehand, what these turn inside, tile by tile
        listed = []
        for one in several:
            with suppress(*(() if wanted else (Unsupported,))):  # by this Triton; it has others to propose
                listed += _listed(problem, one, capability, sm_count)
        costs = {choice: cost(problem, choice, capability, sm_count) for choice in listed}
        # Of equals the first: of the kernels by `variants`, of the configurations by their lists.
        found = sorted(listed, key=costs.__getitem__)
        if not wanted:
            found = _different_first(found)
    # Lists in which a configuration stands in several orders have it once in the best.
    return tuple(dict.fromkeys(_in_order(problem, choice, sm_count) for choice in found))


def cost(problem: Gemm, choice: Choice, capability: Capability, sm_count: int) -> float:
    """How long this choice takes by count, in the units of duration.py."""
    found: float = module(choice.variant).cost(problem, choice.configuration, capability, sm_count)
    as_it_lies = choice.variant != "turned"
    return found * slowdown(problem, choice.tile, capability) if as_it_lies else found


def _listed(problem: Gemm, variant: str, capability: Capability, sm_count: int) -> list[Choice]:
    found = module(variant).candidates(problem, capability, sm_count)
    return [Choice(variant, one) for one in found]


def _different_first(choices: Sequence[Choice]) -> list[Choice]:
    """The proposals of `triton`, then all others, both in the order in which they come."""
    proposed: list[Choice] = []
    of_kernel: Counter[str] = Counter()
    seen: set[tuple[str, int, int]] = set()
    for choice in choices:
        tile = choice.variant, choice.tile.m, choice.tile.n
        if len(proposed) < PROPOSED and of_kernel[choice.variant] < OF_A_KERNEL and tile not in seen:
            proposed.append(choice)
            of_kernel[choice.variant] += 1
            seen.add(tile)
    return proposed + [choice for choice in choices if choice not in proposed]


def _in_order(problem: Gemm, choice: Choice, sm_count: int) -> Choice:
    """The same with the tiles in the best order for this shape, where the kernel has a choice of it."""
    # Where K is cut into parts, all tiles are under way together; of what is turned it has been chosen.
    if choice.variant in ("split-k", "skinny", "turned"):
        return choice
    per_sm: int = getattr(choice.configuration, "per_sm", 1)
    return choice.grouped(best_group(problem, choice.tile, per_sm * sm_count))


def best_group(problem: Gemm, tile: Tile, at_a_time: int) -> int:
    """The group with which the first `at_a_time` tiles need the fewest bytes of operands, or nearly."""
    byte = {group: footprint(problem, tile, at_a_time, group) for group in GROUPS}
    least = min(GROUPS, key=byte.__getitem__)
    return least if byte[least] < 0.9 * byte[GROUP] else GROUP


def footprint(problem: Gemm, tile: Tile, at_a_time: int, group: int) -> int:
    """Bytes of A and B that the first `at_a_time` tiles need, each counted once."""
    tiles_m, tiles_n = -(-problem.m // tile.m), -(-problem.n // tile.n)
    bands, left = divmod(min(at_a_time, tiles_m * tiles_n), group * tiles_m)
    columns, rows = (tiles_m, min(bands * group, tiles_n)) if bands else (0, 0)
    if left:
        height = min(tiles_n - rows, group)
        columns = max(columns, -(-left // height))
        rows += min(left, height)
    return (columns * tile.m + rows * tile.n) * problem.k * problem.item_byte


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


def module(variant: str) -> Any:
    """The file of a kernel that is called so: its `candidates`, `cost` and `prepare`."""
    return importlib.import_module(f"kernels.gemm.{variant.replace('-', '_')}")


def _disagreement(of: Operands, at: Device, question: Question, choice: Choice) -> str:
    """How far a choice of COMPARED is from another kernel's result; empty if no further than both may err."""
    others = [one for one in question.choices[:PROPOSED] if one.kernel not in COMPARED]
    if choice.kernel not in COMPARED or not others:
        return ""
    try:
        right = _result(of, at, others[0])
    except (Unsupported, OutOfResources):
        return ""  # it says so itself when it is tried
    furthest = float((_result(of, at, choice) - right).abs().max() / right.abs().max())
    allowed = 2 * tolerance(of.problem, "triton")
    if furthest <= allowed:  # false for NaN
        return ""
    return f"differs from {others[0]} by {furthest:.1e} of the largest result, {allowed:.1e} allowed"


def _result(of: Operands, at: Device, choice: Choice) -> torch.Tensor:
    """A copy of D as this choice computes it where NaN stood."""
    of.d.fill_(math.nan)
    _prepare(of, at, choice).launch().call()
    await_end(choice)
    return of.d.clone()


def _prepare(of: Operands, at: Device, choice: Choice) -> Any:
    return module(choice.variant).prepare(of, choice.configuration, at.sm_count)
