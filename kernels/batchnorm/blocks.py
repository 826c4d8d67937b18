"""How the two passes of batch normalization cut a tensor of any layout into blocks, and channels into sums.

x is [images, channels, PLANE], contiguous. NCHW is that with PLANE = h w; NHWC is that too, with n h w images
of one element a channel. A program takes GROUP channels, and blocks of them:

* *A row of pixels* (NHWC). Tiles of ROWS images x COLUMNS = GROUP channels, so that a program reads at least
  128 bytes of each row, 16 of them a thread, and sums down the columns: each thread keeps the sums of its own
  columns in registers, and threads meet only at the end.
* *One channel* (NCHW; COLUMNS = 1). Its planes strung together, ROWS elements a block: element j lies at
  position j % PLANE of image j / PLANE. So no lane idles however small a plane is, and PLANE is a
  compile-time constant: the division is a multiplication, and the compiler sees how many elements on end are
  contiguous and aligned. Where 16 bytes divide a plane, every access is 16 bytes wide; for 14 x 14 of float16
  it is 8; for 7 x 7 it would be 2, since planes begin anywhere.
* *A group of odd planes* (NCHW, 2-byte elements). Eight of them on end begin at multiples of 16 bytes. So x
  is a matrix of c h w columns, of which a program takes GROUP PLANE, COLUMNS being that rounded up to a power
  of two (392 to 512 for 7 x 7); lanes past the group idle. A column belongs to the same channel in every
  image, so the loop adds tile to tile without asking whose an element is; what a channel has is collected
  from its columns once, at the end, and what it needs is spread over its columns once, at the beginning.
"""

import triton
import triton.language as tl

from kernels.batchnorm.channel import TAKEN


@triton.jit  # type: ignore[untyped-decorator]
def share_of(program, channels, GROUP: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of a program: its group, its part of that, its channels, and which of those exist."""
    groups = tl.cdiv(channels, GROUP)
    group = program % groups
    channel = group if COLUMNS == 1 else group * GROUP + tl.arange(0, GROUP)
    return group, program // groups, channel, channel < channels


@triton.jit  # type: ignore[untyped-decorator]
def whole_blocks(images, PLANE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """How many blocks of a group have all their elements; at most one more has some."""
    return images * PLANE // ROWS if COLUMNS == 1 else images // ROWS


@triton.jit  # type: ignore[untyped-decorator]
def zeros(ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """A block of zeros."""
    return tl.zeros((ROWS,) if COLUMNS == 1 else (ROWS, COLUMNS), tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _owns(PLANE: tl.constexpr, GROUP: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """[GROUP, COLUMNS]: whether a column is of that channel; those past the group are of none."""
    return (tl.arange(0, COLUMNS) // PLANE)[None, :] == tl.arange(0, GROUP)[:, None]


@triton.jit  # type: ignore[untyped-decorator]
def spread(  # type: ignore[no-untyped-def]
    of_channel, PLANE: tl.constexpr, GROUP: tl.constexpr, COLUMNS: tl.constexpr
):
    """What each channel has, for each column of a block: [1, COLUMNS], 0 past the group; else as it is."""
    if COLUMNS == 1:
        found = of_channel
    elif PLANE == 1:
        found = of_channel[None, :]
    else:
        found = tl.sum(tl.where(_owns(PLANE, GROUP, COLUMNS), of_channel[:, None], 0.0), axis=0)[None, :]
    return found


@triton.jit  # type: ignore[untyped-decorator]
def collected(  # type: ignore[no-untyped-def]
    sums, PLANE: tl.constexpr, GROUP: tl.constexpr, COLUMNS: tl.constexpr
):
    """The sum of each channel's elements of a block: [GROUP], or a scalar of one channel."""
    found = tl.sum(sums, axis=0)
    if COLUMNS > 1 and PLANE > 1:
        found = tl.sum(tl.where(_owns(PLANE, GROUP, COLUMNS), found[None, :], 0.0), axis=1)
    return found


@triton.jit  # type: ignore[untyped-decorator]
def elements(  # type: ignore[no-untyped-def]
    block,
    group,
    images,
    channels,
    PLANE: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Offset of a block (64-bit), those of its elements from there, and which exist; WHOLE: of all rows."""
    row = tl.arange(0, ROWS)
    if COLUMNS == 1:
        j = block * ROWS + row
        plane = (j // PLANE).to(tl.int64) * channels + group  # of all planes; times their size beyond 32 bits
        first = 0
        offset = plane * PLANE + j % PLANE
        inside = tl.full((ROWS,), 1, tl.int1) if WHOLE else j < images * PLANE
    else:
        column = tl.arange(0, COLUMNS)
        length = channels if PLANE == 1 else channels.to(tl.int64) * PLANE
        first = tl.cast(block * ROWS, tl.int64) * length + group * (GROUP * PLANE)
        offset = row[:, None] * length + column[None, :]
        inside = (group * GROUP + column < channels if PLANE == 1 else column < GROUP * PLANE)[None, :]
        if not WHOLE:
            inside = (block * ROWS + row < images)[:, None] & inside
    return first, offset, inside


@triton.jit  # type: ignore[untyped-decorator]
def own(  # type: ignore[no-untyped-def]
    partials_pointer, channel, part, channels, parts, COLUMNS: tl.constexpr
):
    """Where a program leaves its sum of each channel: [channels, parts] of one, [parts, channels] of many."""
    if COLUMNS == 1:
        place = partials_pointer + channel.to(tl.int64) * parts + part
    else:
        place = partials_pointer + part.to(tl.int64) * channels + channel
    return place


@triton.jit  # type: ignore[untyped-decorator]
def total_of(  # type: ignore[no-untyped-def]
    partials_pointer,
    channel,
    channels,
    parts,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sums of `parts` partials of each of these channels, past the first-level cache."""
    if COLUMNS == 1:
        taken = tl.arange(0, TAKEN)
        total = tl.zeros((TAKEN,), tl.float32)
        for start in range(0, parts, TAKEN):
            place = own(partials_pointer, channel, start + taken, channels, parts, COLUMNS)
            total += tl.load(place, mask=start + taken < parts, other=0.0, cache_modifier=".cg")
    else:
        taken = tl.arange(0, ROWS)[:, None]
        total = tl.zeros((ROWS, GROUP), tl.float32)
        for start in range(0, parts, ROWS):
            place = own(partials_pointer, channel[None, :], start + taken, channels, parts, COLUMNS)
            inside = (start + taken < parts) & (channel < channels)[None, :]
            total += tl.load(place, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.sum(total, axis=0)
