"""GEMM on Hopper, as `losses.py` shows it: triton-gluon beside the kernels that Triton's compiler arranges.

`loops` are those that start matrix instructions, each of warps of its own: while the warps of one are out of
it, to write their tile, only others can keep the units busy. `under way`: groups of matrix instructions that
are not waited for at the end of a step. `copies`: bulk copies in that the same warps start within the loop.
`drains`: waits until every copy to D so far has left shared memory, each a stop of these warps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from bench.spec import Dtype
from kernels.gemm.problem import Layout
from tests.kernels.compiled import Built
from tests.kernels.losses import Form, Row

PRODUCT = ("HGMMA", "QGMMA")
TILES: tuple[tuple[Dtype, Layout, str, int, int], ...] = (
    ("bfloat16", "TN", "none", 256, 128),
    ("bfloat16", "TN", "none", 128, 256),
    ("bfloat16", "TN", "none", 128, 128),
    ("bfloat16", "NT", "none", 256, 128),
    ("bfloat16", "TN", "matrix", 256, 128),
    ("float8_e4m3", "TN", "none", 256, 128),
)
"""Type, layout, what is added, M x N."""


def losses() -> Iterator[Row]:
    """Each of TILES beside persistent.py; three also beside specialized.py, which has no others."""
    for dtype, layout, add, m, n in TILES:
        what = f"{dtype} {layout}, tiles of {m}x{n}, adds {add}, sm_90"
        now = partial(in_gluon, dtype, layout, add, m, n)
        yield Row(what, now, partial(by_triton, "persistent", dtype, layout, add, m, n))
        if (dtype, layout, add) == ("bfloat16", "TN", "none"):
            before = partial(by_triton, "specialized", dtype, layout, add, m, n)
            yield Row(f"{what}, warps specialized", now, before)


def in_gluon(dtype: Dtype, layout: Layout, add: str, m: int, n: int) -> Form:
    """The first schedule of this tile."""
    from tests.kernels.gemm_gluon_compiled import compile_one, every

    asked = (dtype, layout, add, f"{m}x{n}")
    case = next(one for one in every() if (one.dtype, one.layout, one.add, one.shape) == asked)
    return Form("gemm.gluon_hopper", str(case.schedule), partial(compile_one, case), note=overlap)


def by_triton(variant: str, dtype: Dtype, layout: Layout, add: str, m: int, n: int) -> Form:
    """The first configuration of this tile whose steps are as long."""
    from tests.kernels.gemm_tma_compiled import cases, compile_one

    begin = f"{m}x{n}x{128 if dtype == 'float8_e4m3' else 64} "
    case = next(
        one for one in cases(variant, 90, dtype, layout, add) if str(one.configuration).startswith(begin)
    )
    return Form(f"gemm.{variant}", str(case.configuration), partial(compile_one, case), note=overlap)


def overlap(built: Built | None) -> str:
    """What runs beside what (module docstring)."""
    from tests.kernels.gemm_gluon_compiled import innermost

    assert built
    loops = [loop for loop in innermost(built.program) if any(line.name.startswith(PRODUCT) for line in loop)]
    copies = sum(line.name.startswith("UTMALDG") for loop in loops for line in loop)
    waits = [line.operands for loop in loops for line in loop if line.name.startswith("WARPGROUP.DEPBAR")]
    left = max((int(one.rpartition("0x")[2], 16) for one in waits), default=0)
    # A descriptor that the kernel makes is waited for by the same instruction.
    drains = len(re.findall(r"cp\.async\.bulk\.wait_group\.read\s+0", built.ptx))
    drains -= built.ptx.count("tensormap.cp_fenceproxy")
    threads = re.search(r"\.reqntid (\d+)", built.ptx)
    return (
        f"{threads[1] if threads else '?'} threads, {len(loops)} loops, {left} under way, {copies} copies, "
        f"{drains} drains, {built.count('UTMASTG')} stores"
    )
