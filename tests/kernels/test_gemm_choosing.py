"""Which of our kernels is proposed for which shape, and what of it is timed, once for a class."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch

from bench.spec import Dtype, Launch, Unsupported
from kernels.gemm.operands import Operands
from kernels.gemm.problem import FORCED_TILES, Gemm, Layout

pytest.importorskip("triton", minversion="3.7")
from kernels.gemm import choosing
from tests.kernels.devices import Tuner

AMPERE, HOPPER = (8, 0), (9, 0)
SM_COUNT = 132
H100 = choosing.Device(HOPPER, SM_COUNT)


def proposed(m: int, n: int, k: int, capability: tuple[int, int] = HOPPER, **more: Any) -> tuple[str, ...]:
    problem = Gemm(m=m, n=n, k=k, **{"dtype": "bfloat16", "layout": "TN"} | more)
    return choosing.variants(problem, capability, SM_COUNT)


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
    names = {f"triton-{variant}" for variant in choosing.VARIANTS}
    ours = {one.name for one in Gemm.implementations if one.name.startswith("triton-")}
    assert names == ours - {f"triton-{tile}" for tile in FORCED_TILES}
    shapes = ((8192, 8192, 8192), (1024, 1024, 4096))
    every = [Gemm(m=m, n=n, k=k, dtype=d) for m, n, k in shapes for d in ("bfloat16", "float64")]
    assert {one.kernel for problem in every for one in proposals(problem)} == set(choosing.VARIANTS)


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
            choices = choosing.choices_of(problem, "triton", choosing.Device(capability, SM_COUNT))
            assert choices and len({str(choice) for choice in choices}) == len(choices), problem


def proposals(problem: Gemm, name: str = "triton") -> list[Any]:
    return list(choosing.choices_of(problem, name, H100)[: choosing.PROPOSED])


@pytest.mark.parametrize("m, n, k", [(8192, 8192, 8192), (2048, 2048, 2048), (1024, 1024, 4096)])
def test_those_of_two_kernels_at_least_and_of_different_tiles_are_timed(m: int, n: int, k: int) -> None:
    problem = Gemm(m=m, n=n, k=k, dtype="bfloat16", layout="TN")
    found = proposals(problem)
    everything = choosing.choices_of(problem, "triton", H100)
    assert len(found) == choosing.PROPOSED
    assert len({(one.kernel, one.tile.m, one.tile.n) for one in found}) == len(found)
    assert 1 < max(Counter(one.kernel for one in found).values()) <= choosing.OF_A_KERNEL
    costs = [choosing.cost(problem, one, SM_COUNT) for one in found]
    assert costs == sorted(costs)
    assert costs[0] == min(choosing.cost(problem, one, SM_COUNT) for one in everything)
    assert len(set(everything)) == len(everything) > len(found)  # for where one of them does not run


def test_what_is_proposed_follows_the_edge_of_a_wave_at_the_very_shape() -> None:
    """12 columns of 128 on 132 SMs: 11 rows of 256 fill a wave, and a few elements more begin another."""
    problem = Gemm(m=256 * 11 - 8, n=128 * 12, k=4096, dtype="bfloat16", layout="TN")
    one_more = problem.model_copy(update={"m": 256 * 11 + 8})
    assert choosing.shape_class(problem) == choosing.shape_class(one_more)
    (best, *_), (beyond, *_) = proposals(problem, "triton-tma"), proposals(one_more, "triton-tma")
    assert best.tile.m * best.tile.n == 256 * 128 > beyond.tile.m * beyond.tile.n


def test_few_tiles_are_small_and_many_large() -> None:
    few = proposals(Gemm(m=64, n=64, k=2**18, dtype="float16", layout="TN"), "triton-split-k")
    many = proposals(Gemm(m=8192, n=8192, k=8192, dtype="float16", layout="TN"), "triton-tma")
    assert few[0].tile[:2] == (64, 64) and many[0].tile.m * many[0].tile.n == 256 * 128


def test_a_kernel_of_its_own_name_is_tuned_over_the_best_of_its_list() -> None:
    found = proposals(Gemm(m=8192, n=8192, k=8192, dtype="bfloat16", layout="TN"), "triton-persistent")
    assert len(found) == choosing.PROPOSED
    assert {one.kernel for one in found} == {"persistent"}
    assert len({(one.tile.m, one.tile.n) for one in found}) < len(found)  # alike tiles too


@pytest.mark.parametrize("tile", FORCED_TILES)
def test_a_forced_tile_is_that_tile_and_no_other(tile: str) -> None:
    m, n = map(int, tile.split("x"))
    for capability, variant in ((HOPPER, "tma"), (AMPERE, "pointer")):
        found = choosing.choices_of(
            Gemm(m=27648, n=120, k=4096, dtype="float16", layout="NT"),
            f"triton-{tile}",
            choosing.Device(capability, SM_COUNT),
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


def test_a_class_of_shapes_is_timed_once_and_the_row_that_asked_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a device that computes nothing."""
    gpu = Gpu(monkeypatch, tmp_path / "tuned")
    large = Gemm(m=8192, n=8192, k=8192, dtype="float16", layout="NT")
    first, again = gpu.choose(large), gpu.choose(large)
    assert first.tuning_s > 0 == again.tuning_s
    assert gpu.choose(large.model_copy(update={"n": 8192 - 8})).tuning_s == 0 and gpu.asked == 1
    (answers,) = gpu.written.values()
    ((question, answer),) = next(iter(answers.values())).items()
    assert answer["of"] == choosing.PROPOSED
    assert answer["configuration"] in question and question.startswith("triton 16-bit NT 8192x8192x8192")
    assert gpu.choose(large.model_copy(update={"dtype": "bfloat16"})).tuning_s == 0 and gpu.asked == 1
    gpu.choose(large.model_copy(update={"dtype": "tf32"}))
    gpu.start()
    assert gpu.choose(large).tuning_s == 0 and gpu.asked == 2  # read back


class Gpu(Tuner):
    """A device that computes nothing, and a clock to which all choices are equal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch, folder)
        self.asked = 0
        monkeypatch.setattr(choosing, "prepare", self._prepare)
        monkeypatch.setattr(choosing, "_device", lambda of: H100)

    def choose(self, problem: Gemm) -> Launch:
        """Of tensors as wide as one element, whatever the problem."""
        tensor = torch.zeros(1, 1)
        return choosing.launch(Operands(problem, tensor, tensor, torch.zeros(4, 4)), "triton")

    def _prepare(self, of: Operands, choice: Any, sm_count: int) -> Any:
        return SimpleNamespace(launch=lambda: Launch(lambda: of.d, outputs=(of.d,)), compile=lambda: None)

    def _quickest(self, makers: Sequence[Any]) -> tuple[int, float]:
        self.asked += 1
        for make in makers:
            make()()
        return 0, 1e-5
