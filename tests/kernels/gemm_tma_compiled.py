"""Every tile that the kernels by bulk copies may try, compiled and held to its promises.

    python -m tests.kernels.gemm_tma_compiled            three tiles of each list
    python -m tests.kernels.gemm_tma_compiled --drawn    a few of them, by the seed of the tests' run
    python -m tests.kernels.gemm_tma_compiled --all      every tile, type, layout, addend: an hour, two cores

Exit code 1 on a fault.
Promises: nothing spilled, shared memory within the limit and within what tma_tiles.py computes, the
architecture's matrix instruction used and no other, operands brought and D taken away by bulk copies and by
nothing else, and no matrix operand from registers (ptxas before 13.1 can overwrite those too early). Of
specialized warps: there are some, and no matrix instruction is under way when a buffer is handed back. Needs
no GPU; must run without TRITON_INTERPRET.
"""

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any, NamedTuple, get_args

import torch

from bench.spec import Dtype, Unsupported
from kernels.gemm import persistent, specialized, tma
from kernels.gemm.operands import Operands, new_output
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.tma_tiles import shared_byte
from tests.drawing import covering
from tests.kernels.compiled import SHARED_LIMIT_BYTE, Built, build, pointer
from tests.kernels.tensors import TORCH_TYPE

CAPABILITIES = (90, 100, 120)
LIMIT_BYTE = {**SHARED_LIMIT_BYTE, 120: 99 * 1024}
VARIANTS = {"tma": tma, "persistent": persistent, "specialized": specialized}
TYPES = tuple(Gemm.implementation("triton-tma").dtypes)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ADDENDS = ("none", "matrix", "bias")
FROM_REGISTERS = re.compile(r"wgmma\.mma_async\S*\s*\{[^}]*\}\s*,\s*\{")
"""Of PTX: after the sums the first operand is a list of registers, not the description of a block."""


class Case(NamedTuple):
    """One compilation."""

    variant: str
    capability: int
    dtype: Dtype
    layout: Layout
    add: str
    configuration: Any


def every() -> Iterator[Case]:
    """All that could ever be compiled, float16 standing for bfloat16 too."""
    for capability in CAPABILITIES:
        for dtype in (one for one in TYPES if one != "bfloat16"):
            for layout in LAYOUTS:
                for add in ADDENDS if dtype in ("float16", "tf32") else ("none",):
                    for variant in VARIANTS:
                        yield from cases(variant, capability, dtype, layout, add)


def cases(variant: str, capability: int, dtype: Dtype, layout: Layout, add: str) -> Iterator[Case]:
    """Of every configuration that the variant lists; none where this version of Triton cannot compile it."""
    if variant == "specialized" and dtype not in ("float16", "bfloat16"):
        return
    of = problem(dtype, layout, add)
    try:
        listed = VARIANTS[variant].candidates(of, (capability // 10, 0), 132)
    except Unsupported:
        return
    for one in listed:
        yield Case(variant, capability, dtype, layout, add, one)


def chosen() -> Iterator[Case]:
    """The two largest tiles of each list and one small; all specialized.

    Layouts, addends and how many tiles run together take turns.
    """
    turn = 0
    for capability in CAPABILITIES:
        for dtype in TYPES:
            for variant in ("tma", "persistent"):
                layout = ("TN", "NT", "NN", "TT")[turn % 4]
                add = ADDENDS[turn % 3] if dtype in ("float16", "tf32") else "none"
                listed = list(cases(variant, capability, dtype, layout, add))
                group = (4, 8, 16)[turn % 3]
                large = [
                    one._replace(configuration=one.configuration._replace(group=group))
                    for one in listed[:3:2]
                ]
                yield from (*large, listed[-3])
                turn += 1
        yield from cases("specialized", capability, "bfloat16", "TN", "none")
        yield from list(cases("specialized", capability, "float16", "NN", "matrix"))[:1]


def problem(dtype: Dtype, layout: Layout, add: str) -> Gemm:
    """Of any size: sizes are not compiled in."""
    return Gemm(m=512, n=512, k=512, dtype=dtype, layout=layout, beta=1 if add == "matrix" else 0)


def compile_one(case: Case) -> Built:
    """Compile what `launch` would run, from tensors without memory, and disassemble it."""
    of = problem(case.dtype, case.layout, case.add)

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, dtype=TORCH_TYPE[case.dtype], device="meta")

    a = empty(of.k, of.m) if case.layout[0] == "N" else empty(of.m, of.k)
    b = empty(of.n, of.k) if case.layout[1] == "N" else empty(of.k, of.n)
    c = {"none": None, "matrix": empty(of.n, of.m), "bias": empty(of.m)}[case.add]
    scale = torch.empty(1, device="meta") if case.dtype == "float8_e4m3" else None
    scales = (scale, scale) if scale is not None else None
    module = VARIANTS[case.variant]
    operands = Operands(of, a, b, new_output(of, a), c=c, scales=scales)
    named = module.arguments(operands, case.configuration)
    kernel = tma.multiply if case.variant == "tma" else persistent.multiply
    warps, stages = named.pop("num_warps"), named.pop("num_stages")
    constants = {one.name for one in kernel.params if one.is_constexpr}
    constants |= {name for name, value in named.items() if value is None}
    return build(
        kernel,
        {name: _kind(value) for name, value in named.items() if name not in constants},
        {name: value for name, value in named.items() if name in constants},
        case.capability,
        warps=warps,
        stages=stages,
    )


def _kind(value: Any) -> str:
    """Triton's name for the type of an argument."""
    if isinstance(value, int):
        return "i32"
    if isinstance(value, torch.Tensor):
        return _pointer(value)
    return f"tensordesc<{_pointer(value.base)[1:]}{list(value.block_shape)}>"


def _pointer(tensor: torch.Tensor) -> str:
    # Several types of ours are held in the same one of torch's: tf32 in float32, mxfp8 in float8_e4m3fn.
    names = {TORCH_TYPE[name]: name for name in (*TYPES, "float32") if name != "tf32"}
    return pointer((names | {torch.int32: "int32"})[tensor.dtype])


def expected_instruction(case: Case) -> str:
    """The arithmetic that this case must compile to, as the beginning of a SASS name."""
    by_type = {
        90: {"float8_e4m3": "QGMMA", "int8": "IGMMA"},
        100: {"float8_e4m3": "UTCQMMA", "int8": "IMMA"},
        120: {"float8_e4m3": "QMMA", "int8": "IMMA"},
    }
    others = {90: "HGMMA", 100: "UTCHMMA", 120: "HMMA"}
    return by_type[case.capability].get(case.dtype, others[case.capability])


def faults(case: Case, built: Built) -> list[str]:
    """What breaks a promise, as phrases; empty if nothing does."""
    found = []
    if built.spills or built.stack_byte:
        found.append(f"{built.spills} spills, {built.stack_byte} bytes of stack")
    if built.shared_byte > LIMIT_BYTE[case.capability]:
        found.append(f"{built.shared_byte} bytes of shared memory")
    found += _faults_of_arithmetic(case, built)
    if not built.count("UTMALDG") or not built.count("UTMASTG"):
        found.append("no bulk copies")
    if case.variant == "specialized":
        return found + _faults_of_specialization(case, built)
    has_scales = case.dtype == "float8_e4m3"
    if built.count("STG", "LDGSTS") or (built.count("LDG") and not has_scales):
        found.append("copies by pointers")
    of = problem(case.dtype, case.layout, case.add)
    walks = case.variant == "persistent"
    computed = shared_byte(of, (case.capability // 10, 0), case.configuration, persistent=walks)
    if built.shared_byte > computed:
        found.append(f"{built.shared_byte} bytes of shared memory, {computed} computed")
    return found


def _faults_of_arithmetic(case: Case, built: Built) -> list[str]:
    expected = expected_instruction(case)
    units = ("HMMA", "QMMA", "IMMA", "HGMMA", "QGMMA", "IGMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA")
    others = [one for one in units if one != expected and built.count(one)]
    found = [f"no {expected}"] if not built.count(expected) else []
    found += [f"{expected} but also {others}"] if others else []
    return found + (["a matrix operand from registers"] if FROM_REGISTERS.search(built.ptx) else [])


def _faults_of_specialization(case: Case, built: Built) -> list[str]:
    found = []
    threads = re.search(r"\.reqntid (\d+)", built.ptx)
    if not threads or int(threads[1]) <= 32 * case.configuration.tile.warps or "setmaxnreg" not in built.ptx:
        found.append("all warps alike")
    under_way = set(re.findall(r"wgmma\.wait_group\.sync\.aligned\s+(\d+)", built.ptx)) - {"0"}
    if under_way:
        found.append(f"{max(under_way)} matrix instructions under way")
    return found


def main(everything: bool, few: bool) -> int:
    """Print the table; the number of faults."""
    listed = list(every() if everything else chosen())
    if few:
        listed = covering(listed, "compiled for descriptors", attrgetter("variant"))
    bad = 0
    print("variant      dtype       layout add     tile                     sm   regs  shared spills  kind")
    with ThreadPoolExecutor(2) as pool:
        for case, built in zip(listed, pool.map(compile_one, listed), strict=True):
            wrong = faults(case, built)
            bad += len(wrong)
            instruction = expected_instruction(case)
            print(
                f"{case.variant:12} {case.dtype:11} {case.layout:6} {case.add:7} {case.configuration!s:24} "
                f"{case.capability:<4} {built.registers:4} {built.shared_byte:7} {built.spills:6}  "
                f"{built.count(instruction)} {instruction} {'; '.join(wrong)}",
                flush=True,
            )
    print(f"{len(listed)} compiled, {bad} faults")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main("--all" in sys.argv[1:], "--drawn" in sys.argv[1:]) else 0)
