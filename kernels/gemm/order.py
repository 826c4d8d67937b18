"""The order in which the tiles of D run, and how many of N together: what the tiles of one wave share in L2.

Tiles are counted down `group` of them along N, then on to the next of M, until a band of `group` rows of
tiles is done (`grouped` in blocks.py, which the kernels use). A wave of P tiles then needs about group x
BLOCK_N rows of op(B) and P / group x BLOCK_M of op(A), each K long. That is least where both are alike, but
tiles come whole, bands end, and D may have fewer rows of tiles than a band: so it is counted, for the first
wave, which is as any other but for the last of a band. What is not in L2 comes from memory, a few
times as slowly.
"""

from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import GROUP, Tile

GROUPS = (GROUP, 4, 16)
"""What to choose from; the first is taken unless another needs less by a tenth."""


def best_group(problem: Gemm, tile: Tile, at_a_time: int) -> int:
    """The group with which the first `at_a_time` tiles need the fewest bytes of operands, or nearly."""
    byte = {group: footprint(problem, tile, at_a_time, group) for group in GROUPS}
    least = min(GROUPS, key=byte.__getitem__)
    return least if byte[least] < 0.9 * byte[GROUP] else GROUP


def footprint(problem: Gemm, tile: Tile, at_a_time: int, group: int) -> int:
    """Bytes of A and B that the first `at_a_time` tiles need, each counted once."""
    tiles_m, tiles_n = -(-problem.m // tile.m), -(-problem.n // tile.n)
    bands, left = divmod(min(at_a_time, tiles_m * tiles_n), group * tiles_m)
    columns, rows = (tiles_m, min(bands * group, tiles_n)) if bands else (0, 0)
    if left:
        height = min(tiles_n - rows, group)
        columns = max(columns, -(-left // height))
        rows += min(left, height)
    return (columns * tile.m + rows * tile.n) * problem.k * problem.item_byte
