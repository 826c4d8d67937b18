"""The largest of random values, as the tolerances of all operators take it, against its distribution."""

from __future__ import annotations

import math

import pytest

from kernels.rounding import UNLIKELY, high, low, reach


@pytest.mark.parametrize("count", [1, 2, 7, 4097, 10**6, 4 * 10**12, 10**18])
def test_the_largest_of_any_number_of_values_is_between_both_bounds(count: int) -> None:
    """All of them stay below `low`, and one of them lies above `high`, once in 10,000 runs."""
    all_below = count * math.log1p(-math.erfc(low(count) / math.sqrt(2)))
    assert all_below == pytest.approx(math.log(UNLIKELY), rel=1e-9)
    one_above = count * math.erfc(high(count) / math.sqrt(2))
    assert one_above == pytest.approx(UNLIKELY, rel=1e-9)
    assert low(count) < high(count) < reach(count) * high(count)
