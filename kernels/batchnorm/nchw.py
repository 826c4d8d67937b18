"""Two-pass batch normalization of NCHW tensors: a channel is a plane of h w elements in each image.

**Why this algorithm.** A program takes blocks of one channel, its planes strung together: element j of
channel k lies at position j % PLANE of plane (j / PLANE, k). So no lane idles however small a plane is (7 x 7
fills a block as 56 x 56 does), and PLANE = h w is a compile-time constant: the division is a multiplication,
and the compiler sees how many elements on end are contiguous and aligned. Where 16 bytes divide a plane,
every access is 16 bytes wide; for 14 x 14 of float16 it is 8; for 7 x 7 it must be 2, since planes begin
anywhere.

When channels are few, `parts` programs share one, block p, p + parts, p + 2 parts... for program p, and the
last to finish adds up their sums (channel.py). Programs next to each other take channels next to each other,
which are neighbours in memory.

**Bytes moved**, S those of x: `statistics` reads S, `normalize` reads S and writes S: 3 S. Backward,
`gradient_sums` reads 2 S, `input_gradient` reads 2 S and writes S: 5 S. The second kernel of each pair walks
the first one's path backwards, from the last program's last block to the first's first, so that it begins
with what the cache still holds; it tells the cache to drop what it reads and writes. Besides: 16 bytes of a
channel for each program, and 16 for each of its partial sums.

**Arithmetic** is float32 whatever the tensors hold, rounded once when stored.
"""

import triton
import triton.language as tl

from kernels.batchnorm.channel import (
    TAKEN,
    arrives_last,
    finish_gradients,
    finish_statistics,
    scale_and_bias,
    slopes,
)

_SIZES = ["images", "channels", "parts"]
"""Integers that a compilation does not depend on."""


@triton.jit  # type: ignore[untyped-decorator]
def _elements(  # type: ignore[no-untyped-def]
    block, channel, images, channels, PLANE: tl.constexpr, BLOCK: tl.constexpr
):
    """Offsets of a block of a channel, and which of its elements exist."""
    j = block * BLOCK + tl.arange(0, BLOCK)
    plane = (j // PLANE).to(tl.int64) * channels + channel  # of all planes; times their size beyond 32 bits
    return plane * PLANE + j % PLANE, j < images * PLANE


@triton.jit
def _total(partials_pointer, channel, parts):  # type: ignore[no-untyped-def]
    """Sum of `parts` partials of a channel, past the first-level cache."""
    taken = tl.arange(0, TAKEN)
    total = tl.zeros((TAKEN,), tl.float32)
    of_channel = partials_pointer + tl.cast(channel, tl.int64) * parts
    for start in range(0, parts, TAKEN):
        each = start + taken
        total += tl.load(of_channel + each, mask=each < parts, other=0.0, cache_modifier=".cg")
    return tl.sum(total, axis=0)


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def statistics(  # type: ignore[no-untyped-def]
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
    PLANE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Mean, 1/deviation and running statistics of every channel. Grid: channels x parts, channels fastest."""
    channel = tl.program_id(0) % channels
    part = tl.program_id(0) // channels
    shift = tl.load(x_pointer + channel.to(tl.int64) * PLANE).to(tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for block in range(part, tl.cdiv(images * PLANE, BLOCK), parts):
        offset, inside = _elements(block, channel, images, channels, PLANE, BLOCK)
        x = tl.load(x_pointer + offset, mask=inside, other=0.0).to(tl.float32)
        d = tl.where(inside, x - shift, 0.0)
        sums += d
        squares += d * d
    mine = partials_pointer + channel.to(tl.int64) * parts + part
    second = tl.cast(channels, tl.int64) * parts
    tl.store(mine, tl.sum(sums, axis=0))
    tl.store(mine + second, tl.sum(squares, axis=0))
    if arrives_last(counter_pointer + channel, parts):
        finish_statistics(
            channel,
            channel < channels,
            shift,
            _total(partials_pointer, channel, parts),
            _total(partials_pointer + second, channel, parts),
            images * PLANE,
            mean_pointer,
            rstd_pointer,
            running_mean_pointer,
            running_variance_pointer,
            EPSILON,
            MOMENTUM,
        )


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def normalize(  # type: ignore[no-untyped-def]
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
    PLANE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = (x - mean) weight / deviation + bias, on the path of `statistics` but backwards."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    channel = program % channels
    part = program // channels
    mean, a, b = scale_and_bias(
        channel,
        channel < channels,
        mean_pointer,
        spread_pointer,
        weight_pointer,
        bias_pointer,
        EPSILON,
        FROM_VARIANCE,
    )
    steps = tl.cdiv(tl.cdiv(images * PLANE, BLOCK) - part, parts)
    for step in range(0, steps):
        block = part + (steps - 1 - step) * parts
        offset, inside = _elements(block, channel, images, channels, PLANE, BLOCK)
        x = tl.load(x_pointer + offset, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = (x - mean) * a + b
        y = y.to(y_pointer.dtype.element_ty)
        tl.store(y_pointer + offset, y, mask=inside, eviction_policy="evict_first")


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def gradient_sums(  # type: ignore[no-untyped-def]
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
    PLANE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dbias = sum dy, dweight = sum dy (x - mean) / deviation. Grid: channels x parts, channels fastest."""
    channel = tl.program_id(0) % channels
    part = tl.program_id(0) // channels
    mean = tl.load(mean_pointer + channel)
    sums = tl.zeros((BLOCK,), tl.float32)
    products = tl.zeros((BLOCK,), tl.float32)
    for block in range(part, tl.cdiv(images * PLANE, BLOCK), parts):
        offset, inside = _elements(block, channel, images, channels, PLANE, BLOCK)
        x = tl.load(x_pointer + offset, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_pointer + offset, mask=inside, other=0.0).to(tl.float32)
        sums += dy
        products += dy * (x - mean)
    mine = partials_pointer + channel.to(tl.int64) * parts + part
    second = tl.cast(channels, tl.int64) * parts
    tl.store(mine, tl.sum(sums, axis=0))
    tl.store(mine + second, tl.sum(products, axis=0))
    if arrives_last(counter_pointer + channel, parts):
        finish_gradients(
            channel,
            channel < channels,
            _total(partials_pointer, channel, parts),
            _total(partials_pointer + second, channel, parts),
            tl.load(rstd_pointer + channel),
            dweight_pointer,
            dbias_pointer,
        )


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def input_gradient(  # type: ignore[no-untyped-def]
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
    PLANE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx from the channel's sums, on the path of `gradient_sums` but backwards."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    channel = program % channels
    part = program // channels
    mean, a, mean_dy, k = slopes(
        channel,
        channel < channels,
        images * PLANE,
        mean_pointer,
        rstd_pointer,
        weight_pointer,
        dweight_pointer,
        dbias_pointer,
    )
    steps = tl.cdiv(tl.cdiv(images * PLANE, BLOCK) - part, parts)
    for step in range(0, steps):
        block = part + (steps - 1 - step) * parts
        offset, inside = _elements(block, channel, images, channels, PLANE, BLOCK)
        x = tl.load(x_pointer + offset, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dy = tl.load(dy_pointer + offset, mask=inside, other=0.0, eviction_policy="evict_first").to(
            tl.float32
        )
        dx = a * (dy - mean_dy - (x - mean) * k)
        dx = dx.to(dx_pointer.dtype.element_ty)
        tl.store(dx_pointer + offset, dx, mask=inside, eviction_policy="evict_first")
