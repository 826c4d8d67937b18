"""Long rows held in shared memory, by one block or by a cluster of them: for layer normalization and softmax.

A row beyond the registers need not be read twice: shared memory holds 64 Ki numbers of 16 bits, and a
cluster (compute capability 9.0 and up) 16 times that. Every block of a cluster takes a share of the row, all
of which is on its way at once; the blocks meet at the cluster's barrier, where each tells the others a few
sums.

They tell them through memory, that is through L2: Triton 3.7.1 cannot read another block's shared memory. Its
reductions must stay within a block ("Unexpected srcLayout in ReduceOpConversion"), and converting a layout
across blocks fails ("'nvvm.mapa' op result #0 must be LLVM pointer in address space 0 or ... 7"). The barrier
releases what was written before it and acquires it behind, and `.cg` loads ask L2.

Written in Gluon, which says what lies in shared memory and which block has which part of a tensor; a program
is a cluster. A share is cut into chunks; chunk c of the row is `blocks` x `chunk` elements from
c x blocks x chunk, one part for each block, and the last may be ragged.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,assignment"
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from bench.spec import Unsupported

try:
    from triton.experimental.gluon.language.nvidia.hopper import cluster
except ImportError:  # Triton 3.6
    cluster = None

MOST_BYTE = 128 * 1024
"""Shared memory for the data of one block: 16 chunks by 16 warps. Hopper has 227 KiB, but walks along 19
chunks and more spill registers, and of such blocks a multiprocessor holds only one as of these."""
LARGEST_CLUSTER = 16
"""Blocks. More than 8 are not portable, and need leave: Triton asks for it."""


class Share(NamedTuple):
    """How a row is cut up, and the threads that hold a share of it."""

    blocks: int
    """Blocks of a cluster; a power of two."""
    chunks: int
    chunk: int
    """Elements of a chunk in one block."""
    warps: int

    def __str__(self) -> str:
        """`2 x 4x8192 w16`: blocks x chunks x elements, warps of a block."""
        return f"{self.blocks} x {self.chunks}x{self.chunk} w{self.warps}"

    def constants(self, item_byte: int) -> dict[str, Any]:
        """What every kernel that holds rows in shared memory is compiled with."""
        cut = {"VECTOR": vector(item_byte), "CHUNKS": self.chunks, "CHUNK": self.chunk}
        return cut | {"num_warps": self.warps, "num_ctas": self.blocks}


def candidates(length: int, item_byte: int, tensors: int) -> list[Share]:
    """Shares worth trying for rows of this length, of which `tensors` are held; the smallest cluster first.

    None of rows that are no multiple of 16 bytes: asynchronous copies move at least 4 bytes, these 16. At
    most three sizes of clusters, and none whose shares are less than a chunk.
    """
    if length * item_byte % 16:
        return []
    shares = []
    for blocks in (1, 2, 4, 8, LARGEST_CLUSTER):
        warps = 16 if length * item_byte * tensors >= blocks * 64 * 1024 else 8
        chunk = warps * 32 * vector(item_byte)  # a copy of 16 bytes by every thread
        chunks = -(-length // (blocks * chunk))
        if chunks * chunk * item_byte * tensors <= MOST_BYTE and length >= blocks * chunk:
            shares.append(Share(blocks, chunks, chunk, warps))
    return shares[:3]


def partial_sums(share: Share, x: torch.Tensor, count: int) -> torch.Tensor | None:
    """Memory by which blocks exchange `count` numbers a row: [rows, count, blocks]; None for a single block.

    Raises Unsupported on devices without asynchronous copies, or without clusters where they are needed.
    """
    capability = torch.cuda.get_device_capability(x.device) if x.is_cuda else None
    if capability is not None and capability < (8, 0):
        raise Unsupported("asynchronous copies into shared memory need compute capability 8.0")
    if share.blocks == 1:
        return None
    if cluster is None:
        raise Unsupported("Gluon of this Triton has no barrier of a cluster's blocks; 3.7 has")
    if capability is not None and capability < (9, 0):
        raise Unsupported("clusters of blocks need compute capability 9.0")
    return x.new_empty(x.shape[0], count, share.blocks, dtype=torch.float32)


def vector(item_byte: int) -> int:
    """Elements of 16 bytes."""
    return 16 // item_byte


@gluon.constexpr_function
def _bases(blocks, step):
    return [[step << bit, 0] for bit in range(blocks.bit_length() - 1)]


@gluon.constexpr_function
def parts(blocks, elements, warps):
    """[blocks, chunk] in registers, a row in each block and `elements` at a time in each thread."""
    return gl.BlockedLayout([1, elements], [1, 32], [1, warps], [1, 0], _bases(blocks, 1))


@gluon.constexpr_function
def everywhere(blocks, warps):
    """[1, blocks], all of it in every warp of every block."""
    return gl.BlockedLayout([1, 1], [1, 32], [1, warps], [1, 0], _bases(blocks, 0))


@gluon.constexpr_function
def in_shared(blocks):
    """[blocks, chunk] in shared memory, a row in each block."""
    return gl.SwizzledSharedLayout(1, 1, 1, [1, 0], _bases(blocks, 1))


@gluon.jit
def room(pointer, BLOCKS: gl.constexpr, CHUNKS: gl.constexpr, CHUNK: gl.constexpr):
    """Shared memory for a row."""
    return gl.allocate_shared_memory(pointer.dtype.element_ty, [CHUNKS, BLOCKS, CHUNK], in_shared(BLOCKS))


@gluon.jit
def inside(at, length, LAST: gl.constexpr):
    """Which of a chunk's places are of the row: of all chunks but the last, all.

    That is said to the compiler, for it cannot know it: comparing every place of every chunk three times, it
    kept the outcomes in registers, and spilled some.
    """
    return at < length if LAST else at == at


@gluon.jit
def fetch(kept, pointer, at, here, chunk):
    """Start copying a chunk of a row; what is not `here` is not defined."""
    async_copy.async_copy_global_to_shared(kept.index(chunk), pointer + at, mask=here)


@gluon.jit
def places(LAYOUT: gl.constexpr, BLOCKS: gl.constexpr, CHUNK: gl.constexpr):
    """The blocks' numbers, [blocks], and where the row's first chunk lies in it, [blocks, chunk]."""
    part = gl.arange(0, BLOCKS, layout=gl.SliceLayout(1, LAYOUT))
    return part, part[:, None] * CHUNK + gl.arange(0, CHUNK, layout=gl.SliceLayout(0, LAYOUT))[None, :]


@gluon.jit
def bring(pointers, along, length, BLOCKS: gl.constexpr, CHUNKS: gl.constexpr, CHUNK: gl.constexpr):
    """Shared memory for the rows at these pointers, all on their way there: a group of copies a chunk."""
    kept = ()
    for i in gl.static_range(len(pointers)):
        kept = kept + (room(pointers[i], BLOCKS, CHUNKS, CHUNK),)  # noqa: RUF005  (no starred tuples)
    for chunk in gl.static_range(CHUNKS):
        at = chunk * BLOCKS * CHUNK + along
        here = inside(at, length, chunk == CHUNKS - 1)
        for i in gl.static_range(len(pointers)):
            fetch(kept[i], pointers[i], at, here, chunk)
        async_copy.commit_group()
    return kept


@gluon.jit
def read(kept, chunk, LAYOUT: gl.constexpr):
    """A chunk that has arrived, in float32."""
    return kept.index(chunk).load(LAYOUT).to(gl.float32)


@gluon.jit
def arrive():
    """Tell the cluster's blocks that what this one has written to memory is there to be read."""
    cluster.arrive()


@gluon.jit
def meet():
    """Wait until all blocks of the cluster have arrived as often as this one."""
    cluster.wait()


@gluon.jit
def exchange(pointer, numbers, part, BLOCKS: gl.constexpr):
    """Numbers of the blocks, [blocks], and what each of them gives for every one of `numbers`, likewise."""
    for i in gl.static_range(len(numbers)):
        gl.store(pointer + i * BLOCKS + part, numbers[i])
    arrive()
    meet()
    other = gl.arange(0, BLOCKS, layout=gl.SliceLayout(0, everywhere(BLOCKS, gl.num_warps())))
    received = ()
    for i in gl.static_range(len(numbers)):
        received = received + (gl.load(pointer + i * BLOCKS + other, cache_modifier=".cg"),)  # noqa: RUF005
    return other, received
