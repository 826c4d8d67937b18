"""cuBLASLt as we call it, held to a stand-in that multiplies by the descriptors and addresses it is given."""

import gc
import itertools
import sys
from collections.abc import Iterator, Sequence
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from bench.autotune.tuning import timed_by
from bench.spec import Launch, Unsupported
from kernels.gemm import cublaslt, cublaslt_library
from kernels.gemm.cublaslt_library import Library
from kernels.gemm.operands import Operands, operands
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.problem import Gemm
from tests.drawing import covering
from tests.kernels.cublaslt_fake import FakeCublasLt, FakeError, MatmulTile, Way
from tests.kernels.gemm_cases import KINDS, error, poisoned
from tests.kernels.tensors import uniform

SMALL = Gemm(m=12, n=7, k=5, dtype="float32")


@pytest.fixture(autouse=True)
def _streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one whenever torch is asked for its current stream: 100, 101 and so on."""
    streams = (SimpleNamespace(cuda_stream=number) for number in itertools.count(100))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: next(streams))


def library(fake: FakeCublasLt, byte: int = 1024) -> Library:
    return Library(fake, torch.empty(byte, dtype=torch.uint8))


def given(problem: Gemm, seed: int) -> tuple[tuple[torch.Tensor, ...], Operands]:
    """Inputs and operands; D, and the gaps between its rows, are poison."""
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    poisoned(of := operands(problem, *inputs))
    return inputs, of


@pytest.fixture
def quickest(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """Stands for the clock: the last of the candidates is the quickest. Lists what was timed."""
    timed: list[list[str]] = []

    def tuned(question: tuple[object, ...], candidates: Sequence[str], launch: Any) -> Launch:
        assert question[0] == "gemm" and len(set(candidates)) == len(candidates)
        for one in candidates:
            made: Launch = launch(one)
            made.call()
        timed.extend([list(candidates)] * (len(candidates) > 1))
        return Launch(made.call, tuning_s=len(candidates) - 1, configuration=candidates[-1])

    monkeypatch.setattr(cublaslt, "tuned", tuned)
    with timed_by(cast(Any, "clock")):
        yield timed


CASES = [
    problem
    for problem in OPERATOR.examples
    if isinstance(problem, Gemm) and not problem.missing("cublaslt", "cuda", (9, 0))
]


@pytest.mark.parametrize("problem", covering(CASES, "cublaslt", *KINDS), ids=str)
def test_against_the_reference(problem: Gemm, seed: int) -> None:
    inputs, of = given(problem, seed)
    gaps_are_untouched = poisoned(of)
    launch = cublaslt.launch(of, "first", library(FakeCublasLt(Way(1))))
    written = launch.call()
    assert written is of.d and launch.outputs == (of.d,)
    assert error(problem, inputs, of.d) <= tolerance(problem, "cublaslt")
    assert gaps_are_untouched()


BIASED = list(
    itertools.product(("float16", "bfloat16", "tf32", "float32", "float64"), ("NN", "NT", "TN", "TT"))
)


@pytest.mark.parametrize("dtype, layout", covering(BIASED, "cublaslt bias", itemgetter(0), itemgetter(1)))
def test_a_bias_is_added_to_every_row(dtype: Any, layout: Any, seed: int) -> None:
    problem = Gemm(m=37, n=11, k=24, layout=layout, dtype=dtype)
    (a, b), of = given(problem, seed)
    bias = uniform(problem, seed + 1)(problem.m)
    with_bias = Operands(problem, a, b, of.d, c=bias)
    cublaslt.launch(with_bias, "first", library(FakeCublasLt(Way(1)))).call()
    assert error(problem, (a, b), of.d, bias) <= 2 * tolerance(problem, "cublaslt")


def test_tf32_is_cut_and_float32_is_not(seed: int) -> None:
    errors = {}
    for dtype in ("tf32", "float32"):
        problem = Gemm(m=33, n=17, k=129, dtype=dtype)
        inputs, of = given(problem, seed)
        cublaslt.launch(of, "first", library(FakeCublasLt(Way(1)))).call()
        errors[dtype] = error(problem, inputs, of.d)
    assert errors["tf32"] > 1e-5 > 1e-6 > errors["float32"]


@pytest.mark.parametrize("dtype", Gemm.implementation("cublaslt").dtypes)
def test_parts_are_never_reduced_in_16_bits(dtype: Any, seed: int) -> None:
    narrow = Way(1, SPLITK_NUM=4, REDUCTION_SCHEME=4)
    in_place = Way(2, SPLITK_NUM=4, REDUCTION_SCHEME=1)
    wide = Way(3, SPLITK_NUM=4, REDUCTION_SCHEME=2)
    problem = Gemm(m=16, n=16, k=64, dtype=dtype, layout="TN")
    _, of = given(problem, seed)
    said = cublaslt.launch(of, "first", library(FakeCublasLt(narrow, in_place, wide))).configuration
    taken = 3 if dtype in ("float16", "bfloat16", "float8_e4m3") else 1
    assert said.startswith(f"algo {taken} ")


def _placed(tensor: torch.Tensor, past: int = 0) -> torch.Tensor:
    """A contiguous copy that begins so many elements past a multiple of 256 bytes, as a GPU's memory does."""
    room = torch.empty(tensor.numel() + 512, dtype=tensor.dtype)
    start = -room.data_ptr() % 256 // tensor.element_size() + past
    moved = room[start : start + tensor.numel()].view(tensor.shape)
    assert moved.data_ptr() % 256 == past * tensor.element_size()
    return moved.copy_(tensor)


def _as_on_a_gpu(problem: Gemm, seed: int) -> tuple[tuple[torch.Tensor, ...], Operands]:
    """What `given` gives, all of it aligned to 256 bytes."""
    inputs, of = given(problem, seed)
    inputs = tuple(_placed(one) for one in inputs)
    return inputs, operands(problem, *inputs, d=_placed(of.d))


def test_the_first_is_the_heuristics_first_and_is_not_timed(seed: int, quickest: list[list[str]]) -> None:
    fake = FakeCublasLt(Way(1), Way(2))
    _, of = given(SMALL, seed)
    shared = library(fake)
    launch = cublaslt.launch(of, "first", shared)
    assert fake.asked == [1] and quickest == []
    fake.ran.clear()
    launch.call()
    launch.call()
    assert [number for number, _ in fake.ran] == [1, 1]
    assert fake.ran[1][1] == fake.ran[0][1] + 1  # the stream that is current when it is called
    assert launch.tuning_s == 0


def test_a_tile_is_the_quickest_of_those_that_run(seed: int, quickest: list[list[str]]) -> None:
    ways = [Way(1), Way(2, breaks=1), Way(3, state=15), Way(1), Way(4), Way(5)]
    fake = FakeCublasLt(*ways)
    inputs, of = given(SMALL, seed)
    shared = library(fake)
    said = cublaslt.launch(of, "128x128", shared).configuration
    assert len(fake.asked) == 1 and said.startswith("algo 5 ")
    # Neither the one that fails when run, nor the one marked as failed, nor one twice.
    assert [[text.split()[1] for text in texts] for texts in quickest] == [["1", "4", "5"]]
    fake.ran.clear()
    cublaslt.launch(of, "128x128", shared).call()
    assert [number for number, _ in fake.ran] == [5]
    assert error(SMALL, inputs, of.d) <= tolerance(SMALL, "cublaslt-128x128")


def test_what_a_check_takes_first_is_not_remembered_as_the_quickest(
    seed: int, quickest: list[list[str]]
) -> None:
    shared = library(FakeCublasLt(Way(1), Way(2)))
    _, of = given(SMALL, seed)
    with timed_by(None):
        cublaslt.launch(of, "128x128", shared)
        cublaslt.launch(of, "128x128", shared)
    cublaslt.launch(of, "128x128", shared)
    cublaslt.launch(of, "128x128", shared)
    assert len(quickest) == 3


def test_slots_of_a_ring_ask_once_and_share_what_they_can(seed: int, quickest: list[list[str]]) -> None:
    fake = FakeCublasLt(Way(1), Way(2))
    shared = library(fake)
    slots = [_as_on_a_gpu(SMALL, seed + i) for i in range(5)]
    launches = [cublaslt.launch(of, "128x128", shared) for _, of in slots]
    gc.collect()
    assert len(fake.asked) == len(quickest) == 1
    kinds = [kind for kind, _ in fake.alive.values()]
    assert kinds.count("matrix_layout") == 4 and kinds.count("matmul_desc") == 5
    assert kinds.count("matmul_preference") == 0
    for launch, (inputs, of) in zip(launches, slots, strict=True):
        launch.call()
        assert error(SMALL, inputs, of.d) <= tolerance(SMALL, "cublaslt")
    assert [one.tuning_s > 0 for one in launches] == [True, False, False, False, False]
    # Another question is another choice.
    for other in ({"n": 8}, {"layout": "TT"}, {"dtype": "tf32"}):  # n is the length of no row
        problem = SMALL.model_copy(update=other)
        inputs, of = _as_on_a_gpu(problem, seed)
        cublaslt.launch(of, "128x128", shared).call()
        assert error(problem, inputs, of.d) <= tolerance(problem, "cublaslt")
    cublaslt.launch(slots[0][1], "first", shared)
    assert len(fake.asked) == 5 and fake.asked[-1] == 1
    del launches, launch
    gc.collect()
    assert [kind for kind, _ in fake.alive.values()] == ["matrix_layout"] * 20
    del shared
    gc.collect()
    assert not fake.alive


def test_a_forced_tile_is_taken_from_the_heuristic_where_it_is_there(
    seed: int, quickest: list[list[str]]
) -> None:
    fake = FakeCublasLt(
        Way(1, "128x256"), Way(2, "256x128"), Way(3, "128x128"), Way(4, "256x128", CLUSTER_SHAPE_ID=2)
    )
    inputs, of = given(SMALL, seed)
    shared = library(fake)
    assert cublaslt.launch(of, "256x128", shared).configuration == (
        "algo 4 tile 256x128 stages 64x3 split 1 cluster 1x1"
    )
    assert [[text.split()[1] for text in texts] for texts in quickest] == [["2", "4"]]
    cublaslt.launch(of, "256x128", shared).call()
    assert fake.ran[-1][0] == 4 and fake.asked[0] > 100
    assert error(SMALL, inputs, of.d) <= tolerance(SMALL, "cublaslt-256x128")


@pytest.mark.parametrize("ways", [(), (Way(1, "128x256"),)])
def test_a_forced_tile_is_configured_where_an_algorithm_lists_it(
    ways: tuple[Way, ...], seed: int, quickest: list[list[str]]
) -> None:
    tile = int(MatmulTile["TILE_256x128"])
    able = {-5: ([tile], [15]), 6: ([20, 23], [15]), 21: ([tile, 20], [9, 15, 35]), 22: ([tile], [])}
    inputs, of = given(SMALL, seed)
    shared = library(FakeCublasLt(*ways, able=able))
    said = cublaslt.launch(of, "256x128", shared).configuration
    # Of 21 one pair of stages is refused, another needs more than the workspace; 22 has none to choose.
    assert quickest == [
        [
            "algo 21 tile 256x128 stages 64x3 split 1 cluster auto",
            "algo 22 tile 256x128 stages undefined split 1 cluster auto",
        ]
    ]
    assert said == quickest[0][-1]
    cublaslt.launch(of, "256x128", shared).call()
    assert error(SMALL, inputs, of.d) <= tolerance(SMALL, "cublaslt-256x128")


def test_a_tile_that_nobody_has_is_unsupported_and_says_which_there_are(seed: int) -> None:
    fake = FakeCublasLt(Way(1, "128x256"), Way(2, "64x64"), Way(3, "64x64"), able={7: ([20], [15])})
    _, of = given(SMALL, seed)
    with pytest.raises(
        Unsupported, match=r"no tile 256x128 for float32-.*; its heuristic offers 128x256, 64x64$"
    ):
        cublaslt.launch(of, "256x128", library(fake))
    with pytest.raises(Unsupported, match="its heuristic offers none"):
        cublaslt.launch(of, "256x128", library(FakeCublasLt()))


def test_what_cublaslt_declines_is_unsupported(seed: int) -> None:
    _, of = given(SMALL, seed)
    with pytest.raises(Unsupported, match="matmul_algo_get_heuristic: CUBLAS_STATUS_NOT_SUPPORTED"):
        cublaslt.launch(of, "first", library(FakeCublasLt()))
    with pytest.raises(Unsupported, match="names no algorithm for float32-NN-m12"):
        cublaslt.launch(of, "first", library(FakeCublasLt(Way(1, state=15))))
    for which in ("first", "128x128"):
        with pytest.raises(Unsupported, match="declines, matmul: CUBLAS_STATUS_INVALID_VALUE"):
            cublaslt.launch(of, which, library(FakeCublasLt(Way(1, breaks=1))))
    eight = Gemm(m=16, n=16, k=16, dtype="int8", layout="NN")
    with pytest.raises(Unsupported, match="CUBLAS_STATUS_NOT_SUPPORTED"):
        cublaslt.launch(given(eight, seed)[1], "first", library(FakeCublasLt(Way(1))))


@pytest.mark.parametrize(
    "problem, says",
    [
        (RuntimeError("no driver\nsearched everywhere"), r"cannot be loaded, .* brings it: no driver$"),
        (RuntimeError(), r"cannot be loaded, .* brings it: RuntimeError$"),
        (FakeError(15), "cuBLASLt declines, create: CUBLAS_STATUS_NOT_SUPPORTED"),
    ],
)
def test_a_library_that_cannot_be_used_is_unsupported(problem: Exception, says: str) -> None:
    class Broken(FakeCublasLt):
        def create(self) -> int:
            raise problem

    with pytest.raises(Unsupported, match=says):
        library(Broken())


def test_without_the_bindings_it_is_unsupported_and_says_what_to_install(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nvmath", None)
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    with pytest.raises(Unsupported, match="pip install nvmath-python"):
        cublaslt_library.loaded(1234)
    with pytest.raises(Unsupported, match="pip install nvmath-python"):
        cublaslt.launch(given(SMALL, seed)[1], "first")
