"""GEMM in Gluon on Blackwell: what is decided before a launch.

What the kernels compute, and in which orders their warps may meet, is for the emulator's tests.
"""

import itertools
from typing import Any, get_args

import pytest
import torch

from bench.spec import Dtype, Unsupported
from kernels.gemm.number_types import swizzled
from kernels.gemm.operands import Operands, new_output
from kernels.gemm.problem import BLOCK_SCALED, Gemm, Layout
from tests.drawing import run_seed
from tests.kernels.tensors import TORCH_TYPE

gluon_blackwell = pytest.importorskip("kernels.gemm.gluon_blackwell")
from kernels.gemm import gluon, gluon_scaled  # noqa: E402  (they import triton)

AT, SMS = (10, 0), 148
TYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float8_e4m3", "mxfp8", "nvfp4")


def forms() -> list[tuple[Dtype, Layout]]:
    """Types, each in the layouts that it exists in."""
    every = itertools.product(TYPES, get_args(Layout))
    return [(dtype, layout) for dtype, layout in every if dtype not in BLOCK_SCALED or layout == "TN"]


def empty(problem: Gemm, offset: int = 0) -> Operands:
    """Operands of layout TN on no device, `offset` elements into their memory."""
    kind = TORCH_TYPE[problem.dtype]
    a = torch.zeros(problem.m * problem.k + offset, dtype=kind)[offset:].view(problem.m, problem.k)
    b = torch.zeros(problem.n * problem.k + offset, dtype=kind)[offset:].view(problem.n, problem.k)
    return Operands(problem, a, b, new_output(problem, a))


@pytest.mark.parametrize("dtype, layout", forms())
def test_every_list_has_configurations_each_once_that_fit(dtype: Dtype, layout: Layout) -> None:
    problem = Gemm(m=4096, n=4096, k=4096, dtype=dtype, layout=layout)
    module: Any = gluon_scaled if dtype in BLOCK_SCALED else gluon_blackwell
    listed = gluon.candidates(problem, AT, SMS)
    assert listed == module.candidates(problem, AT, SMS)
    assert len({str(one) for one in listed}) == len(listed) <= 12
    assert all(module.shared_byte(problem, one) <= 227 * 1024 for one in listed)
    assert {one.group for one in listed} == {4, 8, 16}
    assert {one.blocks for one in listed} == ({1} if dtype in BLOCK_SCALED else {1, 2})
    assert all(one.tile.n == 128 * one.blocks and one.tile.stages >= 3 for one in listed)


def test_configurations_whose_waves_compute_least_come_first() -> None:
    # 74 tiles of 256 x 256 are one wave of 74 pairs of SMs; one column more is a second, nearly empty wave.
    full = Gemm(m=37 * 256, n=512, k=4096, dtype="bfloat16", layout="TN")
    assert str(gluon_blackwell.candidates(full, AT, SMS)[0]) == "256x256x64 w4 s6 c2 g8"
    more = full.model_copy(update={"m": full.m + 8})
    first = gluon_blackwell.candidates(more, AT, SMS)[0]
    assert first.tile.m < 256
    assert gluon_blackwell.computed(more, first, SMS) < 2 * 256 * 128


def test_a_pair_of_blocks_is_one_program_and_none_is_without_a_tile() -> None:
    problem = Gemm(m=257, n=256, k=64, dtype="float16")
    by_blocks = {one.blocks: one for one in gluon_blackwell.candidates(problem, AT, SMS) if one.tile.m == 256}
    assert [gluon_blackwell.programs(problem, by_blocks[1], sms) for sms in (1, 3, 4, 148)] == [1, 3, 4, 4]
    assert [gluon_blackwell.programs(problem, by_blocks[2], sms) for sms in (2, 3, 4, 148)] == [1, 1, 2, 2]


def test_older_tritons_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in ("float16", "nvfp4"):
        problem = Gemm(m=256, n=256, k=256, dtype=dtype, layout="TN")  # type: ignore[arg-type]
        assert gluon.candidates(problem, AT, SMS)
        with monkeypatch.context() as patched:
            patched.setattr(gluon_blackwell.triton, "__version__", "3.6.0")
            with pytest.raises(Unsupported, match=r"needs Triton 3\.7 .* this is Triton 3\.6\.0"):
                gluon.candidates(problem, AT, SMS)
    gluon_blackwell.check_version("3.10.1+git12ab")


def test_8_bits_are_of_every_layout_on_blackwell_alone() -> None:
    for dtype, layout in itertools.product(("float8_e4m3", "float16"), get_args(Layout)):
        problem = Gemm(m=256, n=256, k=256, dtype=dtype, layout=layout)
        assert not problem.missing("triton-gluon", "cuda", AT)
        refused = problem.missing("triton-gluon", "cuda", (9, 0))
        assert bool(refused) == (dtype == "float8_e4m3" and layout != "TN")


def test_rows_that_do_not_begin_at_16_bytes_are_refused() -> None:
    problem = Gemm(m=256, n=256, k=64, dtype="float16", layout="TN")
    (chosen, *_) = gluon_blackwell.candidates(problem, AT, SMS)
    assert gluon_blackwell.prepare(empty(problem), chosen, SMS).arguments["ADD"] == "none"
    with pytest.raises(ValueError, match=r"a .* multiples of 16 bytes"):
        gluon_blackwell.prepare(empty(problem, offset=4), chosen, SMS)
    with pytest.raises(ValueError, match=r"d .* multiples of 16 bytes"):
        gluon_blackwell.prepare(empty(problem.model_copy(update={"m": 60})), chosen, SMS)


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
    for chosen in gluon_scaled.candidates(problem, AT, SMS):
        named = gluon_scaled.prepare(of, chosen, SMS).arguments
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


def test_scales_are_in_the_order_of_cublas() -> None:
    scale = torch.arange(256 * 8, dtype=torch.int64).remainder(251).to(torch.uint8).view(256, 8)
    flat = swizzled(scale)
    assert flat[512 * 3 + 16 * 5 + 4 * 2 + 1] == scale[128 + 2 * 32 + 5, 4 + 1]
