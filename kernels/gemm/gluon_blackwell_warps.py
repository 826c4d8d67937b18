"""What the warps of gluon_blackwell.py do, and the kernel that starts them.

The product is row-major: D [n, m] = op(B) [n, k] op(A) [k, m]. Of a pair of blocks (PAIRED) `BLOCK_N` counts
the rows of both, and every copy moves this block's half. Which barrier means what: gluon_blackwell.py.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    get_tmem_reg_layout,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)

from kernels.gemm.blocks import grouped

LEAST_TRITON = (3, 7)
"""Before it Gluon has no barriers of a cluster, nor any of what is called to make them."""


@gluon.jit  # type: ignore[untyped-decorator]
def allocated_barriers(STAGES: gl.constexpr, PAIRED: gl.constexpr):  # type: ignore[no-untyped-def]
    """The barriers filled, freed, summed and taken, each completed by one arrival."""
    filled = mbarrier.allocate_mbarrier(batch=STAGES, two_ctas=PAIRED)
    freed = mbarrier.allocate_mbarrier(batch=STAGES)
    summed = mbarrier.allocate_mbarrier(batch=2)
    taken = mbarrier.allocate_mbarrier(batch=2)
    for i in gl.static_range(STAGES):
        mbarrier.init(filled.index(i), count=1)
        mbarrier.init(freed.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(summed.index(i), count=1)
        mbarrier.init(taken.index(i), count=1)
    return filled, freed, summed, taken


@gluon.jit  # type: ignore[untyped-decorator]
def bring(  # type: ignore[no-untyped-def]
    operands,  # A, B, and shared memory for STAGES blocks of each
    barriers,  # filled, freed, summed, taken
    tiles,  # along M and N
    k,
    ROWS_ARE_K: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """One warp: the blocks of all steps of all tiles of this program, as stages become free."""
    a, b, a_blocks, b_blocks = operands
    filled, freed, _, taken = barriers
    tiles_m, tiles_n = tiles
    step = 0
    turn = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        at_m = tile_m * BLOCK_M
        at_n = tile_n * BLOCK_N
        if PAIRED:
            mbarrier.wait(taken.index(turn % 2), (turn // 2 + 1) & 1)
        for at_k in range(0, k, BLOCK_K):
            stage = step % STAGES
            # The phase before a barrier's first counts as completed: the first round does not wait.
            mbarrier.wait(freed.index(stage), (step // STAGES + 1) & 1)
            full = filled.index(stage)
            mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
            if ROWS_ARE_K[0]:
                tma.async_copy_global_to_shared(a, [at_k, at_m], full, a_blocks.index(stage))
            else:
                tma.async_copy_global_to_shared(a, [at_m, at_k], full, a_blocks.index(stage))
            if ROWS_ARE_K[1]:
                tma.async_copy_global_to_shared(b, [at_k, at_n], full, b_blocks.index(stage))
            else:
                tma.async_copy_global_to_shared(b, [at_n, at_k], full, b_blocks.index(stage))
            step += 1
        turn += 1


@gluon.jit  # type: ignore[untyped-decorator]
def multiply_tiles(  # type: ignore[no-untyped-def]
    blocks,  # of A and B
    sums,  # tensor memory, two tiles
    barriers,
    tiles,
    k,
    ROWS_ARE_K: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """One warp, of a pair the first block's: all products, the two tiles of sums in turn."""
    a_blocks, b_blocks = blocks
    filled, freed, summed, taken = barriers
    step = 0
    turn = 0
    for _ in range(gl.program_id(0), tiles, gl.num_programs(0)):
        half = turn % 2
        if not PAIRED:
            mbarrier.wait(taken.index(half), (turn // 2 + 1) & 1)
        for at_k in range(0, k, BLOCK_K):
            stage = step % STAGES
            mbarrier.wait(filled.index(stage), (step // STAGES) & 1)
            left = b_blocks.index(stage)
            if ROWS_ARE_K[1]:
                left = left.permute((1, 0))
            right = a_blocks.index(stage)
            if not ROWS_ARE_K[0]:
                right = right.permute((1, 0))
            tcgen05_mma(left, right, sums.index(half), use_acc=at_k > 0, mbarriers=[freed.index(stage)])
            step += 1
        tcgen05_commit(summed.index(half))
        turn += 1


@gluon.jit  # type: ignore[untyped-decorator]
def take_away(  # type: ignore[no-untyped-def]
    tensors,  # c, d, a_scale and b_scale
    memory,  # sums, and shared memory: BUFFERS parts of a tile of D, or of C before; the parts of a bias
    barriers,  # summed, taken, brought
    tiles,
    ADD: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    PART: gl.constexpr,
    BUFFERS: gl.constexpr,
    GROUP: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """Four warps: tiles of D from tensor memory to global memory, in parts of PART columns."""
    c, d, a_scale, b_scale = tensors
    sums, staged, bias = memory
    summed, taken, brought = barriers
    tiles_m, tiles_n = tiles
    PARTS: gl.constexpr = BLOCK_M // PART
    columns: gl.constexpr = TensorMemoryLayout(
        (128, PART), col_stride=1, cta_split_num=(2, 1) if PAIRED else None, two_ctas=PAIRED
    )
    registers: gl.constexpr = get_tmem_reg_layout(
        gl.float32, (BLOCK_N, PART), columns, gl.num_warps(), cga_layout=[[1, 0]] if PAIRED else []
    )
    if a_scale is not None:
        scale = gl.load(a_scale) * gl.load(b_scale)
    turn = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        at_m = tile_m * BLOCK_M
        at_n = tile_n * BLOCK_N
        # The addend comes while the tile is still being multiplied.
        if ADD == "bias":
            mbarrier.expect(brought.index(0), PARTS * c.nbytes_per_cta)
            for part in gl.static_range(PARTS):
                at = at_m + part * PART
                tma.async_copy_global_to_shared(c, [at], brought.index(0), bias.index(part))
            mbarrier.wait(brought.index(0), turn & 1)
        if ADD == "matrix":
            tma.store_wait(0)
            for part in gl.static_range(BUFFERS):
                mbarrier.expect(brought.index(part), c.nbytes_per_cta)
                at = at_m + part * PART
                tma.async_copy_global_to_shared(c, [at_n, at], brought.index(part), staged.index(part))
        half = turn % 2
        mbarrier.wait(summed.index(half), (turn // 2) & 1)
        for part in gl.static_range(PARTS):
            total = sums.index(half).slice(part * PART, PART).load(registers)
            if part == PARTS - 1:
                mbarrier.arrive(taken.index(half))
            if a_scale is not None:
                total = total * scale
            buffer = staged.index(part % BUFFERS)
            if ADD == "bias":
                added = bias.index(part).load(gl.SliceLayout(0, registers))
                total = total + added.to(gl.float32)[None, :]
            if ADD == "matrix":
                round_ = turn * (PARTS // BUFFERS) + part // BUFFERS
                mbarrier.wait(brought.index(part % BUFFERS), round_ & 1)
                total = total + buffer.load(registers).to(gl.float32)
            else:
                tma.store_wait(BUFFERS - 1)
            buffer.store(total.to(d.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(d, [at_n, at_m + part * PART], buffer)
            if ADD == "matrix" and part > 0 and part - 1 + BUFFERS < PARTS:
                tma.store_wait(1)
                again = (part - 1) % BUFFERS
                mbarrier.expect(brought.index(again), c.nbytes_per_cta)
                at = at_m + (part - 1 + BUFFERS) * PART
                tma.async_copy_global_to_shared(c, [at_n, at], brought.index(again), staged.index(again))
        turn += 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["m", "n", "k"])  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    a,  # descriptor of op(A): [k, m] if ROWS_ARE_K[0] else [m, k]
    b,  # of op(B): [k, n] if ROWS_ARE_K[1] else [n, k]
    c,  # of [n, m] (ADD matrix) or [m] (ADD bias), in parts; or None
    d,  # of D: [n, m], in parts; every element is written once
    a_scale,  # None, or one float32 each
    b_scale,
    m,
    n,
    k,
    ROWS_ARE_K: gl.constexpr,  # of A, of B
    ADD: gl.constexpr,  # "none", "matrix" or "bias"
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    PART: gl.constexpr,
    BUFFERS: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """D [n, m] = op(B) [n, k] op(A) [k, m] + C, every programs-th tile of it."""
    a_blocks = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)  # noqa: RUF005
    b_blocks = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)  # noqa: RUF005
    staged = gl.allocate_shared_memory(d.dtype, [BUFFERS] + d.block_shape, d.layout)  # noqa: RUF005
    bias, brought = staged, staged  # stand-ins where nothing is added
    if ADD == "bias":
        bias = gl.allocate_shared_memory(c.dtype, [BLOCK_M // PART] + c.block_shape, c.layout)  # noqa: RUF005
    columns: gl.constexpr = TensorMemoryLayout(
        (128, BLOCK_M), col_stride=1, cta_split_num=(2, 1) if PAIRED else None, two_ctas=PAIRED
    )
    sums = allocate_tensor_memory(gl.float32, [2, BLOCK_N, BLOCK_M], columns)
    filled, freed, summed, taken = allocated_barriers(STAGES, PAIRED)
    if ADD != "none":
        ADDENDS: gl.constexpr = BUFFERS if ADD == "matrix" else 1
        brought = mbarrier.allocate_mbarrier(batch=ADDENDS)
        for i in gl.static_range(ADDENDS):
            mbarrier.init(brought.index(i), count=1)
    if PAIRED:
        mbarrier.sync_cluster_init()
    tiles_m = gl.cdiv(m, BLOCK_M)
    tiles_n = gl.cdiv(n, BLOCK_N)
    operands = a, b, a_blocks, b_blocks
    tensors = c, d, a_scale, b_scale
    memory = sums, staged, bias
    barriers, ends = (filled, freed, summed, taken), (summed, taken, brought)
    blocks, tiles, count = (a_blocks, b_blocks), (tiles_m, tiles_n), tiles_m * tiles_n
    gl.warp_specialize(
        [
            (take_away, (tensors, memory, ends, tiles, ADD, BLOCK_M, BLOCK_N, PART, BUFFERS, GROUP, PAIRED)),
            (
                bring,
                (operands, barriers, tiles, k, ROWS_ARE_K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP, PAIRED),
            ),
            (multiply_tiles, (blocks, sums, barriers, count, k, ROWS_ARE_K, BLOCK_K, STAGES, PAIRED)),
        ],
        [1, 1],
        [24, 24],
    )
