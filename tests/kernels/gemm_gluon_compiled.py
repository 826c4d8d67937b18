"""Every configuration of the Gluon kernel for Hopper, compiled and held to its promises.

    python -m tests.kernels.gemm_gluon_compiled            every tile and lag, forms taking turns
    python -m tests.kernels.gemm_gluon_compiled --drawn    a few of them, by the seed of the tests' run
    python -m tests.kernels.gemm_gluon_compiled --all      every configuration, type, layout and addend

Exit code 1 on a fault. Of each: nothing spilled, shared memory as computed, the expected matrix instruction
and no other, no matrix operand from registers. And, read from the compiled program, the overlap:

* The loop that copies starts copies only, those that multiply start matrix instructions only.
* Where a buffer is handed back, at most the matrix instructions begun last are under way.
* A piece of D is written to shared memory only after its buffer was waited for, leaves only after a fence and
  a barrier, and is not waited for then.
* There are as many barriers as the protocol has, with its counts; each is waited for and arrived at.

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

from bench.spec import Dtype
from kernels.gemm import gluon_hopper
from kernels.gemm.gluon_hopper_schedules import PIECE, Schedule, schedules, shared_byte, staged
from kernels.gemm.operands import Operands, new_output
from kernels.gemm.problem import Gemm, Layout
from tests.drawing import covering
from tests.kernels.compiled import SHARED_LIMIT_BYTE, Built, build, pointer
from tests.kernels.gluon_step import out_of_step
from tests.kernels.listing import Line
from tests.kernels.tensors import TORCH_TYPE

TYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float8_e4m3")
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ADDENDS = ("none", "matrix", "bias")
THREADS = 384
FROM_REGISTERS = re.compile(r"wgmma\.mma_async\S*\s*\{[^}]*\}\s*,\s*\{")
"""Of PTX: after the sums the first operand is a list of registers, not the description of a block."""
EVENTS = {
    "wait": r"cp\.async\.bulk\.wait_group\.read\s+(\d+)",
    "barrier": r"bar\.sync",
    "write": r"stmatrix|st\.shared",
    "fence": r"fence\.proxy\.async\.shared::cta",
    "store": r"cp\.async\.bulk\.tensor\.2d\.global\.shared::cta",
    "commit": r"cp\.async\.bulk\.commit_group",
}
"""What happens to a piece of D, as PTX."""


class Case(NamedTuple):
    """One compilation."""

    dtype: Dtype
    layout: Layout
    add: str
    on_host: bool
    """Whether descriptors are made there."""
    schedule: Schedule

    @property
    def shape(self) -> str:
        """Of the tile."""
        return f"{self.schedule.tile.m}x{self.schedule.tile.n}"

    @property
    def lag(self) -> int:
        """Of the second group."""
        return self.schedule.lag


def every() -> Iterator[Case]:
    """All that could ever be compiled; descriptors made by the host and by the kernel take turns."""
    for dtype in TYPES:
        for layout in LAYOUTS if dtype != "float8_e4m3" else ("TN",):
            for add in ADDENDS if dtype != "float8_e4m3" else ("none",):
                for turn, one in enumerate(schedules(problem(dtype, layout, add))):
                    on_host = (turn // 3 + LAYOUTS.index(layout)) % 2 == 0
                    yield Case(dtype, layout, add, on_host, one)


def chosen() -> Iterator[Case]:
    """Each type, addend, tile and lag, in one layout each; those take turns."""
    forms: dict[tuple[object, ...], list[Case]] = {}
    for case in every():
        if case.schedule.group == (16 if case.shape == "256x128" else 8):
            forms.setdefault((case.dtype, case.add, case.shape, case.lag), []).append(case)
    for turn, layouts in enumerate(forms.values()):
        yield layouts[(turn + turn // 4) % len(layouts)]


def problem(dtype: Dtype, layout: Layout, add: str) -> Gemm:
    """Of any size: sizes are not compiled in."""
    return Gemm(m=512, n=512, k=512, dtype=dtype, layout=layout, beta=1 if add == "matrix" else 0)


def compile_one(case: Case) -> Built:
    """Compile what `launch` would run, from tensors without memory, and disassemble it."""
    of = problem(case.dtype, case.layout, case.add)

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, dtype=TORCH_TYPE[case.dtype], device="meta")

    c = {"none": None, "matrix": empty(of.n, of.m), "bias": empty(of.m)}[case.add]
    scale = torch.empty(1, device="meta")
    scales = (scale, scale) if case.dtype == "float8_e4m3" else None
    a, b = empty(of.m, of.k), empty(of.n, of.k)  # all sizes are 512
    operands = Operands(of, a, b, new_output(of, a), c=c, scales=scales)
    named = gluon_hopper.arguments(operands, case.schedule, on_host=case.on_host)
    warps = named.pop("num_warps")
    constants = {one.name for one in gluon_hopper.multiply.params if one.is_constexpr}
    constants |= {name for name, value in named.items() if value is None}
    return build(
        gluon_hopper.multiply,
        {name: _kind(value) for name, value in named.items() if name not in constants},
        {name: value for name, value in named.items() if name in constants},
        90,
        warps=warps,
        stages=1,
    )


def _kind(value: Any) -> str:
    """Triton's name for the type of an argument."""
    if isinstance(value, int):
        return "i32"
    if isinstance(value, torch.Tensor):
        return _pointer(value)
    return f"tensordesc<{_pointer(value.base)[1:]}{value.block_shape},{value.layout!r}>"


def _pointer(tensor: torch.Tensor) -> str:
    return pointer({TORCH_TYPE[name]: name for name in (*TYPES, "float32")}[tensor.dtype])


def faults(case: Case, built: Built) -> list[str]:
    """What breaks a promise, as phrases; empty if nothing does."""
    found = []
    if built.spills or built.stack_byte:
        found.append(f"{built.spills} spills, {built.stack_byte} bytes of stack")
    computed = shared_byte(problem(case.dtype, case.layout, case.add), case.schedule.tile)
    if not built.shared_byte <= computed <= SHARED_LIMIT_BYTE[90]:
        found.append(f"{built.shared_byte} bytes of shared memory, {computed} computed")
    if built.register_operands or FROM_REGISTERS.search(built.ptx):
        found.append("a matrix operand from registers")
    if f".reqntid {THREADS}" not in built.ptx:
        found.append(f"not {THREADS} threads")
    given = set(re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32\s+(\d+)", built.ptx))
    if not {("inc", "240"), ("dec", "240"), ("dec", "24")} <= given:
        found.append(f"registers moved as {sorted(given)}")
    by_pointer = case.add == "bias" or case.dtype == "float8_e4m3"
    if built.count("STG", "LDGSTS") or (built.count("LDG") and not by_pointer):
        found.append("copies by pointers")
    return (
        found
        + _faults_of_loops(case, built)
        + _faults_of_pieces(case, built)
        + _faults_of_barriers(case, built)
        + out_of_step(built.ptx)
    )


def instruction(case: Case) -> str:
    """The arithmetic that this case must compile to, as the beginning of a SASS name."""
    return "QGMMA" if case.dtype == "float8_e4m3" else "HGMMA"


def _faults_of_loops(case: Case, built: Built) -> list[str]:
    """Two loops that multiply and one that copies, and in which order they do what."""
    found = []
    units = ("HMMA", "QMMA", "IMMA", "HGMMA", "QGMMA", "IGMMA")
    others = [one for one in units if one != instruction(case) and built.count(one)]
    if others:
        found.append(f"{instruction(case)} but also {others}")
    loops = innermost(built.program)
    products = [loop for loop in loops if any(instruction(case) in line.name for line in loop)]
    copies = [loop for loop in loops if any("UTMALDG" in line.name for line in loop)]
    if len(products) != 2 or len(copies) != 1:
        return [*found, f"{len(products)} loops that multiply, {len(copies)} that copy"]
    tile = case.schedule.tile
    for loop in products:
        order = [line.name.split(".")[0] for line in loop]
        waits = [at for at, line in enumerate(loop) if line.name.startswith("WARPGROUP.DEPBAR")]
        last = max(at for at, name in enumerate(order) if name == instruction(case))
        handed = [at for at, line in enumerate(loop) if line.name.startswith("SYNCS.ARRIVE")]
        if order.count(instruction(case)) != 4 * tile.n // 128:
            found.append(f"{order.count(instruction(case))} {instruction(case)} in a step")
        if len(waits) != 1 or not loop[waits[0]].operands.endswith(" 0x1") or waits[0] < last:
            found.append("not one group of matrix instructions under way in the loop")
        elif not handed or "BAR" not in order[waits[0] : handed[0]]:
            found.append("a buffer handed back before the products of all four warps are complete")
        if "UTMASTG" in order or "UTMALDG" in order:
            found.append("copies in a loop that multiplies")
    order = [line.name.split(".")[0] for line in copies[0]]
    wide = {"right": case.layout[0] == "N" and tile.m, "left": case.layout[1] == "T" and tile.n // 2}
    blocks = (wide["right"] or PIECE) // PIECE + 2 * ((wide["left"] or PIECE) // PIECE)
    if order.count("UTMALDG") != blocks or order.index("SYNCS") > order.index("UTMALDG"):
        found.append(f"{order.count('UTMALDG')} copies a step, {blocks} expected")
    return found


def innermost(program: list[Line]) -> list[list[Line]]:
    """The instructions of each loop that has no other loop within."""
    spans = [(line.target, line.address) for line in program if line.target is not None]
    loops = {(first, last) for first, last in spans if first < last}
    inner = [
        one
        for one in loops
        if not any(other != one and one[0] <= other[0] and other[1] <= one[1] for other in loops)
    ]
    return [[line for line in program if first <= line.address <= last] for first, last in sorted(inner)]


def _faults_of_pieces(case: Case, built: Built) -> list[str]:
    """Each piece: wait for the buffer, all warps; write it; fence, all warps; store, commit."""
    tile = case.schedule.tile
    count = staged(problem(case.dtype, case.layout, case.add), tile)
    body = built.ptx[built.ptx.index("setmaxnreg.dec") :]  # from where the warps part
    events = []
    for line in body.splitlines():
        events += [name for name, pattern in EVENTS.items() if re.search(pattern, line)]
    text = " ".join(events)
    piece = r"wait (?:barrier )+(?:write )+fence (?:barrier )+store commit"
    complete = len(re.findall(piece, text))
    pieces = tile.m * tile.n // (64 * PIECE)
    found = (
        [] if complete == text.count("store") == pieces else [f"{complete} of {pieces} pieces leave in order"]
    )
    waits = Counter(int(left) for left in re.findall(EVENTS["wait"], body))
    expected = Counter({count - 1: pieces}) + Counter({0: 2 + 2 * (case.add == "matrix")})
    return found + ([f"waits for copies {dict(waits)}"] if waits != expected else [])


def _faults_of_barriers(case: Case, built: Built) -> list[str]:
    """How many there are, how often each completes, who arrives and who waits."""
    tile, lag, adds = case.schedule.tile, case.schedule.lag > 0, case.add == "matrix"
    item = 1 if case.dtype == "float8_e4m3" else 2
    bytes_ = [(tile.m + tile.n) * tile.k * item] + [tile.n // 2 * tile.m * 2] * (2 * adds)
    expected = {
        "init": Counter({"1": tile.stages * (1 + lag) + 2 * adds, "2": tile.stages}),
        "expect": Counter(map(str, bytes_)),
        "arrive": 4 + lag,
        "wait": 3 + lag + 2 * adds,
    }
    found = {
        "init": Counter(re.findall(r"mbarrier\.init\.\S+\s+\[[^]]+\],\s*(\d+)", built.ptx)),
        "expect": Counter(
            re.findall(r"mbarrier\.arrive\.expect_tx\.\S+\s+\w+,\s*\[[^]]+\],\s*(\d+)", built.ptx)
        ),
        "arrive": len(re.findall(r"mbarrier\.arrive\.shared", built.ptx)),
        "wait": len(re.findall(r"mbarrier\.try_wait", built.ptx)),
    }
    return [
        f"barriers: {name} {found[name]}, not {expected[name]}"
        for name in found
        if found[name] != expected[name]
    ]


def main(everything: bool, few: bool) -> int:
    """Print the table; the number of faults."""
    listed = list(every() if everything else chosen())
    if few:
        properties = (attrgetter(name) for name in ("dtype", "layout", "add", "on_host", "shape", "lag"))
        listed = covering(listed, "compiled for Hopper by Gluon", *properties)
    bad = 0
    print(
        "dtype       layout add     descriptors schedule                    regs  shared spills  bars  kind"
    )
    with ThreadPoolExecutor(2) as pool:
        for case, built in zip(listed, pool.map(compile_one, listed), strict=True):
            wrong = faults(case, built)
            bad += len(wrong)
            print(
                f"{case.dtype:11} {case.layout:6} {case.add:7} {'host' if case.on_host else 'kernel':11} "
                f"{case.schedule!s:27} {built.registers:4} {built.shared_byte:7} {built.spills:6} "
                f"{built.count('BAR.SYNC'):5}  {built.count(instruction(case))} {instruction(case)} "
                f"{'; '.join(wrong)}",
                flush=True,
            )
    print(f"{len(listed)} compiled, {bad} faults")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main("--all" in sys.argv[1:], "--drawn" in sys.argv[1:]) else 0)
