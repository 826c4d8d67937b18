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
from functools import partial
from typing import NamedTuple, get_args

from bench.spec import Dtype
from kernels.gemm import gluon_hopper
from kernels.gemm.gluon_hopper import PIECE, Schedule, candidates, shared_byte, staged
from kernels.gemm.problem import Gemm, Layout
from tests.kernels.compiled import (
    MATRIX_UNITS,
    SHARED_LIMIT_BYTE,
    Built,
    Family,
    Form,
    Promise,
    arithmetic,
    launched,
    register_faults,
    resource_faults,
)
from tests.kernels.gemm_cases import meta_operands, sizeless
from tests.kernels.gluon_ptx import barrier_faults, innermost, order_faults, out_of_step, wait_faults

TYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float8_e4m3")
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ADDENDS = ("none", "matrix", "bias")
THREADS = 384


class Case(NamedTuple):
    """One compilation."""

    dtype: Dtype
    layout: Layout
    add: str
    schedule: Schedule

    @property
    def problem(self) -> Gemm:
        """What it computes."""
        return sizeless(self.dtype, self.layout, self.add)

    def form(self) -> Form:
        """What would be launched, and what is promised of it."""
        prepared = gluon_hopper.prepare(meta_operands(self.problem, self.add), self.schedule, 132)
        (call,) = launched(prepared.launch())
        of = (_faults, _faults_of_loops, _faults_of_pieces, _faults_of_barriers)
        of_case: list[Promise] = [partial(faults, self) for faults in of]
        promises = (resource_faults, register_faults, *of_case, out_of_step)
        return Form(f"{self.dtype:11} {self.layout:6} {self.add:7} {self.schedule}", call, promises, (90,))


def _faults(case: Case, built: Built) -> list[str]:
    """Whether shared memory is not as computed, threads and registers not as split, or pointers copy."""
    faults = []
    computed = shared_byte(case.problem, case.schedule.tile)
    if not built.shared_byte <= computed <= SHARED_LIMIT_BYTE[90]:
        faults.append(f"{built.shared_byte} bytes of shared memory, {computed} computed")
    if f".reqntid {THREADS}" not in built.ptx:
        faults.append(f"not {THREADS} threads")
    given = set(re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32\s+(\d+)", built.ptx))
    if not {("inc", "240"), ("dec", "240"), ("dec", "24")} <= given:
        faults.append(f"registers moved as {sorted(given)}")
    by_pointer = case.add == "bias" or case.dtype == "float8_e4m3"
    if built.count("STG", "LDGSTS") or (built.count("LDG") and not by_pointer):
        faults.append("copies by pointers")
    return faults


def cases() -> Iterator[Case]:
    """All that could ever be compiled."""
    for dtype in TYPES:
        for layout in LAYOUTS if dtype != "float8_e4m3" else ("TN",):
            for add in ADDENDS if dtype != "float8_e4m3" else ("none",):
                for one in candidates(sizeless(dtype, layout, add), (9, 0), 132):
                    yield Case(dtype, layout, add, one)


def chosen() -> Iterator[Form]:
    """Each type, addend, tile and lag, in one layout each; those take turns."""
    alike: dict[tuple[object, ...], list[Case]] = {}
    for case in cases():
        shape = case.schedule.tile[:2]
        if case.schedule.tile.group == (16 if shape == (256, 128) else 8):
            alike.setdefault((case.dtype, case.add, shape, case.schedule.lag), []).append(case)
    for turn, layouts in enumerate(alike.values()):
        yield layouts[(turn + turn // 4) % len(layouts)].form()


def _faults_of_loops(case: Case, built: Built) -> list[str]:
    """Two loops that multiply and one that copies, and in which order they do what."""
    faults, instruction = [], arithmetic(case.dtype, 90)
    others = [one for one in MATRIX_UNITS if one != instruction and built.count(one)]
    if others:
        faults.append(f"{instruction} but also {others}")
    loops = innermost(built.program)
    products = [loop for loop in loops if any(instruction in line.name for line in loop)]
    copies = [loop for loop in loops if any("UTMALDG" in line.name for line in loop)]
    if len(products) != 2 or len(copies) != 1:
        return [*faults, f"{len(products)} loops that multiply, {len(copies)} that copy"]
    tile = case.schedule.tile
    for loop in products:
        order = [line.name.split(".")[0] for line in loop]
        waits = [at for at, line in enumerate(loop) if line.name.startswith("WARPGROUP.DEPBAR")]
        last = max(at for at, name in enumerate(order) if name == instruction)
        handed = [at for at, line in enumerate(loop) if line.name.startswith("SYNCS.ARRIVE")]
        if order.count(instruction) != 4 * tile.n // 128:
            faults.append(f"{order.count(instruction)} {instruction} in a step")
        if len(waits) != 1 or not loop[waits[0]].operands.endswith(" 0x1") or waits[0] < last:
            faults.append("not one group of matrix instructions under way in the loop")
        elif not handed or "BAR" not in order[waits[0] : handed[0]]:
            faults.append("a buffer handed back before the products of all four warps are complete")
        if "UTMASTG" in order or "UTMALDG" in order:
            faults.append("copies in a loop that multiplies")
    order = [line.name.split(".")[0] for line in copies[0]]
    wide = {"right": case.layout[0] == "N" and tile.m, "left": case.layout[1] == "T" and tile.n // 2}
    blocks = (wide["right"] or PIECE) // PIECE + 2 * ((wide["left"] or PIECE) // PIECE)
    if order.count("UTMALDG") != blocks or order.index("SYNCS") > order.index("UTMALDG"):
        faults.append(f"{order.count('UTMALDG')} copies a step, {blocks} expected")
    return faults


def _faults_of_pieces(case: Case, built: Built) -> list[str]:
    """Pieces leave in order, and at most the buffers but one are under way."""
    tile = case.schedule.tile
    count = staged(case.problem, tile)
    body = built.ptx[built.ptx.index("setmaxnreg.dec") :]  # from where the warps part
    pieces = tile.m * tile.n // (64 * PIECE)
    waits = Counter({count - 1: pieces}) + Counter({0: 2 + 2 * (case.add == "matrix")})
    return order_faults(body, pieces) + wait_faults(body, waits)


def _faults_of_barriers(case: Case, built: Built) -> list[str]:
    """How many there are, how often each completes, who arrives and who waits."""
    tile, lag, adds = case.schedule.tile, case.schedule.lag > 0, case.add == "matrix"
    item = 1 if case.dtype == "float8_e4m3" else 2
    return barrier_faults(
        built.ptx,
        Counter({1: tile.stages * (1 + lag) + 2 * adds, 2: tile.stages}),
        Counter([(tile.m + tile.n) * tile.k * item] + [tile.n // 2 * tile.m * 2] * (2 * adds)),
        arrivals=4 + lag,
        commits=0,
        waits=3 + lag + 2 * adds,
    )


FAMILIES = {"gemm_gluon": Family(chosen, lambda: (case.form() for case in cases()))}
