"""How the two passes of batch normalization cut a tensor of any layout into blocks, and channels into sums.

x is [images, channels, plane], contiguous. NCHW is that with plane = h w; NHWC is that too, with n h w images
of one element a channel. A program takes `group` channels, and blocks of them, as a Cut says:

* *A row of pixels* (NHWC). Tiles of rows images x columns = group channels, so that a program reads at least
  128 bytes of each row, 16 of them a thread, and sums down the columns: each thread keeps the sums of its own
  columns in registers, and threads meet only at the end.
* *One channel* (NCHW; columns = 1). Its planes strung together, rows elements a block: element j lies at
  position j % plane of image j / plane. So no lane idles however small a plane is, and plane is a
  compile-time constant: the division is a multiplication, and the compiler sees how many elements on end are
  contiguous and aligned. Where 16 bytes divide a plane, every access is 16 bytes wide; for 14 x 14 of float16
  it is 8; for 7 x 7 it would be 2, since planes begin anywhere.
* *A group of odd planes* (NCHW, 2-byte elements). Eight of them on end begin at multiples of 16 bytes. So x
  is a matrix of c h w columns, of which a program takes group plane, columns being that rounded up to a power
  of two (392 to 512 for 7 x 7); lanes past the group idle. A column belongs to the same channel in every
  image, so the loop adds tile to tile without asking whose an element is; what a channel has is collected
  from its columns once, at the end, and what it needs is spread over its columns once, at the beginning.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from typing import NamedTuple

import triton
import triton.language as tl

from kernels.batchnorm.channel import TAKEN


class Cut(NamedTuple):
    """How a kernel is compiled to cut x: CUT."""

    plane: int
    group: int
    rows: int
    columns: int
    """1, or a power of two, at least group x plane."""
    align: int = 1
    """A power of two that divides channels; at most 16 bytes' worth."""
    stages: int = 1


@triton.jit
def share_of(program, channels, CUT: tl.constexpr):
    """A program's group, its part of that, its channels, and which of those exist."""
    groups = tl.cdiv(channels, CUT.group)
    group = program % groups
    channel = group if CUT.columns == 1 else group * CUT.group + tl.arange(0, CUT.group)
    return group, program // groups, channel, channel < channels


@triton.jit
def whole_blocks(images, CUT: tl.constexpr):
    """How many blocks of a group have all their elements; at most one more has some."""
    return images * CUT.plane // CUT.rows if CUT.columns == 1 else images // CUT.rows


@triton.jit
def zeros(CUT: tl.constexpr):
    """A block of zeros."""
    return tl.full((CUT.rows,) if CUT.columns == 1 else (CUT.rows, CUT.columns), 0.0, tl.float32)


@triton.jit
def _owns(CUT: tl.constexpr):
    """[group, columns]: whether a column is of that channel; those past the group are of none."""
    return (tl.arange(0, CUT.columns) // CUT.plane)[None, :] == tl.arange(0, CUT.group)[:, None]


@triton.jit
def spread(of_channel, CUT: tl.constexpr):
    """What each channel has, for each column of a block: [1, columns], 0 past the group; else as it is."""
    if CUT.columns == 1:
        of_columns = of_channel
    elif CUT.plane == 1:
        of_columns = of_channel[None, :]
    else:
        of_columns = tl.sum(tl.where(_owns(CUT), of_channel[:, None], 0.0), axis=0)[None, :]
    return of_columns


@triton.jit
def collected(sums, CUT: tl.constexpr):
    """The sum of each channel's elements of a block: [group], or a scalar of one channel."""
    total = tl.sum(sums, axis=0)
    if CUT.columns > 1 and CUT.plane > 1:
        total = tl.sum(tl.where(_owns(CUT), total[None, :], 0.0), axis=1)
    return total


@triton.jit
def elements(block, group, images, channels, CUT: tl.constexpr, WHOLE: tl.constexpr):
    """Offset of a block (64-bit), those of its elements from there, and which exist; WHOLE: of all rows."""
    row = tl.arange(0, CUT.rows)
    if CUT.columns == 1:
        j = block * CUT.rows + row
        plane = (j // CUT.plane).to(
            tl.int64
        ) * channels + group  # of all planes; times their size beyond 32 bits
        first = 0
        offset = plane * CUT.plane + j % CUT.plane
        inside = tl.full((CUT.rows,), 1, tl.int1) if WHOLE else j < images * CUT.plane
    else:
        column = tl.arange(0, CUT.columns)
        length = channels if CUT.plane == 1 else channels.to(tl.int64) * CUT.plane
        first = tl.cast(block * CUT.rows, tl.int64) * length + group * (CUT.group * CUT.plane)
        offset = row[:, None] * length + column[None, :]
        inside = (
            group * CUT.group + column < channels if CUT.plane == 1 else column < CUT.group * CUT.plane
        )[None, :]
        if not WHOLE:
            inside = (block * CUT.rows + row < images)[:, None] & inside
    return first, offset, inside


@triton.jit
def own(partials_pointer, channel, part, channels, parts, CUT: tl.constexpr):
    """Pointers to a program's sum of each channel: [channels, parts] of one, [parts, channels] of many."""
    if CUT.columns == 1:
        place = partials_pointer + channel.to(tl.int64) * parts + part
    else:
        place = partials_pointer + part.to(tl.int64) * channels + channel
    return place


@triton.jit
def total_of(partials_pointer, channel, channels, parts, CUT: tl.constexpr):
    """Sums of `parts` partials of each of these channels, past the first-level cache."""
    if CUT.columns == 1:
        taken = tl.arange(0, TAKEN)
        total = tl.zeros((TAKEN,), tl.float32)
        for start in range(0, parts, TAKEN):
            place = own(partials_pointer, channel, start + taken, channels, parts, CUT)
            total += tl.load(place, mask=start + taken < parts, other=0.0, cache_modifier=".cg")
    else:
        taken = tl.arange(0, CUT.rows)[:, None]
        total = tl.full((CUT.rows, CUT.group), 0.0, tl.float32)
        for start in range(0, parts, CUT.rows):
            place = own(partials_pointer, channel[None, :], start + taken, channels, parts, CUT)
            inside = (start + taken < parts) & (channel < channels)[None, :]
            total += tl.load(place, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.sum(total, axis=0)
