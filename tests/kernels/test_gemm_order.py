"""The order in which tiles run: each of them once, near those that share its operands."""

import random
from collections import Counter

import pytest

from kernels.gemm.order import GROUPS, best_group, footprint
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile

pytest.importorskip("triton", minversion="3.7")
from kernels.gemm.blocks import grouped
from tests.kernels.gluon_emulator import Translation

TILE = Tile(128, 256, 64, 8, 3)
place = Translation()(grouped)
"""(tile of M, tile of N) of a program: the kernels' own function, on Python's numbers."""


@pytest.mark.parametrize("group", GROUPS)
def test_every_tile_runs_once_whatever_the_group(group: int, seed: int) -> None:
    """Also where the last band is lower than the others, or the only one is."""
    chance = random.Random(seed)
    shapes = [(1, 1), (1, 40), (40, 1), (3, group - 1), (3, group), (3, group + 1), (7, 5 * group + 3)]
    shapes += [(chance.randint(1, 60), chance.randint(1, 60)) for _ in range(30)]
    for tiles_m, tiles_n in shapes:
        found = Counter(place(one, tiles_m, tiles_n, group) for one in range(tiles_m * tiles_n))
        assert set(found) == {(m, n) for m in range(tiles_m) for n in range(tiles_n)}
        assert set(found.values()) == {1}


def test_a_wave_needs_the_rows_and_columns_that_its_tiles_touch() -> None:
    """132 tiles of 128 x 256, 8 of N together: 16 columns whole and one of 4, so 17 of A and 8 of B."""
    problem = Gemm(m=128 * 64, n=256 * 32, k=1024, dtype="float16")
    assert footprint(problem, TILE, 132, 8) == (17 * 128 + 8 * 256) * 1024 * 2
    assert footprint(problem, TILE, 132, 4) == (33 * 128 + 4 * 256) * 1024 * 2
    assert footprint(problem, TILE, 10**6, 8) == problem.byte_read


@pytest.mark.parametrize("group", GROUPS)
def test_the_bytes_of_a_wave_are_those_of_the_tiles_in_their_order(group: int, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        tiles_m, tiles_n = chance.randint(1, 40), chance.randint(1, 40)
        problem = Gemm(m=128 * tiles_m, n=256 * tiles_n, k=64, dtype="float16")
        running = chance.randint(1, 2 * tiles_m * tiles_n)
        places = [place(one, tiles_m, tiles_n, group) for one in range(min(running, tiles_m * tiles_n))]
        columns, rows = ({one[axis] for one in places} for axis in (0, 1))
        needed = (len(columns) * 128 + len(rows) * 256) * 64 * 2
        assert footprint(problem, TILE, running, group) == needed


def test_the_group_is_the_one_whose_wave_needs_least() -> None:
    """132 x BLOCK_M / BLOCK_N tiles of N by as many of M would be square: 8 for 128 x 256, 16 for 256 x
    128."""
    problem = Gemm(m=8192, n=8192, k=4096, dtype="float16")
    assert best_group(problem, TILE, 132) == 8
    assert best_group(problem, Tile(256, 128, 64, 8, 3), 132) == 16
    assert best_group(problem, TILE, 20) == 4
    one_band = problem.model_copy(update={"n": 256 * 4})
    assert best_group(one_band, TILE, 132) == 8  # any: there are four tiles of N


def test_the_usual_group_is_not_named_and_others_are() -> None:
    assert str(TILE) == str(TILE._replace(group=8)) == "128x256x64 w8 s3"
    assert str(TILE._replace(group=16)) == "128x256x64 w8 s3 g16"
