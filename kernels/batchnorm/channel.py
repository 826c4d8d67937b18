"""How the two passes of batch normalization cut a channel into blocks, and what they do with its sums.

**Blocks.** x is [images, channels, plane], contiguous. A block is `rows` elements of one channel, its planes
strung together: element j lies at position j % plane of image j / plane. So no lane idles however small a
plane is, and plane is a compile-time constant: the division is a multiplication, and the compiler sees how
many elements on end are contiguous and aligned. Where 16 bytes divide a plane, every access is 16 bytes wide;
for 14 x 14 of float16 it is 8; for 7 x 7 it is 2, since planes begin anywhere.

**Sums about a shift.** The forward sums are of d = x - shift and of d^2, where the shift is the channel's
first element: like any value of the channel it is near the mean, as the deviation measures it, so that

    mean = shift + sum d / m        variance = sum d^2 / m - (sum d / m)^2

subtracts numbers of the size of the variance. About 0 they would be of the size of mean^2, and a mean of 1000
with a deviation of 2 would leave a float32 variance without a correct digit.

**The last program finishes.** Programs that share a channel write their sums into `partials` and count
themselves on the channel's counter. Whoever arrives last adds up the partials, always in the same order: no
third launch, no program waits for another, no atomic addition of data, and the same bits every time. It also
sets the counter back to 0, so that the next launch finds it so.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from typing import NamedTuple

import triton
import triton.language as tl

TAKEN = tl.constexpr(128)
"""Partials of a channel added up at once."""


class Cut(NamedTuple):
    """How a kernel is compiled to cut x: CUT."""

    plane: int
    rows: int
    """Elements of a block."""
    stages: int = 1


@triton.jit
def elements(block, channel, images, channels, CUT: tl.constexpr):
    """Offsets of a block's elements, 64-bit, and which exist."""
    j = block * CUT.rows + tl.arange(0, CUT.rows)
    plane = (j // CUT.plane).to(tl.int64) * channels + channel  # of all; times their size beyond 32 bits
    return plane * CUT.plane + j % CUT.plane, j < images * CUT.plane


@triton.jit
def total_of(partials_pointer, channel, parts):
    """Sum of a channel's partials, [channels, parts], past the first-level cache."""
    taken = tl.arange(0, TAKEN)
    total = tl.zeros((TAKEN,), tl.float32)
    for start in range(0, parts, TAKEN):
        place = partials_pointer + channel.to(tl.int64) * parts + start + taken
        total += tl.load(place, mask=start + taken < parts, other=0.0, cache_modifier=".cg")
    return tl.sum(total, axis=0)


@triton.jit
def finish_statistics(
    channel, shift, sum_d, sum_dd, count, pointers, EPSILON: tl.constexpr, MOMENTUM: tl.constexpr
):
    """Store mean and 1/deviation of a channel of `count` elements, move the running statistics.

    `pointers`, all to [c], are of mean, 1/deviation, running mean and running variance.
    """
    mean_pointer, rstd_pointer, running_mean_pointer, running_variance_pointer = pointers
    m = tl.cast(count, tl.float32)
    delta = sum_d / m
    mean = shift + delta
    variance = sum_dd / m - delta * delta
    variance = tl.where(variance < 0.0, 0.0, variance)  # a maximum would hide NaN
    rstd = 1.0 / tl.sqrt_rn(variance + EPSILON)
    tl.store(mean_pointer + channel, mean)
    tl.store(rstd_pointer + channel, rstd)
    running = tl.load(running_mean_pointer + channel)
    tl.store(running_mean_pointer + channel, running + MOMENTUM * (mean - running))
    running = tl.load(running_variance_pointer + channel)
    unbiased = variance * (m / (m - 1.0))
    tl.store(running_variance_pointer + channel, running + MOMENTUM * (unbiased - running))
