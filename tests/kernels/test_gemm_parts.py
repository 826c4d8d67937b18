from typing import Any, get_args
from unittest.mock import patch

import pytest

pytest.importorskip("triton")

from bench.spec import Dtype
from kernels.gemm import pointer, skinny, split_k, stream_k
from kernels.gemm.operands import operands
from kernels.gemm.operator import OPERATOR
from kernels.gemm.parts import FAN, Share, reads, registers, rows, sum_byte, tiles_of
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.stream_k import Streams
from kernels.gemm.tiles import Tile, tile_list
from tests.kernels.tensors import uniform

TILE = Tile(128, 128, 64, 8, 4)
SMS = 132


def gemm(m: int, n: int, k: int, dtype: Dtype = "float16", layout: Layout = "TN") -> Gemm:
    return Gemm(m=m, n=n, k=k, dtype=dtype, layout=layout)


@pytest.mark.parametrize("kernel", [split_k, stream_k, skinny])
@pytest.mark.parametrize("capability", [(7, 0), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_there_is_something_to_try_for_every_type_and_layout(
    kernel: Any, capability: tuple[int, int]
) -> None:
    lowest = Gemm.implementation("triton-split-k").dtypes
    for dtype in Gemm.implementation("triton").dtypes:
        for layout in get_args(Layout):
            for m, n, k in ((512, 512, 4096), (511, 513, 4095), (4096, 1, 4096), (33, 4095, 77)):
                problem = gemm(m, n, k, dtype, layout)
                if lowest[dtype] > capability or (kernel is skinny and problem.refusal("triton-skinny")):
                    continue
                found = kernel.candidates(problem, capability, SMS)
                assert found and len({str(one) for one in found}) == len(found)
                if kernel is skinny:
                    assert all((one.tile.n if n < m else one.tile.m) >= min(m, n) for one in found)


@pytest.mark.parametrize("size", [128, 256, 512, 1024])
def test_parts_fill_one_wave_where_k_is_long(size: int) -> None:
    """Tiles of 128 x 128 by a program on each of 132 multiprocessors, and not a second wave."""
    programs = (size // 128) ** 2 * split_k.parts(gemm(size, size, 2**20), Share(TILE, 1), SMS)
    assert 0.9 * SMS < programs <= SMS


def test_parts_fill_up_the_last_wave() -> None:
    """99 tiles are three quarters of a wave; 4 parts make three whole ones."""
    assert split_k.parts(gemm(128 * 9, 128 * 11, 2**20), Share(TILE, 1), SMS) == 4


def test_a_part_has_four_steps_at_least() -> None:
    share = Share(TILE, 1)
    for k in (1, 64, 64 * 7, 64 * 8, 64 * 100, 64 * 1000):
        found = split_k.parts(gemm(128, 128, k), share, SMS)
        assert found == 1 or k // 64 // found >= 4
    assert split_k.parts(gemm(128, 128, 64 * 7), share, SMS) == 1
    assert split_k.parts(gemm(128, 128, 64 * 8), share, SMS) == 2
    assert split_k.parts(gemm(8192, 8192, 8192), share, SMS) == 2  # asked for by name, it splits
    assert split_k.parts(gemm(8192, 8192, 8192), share._replace(least=1), SMS) == 1


def test_exchanging_parts_is_weighed_against_walking_along_k() -> None:
    """One tile of 128 x 128 and 32 steps: of the 8 parts that K has room for so many do not pay."""
    share = Share(TILE, 1, least=1)
    problem = gemm(128, 128, 64 * 32)
    durations = {p: split_k.duration(problem, share, SMS, p) for p in range(1, 9)}
    assert durations[1] == 4 + 32
    assert durations[2] == 4 + 16 + 2 + 2 * 2  # 64 KiB a part, 32 KiB a step
    least = min(durations.values())
    assert least == durations[4] < durations[8]
    assert split_k.parts(problem, share, SMS) == min(
        p for p, steps in durations.items() if steps <= 1.05 * least
    )


def test_skinny_gives_every_multiprocessor_something_to_load() -> None:
    for problem in (gemm(4096, 1, 4096), gemm(16, 11008, 4096), gemm(14336, 64, 4096, "bfloat16")):
        for share in skinny.candidates(problem, (9, 0), SMS):
            parts = split_k.parts(problem, share, SMS)
            assert tiles_of(problem, share.tile) * parts >= 0.75 * SMS


@pytest.mark.parametrize(
    "m, n, k, programs, streamed",
    [
        (128 * 11, 128 * 12, 4096, 132, 0),  # one wave
        (128 * 12, 128 * 12, 4096, 132, 144),  # one and a bit: cut up all
        (128 * 22, 128 * 13, 4096, 132, 132 + 22),  # two and a bit: one whole wave
        (128 * 66, 128 * 10, 4096, 132, 0),  # five waves
        (128 * 10, 128 * 10, 4096, 132, 100),  # not even one
        (128, 128, 64 * 100, 25, 1),  # four steps a program
        (128, 128, 64, 1, 0),
    ],
)
def test_stream_k_cuts_up_the_last_waves(m: int, n: int, k: int, programs: int, streamed: int) -> None:
    found = stream_k.plan(gemm(m, n, k), Streams(TILE, 1, bulk=True), SMS)
    assert found == (programs, streamed)


def test_stream_k_moves_in_bulk_where_rows_and_device_allow() -> None:
    def bulk(problem: Gemm, capability: tuple[int, int] = (9, 0)) -> set[bool]:
        return {one.bulk for one in stream_k.candidates(problem, capability, SMS)}

    assert bulk(gemm(1024, 1024, 1024)) == {True}
    assert bulk(gemm(1024, 1024, 1024), (8, 0)) == {False}
    assert bulk(gemm(1024, 1024, 1023)) == {False}
    assert bulk(gemm(1024, 1024, 1024, "tf32", "NN")) == {False}
    assert bulk(gemm(1024, 1024, 1024, "float32")) == {False}


def test_tiles_are_tried_by_how_long_they_should_take() -> None:
    """Large ones first where there are tiles enough, small ones where there are not."""

    def cheapest(kernel: Any, problem: Gemm) -> Tile:
        listed = kernel.candidates(problem, (9, 0), SMS)
        tile: Tile = min(listed, key=lambda one: kernel.cost(problem, one, (9, 0), SMS)).tile
        return tile

    first = cheapest(stream_k, gemm(8192, 8192, 8192))
    assert first.m * first.n == 128 * 256
    small = cheapest(split_k, gemm(64, 64, 2**18))
    assert small.m == small.n == 64


def test_a_chunk_of_a_tile_is_whole_rows_and_fits_registers() -> None:
    for dtype in ("float16", "float64", "int8"):
        problem = gemm(512, 512, 512, dtype)
        for share in split_k.candidates(problem, (8, 0), SMS):
            high = rows(problem, share.tile)
            assert share.tile.n % high == 0
            a_thread = high * share.tile.m * sum_byte(problem) // (32 * share.tile.warps)
            assert a_thread <= 32 or high == 1


def test_registers_leave_room_for_the_programs_that_are_counted_on() -> None:
    assert registers(Tile(64, 64, 64, 4, 3), 2) == 255 and registers(TILE, 1) == 255
    assert registers(Tile(64, 16, 64, 4, 3), 3) == 168
    for share in skinny.candidates(gemm(4096, 1, 4096), (9, 0), SMS):
        limit = registers(share.tile, share.per_sm)
        assert limit * 32 * share.tile.warps * share.per_sm <= 65_536


def test_reads_of_parts_grow_by_stages() -> None:
    fan = FAN.value
    assert [reads(p) for p in (1, fan, fan + 1, 132)] == [1, fan, fan + 2, fan + 17]


def test_only_tf32_across_k_keeps_off_the_instructions_that_want_it_turned() -> None:
    long_m, long_n = Tile(128, 16, 64, 4, 4), Tile(16, 128, 64, 4, 4)
    assert split_k.turned(gemm(4096, 1, 64), long_m) and not split_k.turned(gemm(1, 4096, 64), long_n)
    assert split_k.turned(gemm(4096, 1, 64, "float16", "NN"), long_m)
    assert not split_k.turned(gemm(4096, 1, 64, "tf32", "NN"), long_m)
    assert split_k.turned(gemm(1, 4096, 64, "tf32", "TT"), long_n)
    assert not split_k.turned(gemm(4096, 4096, 64), TILE)


@pytest.mark.parametrize("kernel", [split_k, stream_k, skinny])
def test_compiles_what_it_would_launch(kernel: Any, seed: int) -> None:
    """Every argument of the kernel by name."""
    multiply = kernel.multiply if kernel is stream_k else pointer.multiply
    problem = gemm(64, 48, 4096)
    of = operands(problem, *OPERATOR.inputs(problem, uniform(problem, seed)))
    for configuration in kernel.candidates(problem, (9, 0), SMS):
        with patch.object(multiply, "warmup") as warmup:
            kernel.prepare(of, configuration, SMS).compile()
        (call,) = warmup.call_args_list
        options = {"grid", "num_warps", "num_stages", "maxnreg"}
        assert set(call.kwargs) - options == set(multiply.arg_names) and options <= set(call.kwargs)
        assert (call.kwargs["BLOCK_M"], call.kwargs["BLOCK_N"]) == configuration.tile[:2]


def test_configurations_read_as_people_write_them() -> None:
    assert str(Share(TILE, 1)) == "128x128x64 w8 s4 1/SM"
    assert str(Streams(TILE, 2, bulk=True)) == "128x128x64 w8 s4 2/SM bulk"
    assert str(Streams(TILE, 2, bulk=False)) == "128x128x64 w8 s4 2/SM pointers"
    assert tile_list("128x128x64 w8 s4, 32x64x16 w4 s3") == (TILE, Tile(32, 64, 16, 4, 3))
    for wrong in ("128x128 w8 s4", "128x128x64 w8 s4,32x64x16 w4 s3", "128x128x64 w8 4", "128x128x64 w8 s4;"):
        with pytest.raises((ValueError, TypeError)):
            tile_list(wrong)
