"""Which tiles the kernels that move them by bulk copies (TMA) try, on each architecture.

A tile is good if its operands are reused often (large), if enough of it is in flight (stages), and if there
are enough of it to fill the device (small). Registers and shared memory set the bounds:

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
depends on the problem, so the device decides (choosing.py). Large tiles come first.

Operands that are not K-major take longer for all but 16-bit types. Hopper multiplies those from shared memory
only along K, so the compiler turns each block by way of registers. That is what a layout costs here, none
is refused.
"""

from kernels.gemm.problem import FORCED_TILES, Gemm
from kernels.gemm.tiles import Tile

_FORCED = tuple((int(m), int(n)) for m, n in (shape.split("x") for shape in FORCED_TILES))
_SHAPES = (*_FORCED, (32, 128))
"""M x N. Of N, the rows of the product, Hopper's and Blackwell's instructions take no fewer than 64."""
_SLACK_BYTE = 2048
"""Shared memory of one block for barriers, and to begin on a multiple of 1024 bytes."""


def bulk_tiles(problem: Gemm, capability: tuple[int, int], *, persistent: bool) -> tuple[Tile, ...]:
    """The tiles to try; `persistent` if the steps of the next tile are in flight while one leaves.

    To walk over tiles pays where they are large; the small ones are left to a program each.
    """
    shapes = _SHAPES
    if persistent:
        least_n = 128 if capability[0] in (10, 11) else 64
        shapes = tuple((m, n) for m, n in _SHAPES if m * n >= 128 * 64 and n >= least_n)
    return tuple(tile for m, n in shapes for tile in _of_shape(problem, capability, m, n, persistent))


def forced(problem: Gemm, capability: tuple[int, int], m: int, n: int) -> tuple[Tile, ...]:
    """The ways to compute tiles of exactly m x n, one program each."""
    return _of_shape(problem, capability, m, n, persistent=False)


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
    of C. On Blackwell blocks of tf32 that are turned are kept besides, and so is part of D where its sums
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
