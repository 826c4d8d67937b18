"""Kernels by bulk copies: what is decided before a launch. What they compute: gemm_tma_interpreted.py."""

import itertools
from typing import get_args

import pytest
import torch

from bench.spec import Dtype
from kernels.gemm.operands import Operands, new_output
from kernels.gemm.problem import FORCED_TILES, Gemm, Layout
from kernels.gemm.tiles import Tile
from kernels.gemm.tma_tiles import bulk_tiles, forced, shared_byte

tma = pytest.importorskip("kernels.gemm.tma")
from kernels.gemm import persistent  # noqa: E402  (imports triton)

TYPES = tuple(Gemm.implementation("triton-tma").dtypes)
HOPPER, BLACKWELL, SMALL = (9, 0), (10, 0), (12, 0)


def zeros(problem: Gemm, offset: int = 0) -> Operands:
    """Operands of layout TN without gaps, `offset` elements into their memory."""
    a = torch.zeros(problem.m * problem.k + offset, dtype=torch.float16)[offset:].view(problem.m, problem.k)
    b = torch.zeros(problem.n * problem.k + offset, dtype=torch.float16)[offset:].view(problem.n, problem.k)
    return Operands(problem, a, b, new_output(problem, a))


def test_rows_that_do_not_begin_at_16_bytes_are_refused() -> None:
    tile = Tile(64, 64, 64, 4, 3)
    aligned = Gemm(m=64, n=64, k=64, layout="TN", dtype="float16")
    assert tma.prepare(zeros(aligned), tile, 132).grid == (1,)
    with pytest.raises(ValueError, match=r"a .* multiples of 16 bytes"):
        tma.prepare(zeros(aligned, offset=4), tile, 132)
    with pytest.raises(ValueError, match=r"d .* multiples of 16 bytes"):
        tma.prepare(zeros(aligned.model_copy(update={"m": 60})), tile, 132)


@pytest.mark.parametrize("capability", [HOPPER, BLACKWELL, SMALL])
@pytest.mark.parametrize("dtype, layout", list(itertools.product(TYPES, get_args(Layout))))
def test_every_list_has_tiles_each_once_that_fit(
    dtype: Dtype, layout: Layout, capability: tuple[int, int]
) -> None:
    room = (99 if capability == SMALL else 227) * 1024
    for beta in (0, 1) if dtype in ("float16", "bfloat16", "tf32") else (0,):
        problem = Gemm(m=4096, n=4096, k=4096, dtype=dtype, layout=layout, beta=beta)
        for walks in (False, True):
            tiles = bulk_tiles(problem, capability, persistent=walks)
            assert 2 <= len(tiles) <= 25
            assert len({str(tile) for tile in tiles}) == len(tiles)
            assert all(shared_byte(problem, capability, tile, persistent=walks) <= room for tile in tiles)
            assert all(tile.k * problem.item_byte in (64, 128, 256) for tile in tiles)
        assert tma.candidates(problem, capability, 132) == bulk_tiles(problem, capability, persistent=False)
        assert persistent.candidates(problem, capability, 132) == tiles


@pytest.mark.parametrize("shape", FORCED_TILES)
def test_a_forced_tile_is_of_its_shape(shape: str) -> None:
    m, n = map(int, shape.split("x"))
    for dtype, layout in itertools.product(TYPES, get_args(Layout)):
        for capability in (HOPPER, BLACKWELL):
            problem = Gemm(m=4096, n=4096, k=4096, dtype=dtype, layout=layout)
            found = forced(problem, capability, m, n)
            assert found and {(tile.m, tile.n) for tile in found} == {(m, n)}
            assert set(found) <= set(tma.candidates(problem, capability, 132))


def test_a_persistent_grid_has_a_program_an_sm_but_none_without_a_tile() -> None:
    problem, tile = Gemm(m=257, n=256, k=64, dtype="float16"), Tile(128, 128, 64, 8, 4)
    assert [persistent.programs(problem, tile, sms) for sms in (1, 5, 6, 132)] == [1, 5, 6, 6]
