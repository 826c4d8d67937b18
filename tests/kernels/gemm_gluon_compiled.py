"""What every configuration of the Gluon kernels promises of its compiled form.

Nothing spilled, shared and tensor memory as computed, the expected matrix instruction and no other, no matrix
operand from registers. And, read from the compiled program, the overlap:

* The loop that copies starts copies only, those that multiply start matrix instructions only. On Blackwell
  neither uses a register beyond the 24 of its threads: none of the sums that the others take away.
* Where Hopper hands a buffer back, at most the matrix instructions begun last are under way.
* A piece of D is written to shared memory only after its buffer was waited for, leaves only after a fence and
  a barrier, and is not waited for then; Blackwell's sums are declared taken only after they have arrived in
  registers.
* There are as many barriers as the protocol has, with its counts; each is waited for and arrived at.
* Of a pair of blocks every matrix instruction, commit and copy says so (`cta_group::2`), the first block
  alone waits for both's operands and multiplies, and what it frees is reported to both.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, get_args

from bench.spec import Dtype, Unsupported
from kernels.gemm import gluon, gluon_blackwell, gluon_hopper, gluon_scaled
from kernels.gemm.gluon_hopper import PIECE, staged
from kernels.gemm.problem import BLOCK_SCALED, Gemm, Layout
from tests.kernels.compiled import (
    MATRIX_UNITS,
    SHARED_LIMIT_BYTE,
    Built,
    Family,
    Form,
    arithmetic,
    launched,
    register_faults,
    resource_faults,
)
from tests.kernels.gemm_cases import ADDENDS, meta_operands, sizeless
from tests.kernels.gluon_ptx import barrier_faults, innermost, order_faults, out_of_step, wait_faults
from tests.kernels.listing import Line

SMS = {90: 132, 100: 148}
TYPES: dict[int, tuple[Dtype, ...]] = {
    90: ("float16", "bfloat16", "float8_e4m3"),
    100: ("float16", "bfloat16", "float8_e4m3", "mxfp8", "nvfp4"),
}
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
THREADS = 384
"""Of a block on Hopper."""
WORKER_REGISTERS = 24
"""Of a thread that copies or multiplies on Blackwell."""
UNITS = {"mxfp8": "UTCQMMA", "nvfp4": "UTCOMMA"}
"""The matrix instruction of block-scaled types."""
DESCRIBED = re.compile(r"tcgen05\.mma\.\S+ \[ %r\d+ \+ 0 \], %rd\d+, %rd\d+, (%r\d+)")
"""Of PTX: the register that describes a matrix instruction."""


class Case(NamedTuple):
    """One compilation."""

    capability: int
    dtype: Dtype
    layout: Layout
    add: str
    schedule: Any

    @property
    def problem(self) -> Gemm:
        """What it computes."""
        return sizeless(self.dtype, self.layout, self.add)

    @property
    def scaled(self) -> bool:
        """Whether blocks of numbers have scales."""
        return self.dtype in BLOCK_SCALED

    @property
    def module(self) -> Any:
        """What launches it."""
        return gluon_hopper if self.capability == 90 else gluon_scaled if self.scaled else gluon_blackwell

    @property
    def unit(self) -> str:
        """What multiplies."""
        return UNITS.get(self.dtype) or arithmetic(self.dtype, self.capability)

    def form(self) -> Form:
        """What would be launched, and what is promised of it."""
        of = meta_operands(self.problem, self.add)
        (call,) = launched(self.module.prepare(of, self.schedule, SMS[self.capability]).launch())
        promises = [partial(faults, self) for faults in PROMISES[self.capability]]
        name = f"{self.dtype:11} {self.layout:6} {self.add:7} {self.schedule}"
        kept = (resource_faults, register_faults, *promises, out_of_step)
        return Form(name, call, kept, (self.capability,))


def typed(capability: int) -> Iterator[tuple[Dtype, str]]:
    """Types, each with what may be added to its products."""
    for dtype in TYPES[capability]:
        for add in ADDENDS if dtype in ("float16", "bfloat16") else ADDENDS[:1]:
            yield dtype, add


def cases(capability: int, dtype: Dtype, layout: Layout, add: str) -> Iterator[Case]:
    """Of every configuration of a type; none where this version of Triton cannot compile it."""
    at = divmod(capability, 10)
    try:
        listed = gluon.candidates(sizeless(dtype, layout, add), at, SMS[capability])
    except Unsupported:
        return
    for one in listed:
        yield Case(capability, dtype, layout, add, one)


def every(capability: int) -> Iterator[Form]:
    """All that could ever be compiled."""
    for dtype, add in typed(capability):
        only_tn = dtype in BLOCK_SCALED or (dtype == "float8_e4m3" and capability == 90)
        for layout in ("TN",) if only_tn else LAYOUTS:
            yield from (case.form() for case in cases(capability, dtype, layout, add))


def chosen_on_hopper() -> Iterator[Form]:
    """Each type, addend, tile and lag, in one layout each; those take turns."""
    turn = 0
    for dtype, add in typed(90):
        for case in cases(90, dtype, "TN", add):
            tile = case.schedule.tile
            if tile.group == (16 if tile[:2] == (256, 128) else 8):
                layout = LAYOUTS[(turn + turn // 4) % 4]
                yield (case if dtype == "float8_e4m3" else case._replace(layout=layout)).form()
                turn += 1


def chosen_on_blackwell() -> Iterator[Form]:
    """Each tile for each type and addend, layouts taking turns."""
    turn = 0
    for dtype, add in typed(100):
        for case in cases(100, dtype, "TN", add):
            if case.schedule.tile.group == 8:
                yield (case if case.scaled else case._replace(layout=LAYOUTS[turn % 4])).form()
                turn += 1


def memory_faults(case: Case, computed: int, by_pointer: int, built: Built) -> list[str]:
    """Whether shared memory is not as computed, or pointers copy, `by_pointer` loads apart."""
    faults = []
    if not built.shared_byte <= computed <= SHARED_LIMIT_BYTE[case.capability]:
        faults.append(f"{built.shared_byte} bytes of shared memory, {computed} computed")
    if built.count("STG", "LDGSTS") or built.count("LDG") > by_pointer:
        faults.append("copies by pointers")
    return faults


def loops_of(case: Case, built: Built) -> tuple[list[list[Line]], list[list[Line]]]:
    """The innermost loops that multiply, and those that copy and take nothing away."""
    loops = innermost(built.program)
    copies = [loop for loop in loops if any("UTMALDG" in line.name for line in loop)]
    copies = [loop for loop in copies if not any("LDTM" in line.name for line in loop)]
    return [loop for loop in loops if any(case.unit in line.name for line in loop)], copies


# Hopper.


def _faults(case: Case, built: Built) -> list[str]:
    """Also: whether threads and registers are not as split."""
    by_pointer = case.add == "bias" or case.dtype == "float8_e4m3"
    computed = gluon_hopper.shared_byte(case.problem, case.schedule.tile)
    faults = memory_faults(case, computed, built.count("LDG") if by_pointer else 0, built)
    if f".reqntid {THREADS}" not in built.ptx:
        faults.append(f"not {THREADS} threads")
    given = set(re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32\s+(\d+)", built.ptx))
    if not {("inc", "240"), ("dec", "240"), ("dec", "24")} <= given:
        faults.append(f"registers moved as {sorted(given)}")
    return faults


def _faults_of_loops(case: Case, built: Built) -> list[str]:
    """Two loops that multiply and one that copies, and in which order they do what."""
    others = [one for one in MATRIX_UNITS if one != case.unit and built.count(one)]
    faults = [f"{case.unit} but also {others}"] if others else []
    products, copies = loops_of(case, built)
    if len(products) != 2 or len(copies) != 1:
        return [*faults, f"{len(products)} loops that multiply, {len(copies)} that copy"]
    tile = case.schedule.tile
    for loop in products:
        order = [line.name.split(".")[0] for line in loop]
        waits = [at for at, line in enumerate(loop) if line.name.startswith("WARPGROUP.DEPBAR")]
        last = max(at for at, name in enumerate(order) if name == case.unit)
        handed = [at for at, line in enumerate(loop) if line.name.startswith("SYNCS.ARRIVE")]
        if order.count(case.unit) != 4 * tile.n // 128:
            faults.append(f"{order.count(case.unit)} {case.unit} in a step")
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
    item = case.problem.item_byte
    return barrier_faults(
        built.ptx,
        Counter({1: tile.stages * (1 + lag) + 2 * adds, 2: tile.stages}),
        Counter([(tile.m + tile.n) * tile.k * item] + [tile.n // 2 * tile.m * 2] * (2 * adds)),
        arrivals=4 + lag,
        commits=0,
        waits=3 + lag + 2 * adds,
    )


# Blackwell.


def _faults_of_memory(case: Case, built: Built) -> list[str]:
    """Also: whether tensor memory is not as computed."""
    computed = case.module.shared_byte(case.problem, case.schedule)
    loads = 2 * (case.dtype == "float8_e4m3")
    faults = memory_faults(case, computed, loads, built)
    if built.count("LDG") < loads:
        faults.append("scales are not loaded")
    columns = 512 if case.scaled else 2 * case.schedule.tile.m
    if built.tensor_columns != columns:
        faults.append(f"{built.tensor_columns} columns of tensor memory, {columns} computed")
    return faults


def _faults_of_arithmetic(case: Case, built: Built) -> list[str]:
    """Also: the instruction's own description says the tile's rows and columns, and what lies across K."""
    units = Counter({name: built.count(name) for name in MATRIX_UNITS if built.count(name)})
    if units != Counter({case.unit: 4}):
        return [f"{dict(units)}, not 4 {case.unit}"]
    tile = case.schedule.tile
    expected = (tile.n, tile.m, case.layout[1] == "T", case.layout[0] == "N")
    described = {_described(built.ptx, name) for name in re.findall(DESCRIBED, built.ptx)}
    if not case.scaled and described != {expected}:
        return [f"instructions of {described}, not {expected}"]
    return []


def _described(ptx: str, register: str) -> tuple[int, int, bool, bool]:
    """(rows, columns, left is across K, right is): PTX ISA, "Instruction descriptor" of tcgen05.mma."""
    match = re.search(rf"mov\.b32\s+{register}, (\d+);", ptx)
    bits = int(match[1]) if match else 0
    return (bits >> 24 & 31) * 16, (bits >> 17 & 63) * 8, bool(bits >> 15 & 1), bool(bits >> 16 & 1)


def _faults_of_workers(case: Case, built: Built) -> list[str]:
    """One loop that multiplies and one that copies; neither touches what the other or the sums need."""
    products, copies = loops_of(case, built)
    if len(products) != 1 or len(copies) != 1:
        return [f"{len(products)} loops that multiply, {len(copies)} that copy"]
    faults = []
    for loop, kind, unwanted in (
        (products[0], "multiplies", ("LDTM", "UTMA", "LDS", "STS", "LDG", "BAR")),
        (copies[0], "copies", ("LDTM", "UTC", "UTMASTG", "LDS", "STS", "LDG", "BAR")),
    ):
        strange = [line.name for line in loop if line.name.startswith(unwanted)]
        if strange:
            faults.append(f"{', '.join(strange)} in the loop that {kind}")
        used = [int(number) for line in loop for number in re.findall(r"\bR(\d+)\b", line.operands)]
        if max(used, default=0) >= WORKER_REGISTERS:
            faults.append(f"register {max(used)} in the loop that {kind}")
    copied = sum("UTMALDG" in line.name for line in copies[0])
    if copied != _copies(case):
        faults.append(f"{copied} copies a step, not {_copies(case)}")
    scales = sum("UTCCP" in line.name for line in products[0])
    rows, blocks = case.schedule.tile.m + case.schedule.tile.n, 4 if case.dtype == "mxfp8" else 16
    if scales != case.scaled * rows // 128 * blocks // 4:
        faults.append(f"{scales} copies of scales to tensor memory")
    return faults


def _copies(case: Case) -> int:
    """Of one step by one block: blocks along K are copied at once, others in pieces of 128 bytes of a row."""
    if case.scaled:
        return 4
    tile, blocks = case.schedule.tile, case.schedule.blocks
    item = case.problem.item_byte
    of_a = tile.m // blocks * item // 128 if case.layout[0] == "N" else 1
    of_b = tile.n // blocks * item // 128 if case.layout[1] == "T" else 1
    return max(of_a, 1) + max(of_b, 1)


def _faults_of_parts(case: Case, built: Built) -> list[str]:
    """Parts leave in order, all sums are read, and declared taken when all warps have them."""
    parts, buffers = _parts(case)
    adds = case.add == "matrix"
    faults = order_faults(built.ptx[built.ptx.index("tcgen05.ld") :], parts, waits=not adds)
    waits = Counter({1: parts - buffers, 0: 2}) if adds else Counter({buffers - 1: parts}) + Counter([0])
    faults += wait_faults(built.ptx, +waits)
    loads = [int(width) for width in re.findall(r"tcgen05\.ld\.\S*\.x(\d+)\.b32", built.ptx)]
    if sum(loads) != case.schedule.tile.m:
        faults.append(f"{sum(loads)} columns of sums are read")
    before, _, _ = built.ptx.partition("mbarrier.arrive.shared")
    if not re.search(r"tcgen05\.wait::ld[^;]*;\s*(?:\.loc[^\n]*\s*)?bar\.sync[^;]*;[^;]*@%p\d+ \Z", before):
        faults.append("sums are declared taken before all warps have read them")
    return faults


def _parts(case: Case) -> tuple[int, int]:
    """Parts of a tile, and how many shared memory holds."""
    tile = case.schedule.tile
    of = case.problem, tile.m, tile.stages if case.scaled else case.add
    columns, buffers = case.module.part(*of)
    return tile.m // columns, buffers


def _faults_of_hand_overs(case: Case, built: Built) -> list[str]:
    """How many barriers there are, who arrives and who waits, and for how many bytes."""
    tile, blocks = case.schedule.tile, case.schedule.blocks
    parts, buffers = _parts(case)
    # filled and freed; summed and taken; brought
    barriers = 2 * tile.stages + 4 + {"none": 0, "bias": 1, "matrix": buffers}[case.add]
    of_step = (tile.m + tile.n) * 128
    if case.scaled:
        of_step += (tile.m + tile.n) * (4 if case.dtype == "mxfp8" else 16)
    of_part = tile.n // blocks * (tile.m // parts) * 2
    expects = Counter({of_step: 1})
    expects += Counter({tile.m * 2: case.add == "bias", of_part: (case.add == "matrix") * parts})
    return barrier_faults(
        built.ptx,
        Counter({1: barriers}),
        +expects,
        arrivals=1,  # taken
        commits=2,  # freed, summed
        waits=4 + {"none": 0, "bias": 1, "matrix": parts}[case.add],
    )


def _faults_of_pairs(case: Case, built: Built) -> list[str]:
    """Of a pair everything says so; of a block alone nothing does."""
    paired = case.schedule.blocks == 2
    groups = Counter(re.findall(r"cta_group::(\d)", built.ptx))
    faults = [] if set(groups) == {"2" if paired else "1"} else [f"groups {dict(groups)}"]
    commits = re.findall(r"tcgen05\.commit\S*multicast::cluster", built.ptx)
    waits_of_first = built.ptx.count("bra.uni skipWait")
    to_first = re.findall(r"and\.b32\s+%r\d+, %r\d+, -16777224;", built.ptx)
    if len(commits) != 2 * paired:
        faults.append(f"{len(commits)} commits are reported to both blocks")
    if waits_of_first != paired:
        faults.append(f"{waits_of_first} waits of the first block alone")
    if bool(to_first) != paired:
        faults.append("copies report to the wrong block")
    return faults


PROMISES = {
    90: (_faults, _faults_of_loops, _faults_of_pieces, _faults_of_barriers),
    100: (
        *(_faults_of_memory, _faults_of_arithmetic, _faults_of_workers),
        *(_faults_of_parts, _faults_of_hand_overs, _faults_of_pairs),
    ),
}

FAMILIES = {
    "gemm_gluon": Family(chosen_on_hopper, partial(every, 90)),
    "gemm_gluon_blackwell": Family(chosen_on_blackwell, partial(every, 100)),
}
