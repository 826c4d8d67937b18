"""Attention without its matrix of scores: online softmax, the forward pass, in Triton.

**The problem.** o = softmax(q k^T / sqrt(width)) v. Done step by step, the scores of every head are a
matrix of q_length x kv_length that is written, read, written and read again, which takes far longer than
the two products. To leave that matrix in registers, a block of keys at a time, softmax must begin before
all of its row is known.

**The algorithm** (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022, 2023). For one query with
scores s_j, softmax is p_j / sum of p with p_j = exp(s_j - m). Any m gives the same quotient; the largest
score keeps every exponential within [0, 1]. Walk along the keys with three values, relative to the largest
score so far:

    m        the largest score so far
    sum      sum over the keys so far of exp(s_j - m)
    total    sum over the keys so far of exp(s_j - m) v_j, a row of `width` elements

A block of keys may raise the largest score from m to m'. One factor makes what was relative to m relative
to m', because exp(s_j - m) exp(m - m') = exp(s_j - m'):

    sum   = sum   exp(m - m') + sum over the block of exp(s_j - m')
    total = total exp(m - m') + sum over the block of exp(s_j - m') v_j

After the last block o = total / sum: one division a row, where softmax has one for every score. A backward
pass needs only the logarithm of the row's sum, lse = m + ln(sum): exp(s_j - lse) is the probability itself.

One program does this for BLOCK_M queries of one head. Both products are matrix instructions: q times a
block of k transposed, then p times the same block of v, for which p is rounded to the data type of v.

**Exponentials.** A GPU raises 2, not e: exp(x) = 2^(x log2(e)). That factor is folded into 1 / sqrt(width),
so that a score costs one multiply-add and one exponential. Exponentials are the second bottleneck: an SM of
an H100 does 16 of them a cycle beside 4,096 FLOP of 16-bit products, one for 256 FLOP. The products of one
score are 4 width FLOP: in a head of 64 the two take equally long, in a head of 128 the products twice as
long.

**Masks.** Keys past the end, and with a causal mask keys after the query, get a score of -inf, hence p = 0.
Few blocks need that: the walk is split into those that every query of the tile sees whole, which have no
mask, and the last ones, at the end or on the diagonal. Blocks that no query of the tile sees are left out.
A row whose scores are all -inf has a largest score of -inf, and -inf - -inf would be NaN: such a row is
taken relative to 0, so that its sum stays 0, o = 0 and lse = -inf. NaN and +inf spread over their row, as
in torch.

**Grouped heads.** Heads that share keys and values lie next to each other. Without a causal mask no query
needs to know its position, so the queries of a group are treated as one head with `group` times the
queries: where one token is generated, q_length is 1, and a tile holds the whole group and reads its keys
once. With a causal mask each head has programs of its own.

**Order of programs.** Tiles of one head run together and share its keys and values in L2. With a causal
mask the last tile of a head sees most keys: tiles run from the last to the first, and the short ones fill
the gaps at the end.

**Bytes moved.** Elements, k and v mostly from L2:

    loads  = q + sum over tiles of 2 width (keys up to the end of the tile if causal, else kv_length)
    stores = o, and 4 bytes a row if lse is asked for

What must come from memory is q, k and v, once each.

**Alignment.** Rows are contiguous. If `width` is a multiple of 8, loads of bulk data are 16 bytes; if not,
they are narrower, and what tests/kernels says of spills does not hold. Widths that are no power of two are
padded with zeros in registers.

**Hopper.** p is the left operand of a matrix instruction that reads it from registers, while the program
goes on to the next block. ptxas before 13.1 can overwrite such registers too early, and Triton 3.7 has 12.8
for Hopper: tests/kernels/attention_compiled.py follows every path from each such instruction to the wait
for it.

**Known losses.** No two programs share the keys of a head, so that a batch of 1 with 8 heads of keys leaves
most of a GPU idle while one token is generated ("flash decoding" splits the keys). All warps do the same in
turn: in FlashAttention 3 and 4 some only load, and exponentials of one tile overlap the products of
another.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from bench.launching.tuning import tuned
from bench.spec import Launch
from kernels.attention.problem import Attention
from kernels.tile_lists import parsed

LN_2 = tl.constexpr(math.log(2))


class Tile(NamedTuple):
    """Queries of one program or step, keys of one program or step, warps, and steps in flight."""

    m: int
    n: int
    warps: int
    stages: int

    def __str__(self) -> str:
        """`128x64 w8 s3`."""
        return f"{self.m}x{self.n} w{self.warps} s{self.stages}"


class Blocks(NamedTuple):
    """What a kernel is compiled for: WIDTH, BLOCK_M and the like."""

    causal: bool
    even: bool
    """Whether no block that it walks along is ragged."""
    width: int
    m: int
    n: int
    d: int
    """`width`, or the next power of two."""


tile_list = functools.partial(parsed, Tile)
"""The tiles of a text such as `128x64 w8 s3, 64x64 w4 s4`."""


@triton.jit
def read_rows(pointer, count, WHOLE: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr):
    """[ROWS, BLOCK_D]: rows of WIDTH elements of a matrix, zeros beyond `count` of them unless WHOLE."""
    down = tl.arange(0, ROWS)[:, None]
    across = tl.arange(0, TILE.d)[None, :]
    at = pointer + down * TILE.width + across
    if WHOLE and TILE.width == TILE.d:
        rows = tl.load(at)
    elif WHOLE:
        rows = tl.load(at, mask=across < TILE.width, other=0.0)
    elif TILE.width == TILE.d:
        rows = tl.load(at, mask=down < count, other=0.0)
    else:
        rows = tl.load(at, mask=(down < count) & (across < TILE.width), other=0.0)
    return rows


@triton.jit
def write_rows(pointer, rows, count, ROWS: tl.constexpr, TILE: tl.constexpr):
    """Round [ROWS, BLOCK_D] to the matrix's type and write the part of it that exists."""
    down = tl.arange(0, ROWS)[:, None]
    across = tl.arange(0, TILE.d)[None, :]
    inside = (down < count) & (across < TILE.width)
    tl.store(pointer + down * TILE.width + across, rows.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def walk_keys(
    before, q, k_pointer, v_pointer, query, first, end, to_log2, WHOLE: tl.constexpr, TILE: tl.constexpr
):
    """The three values of the online softmax after the keys from first to end.

    They are float32: total [BLOCK_M, BLOCK_D], sums and largest [BLOCK_M], this in units of log2. Keys and
    values are those of this head; `query` is the position of the first query. WHOLE: every query sees every
    key from first to end, whole blocks of them.
    """
    total, sums, largest = before
    down = tl.arange(0, TILE.m)[:, None]
    across = tl.arange(0, TILE.n)[None, :]
    for start in range(first, end, TILE.n):
        count = end - start
        at = tl.cast(start, tl.int64) * TILE.width
        k = read_rows(k_pointer + at, count, WHOLE, TILE.n, TILE)
        scores = tl.dot(q, k.T)
        if not WHOLE:
            seen = across < count
            if TILE.causal:
                seen = seen & (start + across <= query + down)
            scores = tl.where(seen, scores, float("-inf"))
        grown = tl.maximum(largest, tl.max(scores, 1) * to_log2)
        # A row of nothing but -inf so far: -inf - -inf must not spoil it; any number serves instead.
        relative = tl.where(grown == float("-inf"), 0.0, grown)
        p = tl.exp2(scores * to_log2 - relative[:, None])
        shrunk = tl.exp2(largest - relative)
        sums = sums * shrunk + tl.sum(p, 1)
        v = read_rows(v_pointer + at, count, WHOLE, TILE.n, TILE)
        total = tl.dot(p.to(v.dtype), v, total * shrunk[:, None])
        largest = grown
    return total, sums, largest


@triton.jit(do_not_specialize=["q_length", "kv_length", "group"])
def attend(
    q_pointer,  # [heads, q_length, WIDTH], heads of all batches
    k_pointer,  # [heads / group, kv_length, WIDTH]
    v_pointer,  # [heads / group, kv_length, WIDTH]
    o_pointer,  # [heads, q_length, WIDTH]: every element is written once
    lse_pointer,  # [heads, q_length] float32, or None
    q_length,
    kv_length,
    group,
    to_log2,  # log2(e) / sqrt(WIDTH)
    TILE: tl.constexpr,
):
    """o of BLOCK_M queries of one head a program; grid (tiles x heads)."""
    tiles = tl.cdiv(q_length, TILE.m)
    head = tl.program_id(0) // tiles
    query = (tiles - 1 - tl.program_id(0) % tiles) * TILE.m
    # Elements can be more than 2^31; queries, keys and programs cannot.
    row = tl.cast(head, tl.int64) * q_length + query
    keys = tl.cast(head // group, tl.int64) * kv_length * TILE.width
    k_pointer += keys
    v_pointer += keys
    q = read_rows(q_pointer + row * TILE.width, q_length - query, False, TILE.m, TILE)

    if TILE.causal:
        whole = (query + 1) // TILE.n * TILE.n
        end = tl.minimum(query + TILE.m, kv_length)
    else:
        whole = kv_length // TILE.n * TILE.n
        end = kv_length
    total = tl.full((TILE.m, TILE.d), 0.0, tl.float32)
    sums = tl.full((TILE.m,), 0.0, tl.float32)
    largest = tl.full((TILE.m,), float("-inf"), dtype=tl.float32)
    values = total, sums, largest
    values = walk_keys(values, q, k_pointer, v_pointer, query, 0, whole, to_log2, True, TILE)
    if TILE.causal or not TILE.even:
        values = walk_keys(values, q, k_pointer, v_pointer, query, whole, end, to_log2, False, TILE)
    total, sums, largest = values

    o = total / tl.where(sums == 0.0, 1.0, sums)[:, None]
    write_rows(o_pointer + row * TILE.width, o, q_length - query, TILE.m, TILE)
    if lse_pointer is not None:
        down = tl.arange(0, TILE.m)
        lse = (largest + tl.log2(sums)) * LN_2
        tl.store(lse_pointer + row + down, lse, mask=down < q_length - query)


TILES: dict[int, tuple[Tile, ...]] = {
    16: tile_list("128x128 w8 s3, 128x64 w4 s4, 64x64 w4 s4, 16x128 w4 s3"),
    32: tile_list("128x128 w8 s3, 128x64 w8 s3, 64x32 w4 s4, 16x128 w4 s3"),
    64: tile_list(
        "128x64 w8 s3, 128x64 w4 s2, 128x32 w4 s4, 64x64 w4 s4, 64x64 w4 s3, 32x64 w4 s3, 16x128 w4 s3, "
        "16x64 w4 s4"
    ),
    128: tile_list(
        "128x64 w8 s3, 64x128 w8 s2, 64x64 w4 s3, 64x32 w4 s3, 32x64 w4 s3, 16x128 w4 s3, 16x64 w4 s3"
    ),
    256: tile_list("64x64 w8 s2, 32x64 w8 s2, 16x64 w4 s2, 16x32 w4 s3"),
}
"""Tiles to try by the padded width of a head; tests/kernels shows that no loop spills."""
MORE_TILES: dict[tuple[int, int], tuple[Tile, ...]] = {
    (9, 64): tile_list("128x128 w8 s3"),
    (9, 128): tile_list("128x128 w8 s2"),
    (9, 256): tile_list("128x32 w8 s2"),
    (10, 256): tile_list("128x32 w8 s2"),
}
"""More tiles by major compute capability and padded width: they spill on another architecture."""


def candidates(problem: Attention, capability: tuple[int, int]) -> tuple[Tile, ...]:
    """Tiles worth timing: none of twice the queries that there are."""
    queries, width = heads_of(problem).q_length, padded(problem)
    listed = MORE_TILES.get((capability[0], width), ()) + TILES[width]
    return tuple(tile for tile in listed if tile.m < 2 * queries or tile.m <= 16)


class Heads(NamedTuple):
    """How our kernels see a problem: this many heads of all batches, `group` of them on one of keys."""

    heads: int
    group: int
    q_length: int


def heads_of(problem: Attention) -> Heads:
    """Without a causal mask a group is one head of `group` times the queries."""
    if problem.causal:
        return Heads(problem.batch * problem.heads, problem.group, problem.q_length)
    return Heads(problem.batch * problem.kv_heads, 1, problem.group * problem.q_length)


def padded(problem: Attention) -> int:
    """BLOCK_D: a power of two from 16 on that holds a head's width."""
    return max(16, 1 << (problem.head_width - 1).bit_length())


def sizes(problem: Attention) -> dict[str, Any]:
    """The run-time arguments of our kernels that are no tensors."""
    heads = heads_of(problem)
    return {
        "q_length": heads.q_length,
        "kv_length": problem.kv_length,
        "group": heads.group,
        "to_log2": math.log2(math.e) / math.sqrt(problem.head_width),
    }


def options(problem: Attention, tile: Tile, even: bool | None = None) -> dict[str, Any]:
    """What our kernels are compiled for and with; `even` as Blocks has it, by default along the keys."""
    even = problem.kv_length % tile.n == 0 if even is None else even
    blocks = Blocks(problem.causal, even, problem.head_width, tile.m, tile.n, padded(problem))
    return {"TILE": blocks, "num_warps": tile.warps, "num_stages": tile.stages}


def grid(problem: Attention, tile: Tile) -> tuple[int]:
    """Tiles of queries, ragged ones included, of all heads."""
    heads = heads_of(problem)
    return (heads.heads * -(-heads.q_length // tile.m),)


def launch(
    problem: Attention,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor | None = None,
    tile: Tile | None = None,
) -> Launch:
    """o of q, k and v, preallocated, on the current device; `lse`, if given, is written too.

    Without a `tile` the first launch of a problem compiles and times the candidates; later ones remember.
    """
    o = torch.empty_like(q)
    pointers = {"q_pointer": q, "k_pointer": k, "v_pointer": v, "o_pointer": o, "lse_pointer": lse}
    arguments = pointers | sizes(problem)

    def with_tile(tile: Tile) -> Launch:
        return Launch.of(attend[grid(problem, tile)], (o,), **arguments, **options(problem, tile))

    if tile:
        return with_tile(tile)
    listed = candidates(problem, torch.cuda.get_device_capability())
    return tuned(("attention", problem), listed, with_tile)
