"""Kernels in Gluon: what is decided before a launch. What they compile to is for gemm_gluon_compiled.py."""

from typing import Any, get_args

import pytest
import torch

from bench.spec import Dtype, Unsupported
from kernels.gemm.operands import Operands, new_output
from kernels.gemm.problem import Gemm, Layout

gluon = pytest.importorskip("kernels.gemm.gluon")
from kernels.gemm import gluon_hopper  # noqa: E402  (they import triton)
from kernels.gemm.gluon_hopper import Schedule, shared_byte, staged  # noqa: E402
from kernels.gemm.tiles import Tile  # noqa: E402

HOPPER = (9, 0)
ROOM_BYTE = 227 * 1024


def zeros(problem: Gemm, offset: int = 0) -> Operands:
    """Operands of 16 bits without gaps, `offset` elements into their memory, in the problem's layout."""

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.zeros(rows * columns + offset, dtype=torch.float16)[offset:].view(rows, columns)

    a = matrix(problem.k, problem.m) if problem.layout[0] == "N" else matrix(problem.m, problem.k)
    b = matrix(problem.n, problem.k) if problem.layout[1] == "N" else matrix(problem.k, problem.n)
    c = matrix(problem.n, problem.m) if problem.beta else None
    return Operands(problem, a, b, new_output(problem, a), c=c)


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
    of, chosen = zeros(problem), gluon.candidates(problem, HOPPER, 132)[0]
    assert gluon.prepare(of, chosen, 7) == (of, chosen, 7)


@pytest.mark.parametrize("dtype, beta", [("float16", 0), ("bfloat16", 1), ("float8_e4m3", 0)])
def test_schedules_fit_are_told_apart_and_keep_the_lag_within_the_ring(dtype: Dtype, beta: Any) -> None:
    problem = Gemm(m=4096, n=4096, k=4096, dtype=dtype, layout="TN", beta=beta)
    found = gluon_hopper.candidates(problem, HOPPER, 132)
    assert len({str(one) for one in found}) == len(found)
    for one in found:
        deeper = one.tile._replace(stages=one.tile.stages + 1)
        assert shared_byte(problem, one.tile) <= ROOM_BYTE < shared_byte(problem, deeper)
        # With a lag as long as the ring less one, the group ahead would wait for every copy.
        assert 0 <= one.lag <= one.tile.stages - 2
        assert one.tile.k * problem.item_byte == 128
        # What C arrives in must hold all of it.
        assert staged(problem, one.tile) == (one.tile.m * one.tile.n // 2 // 64**2 if beta else 2)


@pytest.mark.parametrize("layout", get_args(Layout))
def test_descriptors_have_the_blocks_that_the_kernel_copies(layout: Layout) -> None:
    problem = Gemm(m=512, n=384, k=256, dtype="float16", layout=layout, beta=1)
    chosen = Schedule(Tile(256, 128, 64, 8, 3), lag=1, group=8)
    named = gluon_hopper.prepare(zeros(problem), chosen, 132).arguments
    blocks = {name: list(named[name].block_shape) for name in "abcd"}
    assert blocks == {
        "a": [64, 256] if layout[0] == "N" else [256, 64],
        "b": [64, 64],
        "c": [64, 64],
        "d": [64, 64],
    }
    assert all(named[name].layout.swizzle_byte_width == 128 for name in "abcd")
    assert [list(named[name].shape) for name in "cd"] == [[384, 512]] * 2


def test_rows_that_do_not_begin_at_16_bytes_are_refused() -> None:
    problem = Gemm(m=256, n=128, k=64, dtype="float16", layout="TN")
    chosen = gluon_hopper.candidates(problem, HOPPER, 132)[0]
    with pytest.raises(ValueError, match=r"a .* multiples of 16 bytes"):
        gluon_hopper.prepare(zeros(problem, offset=4), chosen, 132)


def test_a_grid_has_a_program_an_sm_but_none_without_a_tile() -> None:
    problem = Gemm(m=513, n=256, k=64, dtype="float16", layout="NT", pitch="padded")
    rows = problem.row_byte()[0] // 2
    a = torch.zeros(64, rows, dtype=torch.float16)[:, :513]
    of = Operands(problem, a, torch.zeros(64, 256, dtype=torch.float16), new_output(problem, a))
    chosen = Schedule(Tile(256, 128, 64, 8, 4), lag=0, group=8)  # 3 x 2 tiles
    grids = [gluon_hopper.prepare(of, chosen, sms).grid for sms in (1, 5, 6, 132)]
    assert grids == [(1,), (5,), (6,), (6,)]
