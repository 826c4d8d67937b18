"""Tiles and waves: the guide's own numbers, and the staircase that they make."""

import pytest

from bench.model.quantization import (
    forced_tile,
    last_wave,
    tile_efficiency,
    tiles,
    waves,
)

A100, H100 = 108, 132
"""Streaming multiprocessors."""
TILE = 256, 128


def test_the_guide_one_column_more() -> None:
    """Matrix Multiplication guide, 3.1, figure 6: N from 256 to 257 makes 6 tiles of 4, two nearly empty."""
    assert tiles(256, 256, 128, 128) == 4 and tile_efficiency(256, 256, 128, 128) == 1.0
    assert tiles(256, 257, 128, 128) == 6
    assert tile_efficiency(256, 257, 128, 128) == pytest.approx(256 * 257 / (6 * 128 * 128))


@pytest.mark.parametrize("sm_count", [A100, H100])
def test_the_guide_tile_quantization(sm_count: int) -> None:
    """Figure 7: M = 256 for each SM, so every further 128 columns are a wave of their own, a full one."""
    m = 256 * sm_count
    for n in range(112, 513, 8):
        cells = 1 if n <= 128 else 2 if n <= 256 else 3 if n <= 384 else 4
        assert tiles(m, n, *TILE) == cells * sm_count
        assert waves(tiles(m, n, *TILE), sm_count) == cells
        assert last_wave(tiles(m, n, *TILE), sm_count) == 1.0


@pytest.mark.parametrize(
    ("m", "sm_count", "ends"),
    [
        (2304, A100, [1536, 3072, 4608, 6144]),  # the guide's figure 8: 9 rows of 12 columns are a wave
        (3072, H100, [1408, 2816, 4224, 5632]),  # the same on 132 SMs: 12 rows of 11 columns
        (2304, H100, [1792, 3712, 5632]),  # the guide's M there: 14 columns are 126 tiles, 15 are 135
    ],
)
def test_the_guide_wave_quantization(m: int, sm_count: int, ends: list[int]) -> None:
    """Figure 8: the last N of each wave."""

    def of(n: int) -> int:
        return waves(tiles(m, n, *TILE), sm_count)

    assert [n for n in range(1, ends[-1] + 1) if of(n + 1) > of(n)] == ends
    assert [of(n) for n in ends] == list(range(1, len(ends) + 1))


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("triton-256x128", (256, 128)),
        ("cublaslt-64x64", (64, 64)),
        ("triton", None),
        ("triton-split-k", None),
        ("cublaslt-256x", None),
        ("triton-256x128-wide", None),
        ("triton-0x128", None),
    ],
)
def test_which_names_force_a_tile(name: str, tile: tuple[int, int] | None) -> None:
    assert forced_tile(name) == tile
