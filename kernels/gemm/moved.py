"""Bytes that an implementation of GEMM moves, where that is more, or less, than each operand and D once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kernels.gemm.problem import Gemm


class Moved(NamedTuple):
    """Of one launch; as `bench.spec.Problem` has them: byte_moved, byte_again, moved_written, byte_beside."""

    byte: int
    again: int
    written: int
    beside: int | None = None


def moved(problem: Gemm, implementation: str) -> Moved:
    """What `implementation` moves.

    * torch.addmm with out= copies C to D before it adds to D: m n written, and read again right after.
    * cuSPARSELt reads half of A's elements, and two bits for each of those that say where it was.
    * Quantising reads B twice and writes a byte for each element, which is read again; A has one byte each.
    * Turning reads what is not K-major, and writes it to a workspace, which is read again.
    """
    byte, written = problem.byte, problem.byte_written
    if implementation == "cusparselt":
        of_a = problem.m * problem.k
        return Moved(byte - of_a * problem.item_byte // 2 + of_a // 8, 0, written)
    if implementation == "cublas-quantized":
        of_a, of_b = problem.m * problem.k, problem.n * problem.k
        again = of_b * (problem.item_byte + 1)
        return Moved(byte - of_a + again + of_b, again, written + of_b)
    if implementation == "triton-turned":
        turned = problem.turned_byte
        return Moved(byte + 2 * turned, turned, written + turned, beside=2 * turned)
    if problem.beta and implementation in ("cublas", "onednn"):
        return Moved(byte + 2 * written, written, 2 * written)
    return Moved(byte, 0, written)
