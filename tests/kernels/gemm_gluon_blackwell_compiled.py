"""Every configuration of the Gluon kernels for Blackwell, compiled and held to its promises.

    python -m tests.kernels.gemm_gluon_blackwell_compiled            every tile, layouts and addends in turns
    python -m tests.kernels.gemm_gluon_blackwell_compiled --drawn    a few, by the seed of the tests' run
    python -m tests.kernels.gemm_gluon_blackwell_compiled --all      every configuration, type, layout, addend

Exit code 1 on a fault. Of each: nothing spilled, shared and tensor memory as computed, the expected matrix
instruction and no other. And, read from the compiled program, the overlap:

* The loop that multiplies starts matrix instructions only, the one that copies copies only, and neither uses
  a register beyond the 24 of its threads: none of the sums that the others take away.
* A part of D is written to shared memory only after its buffer was waited for, leaves only after a fence and
  a barrier, and is not waited for then; sums are declared taken only after they have arrived in registers.
* There are as many barriers as the protocol has, all of one arrival; each is arrived at and waited for.
* Of a pair of blocks every matrix instruction, commit and copy says so (`cta_group::2`), the first block
  alone waits for both's operands and multiplies, and what it frees is reported to both.

Needs no GPU; must run without TRITON_INTERPRET.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any, NamedTuple, get_args

import torch

from bench.spec import PACKED, Dtype
from kernels.gemm import gluon_blackwell, gluon_blackwell_warps, gluon_scaled, gluon_scaled_warps
from kernels.gemm.gluon_blackwell import Schedule, part
from kernels.gemm.operands import Operands, new_output
from kernels.gemm.problem import BLOCK_SCALED, Gemm, Layout
from tests.drawing import covering
from tests.kernels.compiled import SHARED_LIMIT_BYTE, Built, build
from tests.kernels.gemm_gluon_compiled import EVENTS, innermost
from tests.kernels.gluon_step import out_of_step
from tests.kernels.tensors import TORCH_TYPE

CAPABILITY = (10, 0)
SMS = 148
TYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float8_e4m3", "mxfp8", "nvfp4")
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ADDENDS = ("none", "matrix", "bias")
WORKER_REGISTERS = 24
"""Of a thread that copies or multiplies."""
UNITS = {"float8_e4m3": "UTCQMMA", "mxfp8": "UTCQMMA", "nvfp4": "UTCOMMA"}
"""The matrix instruction of a type; of 16-bit types UTCHMMA."""
DESCRIBED = re.compile(r"tcgen05\.mma\.\S+ \[ %r\d+ \+ 0 \], %rd\d+, %rd\d+, (%r\d+)")
"""Of PTX: the register that describes a matrix instruction."""
_TRITON_TYPE = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.uint8: "u8",
}


class Case(NamedTuple):
    """One compilation."""

    dtype: Dtype
    layout: Layout
    add: str
    schedule: Schedule

    @property
    def shape(self) -> str:
        """Of the tile, and the blocks that compute it."""
        return f"{self.schedule.tile.m}x{self.schedule.tile.n} c{self.schedule.blocks}"

    @property
    def problem(self) -> Gemm:
        """What it computes."""
        return problem(self.dtype, self.layout, self.add)

    @property
    def scaled(self) -> bool:
        """Whether blocks of numbers have scales."""
        return self.dtype in BLOCK_SCALED

    @property
    def unit(self) -> str:
        """The arithmetic that this case must compile to, as the beginning of a SASS name."""
        return UNITS.get(self.dtype, "UTCHMMA")


def every() -> Iterator[Case]:
    """All that could ever be compiled."""
    for dtype, add in forms():
        for layout in LAYOUTS if dtype not in BLOCK_SCALED else LAYOUTS[2:3]:
            yield from cases(dtype, layout, add)


def forms() -> Iterator[tuple[Dtype, str]]:
    """Types, each with what may be added to its products."""
    for dtype in TYPES:
        for add in ADDENDS if dtype in ("float16", "bfloat16") else ADDENDS[:1]:
            yield dtype, add


def cases(dtype: Dtype, layout: Layout, add: str) -> Iterator[Case]:
    """Of every configuration of a type."""
    of = problem(dtype, layout, add)
    module = gluon_scaled if dtype in BLOCK_SCALED else gluon_blackwell
    for one in module.candidates(of, CAPABILITY, SMS):
        yield Case(dtype, layout, add, one)


def chosen() -> Iterator[Case]:
    """Each tile for each type and addend, layouts taking turns."""
    turn = 0
    for dtype, add in forms():
        for case in cases(dtype, LAYOUTS[2], add):
            if case.schedule.group == 8:
                yield case if case.scaled else case._replace(layout=LAYOUTS[turn % 4])
                turn += 1


def problem(dtype: Dtype, layout: Layout, add: str) -> Gemm:
    """Of any size: sizes are not compiled in."""
    return Gemm(m=512, n=512, k=512, dtype=dtype, layout=layout, beta=1 if add == "matrix" else 0)


def compile_one(case: Case) -> Built:
    """Compile what `launch` would run, from tensors without memory, and disassemble it."""
    of = case.problem

    def empty(*shape: int, dtype: torch.dtype = TORCH_TYPE[case.dtype]) -> torch.Tensor:
        return torch.empty(*shape, dtype=dtype, device="meta")

    c = {"none": None, "matrix": empty(of.n, of.m), "bias": empty(of.m)}[case.add]
    scale = None
    if case.scaled:
        kind = torch.uint8 if case.dtype == "mxfp8" else torch.float8_e4m3fn
        scale = empty(of.m, of.k // BLOCK_SCALED[case.dtype], dtype=kind)
    elif case.dtype == "float8_e4m3":
        scale = empty(1, dtype=torch.float32)
    a = empty(of.m, of.k // PACKED.get(case.dtype, 1))  # all sizes are 512
    scales = (scale, scale) if scale is not None else None
    operands = Operands(of, a, a, new_output(of, a), c=c, scales=scales)
    if case.scaled:
        kernel, named = gluon_scaled_warps.multiply, gluon_scaled.arguments(operands, case.schedule)
    else:
        kernel, named = gluon_blackwell_warps.multiply, gluon_blackwell.arguments(operands, case.schedule)
    warps, blocks = named.pop("num_warps"), named.pop("num_ctas", 1)
    constants = {one.name for one in kernel.params if one.is_constexpr}
    constants |= {name for name, value in named.items() if value is None}
    return build(
        kernel,
        {name: _kind(value) for name, value in named.items() if name not in constants},
        {name: value for name, value in named.items() if name in constants},
        100,
        warps=warps,
        stages=1,
        blocks=blocks,
    )


def _kind(value: Any) -> str:
    """Triton's name for the type of an argument."""
    if isinstance(value, int):
        return "i32"
    if isinstance(value, torch.Tensor):
        return f"*{_TRITON_TYPE[value.dtype]}"
    return f"tensordesc<{_TRITON_TYPE[value.base.dtype]}{value.block_shape},{value.layout!r}>"


def faults(case: Case, built: Built) -> list[str]:
    """What breaks a promise, as phrases; empty if nothing does."""
    found = []
    if built.spills or built.stack_byte:
        found.append(f"{built.spills} spills, {built.stack_byte} bytes of stack")
    module = gluon_scaled if case.scaled else gluon_blackwell
    computed = module.shared_byte(case.problem, case.schedule)
    if not built.shared_byte <= computed <= SHARED_LIMIT_BYTE[100]:
        found.append(f"{built.shared_byte} bytes of shared memory, {computed} computed")
    columns = 512 if case.scaled else 2 * case.schedule.tile.m
    if built.tensor_columns != columns:
        found.append(f"{built.tensor_columns} columns of tensor memory, {columns} computed")
    if built.count("STG", "LDGSTS") or built.count("LDG") != 2 * (case.dtype == "float8_e4m3"):
        found.append("copies by pointers")
    return (
        found
        + _faults_of_arithmetic(case, built)
        + _faults_of_loops(case, built)
        + _faults_of_parts(case, built)
        + _faults_of_barriers(case, built)
        + out_of_step(built.ptx)
        + _faults_of_pairs(case, built)
    )


def _faults_of_arithmetic(case: Case, built: Built) -> list[str]:
    """Also: the instruction's own description says the tile's rows and columns, and what lies across K."""
    units = ("HMMA", "QMMA", "IMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA", "UTCMXQMMA")
    found = Counter({name: built.count(name) for name in units if built.count(name)})
    if found != Counter({case.unit: 4}):
        return [f"{dict(found)}, not 4 {case.unit}"]
    tile = case.schedule.tile
    expected = (tile.n, tile.m, case.layout[1] == "T", case.layout[0] == "N")
    described = {_described(built.ptx, name) for name in re.findall(DESCRIBED, built.ptx)}
    if not case.scaled and described != {expected}:
        return [f"instructions of {described}, not {expected}"]
    return []


def _described(ptx: str, register: str) -> tuple[int, int, bool, bool]:
    """(rows, columns, left is across K, right is): PTX ISA, "Instruction descriptor" of tcgen05.mma."""
    found = re.search(rf"mov\.b32\s+{register}, (\d+);", ptx)
    bits = int(found[1]) if found else 0
    return (bits >> 24 & 31) * 16, (bits >> 17 & 63) * 8, bool(bits >> 15 & 1), bool(bits >> 16 & 1)


def _faults_of_loops(case: Case, built: Built) -> list[str]:
    """One loop that multiplies and one that copies; neither touches what the other or the sums need."""
    loops = innermost(built.program)
    products = [loop for loop in loops if any(case.unit in line.name for line in loop)]
    copies = [loop for loop in loops if any("UTMALDG" in line.name for line in loop)]
    copies = [loop for loop in copies if not any("LDTM" in line.name for line in loop)]
    if len(products) != 1 or len(copies) != 1:
        return [f"{len(products)} loops that multiply, {len(copies)} that copy"]
    found = []
    for loop, kind, unwanted in (
        (products[0], "multiplies", ("LDTM", "UTMA", "LDS", "STS", "LDG", "BAR")),
        (copies[0], "copies", ("LDTM", "UTC", "UTMASTG", "LDS", "STS", "LDG", "BAR")),
    ):
        strange = [line.name for line in loop if line.name.startswith(unwanted)]
        if strange:
            found.append(f"{', '.join(strange)} in the loop that {kind}")
        used = [int(number) for line in loop for number in re.findall(r"\bR(\d+)\b", line.operands)]
        if max(used, default=0) >= WORKER_REGISTERS:
            found.append(f"register {max(used)} in the loop that {kind}")
    copied = sum("UTMALDG" in line.name for line in copies[0])
    if copied != _copies(case):
        found.append(f"{copied} copies a step, not {_copies(case)}")
    scales = sum("UTCCP" in line.name for line in products[0])
    rows, blocks = case.schedule.tile.m + case.schedule.tile.n, 4 if case.dtype == "mxfp8" else 16
    if scales != case.scaled * rows // 128 * blocks // 4:
        found.append(f"{scales} copies of scales to tensor memory")
    return found


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
    """Each part: wait for the buffer, all warps; write it; fence, all warps; store, commit."""
    body = built.ptx[built.ptx.index("tcgen05.ld") :]
    events = []
    for line in body.splitlines():
        events += [name for name, pattern in EVENTS.items() if re.search(pattern, line)]
    text = " ".join(events)
    parts, buffers = _parts(case)
    complete = len(re.findall(r"wait (?:barrier )+(?:write )+fence (?:barrier )+store commit", text))
    if case.add == "matrix":
        complete = len(re.findall(r"(?:write )+fence (?:barrier )+store commit", text))
    found = []
    if not complete == text.count("store") == parts:
        found.append(f"{complete} of {parts} parts leave in order")
    again = parts - buffers if case.add == "matrix" else 0
    expected = (
        Counter({1: again, 0: 2}) if case.add == "matrix" else Counter({buffers - 1: parts}) + Counter([0])
    )
    waits = Counter(int(left) for left in re.findall(EVENTS["wait"], built.ptx))
    if waits != +expected:
        found.append(f"waits for copies {dict(waits)}, not {dict(+expected)}")
    loads = [int(width) for width in re.findall(r"tcgen05\.ld\.\S*\.x(\d+)\.b32", built.ptx)]
    if sum(loads) != case.schedule.tile.m:
        found.append(f"{sum(loads)} columns of sums are read")
    before, _, _ = built.ptx.partition("mbarrier.arrive.shared")
    if not re.search(r"tcgen05\.wait::ld[^;]*;\s*(?:\.loc[^\n]*\s*)?bar\.sync[^;]*;[^;]*@%p\d+ \Z", before):
        found.append("sums are declared taken before all warps have read them")
    return found


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
    found = {
        "barriers": Counter(re.findall(r"mbarrier\.init\.\S+\s+\[[^]]+\],\s*(\d+)", built.ptx)),
        "bytes": Counter(
            int(byte)
            for byte in re.findall(r"mbarrier\.arrive\.expect_tx\.\S+\s+\w+,\s*\[[^]]+\],\s*(\d+)", built.ptx)
        ),
        "arrivals": len(re.findall(r"mbarrier\.arrive\.shared", built.ptx)),
        "commits": len(re.findall(r"tcgen05\.commit", built.ptx)),
        "waits": len(re.findall(r"mbarrier\.try_wait", built.ptx)),
    }
    expected = {
        "barriers": Counter({"1": barriers}),
        "bytes": +expects,
        "arrivals": 1,  # taken
        "commits": 2,  # freed, summed
        "waits": 4 + {"none": 0, "bias": 1, "matrix": parts}[case.add],
    }
    return [f"{name} {found[name]}, not {expected[name]}" for name in found if found[name] != expected[name]]


def _faults_of_pairs(case: Case, built: Built) -> list[str]:
    """Of a pair everything says so; of a block alone nothing does."""
    paired = case.schedule.blocks == 2
    groups = Counter(re.findall(r"cta_group::(\d)", built.ptx))
    found = [] if set(groups) == {"2" if paired else "1"} else [f"groups {dict(groups)}"]
    commits = re.findall(r"tcgen05\.commit\S*multicast::cluster", built.ptx)
    waits_of_first = built.ptx.count("bra.uni skipWait")
    to_first = re.findall(r"and\.b32\s+%r\d+, %r\d+, -16777224;", built.ptx)
    if len(commits) != 2 * paired:
        found.append(f"{len(commits)} commits are reported to both blocks")
    if waits_of_first != paired:
        found.append(f"{waits_of_first} waits of the first block alone")
    if bool(to_first) != paired:
        found.append("copies report to the wrong block")
    return found


def main(everything: bool, few: bool) -> int:
    """Print the table; the number of faults."""
    listed = list(every() if everything else chosen())
    if few:
        properties = (attrgetter(name) for name in ("dtype", "layout", "add", "shape"))
        listed = covering(listed, "compiled for Blackwell by Gluon", *properties)
    bad = 0
    print("dtype       layout add     schedule                    regs  shared tensor spills  kind")
    with ThreadPoolExecutor(2) as pool:
        for case, built in zip(listed, pool.map(compile_one, listed), strict=True):
            wrong = faults(case, built)
            bad += len(wrong)
            print(
                f"{case.dtype:11} {case.layout:6} {case.add:7} {case.schedule!s:27} {built.registers:4} "
                f"{built.shared_byte:7} {built.tensor_columns:6} {built.spills:6}  "
                f"{built.count(case.unit)} {case.unit} {'; '.join(wrong)}",
                flush=True,
            )
    print(f"{len(listed)} compiled, {bad} faults")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main("--all" in sys.argv[1:], "--drawn" in sys.argv[1:]) else 0)
