from typing import get_args
from unittest.mock import patch

import pytest

pytest.importorskip("triton")

from bench.spec import Dtype
from kernels.gemm import pointer, split_k
from kernels.gemm.operands import operands
from kernels.gemm.operator import OPERATOR
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.tiles import Tile, tile_list
from tests.kernels.tensors import uniform

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


def test_a_chunk_of_a_tile_is_whole_rows_and_fits_registers() -> None:
    for dtype in ("float16", "float64", "int8"):
        problem = gemm(512, 512, 512, dtype)
        for tile in split_k.candidates(problem, (8, 0)):
            high = split_k.rows(problem, tile)
            assert tile.n % high == 0
            assert high == 1 or high * tile.m * split_k.sum_byte(problem) <= 32 * 32 * tile.warps


def test_compiles_what_it_would_launch(seed: int) -> None:
    """Every argument of the kernel by name, with registers for as many programs as are counted on."""
    problem = gemm(64, 48, 4096)
    of = operands(problem, *OPERATOR.inputs(problem, uniform(problem, seed)))
    for tile in split_k.candidates(problem, (9, 0)):
        with patch.object(pointer.multiply, "warmup") as warmup:
            split_k.prepare(of, tile, SMS).compile()
        (call,) = warmup.call_args_list
        options = {"grid", "num_warps", "num_stages", "maxnreg"}
        assert set(call.kwargs) - options == set(pointer.multiply.arg_names) and options <= set(call.kwargs)
        assert (call.kwargs["BLOCK_M"], call.kwargs["BLOCK_N"]) == tile[:2]
        assert call.kwargs["maxnreg"] * 32 * 8 <= 65_536


def test_tiles_read_as_people_write_them() -> None:
    assert tile_list("128x128x64 w8 s4, 32x64x16 w4 s3") == (TILE, Tile(32, 64, 16, 4, 3))
    for wrong in ("128x128 w8 s4", "128x128x64 w8 s4,32x64x16 w4 s3", "128x128x64 w8 4", "128x128x64 w8 s4;"):
        with pytest.raises((ValueError, TypeError)):
            tile_list(wrong)
