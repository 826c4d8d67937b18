"""GEMM on Blackwell, as `losses.py` shows it: triton-gluon beside what Triton's compiler arranges.

`a step` is the loop that starts matrix instructions: its instructions, and its barriers of all warps. `B an
SM`: what an SM brings of both operands in a step. `FLOP/B`: what it computes with each such byte. An SM whose
matrix units compute 8192 FLOP of 16-bit types a cycle (2250 TFLOP/s by 148 SMs at 1.86 GHz) asks L2 for 96
bytes a cycle at 85 FLOP/B and for 64 at 128. In flight: the stages' bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.spec import Dtype
from kernels.gemm.tiles import Tile
from tests.kernels.compiled import Built
from tests.kernels.losses import Form, Row


def losses() -> Iterator[Row]:
    """The largest tiles of each type: by pairs of blocks and by blocks alone."""
    for dtype in ("float16", "float8_e4m3"):
        for variant in ("persistent", "specialized") if dtype == "float16" else ("persistent",):
            for blocks in (2, 1):
                yield Row(
                    f"{dtype} TN, c{blocks}, beside {variant}, sm_100",
                    partial(in_gluon, dtype, blocks),
                    partial(by_triton, variant, dtype),
                )
    for dtype in ("mxfp8", "nvfp4"):
        yield Row(f"{dtype} TN, c1, sm_100", partial(in_gluon, dtype, 1))


def in_gluon(dtype: Dtype, blocks: int) -> Form:
    from tests.kernels.gemm_gluon_blackwell_compiled import cases, compile_one

    listed = cases(dtype, "TN", "none")
    case = next(one for one in listed if (one.schedule.tile.m, one.schedule.blocks) == (256, blocks))
    module = "gluon_scaled_warps" if case.scaled else "gluon_blackwell_warps"
    return Form(
        f"gemm.{module}.multiply",
        str(case.schedule),
        partial(compile_one, case),
        in_flight=partial(_in_flight, case.schedule.tile, blocks),
        note=partial(step, case.schedule.tile, blocks),
    )


def by_triton(variant: str, dtype: Dtype) -> Form:
    from tests.kernels.gemm_tma_compiled import cases, compile_one

    for case in cases(variant, 100, dtype, "TN", "none"):
        tile = case.configuration if variant == "persistent" else case.configuration.tile
        if (tile.m, tile.n) == (256, 128):
            return Form(
                f"gemm.{variant}",
                str(case.configuration),
                partial(compile_one, case),
                in_flight=partial(_in_flight, tile, 1),
                note=partial(step, tile, 1),
            )
    raise LookupError(f"{variant} has no tile of 256 x 128 for {dtype}")


def step_byte(tile: Tile, blocks: int) -> int:
    """What an SM brings of A and B in a step: 128 bytes of each row, whatever the type."""
    return (tile.m + tile.n) // blocks * 128


def _in_flight(tile: Tile, blocks: int, built: Built) -> float:
    return tile.stages * step_byte(tile, blocks)


def step(tile: Tile, blocks: int, built: Built | None) -> str:
    """What one step along K is (module docstring)."""
    from tests.kernels.gemm_gluon_compiled import innermost

    assert built
    loops = [one for one in innermost(built.program) if any("MMA" in line.name for line in one)]
    loop = max(loops, key=len)
    barriers = sum(line.name.startswith("BAR") for line in loop)
    byte = step_byte(tile, blocks)
    flop = 2 * tile.m * tile.n // blocks * tile.k
    return (
        f"a step {len(loop)} instructions, {barriers} barriers; {byte} B an SM, {flop / byte:.0f} FLOP/B; "
        f"{built.tensor_columns} columns of tensor memory"
    )
