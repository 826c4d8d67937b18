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
from kernels.batchnorm.channel import (
    arrives_last,
    finish_gradients,
    finish_statistics,
    scale_and_bias,
    slopes,
)

_SIZES = ["images", "channels", "parts"]
"""Integers that a compilation does not depend on."""


@triton.jit
def _add_deviations(
    sums, squares, x_pointer, shift, block, group, images, channels, CUT: tl.constexpr, WHOLE: tl.constexpr
):
    """Sums of d = x - shift and of d^2, with those of a block added; d is 0 where there is no element."""
    first, offset, inside = elements(block, group, images, channels, CUT, WHOLE)
    d = tl.load(x_pointer + first + offset, mask=inside, other=0.0).to(tl.float32) - shift
    if not WHOLE:  # else only columns of no channel are missing, whose shift is 0 too
        d = tl.where(inside, d, 0.0)
    return sums + d, squares + d * d


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
    of_channel = tl.load(x_pointer + channel.to(tl.int64) * CUT.plane, mask=exists, other=0.0).to(tl.float32)
    shift = spread(of_channel, CUT)
    sums = zeros(CUT)
    squares = zeros(CUT)
    whole = whole_blocks(images, CUT)
    for block in tl.range(part, whole, parts, num_stages=CUT.stages):
        sums, squares = _add_deviations(
            sums, squares, x_pointer, shift, block, group, images, channels, CUT, True
        )
    if whole % parts == part:
        sums, squares = _add_deviations(
            sums, squares, x_pointer, shift, whole, group, images, channels, CUT, False
        )
    mine = own(partials_pointer, channel, part, channels, parts, CUT)
    second = tl.cast(channels, tl.int64) * parts
    tl.store(mine, collected(sums, CUT), mask=exists)
    tl.store(mine + second, collected(squares, CUT), mask=exists)
    if arrives_last(counter_pointer + group, parts):
        sum_d = total_of(partials_pointer, channel, channels, parts, CUT)
        sum_dd = total_of(partials_pointer + second, channel, channels, parts, CUT)
        finish_statistics(
            channel, exists, of_channel, sum_d, sum_dd, images * CUT.plane, mean_pointer, rstd_pointer,
            running_mean_pointer, running_variance_pointer, EPSILON, MOMENTUM,
        )  # fmt: skip


@triton.jit
def _store_normalized(
    y_pointer, x_pointer, mean, a, b, block, group, images, channels, CUT: tl.constexpr, WHOLE: tl.constexpr
):
    """A block of y = (x - mean) a + b."""
    first, offset, inside = elements(block, group, images, channels, CUT, WHOLE)
    x = tl.load(x_pointer + first + offset, mask=inside, other=0.0, eviction_policy="evict_first")
    y = ((x.to(tl.float32) - mean) * a + b).to(y_pointer.dtype.element_ty)
    tl.store(y_pointer + first + offset, y, mask=inside, eviction_policy="evict_first")


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
    """y = (x - mean) weight / deviation + bias, on the path of `statistics` but backwards."""
    channels = channels // CUT.align * CUT.align
    group, part, channel, exists = share_of(tl.num_programs(0) - 1 - tl.program_id(0), channels, CUT)
    mean, a, b = scale_and_bias(
        channel, exists, mean_pointer, spread_pointer, weight_pointer, bias_pointer, EPSILON, FROM_VARIANCE
    )
    mean, a, b = spread(mean, CUT), spread(a, CUT), spread(b, CUT)
    whole = whole_blocks(images, CUT)
    if whole % parts == part:
        _store_normalized(y_pointer, x_pointer, mean, a, b, whole, group, images, channels, CUT, False)
    steps = tl.cdiv(whole - part, parts)
    for step in tl.range(0, steps, num_stages=CUT.stages):
        block = part + (steps - 1 - step) * parts
        _store_normalized(y_pointer, x_pointer, mean, a, b, block, group, images, channels, CUT, True)


@triton.jit
def _add_products(
    sums, products, x_pointer, dy_pointer, mean, block, group, images, channels, CUT: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """Sums of dy and of dy (x - mean), with those of a block added."""
    first, offset, inside = elements(block, group, images, channels, CUT, WHOLE)
    x = tl.load(x_pointer + first + offset, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_pointer + first + offset, mask=inside, other=0.0).to(tl.float32)
    return sums + dy, products + dy * (x - mean)


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
    sums = zeros(CUT)
    products = zeros(CUT)
    whole = whole_blocks(images, CUT)
    for block in tl.range(part, whole, parts, num_stages=CUT.stages):
        sums, products = _add_products(
            sums, products, x_pointer, dy_pointer, mean, block, group, images, channels, CUT, True
        )
    if whole % parts == part:
        sums, products = _add_products(
            sums, products, x_pointer, dy_pointer, mean, whole, group, images, channels, CUT, False
        )
    mine = own(partials_pointer, channel, part, channels, parts, CUT)
    second = tl.cast(channels, tl.int64) * parts
    tl.store(mine, collected(sums, CUT), mask=exists)
    tl.store(mine + second, collected(products, CUT), mask=exists)
    if arrives_last(counter_pointer + group, parts):
        sum_dy = total_of(partials_pointer, channel, channels, parts, CUT)
        sum_dyx = total_of(partials_pointer + second, channel, channels, parts, CUT)
        rstd = tl.load(rstd_pointer + channel, mask=exists, other=0.0)
        finish_gradients(channel, exists, sum_dy, sum_dyx, rstd, dweight_pointer, dbias_pointer)


@triton.jit
def _store_gradient(
    dx_pointer, x_pointer, dy_pointer, mean, a, mean_dy, k, block, group, images, channels, CUT: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """A block of dx = a (dy - mean_dy - (x - mean) k)."""
    first, offset, inside = elements(block, group, images, channels, CUT, WHOLE)
    x = tl.load(x_pointer + first + offset, mask=inside, other=0.0, eviction_policy="evict_first")
    dy = tl.load(dy_pointer + first + offset, mask=inside, other=0.0, eviction_policy="evict_first")
    dx = a * (dy.to(tl.float32) - mean_dy - (x.to(tl.float32) - mean) * k)
    dx = dx.to(dx_pointer.dtype.element_ty)
    tl.store(dx_pointer + first + offset, dx, mask=inside, eviction_policy="evict_first")


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
    """dx from the channels' sums, on the path of `gradient_sums` but backwards."""
    channels = channels // CUT.align * CUT.align
    group, part, channel, exists = share_of(tl.num_programs(0) - 1 - tl.program_id(0), channels, CUT)
    mean, a, mean_dy, k = slopes(
        channel, exists, images * CUT.plane, mean_pointer, rstd_pointer, weight_pointer, dweight_pointer,
        dbias_pointer,
    )  # fmt: skip
    mean, a, mean_dy, k = spread(mean, CUT), spread(a, CUT), spread(mean_dy, CUT), spread(k, CUT)
    whole = whole_blocks(images, CUT)
    if whole % parts == part:
        _store_gradient(
            dx_pointer, x_pointer, dy_pointer, mean, a, mean_dy, k, whole, group, images, channels, CUT, False
        )
    steps = tl.cdiv(whole - part, parts)
    for step in tl.range(0, steps, num_stages=CUT.stages):
        block = part + (steps - 1 - step) * parts
        _store_gradient(
            dx_pointer, x_pointer, dy_pointer, mean, a, mean_dy, k, block, group, images, channels, CUT, True
        )
