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
def aligned(m, n, k, row_a, row_b, row_c, row_d, ALIGN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sizes and rows as multiples of what divides them: ALIGN is of m, n, k, row_a, row_b, row_d.

    What is known of D's rows is known of C's, which are of the same type and length.
    """
    return (
        known_multiple(m, ALIGN[0]),
        known_multiple(n, ALIGN[1]),
        known_multiple(k, ALIGN[2]),
        known_multiple(row_a, ALIGN[3]),
        known_multiple(row_b, ALIGN[4]),
        known_multiple(row_c, ALIGN[5]),
        known_multiple(row_d, ALIGN[5]),
    )


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
    operands,  # pointers to A and B, m, n, and the lengths of rows of A and B
    along_m,  # columns of D, perhaps past m
    along_n,  # rows of D, perhaps past n
    first,
    last,
    ROWS_ARE_K: tl.constexpr,  # of A, of B
    ARITHMETIC: tl.constexpr,  # precision, "tf32" or "ieee", and the type of sums
    BLOCK: tl.constexpr,  # along M, N, K
    EVEN_K: tl.constexpr,  # BLOCK[2] divides last - first: no mask along K
):
    """Sums of a tile, [BLOCK[1], BLOCK[0]]: rows of left by columns of right, from first to last along K.

    Rows past the end wrap around to rows that exist: read in bounds, never to be stored.
    """
    a_pointer, b_pointer, m, n, row_a, row_b = operands
    along_k = tl.arange(0, BLOCK[2])
    in_m = along_m % m
    in_n = along_n % n
    # Rows times their length can pass 2^31 elements: those products, and those alone, are 64-bit.
    if ROWS_ARE_K[0]:
        a = a_pointer + (first + along_k).to(tl.int64)[:, None] * row_a + in_m[None, :]
        a_step = tl.cast(row_a, tl.int64) * BLOCK[2]
    else:
        a = a_pointer + (first + along_k)[:, None] + in_m.to(tl.int64)[None, :] * row_a
        a_step = tl.cast(BLOCK[2], tl.int64)
    if ROWS_ARE_K[1]:
        b = b_pointer + in_n[:, None] + (first + along_k).to(tl.int64)[None, :] * row_b
        b_step = tl.cast(row_b, tl.int64) * BLOCK[2]
    else:
        b = b_pointer + in_n.to(tl.int64)[:, None] * row_b + (first + along_k)[None, :]
        b_step = tl.cast(BLOCK[2], tl.int64)

    total = tl.zeros((BLOCK[1], BLOCK[0]), dtype=ARITHMETIC[1])
    for start in range(first, last, BLOCK[2]):
        if EVEN_K:
            left = tl.load(b)
            right = tl.load(a)
        else:
            inside = along_k < last - start
            left = tl.load(b, mask=inside[None, :], other=0.0)
            right = tl.load(a, mask=inside[:, None], other=0.0)
        total = tl.dot(left, right, total, input_precision=ARITHMETIC[0], out_dtype=ARITHMETIC[1])
        a += a_step
        b += b_step
    return total


@triton.jit  # type: ignore[untyped-decorator]
def walk_descriptors(  # type: ignore[no-untyped-def]
    a,  # of [k, m] in blocks along K and M if ROWS_ARE_K[0], else of [m, k] along M and K
    b,  # of [k, n] in blocks along K and N if ROWS_ARE_K[1], else of [n, k] along N and K
    at_m,
    at_n,
    first,
    last,
    ROWS_ARE_K: tl.constexpr,
    ARITHMETIC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The same by tensor descriptors: the tile at (at_m, at_n), along K from first to last.

    BLOCK[2] divides last - first, or last is k: beyond the tensor a descriptor reads zeros.
    """
    total = tl.zeros((BLOCK[1], BLOCK[0]), dtype=ARITHMETIC[1])
    for at_k in range(first, last, BLOCK[2]):
        if ROWS_ARE_K[1]:
            left = b.load([at_k, at_n]).T
        else:
            left = b.load([at_n, at_k])
        if ROWS_ARE_K[0]:
            right = a.load([at_k, at_m])
        else:
            right = a.load([at_m, at_k]).T
        total = tl.dot(left, right, total, input_precision=ARITHMETIC[0], out_dtype=ARITHMETIC[1])
    return total


@triton.jit  # type: ignore[untyped-decorator]
def write(total, along_m, along_n, outputs, ADD: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile's sums with the scales and what is to be added, rounded, where D has that part of it.

    `outputs` are pointers to C and D, the scales of A and B (None, or one float32 each), m, n, and the
    lengths of rows of C and D. ADD is "none", "matrix" or "bias".
    """
    c_pointer, d_pointer, a_scale, b_scale, m, n, row_c, row_d = outputs
    if a_scale is not None:
        total *= tl.load(a_scale) * tl.load(b_scale)
    if ADD == "matrix":
        c = c_pointer + along_n.to(tl.int64)[:, None] * row_c + along_m[None, :]
        inside = (along_n < n)[:, None] & (along_m < m)[None, :]
        total += tl.load(c, mask=inside, other=0.0).to(total.dtype)
    elif ADD == "bias":
        total += tl.load(c_pointer + along_m, mask=along_m < m, other=0.0).to(total.dtype)[None, :]
    store(total, d_pointer, along_m, along_n, m, n, row_d)


@triton.jit
def store(total, d_pointer, along_m, along_n, m, n, row_d):  # type: ignore[no-untyped-def]
    """Round a tile [BLOCK_N, BLOCK_M] to D's type and write the part of it that exists."""
    d = d_pointer + along_n.to(tl.int64)[:, None] * row_d + along_m[None, :]
    inside = (along_n < n)[:, None] & (along_m < m)[None, :]
    tl.store(d, total.to(d_pointer.dtype.element_ty), mask=inside)
