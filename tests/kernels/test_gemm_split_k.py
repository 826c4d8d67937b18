from typing import get_args

import pytest

pytest.importorskip("triton")

from bench.spec import Dtype
from kernels.gemm import split_k
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.tiles import Tile

TILE = Tile(128, 128, 64, 8, 4)
SMS = 132


def gemm(m: int, n: int, k: int, dtype: Dtype = "float16", layout: Layout = "TN") -> Gemm:
    return Gemm(m=m, n=n, k=k, dtype=dtype, layout=layout)


@pytest.mark.parametrize("capability", [(7, 0), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_there_is_something_to_try_for_every_type_and_layout(capability: tuple[int, int]) -> None:
    lowest = Gemm.implementation("triton-split-k").dtypes
    for dtype in (dtype for dtype in lowest if lowest[dtype] <= capability):
        for layout in get_args(Layout):
            for m, n, k in ((512, 512, 4096), (511, 513, 4095), (4096, 1, 4096), (33, 4095, 77)):
                found = split_k.candidates(gemm(m, n, k, dtype, layout), capability)
                assert found and len({str(one) for one in found}) == len(found)


@pytest.mark.parametrize("size", [256, 512, 1024])
def test_parts_fill_one_wave_where_k_is_long(size: int) -> None:
    """Tiles of 128 x 128 by a program on each of 132 multiprocessors, and not a second wave."""
    programs = (size // 128) ** 2 * split_k.parts(gemm(size, size, 2**20), TILE, SMS)
    assert 0.9 * SMS < programs <= SMS


def test_a_part_has_four_steps_at_least_and_a_tile_32_parts_at_most() -> None:
    for k in (1, 64, 64 * 7, 64 * 8, 64 * 100, 64 * 1000):
        found = split_k.parts(gemm(128, 128, k), TILE, SMS)
        assert found == 1 or k // 64 // found >= 4
    assert split_k.parts(gemm(128, 128, 64 * 7), TILE, SMS) == 1
    assert split_k.parts(gemm(128, 128, 64 * 8), TILE, SMS) == 2
    assert split_k.parts(gemm(128, 128, 2**20), TILE, SMS) == split_k.MOST_PARTS
    assert split_k.parts(gemm(8192, 8192, 8192), TILE, SMS) == 2  # asked for by name, it splits
