"""Two small GEMMs in Gluon that are right, for test_gluon_emulator.py to break.

D [m, n] = A [m, k] B [n, k]^T. One multiplies as Hopper does, one as Blackwell, alone or in clusters of
two blocks. Each hands every buffer over in the plainest way.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    get_tmem_reg_layout,
    tcgen05_commit,
    tcgen05_mma,
)
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit  # type: ignore[untyped-decorator]
def bring(
    a, b, left, right, full, empty, free, tiles_n, tiles, k, STAGES: gl.constexpr, PAIRED: gl.constexpr
):  # type: ignore[no-untyped-def]
    """The blocks of A and B of every step of every tile of this program."""
    BLOCK_K: gl.constexpr = a.block_type.shape[1]
    step = 0
    turn = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        at_m = tile // tiles_n * a.block_type.shape[0]
        at_n = tile % tiles_n * b.block_type.shape[0]
        if PAIRED:
            # The first block's products write the sums of both: each says here that its own were read.
            mbarrier.wait(free, turn & 1 ^ 1)
        for at_k in range(0, k, BLOCK_K):
            stage = step % STAGES
            mbarrier.wait(empty.index(stage), step // STAGES & 1 ^ 1)
            mbarrier.expect(full.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
            tma.async_copy_global_to_shared(a, [at_m, at_k], full.index(stage), left.index(stage))
            tma.async_copy_global_to_shared(b, [at_n, at_k], full.index(stage), right.index(stage))
            step += 1
        turn += 1


@gluon.jit  # type: ignore[untyped-decorator]
def multiply_on_hopper(d, left, right, full, empty, staging, tiles_n, tiles, steps, STAGES: gl.constexpr):  # type: ignore[no-untyped-def]
    """The products of every tile, and their way out."""
    ROWS: gl.constexpr = d.block_type.shape[0]
    COLUMNS: gl.constexpr = d.block_type.shape[1]
    sums: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16], d.layout.cga_layout)
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        total = gl.zeros([ROWS, COLUMNS], gl.float32, sums)
        for _ in range(steps):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), step // STAGES & 1)
            turned = right.index(stage).permute((1, 0))
            total = warpgroup_mma(left.index(stage), turned, total, is_async=True)
            total = warpgroup_mma_wait(0, deps=(total,))
            mbarrier.arrive(empty.index(stage))
            step += 1
        tma.store_wait(0)
        staging.store(total.to(d.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(d, [tile // tiles_n * ROWS, tile % tiles_n * COLUMNS], staging)
    tma.store_wait(0)


@gluon.jit  # type: ignore[untyped-decorator]
def on_hopper(a, b, d, m, n, k, STAGES: gl.constexpr):  # type: ignore[no-untyped-def]
    """Every num_programs(0)-th tile of D."""
    left = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    right = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    staging = gl.allocate_shared_memory(d.dtype, d.block_type.shape, d.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    if gl.num_ctas() > 1:
        mbarrier.sync_cluster_init()
    tiles_n = gl.cdiv(n, b.block_type.shape[0])
    tiles = gl.cdiv(m, a.block_type.shape[0]) * tiles_n
    steps = gl.cdiv(k, a.block_type.shape[1])
    gl.warp_specialize(
        [
            (multiply_on_hopper, (d, left, right, full, empty, staging, tiles_n, tiles, steps, STAGES)),
            (bring, (a, b, left, right, full, empty, empty, tiles_n, tiles, k, STAGES, False)),
        ],
        [1],
        [24],
    )


@gluon.jit  # type: ignore[untyped-decorator]
def multiply_on_blackwell(left, right, sums, full, empty, done, free, tiles, steps, STAGES: gl.constexpr):  # type: ignore[no-untyped-def]
    """The products of every tile."""
    PAIRED: gl.constexpr = sums.layout.two_ctas
    step = 0
    turn = 0
    for _ in range(gl.program_id(0), tiles, gl.num_programs(0)):
        if not PAIRED:
            mbarrier.wait(free, turn & 1 ^ 1)
        for i in range(steps):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), step // STAGES & 1)
            turned = right.index(stage).permute((1, 0))
            tcgen05_mma(left.index(stage), turned, sums, use_acc=i > 0, mbarriers=[empty.index(stage)])
            step += 1
        tcgen05_commit(done)
        turn += 1


@gluon.jit  # type: ignore[untyped-decorator]
def take_away(d, sums, done, free, staging, tiles_n, tiles):  # type: ignore[no-untyped-def]
    """Every tile's way out."""
    ROWS: gl.constexpr = d.block_type.shape[0]
    COLUMNS: gl.constexpr = d.block_type.shape[1]
    registers: gl.constexpr = get_tmem_reg_layout(
        gl.float32, sums.shape, sums.layout, gl.num_warps(), cga_layout=d.layout.cga_layout
    )
    turn = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        mbarrier.wait(done, turn & 1)
        total = sums.load(registers)
        mbarrier.arrive(free)
        tma.store_wait(0)
        staging.store(total.to(d.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(d, [tile // tiles_n * ROWS, tile % tiles_n * COLUMNS], staging)
        turn += 1
    tma.store_wait(0)


@gluon.jit  # type: ignore[untyped-decorator]
def on_blackwell(a, b, d, m, n, k, STAGES: gl.constexpr, PAIRED: gl.constexpr):  # type: ignore[no-untyped-def]
    """Every num_programs(0)-th tile of D."""
    left = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    right = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    staging = gl.allocate_shared_memory(d.dtype, d.block_type.shape, d.layout)
    columns: gl.constexpr = TensorMemoryLayout(
        (128, d.block_type.shape[1]), col_stride=1, cta_split_num=(2, 1) if PAIRED else None, two_ctas=PAIRED
    )
    sums = allocate_tensor_memory(gl.float32, d.block_type.shape, columns)
    full = mbarrier.allocate_mbarrier(batch=STAGES, two_ctas=PAIRED)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    free = mbarrier.allocate_mbarrier()
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    mbarrier.init(done, count=1)
    mbarrier.init(free, count=1)
    if PAIRED:
        mbarrier.sync_cluster_init()
    tiles_n = gl.cdiv(n, d.block_type.shape[1])
    tiles = gl.cdiv(m, a.block_type.shape[0]) * tiles_n
    steps = gl.cdiv(k, a.block_type.shape[1])
    gl.warp_specialize(
        [
            (take_away, (d, sums, done, free, staging, tiles_n, tiles)),
            (bring, (a, b, left, right, full, empty, free, tiles_n, tiles, k, STAGES, PAIRED)),
            (multiply_on_blackwell, (left, right, sums, full, empty, done, free, tiles, steps, STAGES)),
        ],
        [1, 1],
        [24, 24],
    )
