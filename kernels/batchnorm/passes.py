"""The four kernels of batch normalization in two passes over x, for every layout.

**One tensor.** x is [images, channels, PLANE], contiguous. NCHW is that with PLANE = h w; NHWC is that too,
with n h w images of one element a channel. A program takes a group of channels, block by block (blocks.py).

Where groups of channels alone would leave most of the device idle, `parts` programs share one, block p,
p + parts, p + 2 parts... for program p, and the last to finish adds up their sums (channel.py). Programs next
to each other take channels next to each other, which are neighbours in memory.

**Bytes moved**, S those of x: `statistics` reads S, `normalize` reads S and writes S: 3 S. Backward,
`gradient_sums` reads 2 S, `input_gradient` reads 2 S and writes S: 5 S. The second kernel of each pair walks
the first one's path backwards, from the last program's last block to the first's first, so that it begins
with what the cache still holds; it tells the cache to drop what it reads and writes. Besides: 16 bytes of a
channel for each program, and 16 for each of its partial sums.

**Alignment.** Rows begin at multiples of c elements, so accesses are 16 bytes wide only if the compiler knows
that c is a multiple of 8 (16-bit types) or 4: `Cut.align`. Masks along the columns then
hold for whole vectors. An odd c makes accesses of one element.

**Bytes in flight.** stages - 1 blocks are under way, by asynchronous copies where they have 4 bytes on end;
2-byte elements of odd rows or planes are loaded into registers (two_pass.py). Blocks that are whole have a
loop of their own: without masks along the images it has a tenth to a quarter fewer instructions. The ragged
block is the last of its program either way.

**Arithmetic** is float32 whatever the tensors hold, rounded once when stored.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import triton
import triton.language as tl

from kernels.batchnorm.blocks import collected, elements, own, share_of, spread, total_of, whole_blocks, zeros
from kernels.batchnorm.channel import arrives_last, finish_statistics

_SIZES = ["images", "channels", "parts"]
"""Integers that a compilation does not depend on."""


@triton.jit
def _terms(x_pointer, dy_pointer, centre, block, group, sizes, CUT: tl.constexpr, WHOLE: tl.constexpr):
    """What a block adds to both sums of its channels, with d = x - centre: d and d^2, or dy and dy d."""
    images, channels, _ = sizes
    first, offset, inside = elements(block, group, images, channels, CUT, WHOLE)
    d = tl.load(x_pointer + first + offset, mask=inside, other=0.0).to(tl.float32) - centre
    if dy_pointer is None:
        if not WHOLE:  # else only columns of no channel are missing, whose shift is 0 too
            d = tl.where(inside, d, 0.0)
        terms = d, d * d
    else:
        dy = tl.load(dy_pointer + first + offset, mask=inside, other=0.0).to(tl.float32)
        terms = dy, dy * d
    return terms


@triton.jit
def _sums(x_pointer, dy_pointer, centre, share, sizes, CUT: tl.constexpr):
    """Both sums of the channels over this program's blocks."""
    group, part = share
    images, _, parts = sizes
    firsts = zeros(CUT)
    seconds = zeros(CUT)
    whole = whole_blocks(images, CUT)
    for block in tl.range(part, whole, parts, num_stages=CUT.stages):
        first, second = _terms(x_pointer, dy_pointer, centre, block, group, sizes, CUT, True)
        firsts += first
        seconds += second
    if whole % parts == part:
        first, second = _terms(x_pointer, dy_pointer, centre, whole, group, sizes, CUT, False)
        firsts += first
        seconds += second
    return collected(firsts, CUT), collected(seconds, CUT)


@triton.jit(do_not_specialize=_SIZES)
def statistics(
    x_pointer,  # [images, channels, PLANE], contiguous
    partials_pointer,  # [2, channels * parts] (`own`)
    counter_pointer,  # [groups], int32; 0 before and after
    mean_pointer,  # [channels], written
    rstd_pointer,  # [channels], written
    running_mean_pointer,  # [channels], updated
    running_variance_pointer,  # [channels], updated
    images,
    channels,
    parts,  # programs of each group
    EPSILON: tl.constexpr,
    MOMENTUM: tl.constexpr,
    CUT: tl.constexpr,
):
    """Mean, 1/deviation and running statistics of every channel. Grid: groups x parts, groups fastest."""
    channels = channels // CUT.align * CUT.align  # changes no value, tells the compiler what divides it
    group, part, channel, exists = share_of(tl.program_id(0), channels, CUT)
    shift = tl.load(x_pointer + channel.to(tl.int64) * CUT.plane, mask=exists, other=0.0).to(tl.float32)
    sums = _sums(x_pointer, None, spread(shift, CUT), (group, part), (images, channels, parts), CUT)
    mine = own(partials_pointer, channel, part, channels, parts, CUT)
    second = tl.cast(channels, tl.int64) * parts
    tl.store(mine, sums[0], mask=exists)
    tl.store(mine + second, sums[1], mask=exists)
    if arrives_last(counter_pointer + group, parts):
        sum_d = total_of(partials_pointer, channel, channels, parts, CUT)
        sum_dd = total_of(partials_pointer + second, channel, channels, parts, CUT)
        pointers = mean_pointer, rstd_pointer, running_mean_pointer, running_variance_pointer
        count = images * CUT.plane
        finish_statistics(channel, exists, shift, sum_d, sum_dd, count, pointers, EPSILON, MOMENTUM)


@triton.jit(do_not_specialize=_SIZES)
def gradient_sums(
    x_pointer,  # [images, channels, PLANE], contiguous
    dy_pointer,  # the same
    partials_pointer,  # [2, channels * parts] (`own`)
    counter_pointer,  # [groups], int32; 0 before and after
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
    channels = channels // CUT.align * CUT.align
    group, part, channel, exists = share_of(tl.program_id(0), channels, CUT)
    mean = spread(tl.load(mean_pointer + channel, mask=exists, other=0.0), CUT)
    sums = _sums(x_pointer, dy_pointer, mean, (group, part), (images, channels, parts), CUT)
    mine = own(partials_pointer, channel, part, channels, parts, CUT)
    second = tl.cast(channels, tl.int64) * parts
    tl.store(mine, sums[0], mask=exists)
    tl.store(mine + second, sums[1], mask=exists)
    if arrives_last(counter_pointer + group, parts):
        sum_dy = total_of(partials_pointer, channel, channels, parts, CUT)
        sum_dyx = total_of(partials_pointer + second, channel, channels, parts, CUT)
        rstd = tl.load(rstd_pointer + channel, mask=exists, other=0.0)
        tl.store(dweight_pointer + channel, sum_dyx * rstd, mask=exists)
        tl.store(dbias_pointer + channel, sum_dy, mask=exists)


@triton.jit
def _store(pointers, factors, block, group, sizes, CUT: tl.constexpr, WHOLE: tl.constexpr):
    """A block of what `_store_backwards` stores."""
    out_pointer, x_pointer, dy_pointer = pointers
    mean, a, b, k = factors
    images, channels, _ = sizes
    first, offset, inside = elements(block, group, images, channels, CUT, WHOLE)
    x = tl.load(x_pointer + first + offset, mask=inside, other=0.0, eviction_policy="evict_first")
    if dy_pointer is None:
        out = (x.to(tl.float32) - mean) * a + b
    else:
        dy = tl.load(dy_pointer + first + offset, mask=inside, other=0.0, eviction_policy="evict_first")
        out = a * (dy.to(tl.float32) - b - (x.to(tl.float32) - mean) * k)
    out = out.to(out_pointer.dtype.element_ty)
    tl.store(out_pointer + first + offset, out, mask=inside, eviction_policy="evict_first")


@triton.jit
def _store_backwards(pointers, factors, share, sizes, CUT: tl.constexpr):
    """y = (x - mean) a + b, or dx = a (dy - b - (x - mean) k): this program's blocks from the last on."""
    group, part = share
    images, _, parts = sizes
    whole = whole_blocks(images, CUT)
    if whole % parts == part:
        _store(pointers, factors, whole, group, sizes, CUT, False)
    steps = tl.cdiv(whole - part, parts)
    for step in tl.range(0, steps, num_stages=CUT.stages):
        _store(pointers, factors, part + (steps - 1 - step) * parts, group, sizes, CUT, True)


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
    channels = channels // CUT.align * CUT.align
    group, part, channel, exists = share_of(tl.num_programs(0) - 1 - tl.program_id(0), channels, CUT)
    mean = tl.load(mean_pointer + channel, mask=exists, other=0.0)
    rstd = tl.load(spread_pointer + channel, mask=exists, other=1.0)
    if FROM_VARIANCE:
        rstd = 1.0 / tl.sqrt_rn(rstd + EPSILON)
    a = rstd * tl.load(weight_pointer + channel, mask=exists, other=0.0)
    b = tl.load(bias_pointer + channel, mask=exists, other=0.0)
    factors = spread(mean, CUT), spread(a, CUT), spread(b, CUT), None
    pointers = y_pointer, x_pointer, None
    _store_backwards(pointers, factors, (group, part), (images, channels, parts), CUT)


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
    channels = channels // CUT.align * CUT.align
    group, part, channel, exists = share_of(tl.num_programs(0) - 1 - tl.program_id(0), channels, CUT)
    m = tl.cast(images * CUT.plane, tl.float32)
    mean = tl.load(mean_pointer + channel, mask=exists, other=0.0)
    rstd = tl.load(rstd_pointer + channel, mask=exists, other=0.0)
    a = rstd * tl.load(weight_pointer + channel, mask=exists, other=0.0)
    mean_dy = tl.load(dbias_pointer + channel, mask=exists, other=0.0) / m
    k = tl.load(dweight_pointer + channel, mask=exists, other=0.0) * rstd / m
    factors = spread(mean, CUT), spread(a, CUT), spread(mean_dy, CUT), spread(k, CUT)
    pointers = dx_pointer, x_pointer, dy_pointer
    _store_backwards(pointers, factors, (group, part), (images, channels, parts), CUT)
