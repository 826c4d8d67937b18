"""Why some implementations of GEMM do not do a problem, as sentences; empty where they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.gemm.problem import Gemm


def of_sparsity(problem: Gemm) -> str:
    """What cuSPARSELt asks for."""
    if problem.sparsity == "none":
        return "cusparselt multiplies matrices with sparsity=2of4 alone"
    of_a, of_n = (32, 16) if problem.dtype == "int8" else (16, 8)
    if problem.m % of_a or problem.k % of_a or problem.n % of_n:
        needs = f"m and k in multiples of {of_a} and n in multiples of {of_n}"
        return f"cusparselt takes {problem.dtype} with {needs}; given {problem.m} x {problem.n} x {problem.k}"
    return ""


def of_turning(problem: Gemm) -> str:
    """What `triton-turned` asks for: something to turn, by 16 bytes at a time, before and after."""
    if problem.layout == "TN":
        return "triton-turned turns operands that are not K-major; of layout TN none is"
    of_a, of_b = problem.layout
    sides = ("m",) * (of_a == "N") + ("n",) * (of_b == "T") + ("k",)
    step = 16 // problem.item_byte
    if any(getattr(problem, side) % step for side in sides):
        given = f"{problem.m} x {problem.n} x {problem.k} {problem.layout}"
        return f"triton-turned needs {', '.join(sides)} in multiples of 16 bytes; given {given}"
    return ""


def by_torch(problem: Gemm, implementation: str) -> str:
    """What torch's own entry points to 8-bit products ask for: `_scaled_mm` for floats, and `_int_mm`."""
    name = "_scaled_mm" if problem.dtype != "int8" else "_int_mm"
    given = f"given {problem.m} x {problem.n} x {problem.k} {problem.layout}"
    if problem.pitch == "padded" and problem.row_byte()[2] != problem.m * problem.output_item_byte:
        return f"torch.{name} writes rows without gaps; pitch=padded has some"
    if implementation == "onednn":
        # With transposed operands of one row or column torch 2.13 computes something else.
        single = 1 in (problem.m, problem.n, problem.k)
        return f"torch.{name} is not to be trusted with a size of 1 on a CPU; {given}" if single else ""
    if problem.dtype != "int8" and (problem.layout != "TN" or problem.m % 16 or problem.k % 16):
        return f"torch.{name} does layout TN with m and k in multiples of 16; {given}"
    if problem.dtype == "int8" and (problem.n <= 16 or problem.m % 8 or problem.k % 8):
        return f"torch.{name} needs n above 16, and m and k in multiples of 8; {given}"
    return ""
