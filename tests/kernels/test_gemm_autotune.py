"""Which of our kernels is proposed for which shape, and what of it is timed, once for a class."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch

from bench.autotune.tuning import TIMED, timed_by
from bench.spec import Dtype, Unsupported
from kernels.gemm.operands import Operands
from kernels.gemm.problem import FORCED_TILES, Gemm, Layout

pytest.importorskip("triton", minversion="3.7")
from kernels.gemm import autotune
from tests.kernels.devices import Gpu

AMPERE, HOPPER = (8, 0), (9, 0)
SM_COUNT = 132
H100 = autotune.Device(HOPPER, SM_COUNT)


def proposed(m: int, n: int, k: int, capability: tuple[int, int] = HOPPER, **more: Any) -> tuple[str, ...]:
    problem = Gemm(m=m, n=n, k=k, **{"dtype": "bfloat16", "layout": "TN"} | more)
    return autotune.variants(problem, capability, SM_COUNT)


FEW = ("tma", "pointer")
MANY = ("persistent", "tma")


@pytest.mark.parametrize(
    ("sizes", "expected", "on_ampere"),
    [
        ((64, 64, 64), FEW, ("pointer",)),
        ((64, 64, 2048), ("split-k", *FEW), ("split-k", "pointer")),
        ((4096, 1, 4096), ("split-k", *FEW), ("split-k", "pointer")),
        # Fewer tiles of 128 x 128 than SMs share K: 64, and one less than a wave; too short to share.
        ((1024, 1024, 4096), ("split-k", *FEW), ("split-k", "pointer")),
        ((128 * 131, 128, 4096), ("split-k", *FEW), ("split-k", "pointer")),
        ((1024, 1024, 504), FEW, ("pointer",)),
        # A wave and more.
        ((128 * 12, 128 * 11, 4096), MANY, ("pointer",)),
        ((8192, 8192, 8192), MANY, ("pointer",)),
    ],
)
def test_shapes_decide_which_kernels_are_worth_trying(
    sizes: tuple[int, int, int], expected: tuple[str, ...], on_ampere: tuple[str, ...]
) -> None:
    assert proposed(*sizes) == expected
    assert proposed(*sizes, AMPERE) == on_ampere


@pytest.mark.parametrize(
    "more",
    [
        *({"k": 4097}, {"dtype": "float64"}, {"dtype": "float32"}, {"dtype": "float16", "m": 8196}),
        *({"m": 8191, "n": 8191, "k": 8191}, {"batch": 2}, {"m": 64, "n": 64, "batch": 512}),
    ],
)
def test_what_bulk_copies_cannot_move_goes_by_pointers(more: dict[str, Any]) -> None:
    assert proposed(**{"m": 8192, "n": 8192, "k": 8192} | more) == ("pointer",)


def test_padded_rows_can_be_moved_by_bulk_copies_at_any_size() -> None:
    assert proposed(8191, 8191, 8191, pitch="padded") == MANY


def test_every_kernel_has_a_name_of_its_own_and_is_timed_for_some_shape() -> None:
    ours = {one.name for one in Gemm.implementations if one.name.startswith("triton-")}
    names = ours - {f"triton-{tile}" for tile in FORCED_TILES}
    shapes = ((8192, 8192, 8192), (1024, 1024, 4096))
    every = [Gemm(m=m, n=n, k=k, dtype=d) for m, n, k in shapes for d in ("bfloat16", "float64")]
    found = {one.kernel for problem in every for one in autotune.choices_of(problem, "triton", H100)[:TIMED]}
    assert {f"triton-{kernel}" for kernel in found} == names


@pytest.mark.parametrize("capability", [(7, 0), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)])
@pytest.mark.parametrize("dtype", Gemm.implementation("triton").dtypes)
def test_where_triton_is_declared_something_is_proposed_and_told_apart(
    capability: tuple[int, int], dtype: Dtype
) -> None:
    for layout in get_args(Layout):
        for m, n, k in ((31, 31, 31), (64, 4096, 4096), (1024, 1024, 1024), (8192, 8192, 8192)):
            problem = Gemm(m=m, n=n, k=k, layout=layout, dtype=dtype)
            if problem.missing("triton", "cuda", capability):
                continue
            choices = autotune.choices_of(problem, "triton", autotune.Device(capability, SM_COUNT))
            assert choices and len({str(choice) for choice in choices}) == len(choices), problem


def proposals(m: int, n: int, k: int, name: str = "triton", at: autotune.Device = H100) -> list[Any]:
    problem = Gemm(m=m, n=n, k=k, dtype="bfloat16", layout="TN")
    return list(autotune.choices_of(problem, name, at)[:TIMED])


@pytest.mark.parametrize("m, n, k", [(8192, 8192, 8192), (2048, 2048, 2048), (1024, 1024, 4096)])
def test_those_of_two_kernels_at_least_and_of_different_tiles_are_timed(m: int, n: int, k: int) -> None:
    found = proposals(m, n, k)
    assert len({(one.kernel, one.tile.m, one.tile.n) for one in found}) == len(found) == TIMED
    assert 1 < max(Counter(one.kernel for one in found).values()) <= TIMED / 2


def area(choice: Any) -> int:
    return int(choice.tile.m * choice.tile.n)


def test_plain_rules_put_the_largest_tiles_that_occupy_the_device_first() -> None:
    assert area(proposals(8192, 8192, 8192)[0]) == area(proposals(2048, 2048, 8192)[0]) == 256 * 128
    few = proposals(1024, 1024, 1024, "triton-tma")
    assert area(few[0]) == 128 * 64, "128 of them for 132 SMs"
    assert all(area(one) <= 64 * 64 for one in proposals(512, 512, 512, "triton-tma")[:2])
    assert area(proposals(256, 256, 2**18, "triton-split-k")[0]) == 128 * 128, "4 of 32 parts of K"


def test_tiles_that_would_lie_outside_the_matrix_are_left_out() -> None:
    for m, n in ((4096, 1), (4096, 16), (1, 4096), (33, 65), (8192, 128)):
        for at in (H100, autotune.Device(AMPERE, 108)):
            for name in ("triton-pointer", "triton-split-k"):
                problem = Gemm(m=m, n=n, k=4096, dtype="bfloat16", layout="TN")
                listed = autotune._tiles(problem, name.removeprefix("triton-"), at.capability)
                least_m, least_n = min(tile.m for tile in listed), min(tile.n for tile in listed)
                found = autotune.choices_of(problem, name, at)
                assert found and {one.tile for one in found} <= {*listed}
                assert all(one.tile.m < 2 * max(m, least_m) for one in found)
                assert all(one.tile.n < 2 * max(n, least_n) for one in found)


@pytest.mark.parametrize("tile", FORCED_TILES)
def test_a_forced_tile_is_that_tile_and_no_other(tile: str) -> None:
    m, n = map(int, tile.split("x"))
    for capability, variant in ((HOPPER, "tma"), (AMPERE, "pointer")):
        found = autotune.choices_of(
            Gemm(m=27648, n=120, k=4096, dtype="float16", layout="NT"),
            f"triton-{tile}",
            autotune.Device(capability, SM_COUNT),
        )
        assert found
        assert {(one.kernel, one.tile.m, one.tile.n) for one in found} == {(variant, m, n)}


def test_a_tile_that_no_list_has_is_unsupported_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.gemm.operator import OPERATOR

    ampere = SimpleNamespace(major=8, minor=0, multi_processor_count=108)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: ampere)
    problem = Gemm(m=256, n=256, k=64, dtype="float64")
    a, b = torch.empty(64, 256), torch.empty(256, 64)
    with pytest.raises(Unsupported, match=r"triton-256x128 has no .* float64 NN on compute capability 8\.0"):
        OPERATOR.implementations["triton-256x128"](problem, a, b)


def test_shapes_of_a_class_differ_by_a_quarter_at_most_and_not_in_alignment() -> None:
    def of(m: int, n: int, k: int, **more: Any) -> str:
        return str(autotune.shape_class(Gemm(m=m, n=n, k=k, **{"dtype": "float16"} | more)))

    assert of(1024, 1024, 1008) == of(1024, 1024, 1024) == of(1000, 904, 1016)
    assert of(1024, 1024, 1024) != of(1024, 1024, 1032)
    assert of(1024, 1024, 1016) != of(1024, 1024, 1017)
    assert of(1024, 1024, 1017, layout="TN") != of(1024, 1024, 1017, layout="TN", pitch="padded")
    assert of(64, 64, 64) != of(64, 64, 64, batch=2)
    assert of(64, 64, 64) != of(64, 64, 64, layout="NT") != of(64, 64, 64, layout="NT", dtype="tf32")
    for size in (*range(1, 300), *range(300, 5000, 47)):
        rounded = size_in_class(size)
        assert size <= rounded <= 1.25 * size
        assert size_in_class(rounded) == rounded


def size_in_class(k: int) -> int:
    """What k is rounded up to, as the class of a product says it."""
    _, _, sizes, *_ = autotune.shape_class(Gemm(m=1, n=1, k=k, dtype="float16")).split()
    return int(sizes.split("x")[2])


def test_a_class_of_shapes_is_timed_once_and_the_row_that_asked_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a device that computes nothing."""
    gpu = Gpu(monkeypatch, tmp_path / "tuned")
    monkeypatch.setattr(
        autotune,
        "prepare",
        lambda of, choice, sm_count: SimpleNamespace(launch=lambda: gpu.launch(choice), compile=lambda: None),
    )

    def seconds(**more: Any) -> float:
        """Of the autotuner, for tensors as wide as one element, whatever the problem."""
        tensor = torch.zeros(1, 1)
        problem = Gemm(**{"m": 8192, "n": 8192, "k": 8192, "dtype": "float16", "layout": "NT"} | more)
        with timed_by(gpu):
            return autotune.launch(Operands(problem, tensor, tensor, torch.zeros(4, 4)), "triton").tuning_s

    assert seconds() > 0 == seconds() == seconds(n=8192 - 8) == seconds(dtype="bfloat16")
    assert seconds(dtype="tf32") > 0
    gpu.start()
    assert seconds() == 0, "read back"
    (answers,) = gpu.written.values()
    question = next(text for text in answers if "16-bit" in text)
    assert " triton 16-bit NT 8192x8192x8192 aligned none of " in question
    assert answers[question]["of"] == TIMED and answers[question]["configuration"] in question
