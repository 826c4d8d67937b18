"""Every tile that the pointer kernel may try, compiled for every architecture and held to its promises.

    python -m tests.kernels.gemm_pointer_compiled            every tile in some forms
    python -m tests.kernels.gemm_pointer_compiled --drawn    a few of them, by the seed of the tests' run
    python -m tests.kernels.gemm_pointer_compiled --all      every layout, alignment and mask: half an hour

Exit code 1 on a fault.
Promises: nothing spilled within the walk along K and next to nothing outside it, shared memory
within the limit, the architecture's matrix instruction used, and 16-byte loads wherever rows allow them.
Needs no GPU; must run without TRITON_INTERPRET. It says what the compiler made, not that it runs, nor how
fast.
"""

import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import NamedTuple

import triton
import triton.language as tl

from bench.spec import ITEM_BYTE, Dtype
from kernels.gemm import pointer
from kernels.gemm.problem import FORCED_TILES, Gemm
from kernels.gemm.tiles import Tile, forced, pointer_tiles
from tests.drawing import covering
from tests.kernels.compiled import SHARED_LIMIT_BYTE, Built, build
from tests.kernels.compiled import pointer as pointer_to

CAPABILITIES = (70, 80, 90, 100)
LAYOUTS = ("NN", "NT", "TN", "TT")
PARKED_BYTE = 64
"""Of a thread's registers, what may be put aside before the loop and fetched after it: a few addresses of C.
The compiler does so to fit one more block on a multiprocessor. Triton 3.7 needs it where a matrix C is added,
3.6 up to 56 bytes of it, and some of all the forms."""
PARKED_ANYWHERE_BYTE = 8
"""What any kernel may put aside: two registers, as Hopper's masked tile of 128 x 16 with six stages does."""
TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])


class Specialization(NamedTuple):
    """One compilation: what Triton would make for this data type, layout and alignment."""

    capability: int
    dtype: Dtype
    tile: Tile
    layout: str
    alignment: int
    """Elements: the largest power of two that divides the sizes, up to 16 bytes' worth."""
    even_k: bool
    addend: str = "none"
    """`none`, `bias` or `matrix`."""
    batched: bool = False


def chosen() -> Iterator[Specialization]:
    """Each tile once in its plainest and once in its most laborious form, over all data types and layouts."""
    addends, groups = itertools.cycle(("bias", "matrix")), itertools.cycle((4, 8, 16))
    for capability, dtype in _types():
        full = 16 // ITEM_BYTE[dtype]
        if dtype != "bfloat16":
            for tile in _forced(capability, dtype, "NN", wide=True):
                yield Specialization(capability, dtype, tile, "NN", full, False)
        for tile in pointer_tiles((capability // 10, 0), dtype, "NN", wide=True):
            # The two 16-bit types compile to the same but for one letter, so they share the work.
            if dtype != "bfloat16":
                yield Specialization(capability, dtype, tile, "NN", full, True)
            layout = "NT" if dtype == "bfloat16" else "TN"
            yield Specialization(capability, dtype, tile._replace(group=next(groups)), layout, full, False)
            if dtype != "bfloat16":
                yield Specialization(capability, dtype, tile, "TN", full, False, batched=True)
            if dtype not in ("bfloat16", "int8", "float8_e4m3"):
                yield Specialization(capability, dtype, tile, "TN", full, False, next(addends))
        for tile in pointer_tiles((capability // 10, 0), dtype, "NN", wide=False):
            yield Specialization(capability, dtype, tile, "TT" if dtype == "bfloat16" else "NN", 1, False)


def every() -> Iterator[Specialization]:
    """All that could ever be compiled with the same alignment of every size."""
    for capability, dtype in _types():
        for alignment in (16, 8, 4, 2, 1):
            full = 16 // ITEM_BYTE[dtype]
            if alignment > full:
                continue
            for layout in LAYOUTS:
                wide = alignment == full
                listed = pointer_tiles((capability // 10, 0), dtype, layout, wide=wide)
                for tile in (*listed, *_forced(capability, dtype, layout, wide=wide)):
                    for even_k in (True, False):
                        yield Specialization(capability, dtype, tile, layout, alignment, even_k)


def _forced(capability: int, dtype: Dtype, layout: str, *, wide: bool) -> list[Tile]:
    """The tiles that can be asked for by name and stand in no list, in their shallowest form."""
    listed = pointer_tiles((capability // 10, 0), dtype, layout, wide=wide)
    return [
        tile
        for m, n in (map(int, name.split("x")) for name in FORCED_TILES)
        for tile in forced((capability // 10, 0), dtype, layout, m, n, wide=wide)
        if tile.stages == 3 and tile not in listed
    ]


def _types() -> Iterator[tuple[int, Dtype]]:
    exists = Gemm.implementation("triton-pointer").dtypes
    for capability in CAPABILITIES:
        for dtype, lowest in exists.items():
            if (capability // 10, 0) >= lowest:
                yield capability, dtype


def compile_one(case: Specialization) -> Built:
    """Compile and disassemble; Triton's own errors pass through."""
    kind = pointer_to(case.dtype)
    output = Gemm(m=1, n=1, k=1, dtype=case.dtype).output_dtype
    scales = {"a_scale": "*fp32", "b_scale": "*fp32"} if case.dtype == "float8_e4m3" else {}
    return build(
        pointer.multiply,
        {
            **{"a_pointer": kind, "b_pointer": kind, "d_pointer": pointer_to(output)},
            **dict.fromkeys(("m", "n", "k", "row_a", "row_b", "row_c", "row_d"), "i32"),
            **scales,
            **({} if case.addend == "none" else {"c_pointer": pointer_to(output)}),
        },
        {
            **({"c_pointer": None} if case.addend == "none" else {}),
            **({} if scales else {"a_scale": None, "b_scale": None}),
            "A_ROWS_ARE_K": case.layout[0] == "N",
            "B_ROWS_ARE_K": case.layout[1] == "T",
            "ALIGN_M": case.alignment,
            "ALIGN_N": case.alignment,
            "ALIGN_K": case.alignment,
            "ALIGN_ROW_A": case.alignment,
            "ALIGN_ROW_B": case.alignment,
            "ALIGN_ROW_D": case.alignment,
            "ADD": case.addend,
            "SUM": {"float64": tl.float64, "int8": tl.int32}.get(case.dtype, tl.float32),
            "PRECISION": "tf32" if case.dtype == "tf32" else "ieee",
            "BLOCK_M": case.tile.m,
            "BLOCK_N": case.tile.n,
            "BLOCK_K": case.tile.k,
            "GROUP": case.tile.group,
            "EVEN_K": case.even_k,
            "BATCHED": case.batched,
        },
        case.capability,
        warps=case.tile.warps,
        stages=case.tile.stages,
    )


def expected_instruction(case: Specialization) -> str:
    """The arithmetic that this tile must compile to, as the beginning of a SASS name."""
    if case.dtype == "float32":
        return "FFMA"
    if case.dtype == "float64":
        return "DMMA" if case.capability in (80, 90) else "DFMA"
    # The instructions of Hopper and Blackwell take 64 rows at least (ours: of N); below, Ampere's serve.
    # Blackwell has none for int8. Ampere's of 8-bit floats is Ada's; elsewhere they are widened to 16 bits.
    generation = 80 if case.tile.n < 64 else case.capability
    if case.dtype == "int8":
        return {80: "IMMA", 90: "IGMMA", 100: "IMMA"}[generation]
    if case.dtype == "float8_e4m3":
        return {80: "HMMA", 90: "QGMMA", 100: "UTCQMMA"}[generation]
    return {80: "HMMA", 90: "HGMMA", 100: "UTCHMMA"}[generation]


def faults(case: Specialization, built: Built, spills: int = 0) -> list[str]:
    """What breaks a promise, as phrases; empty if nothing does. Up to `spills` in loops are allowed."""
    found = []
    parks_more = spills or TRITON < (3, 7) or case.addend == "matrix"
    parked_byte = PARKED_BYTE if parks_more else PARKED_ANYWHERE_BYTE
    if case.addend == "matrix" and built.stack_byte <= parked_byte:
        spills = built.spills_in_loops  # those few, while it waits for its sums
    if built.spills_in_loops > spills or built.stack_byte > parked_byte:
        found.append(f"{built.spills_in_loops} spills in a loop, {built.stack_byte} bytes of stack")
    if built.shared_byte > SHARED_LIMIT_BYTE[case.capability]:
        found.append(f"{built.shared_byte} bytes of shared memory")
    if case.capability < 75:
        fma = "fma.rn.f64" if case.dtype == "float64" else "fma.rn.f32"
        if fma not in built.ptx or "mma." in built.ptx:
            found.append(f"not computed by {fma}")
        return found
    expected = expected_instruction(case)
    units = ("HMMA", "HGMMA", "UTCHMMA", "UTCQMMA", "DMMA", "QMMA", "IMMA")
    others = [one for one in units if one != expected and built.count(one)]
    if not built.count(expected) or others:
        found.append(f"no {expected}" if not built.count(expected) else f"{expected} but also {others}")
    if case.alignment * ITEM_BYTE[case.dtype] == 16:
        if not built.count("LDGSTS.E.BYPASS.128"):
            found.append("no 16-byte copy to shared memory")
        # Of a bias each thread loads one element.
        if built.count("LDG.E.U16") > (case.addend == "bias") or not built.count("STG.E.128"):
            found.append("narrow loads or stores")
    return found


def main(everything: bool, few: bool) -> int:
    """Print the table; the number of faults."""
    cases = list(every() if everything else chosen())
    if few:
        cases = covering(cases, "compiled for pointers", attrgetter("capability"))
    bad = 0
    print("variant dtype       layout addend align mask m x n x k          sm   regs  shared spills  kind")
    with ThreadPoolExecutor(2) as pool:
        for case, built in zip(cases, pool.map(compile_one, cases), strict=True):
            # Among all forms a few float32 ones spill now and then; 3 among 1,000 FFMA are not felt.
            wrong = faults(case, built, spills=3 if everything else 0)
            bad += len(wrong)
            instruction = expected_instruction(case)
            count = built.count(instruction) if built.instructions else built.ptx.count("fma.rn.f")
            print(
                f"pointer {case.dtype:11} {case.layout:6} {case.addend:6} {case.alignment:5} "
                f"{'no' if case.even_k else 'yes':4} {case.tile!s:18} {case.capability:<4} "
                f"{built.registers:4} {built.shared_byte:7} {built.spills:6}  "
                f"{count} {instruction} {'; '.join(wrong)}",
                flush=True,
            )
    print(f"{len(cases)} compiled, {bad} faults")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main("--all" in sys.argv[1:], "--drawn" in sys.argv[1:]) else 0)
