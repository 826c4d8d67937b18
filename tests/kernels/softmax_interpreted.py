"""Softmax's kernels, run by the repaired interpreter under the sanitizer."""

import math
from types import ModuleType
from unittest.mock import Mock

import pytest
import torch

from bench.spec import Unsupported
from kernels.layernorm import held
from kernels.layernorm.held import Held
from kernels.layernorm.tiles import Tile
from kernels.softmax import held_rows, launch, long_rows, whole_rows
from kernels.softmax.operator import OPERATOR
from kernels.softmax.problem import Softmax
from tests.drawing import covering
from tests.kernels.held_emulated import Emulated
from tests.kernels.interpreted import Tensors, check, check_again, check_far_end, ran
from tests.kernels.tensors import uniform


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of Gluon run by the interpreter too."""
    for name in ("forward_held", "backward_held"):
        monkeypatch.setattr(held_rows, name, Emulated(getattr(held_rows, name)))


def drawn(problem: Softmax, seed: int) -> Tensors:
    return OPERATOR.inputs(problem, uniform(problem, seed))


def holds(problem: Softmax, tile: Tile | Held, seed: int, by: ModuleType) -> None:
    """Right, in bounds, and every byte as the docstrings count them."""
    inputs = drawn(problem, seed)
    done = check(OPERATOR, problem, inputs, by.launch(problem, inputs, tile))
    readings = 2 if by is long_rows else 1
    told = 0
    if isinstance(tile, Held) and tile.blocks > 1:
        told = problem.rows * tile.blocks * 4 * (2 if problem.direction == "forward" else 1)
    assert done.byte == (readings * problem.byte_read + told, problem.byte_written + told, 0)
    assert sum(done.watch.loads.within(one).distinct_byte for one in inputs) == problem.byte_read
    assert done.watch.stores.repeated == 0


TRITON = [
    p
    for p in OPERATOR.examples
    if not Softmax.implementation("triton").missing(p.dtype, "cuda", (9, 0))
    and not (p.dtype != "bfloat16" and p.length > 1025)  # the interpreter is slow
]
LONG = [
    Softmax.model_validate({"direction": direction, "rows": rows, "length": length, "dtype": dtype})
    for direction in ("forward", "backward")
    for rows, length in ((1, 64), (7, 65), (10, 127), (3, 192), (2, 1))
    for dtype in ("bfloat16", "float32")
]


def few(problems: list[Softmax], of: str) -> list[Softmax]:
    """Every size, and every data type in either direction; all of them in a deep run."""
    return covering(problems, of, lambda p: (p.rows, p.length), lambda p: (p.direction, p.dtype))


@pytest.mark.parametrize("problem", few(TRITON, "interpreted softmax"), ids=str)
def test_right_in_bounds_and_each_element_written_once(problem: Softmax, seed: int) -> None:
    tiles = launch.candidates(problem)
    for tile in (tiles[0], tiles[-1]) if problem.length < 1025 else tiles[:1]:
        holds(problem, tile, seed, whole_rows if problem.in_registers else long_rows)


HELD = [
    (Softmax.model_validate({"direction": direction, "rows": rows, "length": length, "dtype": dtype}), share)
    for direction in ("forward", "backward")
    for dtype in ("float16", "bfloat16", "float32")
    for rows, length, share in (
        (3, 192, Held(1, 3, 64, 1)),  # whole chunks
        (2, 136, Held(1, 3, 64, 1)),  # one vector in the last chunk
        (5, 64, Held(1, 1, 64, 1)),
        (3, 200, Held(2, 2, 64, 1)),  # a share that ends short, another that is empty behind it
        (2, 168, Held(4, 1, 64, 1)),
        (1, 1024, Held(16, 1, 64, 1)),
        (2, 4104, Held(8, 3, 256, 1)),
    )
]


@pytest.mark.parametrize(
    ("problem", "share"),
    covering(HELD, "held softmax", lambda case: case[1], lambda case: (case[0].direction, case[0].dtype)),
    ids=str,
)
def test_rows_held_in_shared_memory_by_a_block_or_a_cluster(problem: Softmax, share: Held, seed: int) -> None:
    holds(problem, share, seed, held_rows)


def test_shares_hold_a_row_within_shared_memory() -> None:
    """One block while it can, then clusters; none of rows that no copies of 16 bytes make up."""
    for length, item_byte, tensors, least in (
        *((16392, 2, 1, 1), (65544, 2, 1, 2), (32776, 2, 2, 2), (32768, 2, 2, 1)),
        *((131072, 4, 1, 4), (131072, 4, 2, 8), (2**20, 2, 1, 16), (65536, 2, 1, 1)),
    ):
        found = held.candidates(length, item_byte, tensors)
        assert 1 <= len(found) <= 3 and found[0].blocks == least
        for share in found:
            assert share.blocks * share.chunks * share.chunk >= length
            assert share.blocks * (share.chunks - 1) * share.chunk < length
            assert share.chunks * share.chunk * item_byte * tensors <= 128 * 1024
            assert share.chunk * item_byte == 16 * 32 * share.warps
    assert not held.candidates(16385, 2, 1) and not held.candidates(2**22, 2, 1)


@pytest.mark.parametrize(
    "capability, cluster, share, reason",
    [
        (
            (7, 5),
            True,
            Held(1, 2, 64, 1),
            "asynchronous copies into shared memory need compute capability 8.0",
        ),
        ((8, 0), True, Held(2, 2, 64, 1), "clusters of blocks need compute capability 9.0"),
        ((9, 0), False, Held(2, 2, 64, 1), "Gluon of this Triton has no barrier of a cluster's blocks"),
    ],
)
def test_what_a_device_cannot_hold_is_unsupported(
    capability: tuple[int, int], cluster: bool, share: Held, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    if not cluster:
        monkeypatch.setattr(held, "cluster", None)
    on_gpu = Mock(is_cuda=True, shape=(2, 200))
    with pytest.raises(Unsupported, match=reason):
        held.partial_sums(share, on_gpu, 1)


def test_the_launch_takes_the_file_that_suits_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    for length, files in ((16384, [whole_rows]), (16385, [long_rows]), (16388, [held_rows, long_rows])):
        problem = Softmax(direction="forward", rows=1, length=length, dtype="float32")
        assert list(launch.candidates(problem)) == [tile for by in files for tile in by.candidates(problem)]
        for by in files:
            tile = by.candidates(problem)[0]
            with monkeypatch.context() as patch:
                patch.setattr(by, "launch", lambda *given: given)
                assert launch.with_tile(problem, (), tile) == (problem, (), tile)


@pytest.mark.parametrize("problem", few(LONG, "interpreted long rows of softmax"), ids=str)
def test_long_rows_with_chunks_of_a_few_elements(problem: Softmax, seed: int) -> None:
    """On, one past and one short of chunks."""
    holds(problem, Tile(1, 64, 1), seed, long_rows)


BOTH: list[tuple[ModuleType, Tile | Held]] = [
    (whole_rows, Tile(2, 256, 1)),
    (long_rows, Tile(1, 32, 1)),
    (held_rows, Held(1, 4, 64, 1)),
    (held_rows, Held(4, 2, 32, 1)),
]


@pytest.mark.parametrize("by, tile", BOTH)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_again_is_the_same_bits(direction: str, by: ModuleType, tile: Tile | Held, seed: int) -> None:
    problem = Softmax(direction=direction, rows=5, length=200, dtype="float32")  # type: ignore[arg-type]
    ready = by.launch(problem, drawn(problem, seed), tile)
    ran(ready)
    check_again(ready)


@pytest.mark.parametrize("by, tile", BOTH)
def test_rows_that_rise_fall_and_are_huge(by: ModuleType, tile: Tile | Held) -> None:
    """The largest element comes first, last or in between, and no exponential overflows."""
    rising = torch.linspace(-200, 300, 200)
    x = torch.stack([rising, rising.flip(0), rising.sin() * 1e30, torch.full((200,), -1e30), rising * 1e-3])
    problem = Softmax(direction="forward", rows=5, length=200, dtype="float32")
    (y,) = ran(by.launch(problem, (x,), tile)).outputs
    torch.testing.assert_close(y.double(), OPERATOR.reference(problem, x), rtol=3e-5, atol=1e-30)


@pytest.mark.parametrize("by, tile", BOTH)
def test_nan_and_infinity_spoil_what_they_spoil_in_torch(
    by: ModuleType, tile: Tile | Held, seed: int
) -> None:
    problem = Softmax(direction="forward", rows=9, length=200, dtype="float32")
    (x,) = drawn(problem, seed)
    x[0, 77], x[1, 77], x[2, 77] = math.nan, math.inf, -math.inf
    x[3], x[4] = -math.inf, math.nan
    x[5, :100] = -math.inf  # whole chunks of nothing, then numbers
    x[6, 40:] = -math.inf
    x[7, 10], x[7, 150] = math.nan, math.inf
    (y,) = ran(by.launch(problem, (x,), tile)).outputs
    want = torch.softmax(x, 1)
    assert want.isnan().all(1).tolist() == [True, True, False, True, True, False, False, True, False]
    torch.testing.assert_close(y, want, equal_nan=True)

    problem = Softmax(direction="backward", rows=4, length=200, dtype="float32")
    y, dy = drawn(problem, seed)
    dy[1, 3], y[2, 5] = math.nan, math.nan
    (dx,) = ran(by.launch(problem, (y, dy), tile)).outputs
    assert dx.isnan().all(1).tolist() == [False, True, True, False]
    assert dx.isnan().any(1).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    "by, tile",
    [(whole_rows, Tile(4, 1024, 1)), (long_rows, Tile(1, 256, 1)), (held_rows, Held(1, 4, 256, 1))],
)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_beyond_two_to_the_31(direction: str, by: ModuleType, tile: Tile | Held, seed: int) -> None:
    rows = 2**31 // 1000 + 1050
    problem = Softmax(direction=direction, rows=rows, length=1000, dtype="float16")  # type: ignore[arg-type]
    count = (rows - 1) % tile.rows + 1 if isinstance(tile, Tile) else 1
    last = problem.model_copy(update={"rows": count})
    check_far_end(OPERATOR, problem, last, lambda inputs: by.launch(problem, inputs, tile), seed)
