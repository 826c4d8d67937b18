"""What every configuration of the Gluon kernel for Hopper promises of its compiled form.

Nothing spilled, shared memory as computed, the expected matrix instruction and no other, no matrix operand
from registers. And, read from the compiled program, the overlap:

* The loop that copies starts copies only, those that multiply start matrix instructions only.
* Where a buffer is handed back, at most the matrix instructions begun last are under way.
* A piece of D is written to shared memory only after its buffer was waited for, leaves only after a fence and
  a barrier, and is not waited for then.
* There are as many barriers as the protocol has, with its counts; each is waited for and arrived at.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, get_args

from bench.spec import Dtype
from kernels.gemm import gluon_hopper
from kernels.gemm.gluon_hopper import PIECE, Schedule, candidates, shared_byte, staged
from kernels.gemm.problem import Gemm, Layout
from tests.kernels.compiled import (
    FROM_REGISTERS,
    MATRIX_UNITS,
    SHARED_LIMIT_BYTE,
    Built,
    Family,
    arithmetic,
    build_launch,
    resource_faults,
)
from tests.kernels.gemm_cases import meta_operands, sizeless
from tests.kernels.gluon_ptx import barrier_faults, innermost, order_faults, wait_faults
from tests.kernels.gluon_step import out_of_step

TYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float8_e4m3")
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ADDENDS = ("none", "matrix", "bias")
THREADS = 384


class Form(NamedTuple):
    """One compilation."""

    dtype: Dtype
    layout: Layout
    add: str
    schedule: Schedule

    @property
    def shape(self) -> str:
        """Of the tile."""
        return f"{self.schedule.tile.m}x{self.schedule.tile.n}"

    @property
    def problem(self) -> Gemm:
        """What it computes."""
        return sizeless(self.dtype, self.layout, self.add)

    @property
    def capability(self) -> int:
        """Hopper's."""
        return 90

    @property
    def instruction(self) -> str:
        """What multiplies."""
        return arithmetic(self.dtype, self.capability)

    def __str__(self) -> str:
        return f"{self.dtype:11} {self.layout:6} {self.add:7} {self.schedule!s}"

    def compiled(self) -> Built:
        """As `compiled.Form` has it, and so are the others."""
        operands = meta_operands(self.problem, self.add)
        return build_launch(gluon_hopper.prepare(operands, self.schedule, 132), self.capability)

    def faults(self, built: Built) -> list[str]:
        found = resource_faults(built, self.capability)
        computed = shared_byte(self.problem, self.schedule.tile)
        if not built.shared_byte <= computed <= SHARED_LIMIT_BYTE[90]:
            found.append(f"{built.shared_byte} bytes of shared memory, {computed} computed")
        if built.register_operands or FROM_REGISTERS.search(built.ptx):
            found.append("a matrix operand from registers")
        if f".reqntid {THREADS}" not in built.ptx:
            found.append(f"not {THREADS} threads")
        given = set(re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32\s+(\d+)", built.ptx))
        if not {("inc", "240"), ("dec", "240"), ("dec", "24")} <= given:
            found.append(f"registers moved as {sorted(given)}")
        by_pointer = self.add == "bias" or self.dtype == "float8_e4m3"
        if built.count("STG", "LDGSTS") or (built.count("LDG") and not by_pointer):
            found.append("copies by pointers")
        return [
            *found,
            *_faults_of_loops(self, built),
            *_faults_of_pieces(self, built),
            *_faults_of_barriers(self, built),
            *out_of_step(built.ptx),
        ]

    def counts(self, built: Built) -> str:
        return f"{built.count(self.instruction)} {self.instruction}, {built.count('BAR.SYNC')} barriers"


def every() -> Iterator[Form]:
    """All that could ever be compiled."""
    for dtype in TYPES:
        for layout in LAYOUTS if dtype != "float8_e4m3" else ("TN",):
            for add in ADDENDS if dtype != "float8_e4m3" else ("none",):
                for one in candidates(sizeless(dtype, layout, add), (9, 0), 132):
                    yield Form(dtype, layout, add, one)


def chosen() -> Iterator[Form]:
    """Each type, addend, tile and lag, in one layout each; those take turns."""
    forms: dict[tuple[object, ...], list[Form]] = {}
    for form in every():
        if form.schedule.group == (16 if form.shape == "256x128" else 8):
            forms.setdefault((form.dtype, form.add, form.shape, form.schedule.lag), []).append(form)
    for turn, layouts in enumerate(forms.values()):
        yield layouts[(turn + turn // 4) % len(layouts)]


def _faults_of_loops(form: Form, built: Built) -> list[str]:
    """Two loops that multiply and one that copies, and in which order they do what."""
    found = []
    others = [one for one in MATRIX_UNITS if one != form.instruction and built.count(one)]
    if others:
        found.append(f"{form.instruction} but also {others}")
    loops = innermost(built.program)
    products = [loop for loop in loops if any(form.instruction in line.name for line in loop)]
    copies = [loop for loop in loops if any("UTMALDG" in line.name for line in loop)]
    if len(products) != 2 or len(copies) != 1:
        return [*found, f"{len(products)} loops that multiply, {len(copies)} that copy"]
    tile = form.schedule.tile
    for loop in products:
        order = [line.name.split(".")[0] for line in loop]
        waits = [at for at, line in enumerate(loop) if line.name.startswith("WARPGROUP.DEPBAR")]
        last = max(at for at, name in enumerate(order) if name == form.instruction)
        handed = [at for at, line in enumerate(loop) if line.name.startswith("SYNCS.ARRIVE")]
        if order.count(form.instruction) != 4 * tile.n // 128:
            found.append(f"{order.count(form.instruction)} {form.instruction} in a step")
        if len(waits) != 1 or not loop[waits[0]].operands.endswith(" 0x1") or waits[0] < last:
            found.append("not one group of matrix instructions under way in the loop")
        elif not handed or "BAR" not in order[waits[0] : handed[0]]:
            found.append("a buffer handed back before the products of all four warps are complete")
        if "UTMASTG" in order or "UTMALDG" in order:
            found.append("copies in a loop that multiplies")
    order = [line.name.split(".")[0] for line in copies[0]]
    wide = {"right": form.layout[0] == "N" and tile.m, "left": form.layout[1] == "T" and tile.n // 2}
    blocks = (wide["right"] or PIECE) // PIECE + 2 * ((wide["left"] or PIECE) // PIECE)
    if order.count("UTMALDG") != blocks or order.index("SYNCS") > order.index("UTMALDG"):
        found.append(f"{order.count('UTMALDG')} copies a step, {blocks} expected")
    return found


def _faults_of_pieces(form: Form, built: Built) -> list[str]:
    """Pieces leave in order, and at most the buffers but one are under way."""
    tile = form.schedule.tile
    count = staged(form.problem, tile)
    body = built.ptx[built.ptx.index("setmaxnreg.dec") :]  # from where the warps part
    pieces = tile.m * tile.n // (64 * PIECE)
    waits = Counter({count - 1: pieces}) + Counter({0: 2 + 2 * (form.add == "matrix")})
    return order_faults(body, pieces) + wait_faults(body, waits)


def _faults_of_barriers(form: Form, built: Built) -> list[str]:
    """How many there are, how often each completes, who arrives and who waits."""
    tile, lag, adds = form.schedule.tile, form.schedule.lag > 0, form.add == "matrix"
    item = 1 if form.dtype == "float8_e4m3" else 2
    return barrier_faults(
        built.ptx,
        Counter({1: tile.stages * (1 + lag) + 2 * adds, 2: tile.stages}),
        Counter([(tile.m + tile.n) * tile.k * item] + [tile.n // 2 * tile.m * 2] * (2 * adds)),
        arrivals=4 + lag,
        commits=0,
        waits=3 + lag + 2 * adds,
    )


FAMILY = Family(chosen, every)
