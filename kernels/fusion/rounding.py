"""What rounding explains of a chain's error: the tolerance, fused and unfused."""

import math

from kernels.fusion.problem import EPSILON, Fusion
from kernels.rounding import FLOAT32, UNIT_ROUNDOFF, UNLIKELY


def tolerance(problem: Fusion, implementation: str) -> float:
    """The largest |error| that rounding explains, as a fraction of the largest |value| of an output.

    Inputs are uniform in [-1, 1]. v = 2^-24 is float32's unit roundoff, u that of the data type, and s what
    one step loses that computes in float32 and stores: s = u + v, or v where the type is float32.

    * The last step loses s of each y. That is all of bias and of residual.
    * Between steps, an unfused chain loses s of the intermediate value, a fused one v. A sum of two inputs
      is below 2, so it is off by at most half the distance of numbers below 2, s (v) itself; one of three
      is below 4, by at most 2 s (2 v). h is an output too, and Inductor may read it back: as unfused.
    * bias-residual: that, over the largest |y|. See `_largest_sum`.
    * gelu, layernorm: the value between enters a function. See `_gelu`, `_layernorm`.
    """
    u = UNIT_ROUNDOFF[problem.dtype]
    stored = u if problem.dtype == "float32" else u + FLOAT32
    unfused = implementation == "aten" or (implementation == "inductor" and problem.normalized)
    between = stored if unfused else FLOAT32
    match problem.chain:
        case "bias" | "residual":
            return stored
        case "bias-residual":
            return stored + between / _largest_sum(problem.elements)
        case "bias-gelu":
            return stored + _gelu(problem, between)
        case "residual-layernorm":
            return stored + _layernorm(problem, between, 2)
        case "bias-residual-layernorm":
            return stored + _layernorm(problem, 3 * between, 3)


def _largest_sum(elements: int) -> float:
    """What the largest |x + b + r| of so many exceeds, but once in 10,000 runs.

    |x + r| < t has probability t - t^2 / 4. Given b, |x + r + b| < t is at most as likely; and given b, the
    elements are independent, though they share b.
    """
    share = math.pow(UNLIKELY, 1 / elements)
    return 2 - 2 * math.sqrt(1 - share)


def _gelu(problem: Fusion, between: float) -> float:
    """What gelu makes of an argument off by `between`, with its own arithmetic.

    Its slope is at most 1.13. In float32 its value is off by at most 8 v of itself where positive (some ten
    roundings, damped), below 3 v where negative: 16 v in all. These are set against the largest y.

    Few elements may all be negative and small. Then each error is set against its own y: gelu enlarges
    relative errors, at most 3.8 times (at -2), and of 1 + tanh, down to 0.045, 64 v are lost.
    """
    of_itself = 3.8 * between + 64 * FLOAT32
    largest = _gelu_of(_largest_biased(problem.rows, problem.length))
    return min(of_itself, (1.13 * between + 16 * FLOAT32) / largest) if largest > 0 else of_itself


def _gelu_of(s: float) -> float:
    return 0.5 * s * (1 + math.tanh(math.sqrt(2 / math.pi) * (s + 0.044715 * s**3)))


def _largest_biased(rows: int, length: int) -> float:
    """What the largest x + b exceeds but once in 10,000 runs; 0 if it may be negative.

    x + b < q has, given b, probability p = (q - b + 1) / 2, at most 1; a column is below q with p^rows, of
    which the mean over b is q/2 + (1 - (q/2)^(rows + 1)) / (rows + 1). Columns are independent.
    """

    def all_below(q: float) -> float:
        column: float = q / 2 + (1 - (q / 2) ** (rows + 1)) / (rows + 1)
        return math.pow(column, length)

    low, high = 0.0, 2.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if all_below(middle) < UNLIKELY else (low, middle)
    return low


def _layernorm(problem: Fusion, between: float, addends: int) -> float:
    """What layernorm makes of an h off by `between`, the sum of two or three inputs; and its arithmetic.

    * h has variance 2/3 (1), a row of `length` of them once in 10,000 runs a smaller one. The mean of the
      squares, which are not negative, lies t below its expectation with probability at most
      exp(-length t^2 / 2 E[h^4]); the square of the mean is taken off, and that of sums of uniform values
      is bounded as a normal variable's. So the standard deviation is at least d.
    * (h - mean) / d is off by between / d; the errors of a row's other elements reach it through the mean
      and the deviation. They are independent, so their means are small: Hoeffding's inequality.
    * Six roundings from h to y, and the sum of squares, summed as a tree: log2(length) roundings, half of
      which its root sees. They are relative to |y - shift|, at most the largest |y| and 1.
    * y = weight (...) + shift. In half of the cases the signs agree and |y| is at least |shift|; so the
      largest |y| of a row is below t with probability ((1 + t) / 2)^length at most.
    """
    rows, length = problem.rows, problem.length
    mean_square, mean_fourth = addends / 3, addends**2 / 3 - 2 * addends / 15
    below = math.sqrt(2 * mean_fourth * math.log(rows / UNLIKELY) / length)
    mean = 2 * mean_square * math.log(2 * rows / UNLIKELY) / length
    deviation = math.sqrt(max(mean_square - below - mean, 0.0) + EPSILON)
    drift = math.sqrt(2 * math.log(4 * rows / UNLIKELY) / length)
    largest = 2 * math.pow(UNLIKELY, 1 / length) - 1
    reached = between / deviation * (1 + drift * (1 + addends / deviation))
    arithmetic = (6 + math.log2(length) / 2) * FLOAT32
    return reached / largest + arithmetic * (1 + 1 / largest)
