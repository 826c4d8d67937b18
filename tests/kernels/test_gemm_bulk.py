"""Kernels by bulk copies: what is decided before a launch.

What they compute is for gemm_interpreted.py, what they compile to for gemm_tiles_compiled.py.
"""

import itertools
from dataclasses import replace
from typing import get_args

import pytest
import torch

from bench.spec import Dtype
from kernels.gemm.problem import Gemm, Layout
from tests.kernels.gemm_cases import meta_operands

tma = pytest.importorskip("kernels.gemm.tma")

HOPPER, BLACKWELL, SMALL = (9, 0), (10, 0), (12, 0)
ROOM_BYTE = {HOPPER: 227 * 1024, BLACKWELL: 227 * 1024, SMALL: 99 * 1024}
TYPES = tuple(Gemm.implementation("triton-tma").dtypes)


@pytest.mark.parametrize("persistent", [False, True])
def test_rows_that_do_not_begin_at_16_bytes_are_refused(persistent: bool) -> None:
    problem = Gemm(m=256, n=128, k=64, dtype="float16", layout="TN")
    tile = tma.candidates(problem, HOPPER, persistent=persistent)[0]
    of = meta_operands(problem)
    assert tma.prepare(of, tile, 132, persistent=persistent).arguments["ADD"] == "none"
    begins_later = torch.zeros(of.a.numel() + 4, dtype=torch.float16)[4:].view(of.a.shape)
    with pytest.raises(AssertionError, match="base must be 16-byte aligned"):
        tma.prepare(replace(of, a=begins_later), tile, 132, persistent=persistent)
    with pytest.raises(AssertionError, match="strides must be 16-byte aligned"):
        odd = problem.model_copy(update={"m": 60})
        tma.prepare(meta_operands(odd), tile, 132, persistent=persistent)


@pytest.mark.parametrize("capability", [HOPPER, BLACKWELL, SMALL])
@pytest.mark.parametrize("dtype, layout", list(itertools.product(TYPES, get_args(Layout))))
def test_every_list_has_tiles_each_once_that_fit(
    dtype: Dtype, layout: Layout, capability: tuple[int, int]
) -> None:
    for beta in (0, 1) if dtype in ("float16", "bfloat16", "tf32") else (0,):
        problem = Gemm(m=4096, n=4096, k=4096, dtype=dtype, layout=layout, beta=beta)
        for walks in (False, True):
            tiles = tma.candidates(problem, capability, persistent=walks)
            assert 2 <= len(tiles) <= 25
            assert len({str(tile) for tile in tiles}) == len(tiles)
            taken = [tma.shared_byte(problem, capability, tile, persistent=walks) for tile in tiles]
            assert max(taken) <= ROOM_BYTE[capability]
            assert all(tile.k * problem.item_byte in (64, 128, 256) for tile in tiles)
