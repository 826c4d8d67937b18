"""What the GEMM kernels are put together from: which tile a program computes, its walk along K, its end.

All compute the row-major product D [n, m] = op(B) [n, k] op(A) [k, m]. `op(B)` is *left* and `op(A)` *right*
here, as they stand in it. Sums are float32; float64 for float64, int32 for int8.
"""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def known_multiple(size, ALIGN: tl.constexpr):  # type: ignore[no-untyped-def]
    """`size`, which ALIGN divides, in a form from which the compiler learns it (a hint would be lost)."""
    return size // ALIGN * ALIGN


@triton.jit  # type: ignore[untyped-decorator]
def grouped(program, tiles_m, tiles_n, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """(tile of M, tile of N) of a program: down GROUP tiles of N, then to the next tile of M.

    So the tiles that run at the same time share operands in L2. 0 <= program < tiles_m tiles_n.
    """
    group = program // (GROUP * tiles_m)
    first = group * GROUP
    height = tl.minimum(tiles_n - first, GROUP)
    within = program % (GROUP * tiles_m)
    return within // height, first + within % height


@triton.jit  # type: ignore[untyped-decorator]
def walk_pointers(  # type: ignore[no-untyped-def]
    a_pointer,
    b_pointer,
    along_m,  # [BLOCK_M] columns of D, perhaps past m
    along_n,  # [BLOCK_N] rows of D, perhaps past n
    first,
    last,
    m,
    n,
    row_a,
    row_b,
    A_ROWS_ARE_K: tl.constexpr,
    B_ROWS_ARE_K: tl.constexpr,
    PRECISION: tl.constexpr,
    SUM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,  # BLOCK_K divides last - first: no mask along K
):
    """[BLOCK_N, BLOCK_M] of SUM: rows of left by columns of right, from first to last along K.

    Rows past the end wrap around to rows that exist: read in bounds, never to be stored.
    """
    along_k = tl.arange(0, BLOCK_K)
    in_m = along_m % m
    in_n = along_n % n
    # Rows times their length can pass 2^31 elements: those products, and those alone, are 64-bit.
    if A_ROWS_ARE_K:
        a = a_pointer + (first + along_k).to(tl.int64)[:, None] * row_a + in_m[None, :]
        a_step = tl.cast(row_a, tl.int64) * BLOCK_K
    else:
        a = a_pointer + (first + along_k)[:, None] + in_m.to(tl.int64)[None, :] * row_a
        a_step = tl.cast(BLOCK_K, tl.int64)
    if B_ROWS_ARE_K:
        b = b_pointer + in_n[:, None] + (first + along_k).to(tl.int64)[None, :] * row_b
        b_step = tl.cast(row_b, tl.int64) * BLOCK_K
    else:
        b = b_pointer + in_n.to(tl.int64)[:, None] * row_b + (first + along_k)[None, :]
        b_step = tl.cast(BLOCK_K, tl.int64)

    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=SUM)
    for start in range(first, last, BLOCK_K):
        if EVEN_K:
            left = tl.load(b)
            right = tl.load(a)
        else:
            inside = along_k < last - start
            left = tl.load(b, mask=inside[None, :], other=0.0)
            right = tl.load(a, mask=inside[:, None], other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=SUM)
        a += a_step
        b += b_step
    return total


@triton.jit  # type: ignore[untyped-decorator]
def walk_descriptors(  # type: ignore[no-untyped-def]
    a,  # of [k, m] in blocks of [BLOCK_K, BLOCK_M] if A_ROWS_ARE_K, else [m, k] in [BLOCK_M, BLOCK_K]
    b,  # of [k, n] in blocks of [BLOCK_K, BLOCK_N] if B_ROWS_ARE_K, else [n, k] in [BLOCK_N, BLOCK_K]
    at_m,
    at_n,
    first,
    last,
    A_ROWS_ARE_K: tl.constexpr,
    B_ROWS_ARE_K: tl.constexpr,
    PRECISION: tl.constexpr,
    SUM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The same by tensor descriptors: the tile at (at_m, at_n), along K from first to last.

    BLOCK_K divides last - first, or last is k: beyond the tensor a descriptor reads zeros.
    """
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=SUM)
    for at_k in range(first, last, BLOCK_K):
        if B_ROWS_ARE_K:
            left = b.load([at_k, at_n]).T
        else:
            left = b.load([at_n, at_k])
        if A_ROWS_ARE_K:
            right = a.load([at_k, at_m])
        else:
            right = a.load([at_m, at_k]).T
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=SUM)
    return total


@triton.jit  # type: ignore[untyped-decorator]
def finished(  # type: ignore[no-untyped-def]
    total,  # [BLOCK_N, BLOCK_M]
    c_pointer,
    a_scale,  # None, or one float32 each
    b_scale,
    along_m,
    along_n,
    m,
    n,
    row_c,
    ADD: tl.constexpr,  # "none", "matrix" or "bias"
):
    """A tile's sums with the scales and what is to be added, not yet rounded."""
    if a_scale is not None:
        total *= tl.load(a_scale) * tl.load(b_scale)
    if ADD == "matrix":
        c = c_pointer + along_n.to(tl.int64)[:, None] * row_c + along_m[None, :]
        inside = (along_n < n)[:, None] & (along_m < m)[None, :]
        total += tl.load(c, mask=inside, other=0.0).to(total.dtype)
    elif ADD == "bias":
        total += tl.load(c_pointer + along_m, mask=along_m < m, other=0.0).to(total.dtype)[None, :]
    return total


@triton.jit
def store(total, d_pointer, along_m, along_n, m, n, row_d):  # type: ignore[no-untyped-def]
    """Round a tile [BLOCK_N, BLOCK_M] to D's type and write the part of it that exists."""
    d = d_pointer + along_n.to(tl.int64)[:, None] * row_d + along_m[None, :]
    inside = (along_n < n)[:, None] & (along_m < m)[None, :]
    tl.store(d, total.to(d_pointer.dtype.element_ty), mask=inside)
