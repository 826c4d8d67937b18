"""What every configuration of the Gluon kernels for Blackwell promises of its compiled form.

Nothing spilled, shared and tensor memory as computed, the expected matrix instruction and no other. And, read
from the compiled program, the overlap:

* The loop that multiplies starts matrix instructions only, the one that copies copies only, and neither uses
  a register beyond the 24 of its threads: none of the sums that the others take away.
* A part of D is written to shared memory only after its buffer was waited for, leaves only after a fence and
  a barrier, and is not waited for then; sums are declared taken only after they have arrived in registers.
* There are as many barriers as the protocol has, all of one arrival; each is arrived at and waited for.
* Of a pair of blocks every matrix instruction, commit and copy says so (`cta_group::2`), the first block
  alone waits for both's operands and multiplies, and what it frees is reported to both.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, get_args

from bench.spec import Dtype, Unsupported
from kernels.gemm import gluon_blackwell, gluon_scaled
from kernels.gemm.gluon import Schedule
from kernels.gemm.gluon_blackwell import part
from kernels.gemm.problem import BLOCK_SCALED, Gemm, Layout
from tests.kernels.compiled import (
    MATRIX_UNITS,
    SHARED_LIMIT_BYTE,
    Built,
    Family,
    Form,
    Promise,
    arithmetic,
    launched,
    resource_faults,
)
from tests.kernels.gemm_cases import meta_operands, sizeless
from tests.kernels.gluon_ptx import barrier_faults, innermost, order_faults, out_of_step, wait_faults

CAPABILITY = (10, 0)
SMS = 148
TYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float8_e4m3", "mxfp8", "nvfp4")
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ADDENDS = ("none", "matrix", "bias")
WORKER_REGISTERS = 24
"""Of a thread that copies or multiplies."""
UNITS = {"mxfp8": "UTCQMMA", "nvfp4": "UTCOMMA"}
"""The matrix instruction of block-scaled types."""
DESCRIBED = re.compile(r"tcgen05\.mma\.\S+ \[ %r\d+ \+ 0 \], %rd\d+, %rd\d+, (%r\d+)")
"""Of PTX: the register that describes a matrix instruction."""


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

    @property
    def scaled(self) -> bool:
        """Whether blocks of numbers have scales."""
        return self.dtype in BLOCK_SCALED

    @property
    def module(self) -> Any:
        """What launches it."""
        return gluon_scaled if self.scaled else gluon_blackwell

    @property
    def unit(self) -> str:
        """What multiplies."""
        return UNITS.get(self.dtype) or arithmetic(self.dtype, 100)

    def form(self) -> Form:
        """What would be launched, and what is promised of it."""
        prepared = self.module.prepare(meta_operands(self.problem, self.add), self.schedule, SMS)
        (call,) = launched(prepared.launch())
        of = (_faults, _faults_of_arithmetic, _faults_of_loops, _faults_of_parts, _faults_of_barriers)
        of_case: list[Promise] = [partial(faults, self) for faults in (*of, _faults_of_pairs)]
        name = f"{self.dtype:11} {self.layout:6} {self.add:7} {self.schedule}"
        return Form(name, call, (resource_faults, *of_case, out_of_step), (100,))


def _faults(case: Case, built: Built) -> list[str]:
    """Whether shared or tensor memory is not as computed, or pointers copy."""
    faults = []
    computed = case.module.shared_byte(case.problem, case.schedule)
    if not built.shared_byte <= computed <= SHARED_LIMIT_BYTE[100]:
        faults.append(f"{built.shared_byte} bytes of shared memory, {computed} computed")
    columns = 512 if case.scaled else 2 * case.schedule.tile.m
    if built.tensor_columns != columns:
        faults.append(f"{built.tensor_columns} columns of tensor memory, {columns} computed")
    if built.count("STG", "LDGSTS") or built.count("LDG") != 2 * (case.dtype == "float8_e4m3"):
        faults.append("copies by pointers")
    return faults


def every() -> Iterator[Form]:
    """All that could ever be compiled."""
    for dtype, add in typed():
        for layout in LAYOUTS if dtype not in BLOCK_SCALED else LAYOUTS[2:3]:
            yield from (case.form() for case in cases(dtype, layout, add))


def typed() -> Iterator[tuple[Dtype, str]]:
    """Types, each with what may be added to its products."""
    for dtype in TYPES:
        for add in ADDENDS if dtype in ("float16", "bfloat16") else ADDENDS[:1]:
            yield dtype, add


def cases(dtype: Dtype, layout: Layout, add: str) -> Iterator[Case]:
    """Of every configuration of a type; none where this version of Triton cannot compile it."""
    of = sizeless(dtype, layout, add)
    module: Any = gluon_scaled if dtype in BLOCK_SCALED else gluon_blackwell
    try:
        listed = module.candidates(of, CAPABILITY, SMS)
    except Unsupported:
        return
    for one in listed:
        yield Case(dtype, layout, add, one)


def chosen() -> Iterator[Form]:
    """Each tile for each type and addend, layouts taking turns."""
    turn = 0
    for dtype, add in typed():
        for case in cases(dtype, LAYOUTS[2], add):
            if case.schedule.tile.group == 8:
                yield (case if case.scaled else case._replace(layout=LAYOUTS[turn % 4])).form()
                turn += 1


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


def _faults_of_loops(case: Case, built: Built) -> list[str]:
    """One loop that multiplies and one that copies; neither touches what the other or the sums need."""
    loops = innermost(built.program)
    products = [loop for loop in loops if any(case.unit in line.name for line in loop)]
    copies = [loop for loop in loops if any("UTMALDG" in line.name for line in loop)]
    copies = [loop for loop in copies if not any("LDTM" in line.name for line in loop)]
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
    if case.scaled:
        columns, buffers = gluon_scaled.part(case.problem, tile.m, tile.stages)
    else:
        columns, buffers = part(case.problem, tile.m, case.add)
    return tile.m // columns, buffers


def _faults_of_barriers(case: Case, built: Built) -> list[str]:
    """How many there are, of how many arrivals, who arrives and who waits, and for how many bytes."""
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


FAMILIES = {"gemm_gluon_blackwell": Family(chosen, every)}
