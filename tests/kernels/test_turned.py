"""Turning operands before a product: what it counts, when it is proposed, and what it is proposed with."""

import itertools
from typing import Any, get_args

import pytest

from bench.spec import Dtype
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.tiles import Tile
from tests.drawing import drawn
from tests.kernels.shared_banks import Access, accesses

choosing = pytest.importorskip("kernels.gemm.choosing")
duration = pytest.importorskip("kernels.gemm.duration")
turned = pytest.importorskip("kernels.gemm.turned")

AMPERE, ADA, HOPPER, BLACKWELL, WORKSTATION = (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)
TYPES: tuple[Dtype, ...] = ("float8_e4m3", "int8", "tf32")
SM_COUNT = 132


def square(side: int, layout: Layout, dtype: Dtype = "int8", **more: Any) -> Gemm:
    return Gemm(**{"m": side, "n": side, "k": side, "layout": layout, "dtype": dtype} | more)


def test_a_turned_operand_is_read_written_and_read_again() -> None:
    m, n, k = 64, 32, 128
    for layout, elements in (("NN", m * k), ("TT", n * k), ("NT", (m + n) * k)):
        for dtype, item in (("int8", 1), ("tf32", 4)):
            problem = Gemm(m=m, n=n, k=k, layout=layout, dtype=dtype)  # type: ignore[arg-type]
            byte = elements * item
            assert problem.turned_byte == byte == problem.byte_again("triton-turned")
            assert problem.byte_moved("triton-turned") == problem.byte + 2 * byte
            assert problem.moved_written("triton-turned") == problem.byte_written + byte
            assert problem.facts("triton-turned")["byte_beside"] == 2 * byte
            assert problem.byte_moved("triton-tma") == problem.byte
            assert problem.facts("triton-tma")["byte_beside"] is None


def test_it_is_multiplied_as_layout_tn_by_what_is_proposed_for_that(seed: int) -> None:
    cases = list(
        itertools.product(("NN", "NT", "TT"), TYPES, (HOPPER, BLACKWELL), ((4096, 4096), (2048, 16)))
    )
    for layout, dtype, capability, (m, n) in drawn(cases, 12, "turned candidates"):
        problem = Gemm(m=m, n=n, k=4096, layout=layout, dtype=dtype)  # type: ignore[arg-type]
        of_tn = choosing.choices_of(turned.k_major(problem), "triton", capability, SM_COUNT)
        found = choosing.choices_of(problem, "triton-turned", capability, SM_COUNT)
        assert {one.configuration for one in found} == set(of_tn) and len(of_tn) > 1
        assert {one.variant for one in found} == {"turned"}
        assert len({str(one) for one in found}) == len(found)


def proposals(problem: Gemm, capability: tuple[int, int]) -> list[str]:
    """The kernels of the three candidates of `triton`, the likeliest first."""
    found = choosing.choices_of(problem, "triton", capability, SM_COUNT)
    return [one.variant for one in found[: choosing.PROPOSED]]


@pytest.mark.parametrize("dtype", TYPES)
def test_on_hopper_large_operands_are_turned_first(dtype: Dtype) -> None:
    for layout in get_args(Layout):
        large = proposals(square(8192, layout, dtype), HOPPER)
        assert (large[0] == "turned") == (layout != "TN")
        assert not set(large) <= {"turned"}  # the device decides
        assert "turned" not in proposals(square(256, layout, dtype), HOPPER)
    # A serves each column of D: with few of them there is nothing to save, however large it is.
    assert "turned" not in proposals(Gemm(m=65536, n=256, k=8192, layout="NN", dtype=dtype), HOPPER)
    assert "turned" not in proposals(square(8192, "NN", dtype, k=8191), HOPPER)


def test_types_and_layouts_that_are_multiplied_as_they_lie_cost_no_more() -> None:
    tile = Tile(128, 128, 128, 8, 4)
    for layout in get_args(Layout):
        assert duration.slowdown(square(8192, layout, "float16"), tile, HOPPER) == 1
    assert duration.slowdown(square(8192, "TN"), tile, HOPPER) == 1
    of_a, of_b, both = (duration.slowdown(square(8192, one), tile, HOPPER) for one in ("NN", "TT", "NT"))
    assert of_a == of_b > 1.3 and both - 1 == pytest.approx(2 * (of_a - 1))


@pytest.mark.parametrize(
    ("capability", "dtype", "layouts"),
    [
        (AMPERE, "int8", {"NN", "NT", "TT"}),
        (AMPERE, "tf32", set()),
        (ADA, "float8_e4m3", {"NN", "NT", "TT"}),
        (BLACKWELL, "float8_e4m3", set()),
        (BLACKWELL, "int8", {"NN", "NT"}),
        (BLACKWELL, "tf32", {"NN", "NT", "TT"}),
        (WORKSTATION, "float8_e4m3", {"NN", "NT"}),
        (WORKSTATION, "tf32", set()),
    ],
)
def test_elsewhere_what_goes_through_registers_is(
    capability: tuple[int, int], dtype: Dtype, layouts: set[str]
) -> None:
    every = get_args(Layout)
    found = {layout for layout in every if "turned" in proposals(square(8192, layout, dtype), capability)}
    assert (
        found
        == layouts
        == {one for one in every if any(duration.turned_inside(square(8192, one, dtype), capability))}
    )


@pytest.mark.parametrize(
    ("address", "ways"),
    [
        ("shl.b32 %r2, %r1, 2;", 1),  # neighbours
        ("shl.b32 %r2, %r1, 3;", 2),  # every other word
        ("shl.b32 %r2, %r1, 7;", 32),  # a column of rows of 128 bytes
        ("and.b32 %r2, %r1, 3;", 1),  # four bytes of one word
        ("shl.b32 %r3, %r1, 7;\nand.b32 %r4, %r1, 31;\nshl.b32 %r5, %r4, 2;\nxor.b32 %r2, %r3, %r5;", 1),
        ("bfe.u32 %r3, %r1, 1, 5;\nshl.b32 %r2, %r3, 7;", 16),  # pairs of threads
        ("bfe.s32 %r3, %r1, 4, 1;\nand.b32 %r2, %r3, 128;", 2),
        ("shl.b32 %r3, %r1, 31;\nshr.s32 %r4, %r3, 31;\nand.b32 %r2, %r4, 32768;", 2),
    ],
)
def test_threads_that_meet_in_a_bank_are_counted(address: str, ways: int) -> None:
    ptx = f"mov.u32 %r1, %tid.x;\n{address}\nld.shared.b32 %r9, [%r2+4];\nst.shared.v4.b8 [ %r1 + 0 ], {{}};"
    assert accesses(ptx, warps=2) == [Access("ld", 4, ways), Access("st", 4, 1)]


def test_an_address_that_depends_on_data_is_refused() -> None:
    with pytest.raises(ValueError, match="no address is known"):
        accesses("ld.global.b32 %r1, [%rd1];\nst.shared.b32 [%r1], %r1;", warps=1)
