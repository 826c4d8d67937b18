"""GEMM as a grid of tiles that bulk copies (TMA) load and store, on Hopper and later.

**Why this algorithm.** As in pointer.py, one program computes one tile of D by walking along K, a step of
BLOCK_K at a time, `stages` steps ahead. But here a step's two blocks are loaded by two instructions of one
thread: addresses, bounds and the pattern in which shared memory is laid out are the hardware's work, so all
other threads do nothing but start matrix instructions, and no size needs a mask. It takes rows that begin at
multiples of 16 bytes, of any length.

**Descriptors** say what a copy must know of a tensor: address, shape, row length, and the block that one
copy moves. They are made on the host, at each launch, and are parameters of the kernel: on Triton 3.6 a
program that makes them itself has 260 to 400 instructions more to go through before its first copy, and needs
memory for them.

**One program a tile, or one an SM.** With a program a tile (`triton-tma`) a tile's way out overlaps with the
arithmetic of other blocks on the same SM, where small tiles leave room for more than one, and the hardware
hands out tiles as blocks end; but each block begins with an empty pipeline. With one an SM (`persistent`,
`triton-persistent`) a program goes on to the next tile, as many tiles on as there are programs. The two
loops, over tiles and along K, are made one (`flatten`), so the first steps of the next tile are in flight
while the sums of this one leave: what a block costs to begin and to end is paid once an SM, which counts
where K is short. The price is the last wave: with T tiles and P programs the time is that of ceil(T / P)
tiles, however few are in the last round (MM-13).

**Bytes moved.** Blocks stop at the end of a tensor, so with T_m = ceil(m / BLOCK_M), T_n = ceil(n / BLOCK_N)

    loads  = T_n m k + T_m n k  elements, mostly from L2; m n more if C is a matrix, T_n m if a bias
    stores = m n                elements

in grouped order, as in pointer.py, so that the tiles which run at the same time share operands in L2.

**Layouts.** 16-bit types are multiplied as they are stored. Of the others Hopper multiplies only blocks that
are contiguous along K (TN); the rest pass through registers to be transposed, between copy and arithmetic.

**Arithmetic.** As in pointer.py.

**Tiles.** A tile is good if its operands are reused often (large), if enough of it is in flight (stages), and
if there are enough of it to fill the device (small). Registers and shared memory set the bounds:

* Sums live in registers until they leave (on Blackwell only then): a warp of Hopper holds at most 4096 of
  them, 128 a thread, so 128 x 256 has 8 warps, with 4 it would spill. On Blackwell the compiler
  keeps registers free for the other blocks that tensor memory has room for; tiles of 64 rows (N) then run
  short, with 4 warps or with 8, and those here are the ones that do not.
* A step along K is as long as the widest pattern in which TMA lays out shared memory, 128 bytes of a row, or
  two of them; half of that where operands pass through registers. Steps in flight, and half a tile of D on
  its way out, must fit into shared memory.

So the list is computed: of each shape and step the most stages that fit, and for small tiles also the most
with which two blocks share a multiprocessor, one of which computes while the other writes. Every tile fits
in every layout, for every type; tests/kernels compiles them all and holds the formula to it. Which is fastest
depends on the problem, so the device decides (autotune.py). Large tiles come first.
"""

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.gemm.blocks import grouped, walk_descriptors
from kernels.gemm.operands import Operands, Prepared
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile, tiles_of


@triton.jit(do_not_specialize=["m", "n", "k"])  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    a,  # descriptor of op(A): [k, m] if ROWS_ARE_K[0] else [m, k]
    b,  # of op(B): [k, n] if ROWS_ARE_K[1] else [n, k]
    c,  # of [n, m] (ADD matrix) or [m] (ADD bias); or None
    d,  # of D: [n, m]; every element is written once
    a_scale,  # None, or one float32 each
    b_scale,
    m,
    n,
    k,
    ROWS_ARE_K: tl.constexpr,  # of A, of B
    ARITHMETIC: tl.constexpr,  # precision, "tf32" or "ieee" (for float32 operands alone), and type of sums
    ADD: tl.constexpr,  # "none", "matrix" or "bias"
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    WALKS: tl.constexpr,  # a program computes every num_programs(0)-th tile, in one pipeline over all of them
):
    """D [n, m] = op(B) [n, k] op(A) [k, m] + C: the column-major product, written row-major."""
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    tensors = a, b, c, d, a_scale, b_scale
    block: tl.constexpr = (BLOCK_M, BLOCK_N, BLOCK_K)
    if WALKS:
        for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
            tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
            multiply_tile(tensors, tile_m * BLOCK_M, tile_n * BLOCK_N, k, ROWS_ARE_K, ARITHMETIC, ADD, block)
    else:
        tile_m, tile_n = grouped(tl.program_id(0), tiles_m, tiles_n, GROUP)
        multiply_tile(tensors, tile_m * BLOCK_M, tile_n * BLOCK_N, k, ROWS_ARE_K, ARITHMETIC, ADD, block)


@triton.jit  # type: ignore[untyped-decorator]
def multiply_tile(  # type: ignore[no-untyped-def]
    tensors,
    at_m,
    at_n,
    k,
    ROWS_ARE_K: tl.constexpr,
    ARITHMETIC: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The tile of D that begins at column at_m, row at_n. It leaves in two halves, left and right.

    Half a tile is staged in shared memory at a time, and what that saves is a stage of the pipeline.
    """
    a, b, c, d, a_scale, b_scale = tensors
    HALF: tl.constexpr = BLOCK[0] // 2
    total = walk_descriptors(a, b, at_m, at_n, 0, k, ROWS_ARE_K, ARITHMETIC, BLOCK)
    if a_scale is not None:
        total *= tl.load(a_scale) * tl.load(b_scale)
    left, right = total.reshape(BLOCK[1], 2, HALF).permute(0, 2, 1).split()
    d.store([at_n, at_m], with_addend(left, c, at_m, at_n, ADD).to(d.dtype))
    d.store([at_n, at_m + HALF], with_addend(right, c, at_m + HALF, at_n, ADD).to(d.dtype))


@triton.jit  # type: ignore[untyped-decorator]
def with_addend(half, c, at_m, at_n, ADD: tl.constexpr):  # type: ignore[no-untyped-def]
    """Half a tile with what is to be added to it: a block of C, or the same piece of a bias to every row."""
    if ADD == "matrix":
        half += c.load([at_n, at_m]).to(half.dtype)
    elif ADD == "bias":
        half += c.load([at_m]).to(half.dtype)[None, :]
    return half


def candidates(problem: Gemm, capability: tuple[int, int], *, persistent: bool) -> tuple[Tile, ...]:
    """The tiles to try on a device of this compute capability; it decides (autotune.py).

    `persistent`: by one program an SM, so that the steps of the next tile are in flight while one leaves. To
    walk over tiles pays where they are large; the small ones are left to a program each.
    """
    shapes = _SHAPES
    if persistent:
        least_n = 128 if capability[0] in (10, 11) else 64
        shapes = tuple((m, n) for m, n in _SHAPES if m * n >= 128 * 64 and n >= least_n)
    return tuple(tile for m, n in shapes for tile in _of_shape(problem, capability, m, n, persistent))


def prepare(of: Operands, tile: Tile, sm_count: int, *, persistent: bool) -> Prepared:
    """D in `of.d`, in tiles of this size, by a program each or by one an SM.

    The tensors' device must be the current one.
    """
    count = tiles_of(of.problem, tile)
    described, (of_a, of_b), half = TensorDescriptor.from_tensor, of.blocks(tile), [tile.n, tile.m // 2]
    c = None if of.c is None else described(of.c, half if of.addend == "matrix" else half[1:])
    arguments = of.arguments(multiply, tile) | tile.options
    arguments |= {"a": described(of.a, of_a), "b": described(of.b, of_b), "c": c, "d": described(of.d, half)}
    arguments["WALKS"] = persistent
    return Prepared(multiply, (min(count, sm_count) if persistent else count,), arguments, of.d)


_SHAPES: tuple[tuple[int, int], ...] = (
    *((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64), (32, 128)),
)
"""M x N. Of N, the rows of the product, Hopper's and Blackwell's instructions take no fewer than 64."""
_SLACK_BYTE = 2048
"""Shared memory of one block for barriers, and to begin on a multiple of 1024 bytes."""


def _of_shape(
    problem: Gemm, capability: tuple[int, int], m: int, n: int, persistent: bool
) -> tuple[Tile, ...]:
    by_registers = _by_registers(problem, capability)
    short, long = (64, 128) if by_registers else (128, 256)

    def deepest(k_byte: int, warps: int, *, blocks: int = 1, least: int = 3) -> list[Tile]:
        """The tile with the most stages of which so many blocks fit an SM; none if the least does not."""
        tiles = [Tile(m, n, k_byte // problem.item_byte, warps, stages) for stages in range(6, least - 1, -1)]
        return [
            tile
            for tile in tiles
            if blocks * shared_byte(problem, capability, tile, persistent=persistent) <= _room(capability)
        ][:1]

    if m * n > 128 * 128:
        found = deepest(short, 8, least=2)
        return (*found, *(tile._replace(stages=tile.stages - 1) for tile in found if tile.stages > 3))
    square = m == n == 128
    warps = 8 if n == 64 and m != 128 and capability[0] in (10, 11) else 4
    found = deepest(short, 8, least=2) if square else []
    found += deepest(short, warps)
    found += [] if persistent else deepest(short, warps, blocks=2)
    if not by_registers or max(m, n) <= 128:
        found += deepest(long, 8 if square else warps)
    return tuple(dict.fromkeys(found))


def shared_byte(problem: Gemm, capability: tuple[int, int], tile: Tile, *, persistent: bool) -> int:
    """The most shared memory that the compiler takes for this tile, of one block.

    The steps along K in flight; half of D, for which those make room if nothing else is in flight; and half
    of C. On Blackwell blocks of tf32 that are transposed are kept besides, and so is part of D where its sums
    come from tensor memory in another order than they leave.
    """
    by_registers = _by_registers(problem, capability)
    blackwell = capability[0] in (10, 11) and not by_registers
    of_b, of_a = tile.n * tile.k * problem.item_byte, tile.m * tile.k * problem.item_byte
    half = tile.m // 2 * tile.n * problem.output_item_byte
    steps = (tile.stages - by_registers) * (of_a + of_b)
    if blackwell and problem.dtype == "tf32":
        steps += 2 * (of_a * (problem.layout[0] == "N") + of_b * (problem.layout[1] == "T"))
    if not persistent:
        return max(steps, 2 * half) + _SLACK_BYTE
    reordered = 0
    if blackwell and problem.output_item_byte == 4:
        reordered = half
    elif blackwell and (problem.item_byte == 1 or tile.n < 128):
        reordered = half // 2
    return steps + (1 + problem.beta) * half + reordered + _SLACK_BYTE


def _by_registers(problem: Gemm, capability: tuple[int, int]) -> bool:
    """Whether Ampere's instructions multiply: on 12.x; int8 on Blackwell, where Triton has no others."""
    return capability[0] == 12 or (capability[0] in (10, 11) and problem.dtype == "int8")


def _room(capability: tuple[int, int]) -> int:
    return (99 if capability[0] == 12 else 227) * 1024
