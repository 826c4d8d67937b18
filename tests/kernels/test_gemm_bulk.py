"""Kernels by bulk copies, in Triton and in Gluon: what is decided before a launch.

What they compute is for gemm_interpreted.py and test_gemm_gluon_emulated.py, what they compile to for
gemm_tiles_compiled.py and gemm_gluon_compiled.py.
"""

import itertools
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch

from bench.spec import Dtype, Unsupported
from kernels.gemm.operands import Operands
from kernels.gemm.problem import BLOCK_SCALED, FORCED_TILES, Gemm, Layout
from kernels.gemm.tiles import Tile
from tests.drawing import run_seed
from tests.kernels.gemm_cases import meta_operands
from tests.kernels.tensors import TORCH_TYPE

tma = pytest.importorskip("kernels.gemm.tma")
from kernels.gemm import gluon, gluon_blackwell, gluon_hopper, gluon_scaled, persistent  # noqa: E402

HOPPER, BLACKWELL, SMALL = (9, 0), (10, 0), (12, 0)
SMS = {HOPPER: 132, BLACKWELL: 148, SMALL: 188}
ROOM_BYTE = {HOPPER: 227 * 1024, BLACKWELL: 227 * 1024, SMALL: 99 * 1024}
TYPES = tuple(Gemm.implementation("triton-tma").dtypes)

GLUON_FORMS = [
    (dtype, layout)
    for dtype in ("float16", "bfloat16", "float8_e4m3", "mxfp8", "nvfp4")
    for layout in get_args(Layout)
    if dtype not in BLOCK_SCALED or layout == "TN"
]
"""Types, each in the layouts that it exists in on Blackwell."""


@pytest.mark.parametrize("module", [tma, persistent, gluon_hopper, gluon_blackwell])
def test_rows_that_do_not_begin_at_16_bytes_are_refused(module: Any) -> None:
    at = BLACKWELL if module is gluon_blackwell else HOPPER
    problem = Gemm(m=256, n=128, k=64, dtype="float16", layout="TN")
    chosen = module.candidates(problem, at, SMS[at])[0]
    of = meta_operands(problem)
    assert module.prepare(of, chosen, SMS[at]).arguments["ADD"] == "none"
    begins_later = torch.zeros(of.a.numel() + 4, dtype=torch.float16)[4:].view(of.a.shape)
    with pytest.raises(ValueError, match=r"a .* multiples of 16 bytes"):
        module.prepare(replace(of, a=begins_later), chosen, SMS[at])
    with pytest.raises(ValueError, match=r"d .* multiples of 16 bytes"):
        module.prepare(meta_operands(problem.model_copy(update={"m": 60})), chosen, SMS[at])


def test_a_grid_has_a_program_an_sm_but_none_without_a_tile() -> None:
    """Of three tiles by two; of a pair of blocks one program."""
    problem = Gemm(m=257, n=256, k=64, dtype="float16")
    tile = Tile(128, 128, 64, 8, 4)
    assert [persistent.programs(problem, tile, sms) for sms in (1, 5, 6, 132)] == [1, 5, 6, 6]
    wide = Gemm(m=520, n=256, k=64, dtype="float16", layout="NT")
    chosen = gluon_hopper.Schedule(Tile(256, 128, 64, 8, 4), lag=0)
    grids = [gluon_hopper.prepare(meta_operands(wide), chosen, sms).grid for sms in (1, 5, 6, 132)]
    assert grids == [(1,), (5,), (6,), (6,)]
    listed = gluon_blackwell.candidates(problem, BLACKWELL, 148)
    by_blocks = {one.blocks: one for one in listed if one.tile.m == 256}
    assert [gluon.programs(problem, by_blocks[1], sms) for sms in (1, 3, 4, 148)] == [1, 3, 4, 4]
    assert [gluon.programs(problem, by_blocks[2], sms) for sms in (2, 3, 4, 148)] == [1, 1, 2, 2]


@pytest.mark.parametrize("capability", [HOPPER, BLACKWELL, SMALL])
@pytest.mark.parametrize("dtype, layout", list(itertools.product(TYPES, get_args(Layout))))
def test_every_list_has_tiles_each_once_that_fit(
    dtype: Dtype, layout: Layout, capability: tuple[int, int]
) -> None:
    for beta in (0, 1) if dtype in ("float16", "bfloat16", "tf32") else (0,):
        problem = Gemm(m=4096, n=4096, k=4096, dtype=dtype, layout=layout, beta=beta)
        for walks in (False, True):
            tiles = tma.bulk_tiles(problem, capability, persistent=walks)
            assert 2 <= len(tiles) <= 25
            assert len({str(tile) for tile in tiles}) == len(tiles)
            taken = [tma.shared_byte(problem, capability, tile, persistent=walks) for tile in tiles]
            assert max(taken) <= ROOM_BYTE[capability]
            assert all(tile.k * problem.item_byte in (64, 128, 256) for tile in tiles)
        assert tma.candidates(problem, capability, 132) == tma.bulk_tiles(
            problem, capability, persistent=False
        )
        assert persistent.candidates(problem, capability, 132) == tiles


@pytest.mark.parametrize("dtype, layout", GLUON_FORMS)
def test_every_list_in_gluon_has_configurations_each_once_that_fit(dtype: Dtype, layout: Layout) -> None:
    problem = Gemm(m=4096, n=4096, k=4096, dtype=dtype, layout=layout)
    module: Any = gluon_scaled if dtype in BLOCK_SCALED else gluon_blackwell
    listed = gluon.candidates(problem, BLACKWELL, 148)
    assert listed == module.candidates(problem, BLACKWELL, 148)
    assert len({str(one) for one in listed}) == len(listed) <= 12
    assert all(module.shared_byte(problem, one) <= ROOM_BYTE[BLACKWELL] for one in listed)
    assert {one.tile.group for one in listed} == {4, 8, 16}
    assert {one.blocks for one in listed} == ({1} if dtype in BLOCK_SCALED else {1, 2})
    assert all(one.tile.n == 128 * one.blocks and one.tile.stages >= 3 for one in listed)


@pytest.mark.parametrize("dtype, beta", [("float16", 0), ("bfloat16", 1), ("float8_e4m3", 0)])
def test_schedules_fit_are_told_apart_and_keep_the_lag_within_the_ring(dtype: Dtype, beta: Any) -> None:
    problem = Gemm(m=4096, n=4096, k=4096, dtype=dtype, layout="TN", beta=beta)
    found = gluon_hopper.candidates(problem, HOPPER, 132)
    assert len({str(one) for one in found}) == len(found)
    for one in found:
        deeper = one.tile._replace(stages=one.tile.stages + 1)
        taken, beyond = (gluon_hopper.shared_byte(problem, tile) for tile in (one.tile, deeper))
        assert taken <= ROOM_BYTE[HOPPER] < beyond
        # With a lag as long as the ring less one, the group ahead would wait for every copy.
        assert 0 <= one.lag <= one.tile.stages - 2
        assert one.tile.k * problem.item_byte == 128
        # What C arrives in must hold all of it.
        pieces = one.tile.m * one.tile.n // 2 // 64**2 if beta else 2
        assert gluon_hopper.staged(problem, one.tile) == pieces


@pytest.mark.parametrize("shape", FORCED_TILES)
def test_a_forced_tile_is_of_its_shape(shape: str) -> None:
    m, n = map(int, shape.split("x"))
    for dtype, layout in itertools.product(TYPES, get_args(Layout)):
        for capability in (HOPPER, BLACKWELL):
            problem = Gemm(m=4096, n=4096, k=4096, dtype=dtype, layout=layout)
            found = tma.forced(problem, capability, m, n)
            assert found and {(tile.m, tile.n) for tile in found} == {(m, n)}
            assert set(found) <= set(tma.candidates(problem, capability, 132))


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (11, 0), (12, 0), (12, 1)])
def test_where_there_is_no_kernel_it_is_unsupported_and_says_where_there_is(
    capability: tuple[int, int],
) -> None:
    problem = Gemm(m=4096, n=4096, k=4096, dtype="float16")
    major, minor = capability
    with pytest.raises(Unsupported, match=rf"compute capability 9\.x.*, not for {major}\.{minor}"):
        gluon.candidates(problem, capability, 132)


@pytest.mark.parametrize("capability", [(9, 0), (12, 0)])
def test_types_with_scales_for_blocks_have_a_kernel_of_their_own_on_fewer_devices(
    capability: tuple[int, int],
) -> None:
    problem = Gemm(m=4096, n=4096, k=4096, dtype="mxfp8", layout="TN")
    with pytest.raises(Unsupported, match=r"mxfp8 kernels for compute capability 10\.x, not for"):
        gluon.candidates(problem, capability, 132)
    assert gluon.candidates(problem, (10, 3), 148)


def test_the_kernel_of_the_device_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: HOPPER)
    monkeypatch.setattr(gluon_hopper, "prepare", lambda *given: given)
    problem = Gemm(m=256, n=256, k=64, dtype="float16")
    of, chosen = meta_operands(problem), gluon.candidates(problem, HOPPER, 132)[0]
    assert gluon.prepare(of, chosen, 7) == (of, chosen, 7)


@pytest.mark.parametrize("layout", get_args(Layout))
def test_descriptors_have_the_blocks_that_the_kernel_copies(layout: Layout) -> None:
    problem = Gemm(m=512, n=384, k=256, dtype="float16", layout=layout, beta=1)
    chosen = gluon_hopper.Schedule(Tile(256, 128, 64, 8, 3), lag=1)
    named = gluon_hopper.prepare(meta_operands(problem), chosen, 132).arguments
    blocks = {name: list(named[name].block_shape) for name in "abcd"}
    assert blocks == {
        "a": [64, 256] if layout[0] == "N" else [256, 64],
        "b": [64, 64],
        "c": [64, 64],
        "d": [64, 64],
    }
    assert all(named[name].layout.swizzle_byte_width == 128 for name in "abcd")
    assert [list(named[name].shape) for name in "cd"] == [[384, 512]] * 2


def test_configurations_whose_waves_compute_least_come_first() -> None:
    # 74 tiles of 256 x 256 are one wave of 74 pairs of SMs; one column more is a second, nearly empty wave.
    full = Gemm(m=37 * 256, n=512, k=4096, dtype="bfloat16", layout="TN")
    assert str(gluon_blackwell.candidates(full, BLACKWELL, 148)[0]) == "256x256x64 w4 s6 c2 g8"
    more = full.model_copy(update={"m": full.m + 8})
    first = gluon_blackwell.candidates(more, BLACKWELL, 148)[0]
    assert first.tile.m < 256
    assert gluon.computed(more, first, 148) < 2 * 256 * 128


def test_older_tritons_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in ("float16", "nvfp4"):
        problem = Gemm(m=256, n=256, k=256, dtype=dtype, layout="TN")  # type: ignore[arg-type]
        assert gluon.candidates(problem, BLACKWELL, 148)
        with monkeypatch.context() as patched:
            patched.setattr(gluon_blackwell.triton, "__version__", "3.6.0")
            with pytest.raises(Unsupported, match=r"needs Triton 3\.7 .* this is Triton 3\.6\.0"):
                gluon.candidates(problem, BLACKWELL, 148)
    gluon.check_version("3.10.1+git12ab", gluon_blackwell.LEAST_TRITON)


def test_8_bits_are_of_every_layout_on_blackwell_alone() -> None:
    for dtype, layout in itertools.product(("float8_e4m3", "float16"), get_args(Layout)):
        problem = Gemm(m=256, n=256, k=256, dtype=dtype, layout=layout)
        assert not problem.missing("triton-gluon", "cuda", BLACKWELL)
        refused = problem.missing("triton-gluon", "cuda", (9, 0))
        assert bool(refused) == (dtype == "float8_e4m3" and layout != "TN")


@pytest.mark.parametrize("dtype, kind", [("mxfp8", torch.uint8), ("nvfp4", torch.float8_e4m3fn)])
@pytest.mark.parametrize("m, n, k", [(129, 1, 32), (384, 130, 96), (256, 640, 4128)])
def test_a_copy_of_scales_brings_those_of_its_rows_and_blocks(
    dtype: Dtype, kind: torch.dtype, m: int, n: int, k: int
) -> None:
    """By the descriptor's own shape, strides and box; past the ends of the tensor copies give zeros."""
    problem = Gemm(m=m, n=n, k=k, dtype=dtype, layout="TN")
    generator = torch.Generator().manual_seed(run_seed())
    scales = tuple(
        torch.randint(1, 120, (rows, k // BLOCK_SCALED[dtype]), generator=generator, dtype=torch.uint8)
        for rows in (m, n)
    )
    packed = 2 if dtype == "nvfp4" else 1
    a, b = (torch.zeros(rows, k // packed, dtype=TORCH_TYPE[dtype]) for rows in (m, n))
    viewed = (scales[0].view(kind), scales[1].view(kind))
    of = Operands(problem, a, b, torch.zeros(n, 8 * -(-m // 8), dtype=torch.bfloat16)[:, :m], scales=viewed)
    for chosen in gluon_scaled.candidates(problem, BLACKWELL, 148):
        named = gluon_scaled.prepare(of, chosen, 148).arguments
        for name, size, scale in (("a_scale", "BLOCK_M", scales[0]), ("b_scale", "BLOCK_N", scales[1])):
            found = brought(named[name], named[size], named["BLOCKS"])
            rows, blocks = scale.shape
            assert torch.equal(found[:rows, :blocks], scale)
            assert not found[rows:].any() and not found[:, blocks:].any()
        assert named["steps"] * chosen.tile.k >= k > (named["steps"] - 1) * chosen.tile.k


def brought(descriptor: Any, rows: int, blocks: int) -> torch.Tensor:
    """[rows, blocks] scales, copied box by box as the kernel asks for them, in the order of their bytes."""
    flat = descriptor.base.view(torch.uint8)
    _, tall, wide, _, _ = descriptor.shape
    _, high, deep, two, bytes_ = descriptor.block_shape
    assert (high * 128, deep * 4, two * bytes_) == (rows, blocks, 512)
    lines = -(-tall // high)
    found = torch.zeros(lines * rows, -(-wide // deep) * blocks, dtype=torch.uint8)
    for down, along in itertools.product(range(tall), range(wide)):
        at = down * descriptor.strides[1] + along * descriptor.strides[2]
        tile = flat[at : at + 512].view(32, 4, 4).permute(1, 0, 2).reshape(128, 4)
        found[down * 128 : down * 128 + 128, along * 4 : along * 4 + 4] = tile
    return found
