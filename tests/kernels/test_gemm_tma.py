"""Kernels by bulk copies: what is decided before a launch. What they compute: gemm_tma_interpreted.py."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch

from bench.spec import Dtype, Unsupported
from kernels.gemm.operands import Operands, new_output
from kernels.gemm.problem import FORCED_TILES, Gemm, Layout
from kernels.gemm.tiles import Tile
from kernels.gemm.tma_tiles import bulk_tiles, forced, shared_byte

descriptors = pytest.importorskip("kernels.gemm.descriptors")
from kernels.gemm import persistent, specialized, tma  # noqa: E402  (they import triton)

TYPES = tuple(Gemm.implementation("triton-tma").dtypes)
HOPPER, BLACKWELL, SMALL = (9, 0), (10, 0), (12, 0)


def zeros(problem: Gemm, offset: int = 0) -> Operands:
    """Operands of layout TN without gaps, `offset` elements into their memory."""
    a = torch.zeros(problem.m * problem.k + offset, dtype=torch.float16)[offset:].view(problem.m, problem.k)
    b = torch.zeros(problem.n * problem.k + offset, dtype=torch.float16)[offset:].view(problem.n, problem.k)
    return Operands(problem, a, b, new_output(problem, a))


@pytest.mark.parametrize("on_host", [True, False])
def test_rows_that_do_not_begin_at_16_bytes_are_refused(on_host: bool) -> None:
    tile = Tile(64, 64, 64, 4, 3)
    aligned = Gemm(m=64, n=64, k=64, layout="TN", dtype="float16")
    assert descriptors.arguments(zeros(aligned), tile, on_host=on_host)["ON_HOST"] is on_host
    with pytest.raises(ValueError, match=r"a .* multiples of 16 bytes"):
        descriptors.arguments(zeros(aligned, offset=4), tile, on_host=on_host)
    with pytest.raises(ValueError, match=r"d .* multiples of 16 bytes"):
        descriptors.arguments(zeros(aligned.model_copy(update={"m": 60})), tile, on_host=on_host)


class Kernel:
    """In a kernel's place: asks for scratch as a launch does, and keeps what it was given."""

    def __init__(self, byte: int) -> None:
        self.byte = byte
        self.given: list[torch.Tensor] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def run(**named: Any) -> None:
            from triton.runtime import _allocation

            allocator: Any = _allocation._allocator
            self.given.append(allocator.get()(self.byte, 128, None))

        return run


def test_each_launch_writes_its_descriptors_to_a_scratch_of_its_own_and_allocates_none() -> None:
    of = zeros(Gemm(m=64, n=64, k=64, layout="TN", dtype="float16"))
    kernel = Kernel(3 * descriptors.SCRATCH_BYTE)
    one, other = (descriptors.launch(kernel, of, 3, {"ON_HOST": False}) for _ in range(2))
    for launch in (one, other, one):
        assert launch.call() is of.d
    first, second, again = kernel.given
    assert again is first and second.data_ptr() != first.data_ptr()
    with pytest.raises(RuntimeError, match="bytes of scratch"):
        descriptors.launch(kernel, of, 2, {"ON_HOST": False}).call()


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


def test_specialized_warps_are_offered_where_the_compiler_makes_them() -> None:
    problem = Gemm(m=4096, n=4096, k=4096, dtype="bfloat16")
    hopper, blackwell, none = (specialized.candidates(problem, at, 132) for at in (HOPPER, BLACKWELL, SMALL))
    assert not any(one.flatten for one in hopper) and all(one.tile.warps == 4 for one in hopper)
    assert all(one.flatten for one in blackwell) and none == ()
    assert str(hopper[0]) == "128x256x64 w4 s3" and str(blackwell[0]) == "128x256x64 w8 s3 flat"
    for listed in (hopper, blackwell):
        assert len({str(one) for one in listed}) == len(listed)


def test_specialized_warps_need_triton_3_7_on_hopper_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Gemm(m=4096, n=4096, k=4096, dtype="bfloat16")
    monkeypatch.setattr(specialized.triton, "__version__", "3.6.0")
    with pytest.raises(Unsupported, match=r"triton-specialized needs Triton 3\.7 .* this is Triton 3\.6\.0"):
        specialized.candidates(problem, HOPPER, 132)
    assert specialized.candidates(problem, BLACKWELL, 148)
    monkeypatch.setattr(specialized.triton, "__version__", "3.10.1+git12ab")
    assert specialized.candidates(problem, HOPPER, 132)


def test_a_persistent_grid_has_a_program_an_sm_but_none_without_a_tile() -> None:
    problem, tile = SimpleNamespace(m=257, n=256), Tile(128, 128, 64, 8, 4)
    assert tma.programs(problem, tile) == 6
    assert [persistent.programs(problem, tile, sms) for sms in (1, 5, 6, 132)] == [1, 5, 6, 6]
