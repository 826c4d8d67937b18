"""What the tolerances of all operators are built of: unit roundoffs, and the largest of random values."""

import math
from collections.abc import Mapping
from statistics import NormalDist

UNIT_ROUNDOFF: Mapping[str, float] = {
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "tf32": 2.0**-24,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}
"""Half the distance from 1 to the next number of the type in which results are stored; tf32's are float32."""
FLOAT32 = UNIT_ROUNDOFF["float32"]
TF32_CUT = 2.0**-10
"""What is cut off a float32 that becomes a tf32, at most, as a fraction of it."""
UNLIKELY = 1e-4
"""How often a bound that is derived from random inputs may fail."""


def exact(problem: object, implementation: str) -> float:
    """The tolerance of what rounds nothing: 0."""
    return 0.0


def low(count: float) -> float:
    """What the largest |value| of `count` standard normal variables exceeds but once in 10,000 runs."""
    return -NormalDist().inv_cdf(-math.expm1(math.log(UNLIKELY) / count) / 2)


def high(count: float) -> float:
    """What the largest |value| of `count` standard normal variables stays below but once in 10,000 runs."""
    return -NormalDist().inv_cdf(UNLIKELY / (2 * count))


def reach(elements: int) -> float:
    """The largest of so many normal errors over the largest of half as many normal values, of deviation 1."""
    return high(elements) / low(elements / 2)
