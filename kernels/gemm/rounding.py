"""What rounding explains of the errors of a matrix product."""

import math

from kernels.gemm.problem import SCALED, Gemm
from kernels.rounding import UNIT_ROUNDOFF, UNLIKELY, high, low

_TO_8_BITS = 2.0**-4
"""The most by which rounding a normal number to float8_e4m3 is off, as a fraction of it."""


def tolerance(problem: Gemm, implementation: str) -> float:
    """The largest |error| that rounding explains, as a fraction of the largest |D|.

    Operands are uniform in [-1, 1], so a product has variance 1/9, and an element of D is close to a
    normal variable of standard deviation s = sqrt(k)/3, more if C is added. Of m n batch such elements the
    largest is at least `low` s but once in 10,000 runs; the bounds on errors below hold as often.

    * Rounding D to its type: at most u |D|, u the unit roundoff.
    * Summing in float32 (float64), u' = 2^-24 (2^-53): each of k additions is off by up to u' of the
      partial sum, evenly spread. Where D is q s, the sum grows to q s, and the errors add up to one of
      standard deviation u' sqrt(k)/3 q s. q times another normal variable, largest of m n: ln(m n 10^4).
      That is one running sum; libraries sum in blocks and stay well below. For float64 the reference errs
      as much: sqrt(2) more.
    * Tensor cores cut off instead of rounding, once in every 16 terms (8 of tf32), up to 2 u' of the
      partial sum and always towards zero: at most u' k/16 (k/8) of the largest |D|.
    * Of float8_e4m3 Hopper's keep 14 bits of a sum, cut off once in every 32 terms: at most 2^-13 k/32.
    * tf32 cuts each operand to 10 bits, by up to 2^-10 of it: a product by up to 2^-9. Over a random sum
      the mean of that, 6.3e-4, is a bias of D; what scatters about it, 2.8e-4 s, is normal: `high`.
    * Before C is added a library may round the product, at most `high` s, to D's type; ours does not.
    * int8 is exact.
    * Where an implementation rounds 16-bit operands to 8 bits, each is off by at most `_TO_8_BITS` of it,
      which over a random sum is an error of at most sqrt(2) times as much of s.
    """
    if problem.dtype == "int8":
        return 0.0
    elements = problem.m * problem.n * problem.batch
    largest, of_largest = low(elements), high(elements) / low(elements)

    error = UNIT_ROUNDOFF.get(problem.output_dtype, 0.0)
    of_sum = UNIT_ROUNDOFF["float64" if problem.dtype == "float64" else "float32"]
    if problem.beta:
        ours = implementation.startswith("triton")
        error += (of_sum if ours else error) * of_largest
    if implementation == "cublas-quantized":
        error += 2 * _TO_8_BITS * of_largest + 2.0**-13 * problem.k / 32
    if problem.k == 1:  # one product, no sum
        return error + 2.0**-9 * (problem.dtype == "tf32") + 3 * of_sum * (problem.dtype in SCALED)
    sums = 2 if problem.dtype == "float64" else 1
    error += of_sum * math.sqrt(sums * problem.k) / 3 * math.log(elements / UNLIKELY) / largest
    if problem.dtype in SCALED:
        error += 2.0**-13 * problem.k / 32
    elif implementation != "onednn" and problem.dtype in ("float16", "bfloat16", "tf32"):
        error += of_sum * problem.k / (8 if problem.dtype == "tf32" else 16)
    if problem.dtype == "tf32":
        error += 6.3e-4 + 2.8e-4 * of_largest
    return error
