"""What rounding explains of the errors of a convolution: those of the matrix product that it is."""

from __future__ import annotations

import collections
import itertools

from bench.spec import Dtype
from kernels.convolution.problem import Axis, Convolution, Direction
from kernels.gemm.problem import Gemm
from kernels.gemm.rounding import tolerance as of_product
from kernels.rounding import FLOAT32


def tolerance(problem: Convolution, implementation: str) -> float | tuple[float, float]:
    """The largest |error| that rounding explains, as a fraction of the largest |value|; for dw and db each.

    That of the product by which the outputs with the most terms are computed. db is the product of dy with
    ones, summed in float32.

    For windows of 3 and 5 at stride 1 cuDNN may choose Winograd's algorithm, whose float32 sums err more; by
    how much NVIDIA does not say. The factor of 8 rests on a simulation of ours in float32 with 16 to 256
    channels: the largest error was 5 to 6 times that of direct sums for F(4x4, 3x3), 4 to 8 times for
    F(4x4, 5x5), half for F(2x2, 3x3), 9 to 16 times for F(6x6, 3x3). That cuDNN computes at most 4 x 4
    outputs at a time is assumed.
    """
    if problem.dtype == "int8":  # sums of integers are exact, until they are stored as float32
        return FLOAT32
    terms, elements = _most_terms(problem)
    sizes = {"m": elements, "n": 1, "k": terms, "beta": int(problem.adds_bias)}
    product = Gemm.model_validate({**sizes, "layout": "NN", "dtype": problem.dtype})
    allowed = of_product(product, implementation)
    steps = {problem.window_h, problem.window_w} <= {3, 5} and problem.stride == problem.dilation == 1
    if steps and problem.dtype == "float32" and implementation not in ("onednn", "triton"):
        allowed *= 8
    if not problem.sums_bias_gradient:
        return allowed
    kept: Dtype = "float32" if problem.dtype == "tf32" else problem.dtype
    ones = Gemm(m=problem.k, n=1, k=problem.n * problem.p * problem.q, layout="NN", dtype=kept)
    return allowed, of_product(ones, "onednn")


def _most_terms(problem: Convolution) -> tuple[int, int]:
    """Terms of the outputs that have the most, and how many outputs those are."""
    of_group = {
        "forward": problem.c // problem.groups,
        "activation_gradient": problem.k // problem.groups,
        "weight_gradient": problem.n,
    }[problem.direction]
    elements = {
        "forward": problem.n * problem.k,
        "activation_gradient": problem.n * problem.c,
        "weight_gradient": problem.k * problem.c // problem.groups,
    }[problem.direction]
    for axis in (problem.rows, problem.columns):
        counts = _counts(axis, problem.direction)
        most = max(counts)
        of_group *= most
        elements *= counts.count(most)
    return of_group, elements


def _counts(axis: Axis, direction: Direction) -> list[int]:
    """Terms along one axis of each output, of each point of the image, or of each tap."""
    meetings = [axis.meetings(tap) for tap in range(axis.window)]
    if direction == "weight_gradient":
        return [len(outputs) for outputs, _ in meetings]
    side = 0 if direction == "forward" else 1
    return list(collections.Counter(itertools.chain(*(pair[side] for pair in meetings))).values())
