"""Which of our kernels is proposed for which shape, and in which order its tiles run."""

import importlib
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from bench.spec import Dtype, Unsupported
from kernels.gemm.problem import FORCED_TILES, Gemm, Layout
from kernels.gemm.tiles import Tile

pytest.importorskip("triton", minversion="3.7")
from kernels.gemm import choosing
from kernels.gemm.blocks import grouped
from tests.kernels.gluon_emulator import Translation

AMPERE, HOPPER = (8, 0), (9, 0)
SM_COUNT = 132
TILE = Tile(128, 256, 64, 8, 3)
place = Translation()(grouped)
"""(tile of M, tile of N) of a program: the kernels' own function, on Python's numbers."""


def proposed(m: int, n: int, k: int, capability: tuple[int, int] = HOPPER, **more: Any) -> tuple[str, ...]:
    problem = Gemm(m=m, n=n, k=k, **{"dtype": "bfloat16", "layout": "TN"} | more)
    return choosing.variants(problem, capability, SM_COUNT)


STREAM = ("skinny", "split-k")
FEW = ("tma", "pointer")
ALONE = ("gluon", "persistent", "tma")
SHARED = ("stream-k", *ALONE)


@pytest.mark.parametrize(
    ("sizes", "expected", "on_ampere"),
    [
        # A short side streams the large matrix, unless that is small.
        ((4096, 16, 4096), STREAM, STREAM),
        ((16, 4096, 4096), STREAM, STREAM),
        ((4096, 64, 4096), STREAM, STREAM),
        ((4096, 65, 4096), ("split-k", *FEW), ("split-k", "pointer")),
        ((64, 64, 64), FEW, ("pointer",)),
        ((64, 64, 2048), ("split-k", *FEW), ("split-k", "pointer")),
        # Fewer tiles of 128 x 128 than SMs share K: 64, and one less than a wave; too short to share.
        ((1024, 1024, 4096), ("split-k", *FEW), ("split-k", "pointer")),
        ((128 * 131, 128, 4096), ("split-k", *FEW), ("split-k", "pointer")),
        ((1024, 1024, 504), FEW, ("pointer",)),
        # A few waves are shared equally: 256 tiles on 132 SMs, a wave, and sixteen of them.
        ((2048, 2048, 2048), SHARED, ("stream-k", "pointer")),
        ((128 * 12, 128 * 11, 4096), SHARED, ("stream-k", "pointer")),
        ((128 * 44, 128 * 48, 4096), SHARED, ("stream-k", "pointer")),
        ((128 * 22, 128 * 24, 512), SHARED, ("stream-k", "pointer")),
        ((128 * 22, 128 * 24, 504), ALONE, ("pointer",)),
        # Many waves are walked over by one program an SM: from one tile more than sixteen on.
        ((128 * 2113, 128, 4096), ALONE, ("pointer",)),
        ((8192, 8192, 8192), ALONE, ("pointer",)),
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
    assert proposed(8191, 8191, 8191, pitch="padded") == ALONE


def test_every_kernel_has_a_name_of_its_own_and_is_timed_for_some_shape() -> None:
    names = {f"triton-{variant}" for variant in choosing.VARIANTS}
    ours = {one.name for one in Gemm.implementations if one.name.startswith("triton-")}
    assert names == ours - {f"triton-{tile}" for tile in FORCED_TILES}
    shapes = ((8192, 8192, 8192), (4096, 16, 4096), (1024, 1024, 4096), (2304, 2304, 4096))
    every = [Gemm(m=m, n=n, k=k, dtype=d) for m, n, k in shapes for d in ("bfloat16", "int8", "float64")]
    assert {one.variant for problem in every for one in proposals(problem)} == set(choosing.VARIANTS)
    for variant in choosing.VARIANTS:
        module = importlib.import_module(f"kernels.gemm.{variant.replace('-', '_')}")
        assert all(callable(getattr(module, name)) for name in ("candidates", "cost", "prepare"))


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


def proposals(problem: Gemm, name: str = "triton", capability: tuple[int, int] = HOPPER) -> list[Any]:
    asked = choosing.question_of(problem, name, choosing.Device(capability, SM_COUNT))
    return list(asked.choices[: choosing.PROPOSED])


@pytest.mark.parametrize(
    "m, n, k", [(8192, 8192, 8192), (2048, 2048, 2048), (1024, 1024, 4096), (4096, 16, 4096)]
)
def test_those_of_two_kernels_at_least_and_of_different_tiles_are_timed(m: int, n: int, k: int) -> None:
    problem = Gemm(m=m, n=n, k=k, dtype="bfloat16", layout="TN")
    found = proposals(problem)
    assert len(found) == choosing.PROPOSED
    everything = choosing.choices_of(problem, "triton", HOPPER, SM_COUNT)
    of_kernel = Counter(one for one, _, _ in {(one.variant, one.tile.m, one.tile.n) for one in everything})
    # Where the kernels have fewer tiles than that between them, what is left is proposed by cost.
    different = min(choosing.PROPOSED, sum(min(choosing.OF_A_KERNEL, n) for n in of_kernel.values()))
    first = found[:different]
    assert different > choosing.OF_A_KERNEL
    assert len({(one.variant, one.tile.m, one.tile.n) for one in first}) == different
    kernels = [one.variant for one in first]
    assert all(kernels.count(one) <= choosing.OF_A_KERNEL for one in kernels), found
    costs = [choosing.cost(problem, one, HOPPER, SM_COUNT) for one in first]
    assert costs == sorted(costs)
    assert costs[0] == min(choosing.cost(problem, one, HOPPER, SM_COUNT) for one in everything)
    assert len(set(everything)) == len(everything) > len(found)  # for where one of them does not run


def test_what_is_proposed_follows_the_edge_of_a_wave_at_the_very_shape() -> None:
    """12 columns of 128 on 132 SMs: 11 rows of 256 fill a wave, and a few elements more begin another."""
    problem = Gemm(m=256 * 11 - 8, n=128 * 12, k=4096, dtype="bfloat16", layout="TN")
    one_more = problem.model_copy(update={"m": 256 * 11 + 8})
    assert choosing.shape_class(problem) == choosing.shape_class(one_more)
    (best, *_), (beyond, *_) = proposals(problem, "triton-tma"), proposals(one_more, "triton-tma")
    assert best.tile.m * best.tile.n == 256 * 128 > beyond.tile.m * beyond.tile.n
    at = choosing.Device(HOPPER, SM_COUNT)
    asked = [choosing.question_of(one, "triton-tma", at).key for one in (problem, one_more)]
    assert asked[0] != asked[1]


def test_a_kernel_of_its_own_name_is_tuned_over_the_best_of_its_list() -> None:
    found = proposals(Gemm(m=8192, n=8192, k=8192, dtype="bfloat16", layout="TN"), "triton-persistent")
    assert len(found) == choosing.PROPOSED
    assert {one.variant for one in found} == {"persistent"}
    assert len({(one.tile.m, one.tile.n) for one in found}) < len(found)  # alike tiles too


def test_a_kernel_that_this_triton_cannot_compile_is_not_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    gluon = importlib.import_module("kernels.gemm.gluon")

    def refused(*asked: Any) -> Any:
        raise Unsupported("triton-gluon needs a later Triton")

    problem = Gemm(m=8192, n=8192, k=8192, dtype="bfloat16", layout="TN")
    assert proposals(problem)[0].variant == "gluon"
    monkeypatch.setattr(gluon, "candidates", refused)
    found = choosing.choices_of(problem, "triton", HOPPER, SM_COUNT)
    assert {one.variant for one in found} == {"persistent", "tma"}
    with pytest.raises(Unsupported, match="a later Triton"):
        choosing.choices_of(problem, "triton-gluon", HOPPER, SM_COUNT)


def test_tiles_that_have_no_room_are_the_last_to_be_tried() -> None:
    """8.9 has 99 KiB: two steps of 128 x 128 x 128 in flight fit, two of 128 x 256 take 96 KiB, three do
    not."""
    problem = Gemm(m=8192, n=8192, k=8192, dtype="float8_e4m3", layout="TN")
    costs = [
        choosing.cost(problem, one, (8, 9), 128)
        for one in choosing.choices_of(problem, "triton-pointer", (8, 9), 128)
    ]
    assert costs == sorted(costs) and costs[0] < float("inf")
    deep, shallow = (choosing.Choice("pointer", Tile(128, 256, 128, 8, stages)) for stages in (4, 3))
    assert choosing.cost(problem, deep, (8, 9), 128) == float("inf")
    assert choosing.cost(problem, shallow, (8, 9), 128) < float("inf")


def test_an_order_of_tiles_stands_once_in_what_is_tried() -> None:
    """Lists in Gluon have a configuration in several orders; the best by count is left."""
    for name in ("triton", "triton-gluon"):
        problem = Gemm(m=8192, n=8192, k=8192, dtype="bfloat16", layout="TN")
        found = choosing.choices_of(problem, name, HOPPER, SM_COUNT)
        assert len({one.grouped(8) for one in found}) == len(found)
        assert {str(one)[-3:] for one in found if one.tile[:2] == (256, 128)} >= {"g16"}


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
    assert of(64, 64, 64) != of(64, 64, 64, batch=2)
    assert of(64, 64, 64) != of(64, 64, 64, layout="NT") != of(64, 64, 64, layout="NT", dtype="tf32")
    for size in (*range(1, 300), *range(300, 5000, 47)):
        rounded = size_in_class(size)
        assert size <= rounded <= 1.25 * size
        assert size_in_class(rounded) == rounded


def size_in_class(k: int) -> int:
    """What k is rounded up to, as the class of a product says it."""
    _, _, sizes, *_ = choosing.shape_class(Gemm(m=1, n=1, k=k, dtype="float16")).split()
    return int(sizes.split("x")[2])


@pytest.mark.parametrize("group", choosing.GROUPS)
def test_every_tile_runs_once_whatever_the_group(group: int, seed: int) -> None:
    """Also where the last band is lower than the others, or the only one is."""
    chance = random.Random(seed)
    shapes = [(1, 1), (1, 40), (40, 1), (3, group - 1), (3, group), (3, group + 1), (7, 5 * group + 3)]
    shapes += [(chance.randint(1, 60), chance.randint(1, 60)) for _ in range(30)]
    for tiles_m, tiles_n in shapes:
        found = Counter(place(one, tiles_m, tiles_n, group) for one in range(tiles_m * tiles_n))
        assert set(found) == {(m, n) for m in range(tiles_m) for n in range(tiles_n)}
        assert set(found.values()) == {1}


def test_a_wave_needs_the_rows_and_columns_that_its_tiles_touch() -> None:
    """132 tiles of 128 x 256, 8 of N together: 16 columns whole and one of 4, so 17 of A and 8 of B."""
    problem = Gemm(m=128 * 64, n=256 * 32, k=1024, dtype="float16")
    assert choosing.footprint(problem, TILE, 132, 8) == (17 * 128 + 8 * 256) * 1024 * 2
    assert choosing.footprint(problem, TILE, 132, 4) == (33 * 128 + 4 * 256) * 1024 * 2
    assert choosing.footprint(problem, TILE, 10**6, 8) == problem.byte_read


@pytest.mark.parametrize("group", choosing.GROUPS)
def test_the_bytes_of_a_wave_are_those_of_the_tiles_in_their_order(group: int, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        tiles_m, tiles_n = chance.randint(1, 40), chance.randint(1, 40)
        problem = Gemm(m=128 * tiles_m, n=256 * tiles_n, k=64, dtype="float16")
        running = chance.randint(1, 2 * tiles_m * tiles_n)
        places = [place(one, tiles_m, tiles_n, group) for one in range(min(running, tiles_m * tiles_n))]
        columns, rows = ({one[axis] for one in places} for axis in (0, 1))
        needed = (len(columns) * 128 + len(rows) * 256) * 64 * 2
        assert choosing.footprint(problem, TILE, running, group) == needed


def test_the_group_is_the_one_whose_wave_needs_least() -> None:
    """132 x BLOCK_M / BLOCK_N tiles of N by as many of M would be square: 8 for 128 x 256, 16 for 256 x
    128."""
    problem = Gemm(m=8192, n=8192, k=4096, dtype="float16")
    assert choosing.best_group(problem, TILE, 132) == 8
    assert choosing.best_group(problem, Tile(256, 128, 64, 8, 3), 132) == 16
    assert choosing.best_group(problem, TILE, 20) == 4
    one_band = problem.model_copy(update={"n": 256 * 4})
    assert choosing.best_group(one_band, TILE, 132) == 8  # any: there are four tiles of N


def test_the_usual_group_is_not_named_and_others_are() -> None:
    assert str(TILE) == str(TILE._replace(group=8)) == "128x256x64 w8 s3"
    assert str(TILE._replace(group=16)) == "128x256x64 w8 s3 g16"
