"""The gradients of attention without its matrix of scores: probabilities computed again, in Triton.

**The algorithm** (FlashAttention, Dao et al. 2022). With s = q k^T / sqrt(width), p = softmax(s) and o = p
v:

    dv_j  = sum over i of p_ij do_i
    dp_ij = do_i v_j
    ds_ij = p_ij (dp_ij - delta_i)         delta_i = sum over j of p_ij dp_ij = do_i o_i
    dq_i  = sum over j of ds_ij k_j / sqrt(width)
    dk_j  = sum over i of ds_ij q_i / sqrt(width)

The forward pass keeps one number a row, lse. p_ij = exp(s_ij - lse_i) is computed again, without a largest
score or a rescaling, since lse knows the whole row. dq sums along keys, dk and dv along queries, so there
are two kernels:

1. `query_gradient`: dq of BLOCK_M queries a program, which walks along the keys as the forward pass does. It
   has do at hand and reads o, so it computes delta too, and leaves it in memory.
2. `key_gradients`: dk and dv of BLOCK_N keys a program, which walks along the queries of all heads of a
   group. Its tiles are transposed, [keys, queries], so that p and ds are left operands, which come from
   registers.

Both compute s and dp, which makes 7 products where the formula has 5. That is the price of a result that is
the same bits each time: FlashAttention 2 computes 5, and adds to dq by atomics, in any order. If nothing
else took time, 5/7 of the peak could be reached by a rate that counts 5.

**Masks.** `query_gradient` has those of the forward pass, and its order of programs. `key_gradients` begins
at the diagonal, so that its first programs are the long ones; with a causal mask it masks every block: of
four products and an exponential a comparison is a small part, and a second loop would put accumulators
aside. Queries past the end read as zero, as do their do, lse and delta: p do = 0 and ds q = 0 need no mask.
A row whose lse is -inf saw no score above -inf: its p is 0, and so is its part of every gradient.

**Bytes moved.** Elements, most of them from L2; lse and delta have 4 bytes a row:

    query_gradient    loads  = q, o, do, lse + sum over tiles of
                               2 width (keys up to the end of the tile if causal, else kv_length)
                      stores = dq, delta
    key_gradients     loads  = k, v + sum over tiles and heads of the group of
                               (2 width, and 8 bytes) (queries from the tile's first on if causal)
                      stores = dk, dv

Grouped heads without a causal mask are one head with more queries here too.

**Arithmetic.** Sums are float32. p and ds are rounded to the data type of the operands before they are
multiplied; 1 / sqrt(width) is applied to the sums.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from bench.launching.tuning import tuned
from bench.spec import Launch
from kernels.attention.forward import (
    LN_2,
    Tile,
    grid,
    heads_of,
    options,
    padded,
    read_rows,
    sizes,
    tile_list,
    write_rows,
)
from kernels.attention.problem import Attention


@triton.jit
def walk_keys(
    dq, q, do, lse, delta, k_pointer, v_pointer, query, first, end, to_log2, WHOLE: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """sqrt(WIDTH) dq, [BLOCK_M, BLOCK_D] as q and do, with the keys from first to end.

    lse is in units of log2; keys and values are those of this head; `query` is the position of the first
    query. WHOLE: every query sees every key from first to end, whole blocks of them.
    """
    down = tl.arange(0, TILE.m)[:, None]
    across = tl.arange(0, TILE.n)[None, :]
    for start in range(first, end, TILE.n):
        count = end - start
        at = tl.cast(start, tl.int64) * TILE.width
        k = read_rows(k_pointer + at, count, WHOLE, TILE.n, TILE)
        v = read_rows(v_pointer + at, count, WHOLE, TILE.n, TILE)
        p = tl.exp2(tl.dot(q, k.T) * to_log2 - lse[:, None])
        if not WHOLE:
            seen = across < count
            if TILE.causal:
                seen = seen & (start + across <= query + down)
            p = tl.where(seen, p, 0.0)
        ds = p * (tl.dot(do, v.T) - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    return dq


@triton.jit(do_not_specialize=["q_length", "kv_length", "group"])
def query_gradient(
    q_pointer,  # [heads, q_length, WIDTH], heads of all batches
    k_pointer,  # [heads / group, kv_length, WIDTH]
    v_pointer,
    o_pointer,  # as q
    lse_pointer,  # [heads, q_length] float32
    do_pointer,  # as q
    dq_pointer,  # as q: every element is written once
    delta_pointer,  # as lse: every element is written once
    q_length,
    kv_length,
    group,
    to_log2,  # log2(e) / sqrt(WIDTH)
    TILE: tl.constexpr,
):
    """dq and delta of BLOCK_M queries of one head a program; grid (tiles x heads)."""
    tiles = tl.cdiv(q_length, TILE.m)
    head = tl.program_id(0) // tiles
    query = (tiles - 1 - tl.program_id(0) % tiles) * TILE.m
    row = tl.cast(head, tl.int64) * q_length + query
    keys = tl.cast(head // group, tl.int64) * kv_length * TILE.width
    k_pointer += keys
    v_pointer += keys
    left = q_length - query
    down = tl.arange(0, TILE.m)
    o = read_rows(o_pointer + row * TILE.width, left, False, TILE.m, TILE)
    do = read_rows(do_pointer + row * TILE.width, left, False, TILE.m, TILE)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    tl.store(delta_pointer + row + down, delta, mask=down < left)
    q = read_rows(q_pointer + row * TILE.width, left, False, TILE.m, TILE)
    lse = tl.load(lse_pointer + row + down, mask=down < left, other=0.0) / LN_2
    lse = tl.where(lse == float("-inf"), 0.0, lse)

    if TILE.causal:
        whole = (query + 1) // TILE.n * TILE.n
        end = tl.minimum(query + TILE.m, kv_length)
    else:
        whole = kv_length // TILE.n * TILE.n
        end = kv_length
    dq = tl.full((TILE.m, TILE.d), 0.0, tl.float32)
    dq = walk_keys(dq, q, do, lse, delta, k_pointer, v_pointer, query, 0, whole, to_log2, True, TILE)
    if TILE.causal or not TILE.even:
        dq = walk_keys(dq, q, do, lse, delta, k_pointer, v_pointer, query, whole, end, to_log2, False, TILE)
    write_rows(dq_pointer + row * TILE.width, dq * (to_log2 * LN_2), left, TILE.m, TILE)


@triton.jit(do_not_specialize=["q_length", "kv_length", "group"])
def key_gradients(
    q_pointer,  # [heads, q_length, WIDTH], heads of all batches
    k_pointer,  # [heads / group, kv_length, WIDTH]
    v_pointer,
    lse_pointer,  # [heads, q_length] float32
    do_pointer,  # as q
    delta_pointer,  # as lse
    dk_pointer,  # as k: every element is written once
    dv_pointer,
    q_length,
    kv_length,
    group,
    to_log2,  # log2(e) / sqrt(WIDTH)
    TILE: tl.constexpr,
):
    """dk and dv of BLOCK_N keys of one head a program; grid (tiles x heads of keys)."""
    tiles = tl.cdiv(kv_length, TILE.n)
    shared = tl.program_id(0) // tiles
    key = tl.program_id(0) % tiles * TILE.n
    count = kv_length - key
    keys = (tl.cast(shared, tl.int64) * kv_length + key) * TILE.width
    k = read_rows(k_pointer + keys, count, False, TILE.n, TILE)
    v = read_rows(v_pointer + keys, count, False, TILE.n, TILE)
    dk = tl.full((TILE.n, TILE.d), 0.0, tl.float32)
    dv = tl.full((TILE.n, TILE.d), 0.0, tl.float32)
    first = 0
    if TILE.causal:
        first = key // TILE.m * TILE.m
    steps = tl.cdiv(q_length - first, TILE.m)
    down = tl.arange(0, TILE.n)[:, None]
    across = tl.arange(0, TILE.m)
    # One loop for all heads of the group: of two, one in the other, only the inner one would be pipelined.
    for step in range(0, group * steps):
        query = first + step % steps * TILE.m
        row = (tl.cast(shared, tl.int64) * group + step // steps) * q_length + query
        left = q_length - query
        q = read_rows(q_pointer + row * TILE.width, left, TILE.even, TILE.m, TILE)
        do = read_rows(do_pointer + row * TILE.width, left, TILE.even, TILE.m, TILE)
        lse = tl.load(lse_pointer + row + across, mask=across < left, other=0.0) / LN_2
        lse = tl.where(lse == float("-inf"), 0.0, lse)
        delta = tl.load(delta_pointer + row + across, mask=across < left, other=0.0)
        p = tl.exp2(tl.dot(k, q.T) * to_log2 - lse[None, :])
        if TILE.causal:
            p = tl.where(key + down <= query + across[None, :], p, 0.0)
        dv = tl.dot(p.to(do.dtype), do, dv)
        ds = p * (tl.dot(v, do.T) - delta[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk)
    write_rows(dk_pointer + keys, dk * (to_log2 * LN_2), count, TILE.n, TILE)
    write_rows(dv_pointer + keys, dv, count, TILE.n, TILE)


QUERY_TILES: dict[int, tuple[Tile, ...]] = {
    16: tile_list("64x64 w4 s3, 16x64 w4 s3"),
    32: tile_list("128x64 w8 s2, 64x64 w4 s3, 16x64 w4 s3"),
    64: tile_list("128x64 w8 s3, 128x32 w8 s3, 64x64 w4 s3, 64x64 w4 s2, 64x32 w4 s3, 16x64 w4 s3"),
    128: tile_list("128x32 w8 s2, 64x64 w4 s2, 64x32 w4 s3, 16x64 w4 s2"),
    256: tile_list("64x32 w8 s2, 32x32 w4 s2, 16x32 w4 s2"),
}
"""Tiles of `query_gradient` to try by the padded width of a head; tests/kernels shows that no loop spills."""
MORE_QUERY_TILES: dict[tuple[int, int], tuple[Tile, ...]] = {(9, 128): tile_list("128x64 w8 s2")}
"""More tiles by major compute capability and padded width: they spill on another architecture."""
KEY_TILES: dict[int, tuple[Tile, ...]] = {
    16: tile_list("64x64 w4 s3, 64x16 w4 s2"),
    32: tile_list("64x128 w8 s2, 64x64 w4 s3, 64x16 w4 s2"),
    64: tile_list(
        "64x128 w8 s3, 64x128 w8 s2, 32x128 w8 s2, 64x64 w4 s3, 64x64 w4 s2, 32x64 w4 s3, 64x16 w4 s2"
    ),
    128: tile_list("32x128 w8 s2, 16x128 w8 s2, 64x64 w8 s2, 32x64 w4 s2, 64x16 w4 s2"),
    256: tile_list("32x64 w8 s2, 16x64 w8 s2, 32x32 w8 s2, 32x16 w4 s2"),
}
"""Tiles of `key_gradients`: m queries a step, n keys a program."""


class Tiles(NamedTuple):
    """The tiles of `query_gradient` and of `key_gradients`."""

    query: Tile
    key: Tile

    def __str__(self) -> str:
        """`64x64 w4 s2, dk dv 32x128 w8 s2`."""
        return f"{self.query}, dk dv {self.key}"


def query_candidates(problem: Attention, capability: tuple[int, int]) -> tuple[Tile, ...]:
    """Tiles of `query_gradient` worth timing: none of twice the queries that there are."""
    queries, width = heads_of(problem).q_length, padded(problem)
    listed = MORE_QUERY_TILES.get((capability[0], width), ()) + QUERY_TILES[width]
    return tuple(tile for tile in listed if tile.m < 2 * queries or tile.m <= 16)


def key_candidates(problem: Attention) -> tuple[Tile, ...]:
    """Tiles of `key_gradients` worth timing: none of twice the keys that there are."""
    listed = KEY_TILES[padded(problem)]
    return tuple(tile for tile in listed if tile.n < 2 * problem.kv_length or tile.n <= 16)


def launch(
    problem: Attention,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    do: torch.Tensor,
    tiles: Tiles | None = None,
) -> Launch:
    """dq, dk and dv, preallocated, on the current device; two kernels, one after the other.

    Without `tiles` the first launch of a problem compiles and times the candidates of each kernel; later ones
    remember.
    """
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    delta = torch.empty_like(lse)
    arguments = {
        "q_pointer": q, "k_pointer": k, "v_pointer": v, "lse_pointer": lse, "do_pointer": do,
        "delta_pointer": delta, **sizes(problem),
    }  # fmt: skip

    def of_queries(tile: Tile) -> Launch:
        run, written = query_gradient[grid(problem, tile)], {"o_pointer": o, "dq_pointer": dq}
        return Launch.of(run, (dq,), **arguments, **written, **options(problem, tile))

    def of_keys(tile: Tile) -> Launch:
        # Tiles of keys, ragged ones included, of all heads of keys; it walks along queries.
        run = key_gradients[(problem.batch * problem.kv_heads * -(-problem.kv_length // tile.n),)]
        even = heads_of(problem).q_length % tile.m == 0
        written = {"dk_pointer": dk, "dv_pointer": dv}
        return Launch.of(run, (dk, dv), **arguments, **written, **options(problem, tile, even))

    if tiles:
        return of_queries(tiles.query).then(of_keys(tiles.key), "dk dv")
    listed = query_candidates(problem, torch.cuda.get_device_capability())
    first = tuned(("attention", problem, "dq"), listed, of_queries)
    return first.then(tuned(("attention", problem, "dk dv"), key_candidates(problem), of_keys), "dk dv")
