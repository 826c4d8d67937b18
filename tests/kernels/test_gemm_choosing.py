"""Which of our kernels is proposed for which shape: a test for each branch of the rule."""

import importlib
import random
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from bench.spec import Dtype, Unsupported
from kernels.gemm.problem import FORCED_TILES, Gemm, Layout

choosing = pytest.importorskip("kernels.gemm.choosing")

AMPERE, HOPPER = (8, 0), (9, 0)
SM_COUNT = 132


def proposed(m: int, n: int, k: int, capability: tuple[int, int] = HOPPER, **more: Any) -> tuple[str, ...]:
    problem = Gemm(m=m, n=n, k=k, **{"dtype": "bfloat16", "layout": "TN"} | more)
    found: tuple[str, ...] = choosing.variants(problem, capability, SM_COUNT)
    return found


def test_a_short_side_streams_the_large_matrix() -> None:
    assert proposed(4096, 16, 4096) == proposed(16, 4096, 4096) == ("skinny", "split-k")
    assert proposed(4096, 64, 4096)[0] == "skinny"
    assert proposed(4096, 65, 4096)[0] != "skinny"
    assert proposed(1, 8192, 8192, AMPERE, dtype="float64") == ("skinny", "split-k")


def test_a_small_matrix_with_a_short_side_is_not_a_stream() -> None:
    assert proposed(64, 64, 64) == ("tma", "pointer")
    assert proposed(64, 64, 2048) == ("split-k", "tma", "pointer")


def test_too_few_tiles_for_the_device_share_k() -> None:
    assert proposed(1024, 1024, 4096) == ("split-k", "tma", "pointer")  # 64 tiles
    assert proposed(1024, 1024, 4096, AMPERE) == ("split-k", "pointer")
    assert proposed(1024, 1024, 256) == ("tma", "pointer")  # too short to share


def test_a_few_waves_are_shared_equally() -> None:
    assert proposed(2048, 2048, 2048) == ("stream-k", "persistent", "tma")  # 256 tiles on 132 SMs
    assert proposed(2048, 2048, 2048, AMPERE) == ("stream-k", "pointer")
    assert proposed(2048, 2048, 256) == ("persistent", "tma")


def test_tiles_are_shared_up_to_four_full_waves_of_them() -> None:
    """Of 132 tiles of 128 x 128 each; a tile less than one wave, and one more than four."""
    shared, alone = ("stream-k", "persistent", "tma"), ("persistent", "tma")
    assert proposed(128 * 131, 128, 4096) == ("split-k", "tma", "pointer")
    assert proposed(128 * 12, 128 * 11, 4096) == shared
    assert proposed(128 * 22, 128 * 24, 4096) == shared  # 4 x 132
    assert proposed(128 * 23, 128 * 23, 4096) == alone  # and 1
    assert proposed(128 * 22, 128 * 24, 512) == shared
    assert proposed(128 * 22, 128 * 24, 504) == alone
    assert proposed(1024, 1024, 504) == ("tma", "pointer")


def test_many_waves_are_walked_over_by_one_program_an_sm() -> None:
    assert proposed(8192, 8192, 8192) == ("persistent", "tma")
    assert proposed(8192, 8192, 8192, AMPERE) == ("pointer",)


@pytest.mark.parametrize(
    "more", [{"k": 4097}, {"dtype": "float64"}, {"dtype": "float32"}, {"dtype": "float16", "m": 8196}]
)
def test_what_bulk_copies_cannot_move_goes_by_pointers(more: dict[str, Any]) -> None:
    assert proposed(**{"m": 8192, "n": 8192, "k": 8192} | more) == ("pointer",)


def test_a_batch_goes_by_pointers_and_is_a_class_of_its_own() -> None:
    assert proposed(8192, 8192, 8192, batch=2) == proposed(64, 64, 8192, batch=512) == ("pointer",)
    one, two = (Gemm(m=64, n=64, k=64, batch=batch, dtype="float16") for batch in (1, 2))
    assert choosing.shape_class(one) != choosing.shape_class(two)


def test_padded_rows_can_be_moved_by_bulk_copies_at_any_size() -> None:
    assert proposed(8191, 8191, 8191) == ("pointer",)
    assert proposed(8191, 8191, 8191, pitch="padded") == ("persistent", "tma")


def test_every_kernel_that_the_rule_may_propose_has_a_name_of_its_own() -> None:
    names = {one.name for one in Gemm.implementations}
    for variant in ("pointer", "tma", "persistent", "stream-k", "split-k", "skinny", "specialized"):
        assert f"triton-{variant}" in names
        module = importlib.import_module(f"kernels.gemm.{variant.replace('-', '_')}")
        assert all(callable(getattr(module, name)) for name in ("candidates", "launch", "compile"))


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
            choices = choosing.choices_of(problem, "triton", capability, SM_COUNT)
            assert choices and len({str(choice) for choice in choices}) == len(choices), problem


def test_only_the_most_promising_configurations_are_timed() -> None:
    """12 columns of 128 on 132 SMs: 11 rows of 256 fill a wave, 22 rows of 128 fill two that cost as much."""
    problem = Gemm(m=256 * 11, n=128 * 12, k=4096, dtype="bfloat16", layout="TN")
    listed = choosing.choices_of(problem, "triton-tma", HOPPER, SM_COUNT)
    short = choosing.shortlist(problem, listed, SM_COUNT)
    assert len(short) == choosing.MOST_OF_A_KERNEL < len(listed)
    assert (short[0].configuration.m, short[0].configuration.n) == (256, 128)
    one_more = choosing.shortlist(problem.model_copy(update={"m": 256 * 11 + 1}), listed, SM_COUNT)
    best = one_more[0].configuration
    assert best.m * best.n < 256 * 128  # a second wave of large tiles would be all but empty


@pytest.mark.parametrize("tile", FORCED_TILES)
def test_a_forced_tile_is_that_tile_and_no_other(tile: str) -> None:
    m, n = map(int, tile.split("x"))
    for capability, variant in ((HOPPER, "tma"), (AMPERE, "pointer")):
        found = choosing.choices_of(
            Gemm(m=27648, n=120, k=4096, dtype="float16", layout="NT"), f"triton-{tile}", capability, SM_COUNT
        )
        assert found
        assert {(one.variant, one.configuration.m, one.configuration.n) for one in found} == {(variant, m, n)}


def test_a_tile_that_no_list_has_is_unsupported_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from kernels.gemm.operator import OPERATOR

    ampere = SimpleNamespace(major=8, minor=0, multi_processor_count=108)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: ampere)
    problem = Gemm(m=256, n=256, k=64, dtype="float64")
    a, b = torch.empty(64, 256), torch.empty(256, 64)
    with pytest.raises(Unsupported, match=r"triton-256x128 has no .* float64 NN on compute capability 8\.0"):
        OPERATOR.implementations["triton-256x128"](problem, a, b)


def test_shapes_of_a_class_differ_by_a_quarter_at_most_and_not_in_alignment() -> None:
    def of(m: int, n: int, k: int, **more: Any) -> str:
        return str(choosing.shape_class(Gemm(m=m, n=n, k=k, **{"dtype": "float16"} | more)))

    assert of(1024, 1024, 1008) == of(1024, 1024, 1024) == of(1000, 904, 1016)
    assert of(1024, 1024, 1024) != of(1024, 1024, 1032)
    assert of(1024, 1024, 1016) != of(1024, 1024, 1017)
    assert of(1024, 1024, 1017, layout="TN") != of(1024, 1024, 1017, layout="TN", pitch="padded")
    assert of(64, 64, 64) != of(64, 64, 64, layout="NT") != of(64, 64, 64, layout="NT", dtype="bfloat16")
    for size in (*range(1, 300), *range(300, 5000, 47)):
        rounded = size_in_class(size)
        assert size <= rounded <= 1.25 * size
        assert size_in_class(rounded) == rounded


def size_in_class(k: int) -> int:
    """What k is rounded up to, as the class of a product says it."""
    _, _, sizes, *_ = choosing.shape_class(Gemm(m=1, n=1, k=k, dtype="float16")).split()
    return int(sizes.split("x")[2])


@pytest.mark.parametrize(
    "name", ["triton", "triton-split-k", "triton-stream-k", "triton-tma", "triton-256x64"]
)
def test_all_shapes_of_a_class_have_the_same_choices(name: str, seed: int) -> None:
    """Or each would find the other's choice missing from its own list, and ask the device again."""
    chance = random.Random(seed)
    for _ in range(200):
        layout = chance.choice(["NN", "NT", "TN", "TT"])
        dtype = chance.choice(["float16", "tf32", "int8"])
        sizes = [int(2 ** chance.uniform(3, 13)) * chance.choice([1, 1, 8]) for _ in range(3)]
        problem = Gemm(
            **dict(zip("mnk", sizes, strict=True)),
            layout=layout,
            dtype=dtype,
            pitch=chance.choice(["tight", "padded"]),
        )
        first = choosing.representative(problem)
        assert choosing.shape_class(first) == choosing.shape_class(problem), problem
        assert choosing.representative(first) == first
        assert all(getattr(first, size) >= getattr(problem, size) for size in "mnk")
        if problem.missing(name, "cuda", HOPPER):
            continue
        found = choosing.choices_of(first, name, HOPPER, SM_COUNT)
        for size in "mnk":
            smaller = getattr(problem, size) - 16
            near = problem.model_copy(update={size: smaller}) if smaller > 0 else problem
            if choosing.shape_class(near) == choosing.shape_class(problem):
                again = choosing.choices_of(choosing.representative(near), name, HOPPER, SM_COUNT)
                assert again == found, (problem, near)
