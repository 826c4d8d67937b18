"""The four kernels of batch normalization in two passes over x, [images, channels, plane], contiguous.

A program takes one channel, block by block (below). Where channels alone would leave most of the device
idle, `parts` programs share one, block p, p + parts, p + 2 parts... for program p, and the last to finish
adds up their sums. Programs next to each other take channels next to each other, which are
neighbours in memory.

**Bytes moved**, S those of x: `statistics` reads S, `normalize` reads S and writes S: 3 S. Backward,
`gradient_sums` reads 2 S, `input_gradient` reads 2 S and writes S: 5 S. The second kernel of each pair walks
the first one's path backwards, from the last program's last block to the first's first, so that it begins
with what the cache still holds; it tells the cache to drop what it reads and writes. Besides: 16 bytes of a
channel for each program, and 16 for each of its partial sums.

**Bytes in flight.** stages - 1 blocks are under way, by asynchronous copies where they have 4 bytes on end;
2-byte elements of odd planes are loaded into registers (two_pass.py).

**Arithmetic** is float32 whatever the tensors hold, rounded once when stored.

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

from kernels.gemm.partial_sums import arrived

_SIZES = ["images", "channels", "parts"]
"""Integers that a compilation does not depend on."""
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
def _arrives_last(x_pointer, dy_pointer, centre, scratch, share, sizes, CUT: tl.constexpr):
    """Store both sums of this program's blocks, with d = x - centre: of d and d^2, or of dy and dy d.

    Whether all programs of the channel have now done so.
    """
    channel, part = share
    images, channels, parts = sizes
    partials_pointer, counter_pointer = scratch
    firsts = tl.full((CUT.rows,), 0.0, tl.float32)
    seconds = tl.full((CUT.rows,), 0.0, tl.float32)
    for block in tl.range(part, tl.cdiv(images * CUT.plane, CUT.rows), parts, num_stages=CUT.stages):
        offset, inside = elements(block, channel, images, channels, CUT)
        d = tl.load(x_pointer + offset, mask=inside, other=0.0).to(tl.float32) - centre
        if dy_pointer is None:
            d = tl.where(inside, d, 0.0)
            firsts += d
            seconds += d * d
        else:
            dy = tl.load(dy_pointer + offset, mask=inside, other=0.0).to(tl.float32)
            firsts += dy
            seconds += dy * d
    mine = partials_pointer + channel.to(tl.int64) * parts + part
    tl.store(mine, tl.sum(firsts, axis=0))
    tl.store(mine + tl.cast(channels, tl.int64) * parts, tl.sum(seconds, axis=0))
    return arrived(counter_pointer + channel, parts)


@triton.jit
def _totals(partials_pointer, channel, channels, parts):
    """Both sums of a channel over all of its programs."""
    second = partials_pointer + tl.cast(channels, tl.int64) * parts
    return total_of(partials_pointer, channel, parts), total_of(second, channel, parts)


@triton.jit(do_not_specialize=_SIZES)
def statistics(
    x_pointer,  # [images, channels, PLANE], contiguous
    partials_pointer,  # [2, channels, parts]
    counter_pointer,  # [channels], int32; 0 before and after
    mean_pointer,  # [channels], written
    rstd_pointer,  # [channels], written
    running_mean_pointer,  # [channels], updated
    running_variance_pointer,  # [channels], updated
    images,
    channels,
    parts,  # programs of each channel
    EPSILON: tl.constexpr,
    MOMENTUM: tl.constexpr,
    CUT: tl.constexpr,
):
    """Mean, 1/deviation and running statistics of every channel. Grid: channels x parts, channels fastest."""
    channel, part = tl.program_id(0) % channels, tl.program_id(0) // channels
    shift = tl.load(x_pointer + channel.to(tl.int64) * CUT.plane).to(tl.float32)
    scratch, sizes = (partials_pointer, counter_pointer), (images, channels, parts)
    if _arrives_last(x_pointer, None, shift, scratch, (channel, part), sizes, CUT):
        sum_d, sum_dd = _totals(partials_pointer, channel, channels, parts)
        m = tl.cast(images * CUT.plane, tl.float32)
        delta = sum_d / m
        mean = shift + delta
        variance = sum_dd / m - delta * delta
        variance = tl.where(variance < 0.0, 0.0, variance)  # a maximum would hide NaN
        tl.store(mean_pointer + channel, mean)
        tl.store(rstd_pointer + channel, 1.0 / tl.sqrt_rn(variance + EPSILON))
        running = tl.load(running_mean_pointer + channel)
        tl.store(running_mean_pointer + channel, running + MOMENTUM * (mean - running))
        running = tl.load(running_variance_pointer + channel)
        unbiased = variance * (m / (m - 1.0))
        tl.store(running_variance_pointer + channel, running + MOMENTUM * (unbiased - running))


@triton.jit(do_not_specialize=_SIZES)
def gradient_sums(
    x_pointer,  # [images, channels, PLANE], contiguous
    dy_pointer,  # the same
    partials_pointer,  # [2, channels, parts]
    counter_pointer,  # [channels], int32; 0 before and after
    mean_pointer,  # [channels]
    rstd_pointer,  # [channels]
    dweight_pointer,  # [channels], written
    dbias_pointer,  # [channels], written
    images,
    channels,
    parts,
    CUT: tl.constexpr,
):
    """dbias = sum dy, dweight = sum dy (x - mean) / deviation. Grid: as `statistics`."""
    channel, part = tl.program_id(0) % channels, tl.program_id(0) // channels
    mean = tl.load(mean_pointer + channel)
    scratch, sizes = (partials_pointer, counter_pointer), (images, channels, parts)
    if _arrives_last(x_pointer, dy_pointer, mean, scratch, (channel, part), sizes, CUT):
        sum_dy, sum_dyx = _totals(partials_pointer, channel, channels, parts)
        rstd = tl.load(rstd_pointer + channel)
        tl.store(dweight_pointer + channel, sum_dyx * rstd)
        tl.store(dbias_pointer + channel, sum_dy)


@triton.jit
def _store_backwards(pointers, factors, share, sizes, CUT: tl.constexpr):
    """y = (x - mean) a + b, or dx = a (dy - b - (x - mean) k): this program's blocks from the last on."""
    out_pointer, x_pointer, dy_pointer = pointers
    mean, a, b, k = factors
    channel, part = share
    images, channels, parts = sizes
    steps = tl.cdiv(tl.cdiv(images * CUT.plane, CUT.rows) - part, parts)
    for step in tl.range(0, steps, num_stages=CUT.stages):
        offset, inside = elements(part + (steps - 1 - step) * parts, channel, images, channels, CUT)
        x = tl.load(x_pointer + offset, mask=inside, other=0.0, eviction_policy="evict_first")
        if dy_pointer is None:
            out = (x.to(tl.float32) - mean) * a + b
        else:
            dy = tl.load(dy_pointer + offset, mask=inside, other=0.0, eviction_policy="evict_first")
            out = a * (dy.to(tl.float32) - b - (x.to(tl.float32) - mean) * k)
        out = out.to(out_pointer.dtype.element_ty)
        tl.store(out_pointer + offset, out, mask=inside, eviction_policy="evict_first")


@triton.jit(do_not_specialize=_SIZES)
def normalize(
    x_pointer,  # [images, channels, PLANE], contiguous
    y_pointer,  # the same; every element is written once
    mean_pointer,  # [channels]
    spread_pointer,  # [channels]: variance if FROM_VARIANCE, else 1/deviation
    weight_pointer,  # [channels]
    bias_pointer,  # [channels]
    images,
    channels,
    parts,
    EPSILON: tl.constexpr,
    FROM_VARIANCE: tl.constexpr,
    CUT: tl.constexpr,
):
    """y = (x - mean) weight / deviation + bias, on the path of `statistics` but backwards.

    Not a x + (b - a mean), which is one addition less and loses the digits that mean and x have in common.
    """
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    channel, part = program % channels, program // channels
    mean = tl.load(mean_pointer + channel)
    rstd = tl.load(spread_pointer + channel)
    if FROM_VARIANCE:
        rstd = 1.0 / tl.sqrt_rn(rstd + EPSILON)
    a = rstd * tl.load(weight_pointer + channel)
    b = tl.load(bias_pointer + channel)
    factors = mean, a, b, None
    pointers = y_pointer, x_pointer, None
    _store_backwards(pointers, factors, (channel, part), (images, channels, parts), CUT)


@triton.jit(do_not_specialize=_SIZES)
def input_gradient(
    x_pointer,  # [images, channels, PLANE], contiguous
    dy_pointer,  # the same
    dx_pointer,  # the same; every element is written once
    mean_pointer,  # [channels]
    rstd_pointer,  # [channels]
    weight_pointer,  # [channels]
    dweight_pointer,  # [channels]
    dbias_pointer,  # [channels]
    images,
    channels,
    parts,
    CUT: tl.constexpr,
):
    """dx from the channels' sums, which are stored already, on the path of `gradient_sums` but backwards."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    channel, part = program % channels, program // channels
    m = tl.cast(images * CUT.plane, tl.float32)
    mean = tl.load(mean_pointer + channel)
    rstd = tl.load(rstd_pointer + channel)
    a = rstd * tl.load(weight_pointer + channel)
    mean_dy = tl.load(dbias_pointer + channel) / m
    k = tl.load(dweight_pointer + channel) * rstd / m
    factors = mean, a, mean_dy, k
    pointers = dx_pointer, x_pointer, dy_pointer
    _store_backwards(pointers, factors, (channel, part), (images, channels, parts), CUT)
