"""The bias gradient's kernel, and a layer from end to end, run by the repaired interpreter."""

import itertools
import math
from dataclasses import replace
from operator import attrgetter, itemgetter
from types import SimpleNamespace

import pytest
import torch
import triton.language as tl

from bench.spec import Dtype, Launch
from kernels.gemm import choosing
from kernels.gemm.tiles import Tile as GemmTile
from kernels.layernorm.rows import Tile
from kernels.linear import bias_gradient
from kernels.linear.operator import OPERATOR
from kernels.linear.problem import Linear
from tests.drawing import covering, drawn
from tests.kernels.interpreted import Case, Kernels, Ran, Tensors, check, check_again, ran
from tests.kernels.interpreter import repaired
from tests.kernels.problems import inputs_of
from tests.kernels.sanitizer import placed, watched
from tests.kernels.tensors import FLOATS, TORCH_TYPE, uniform

SM_COUNT = 3
SMALL = Tile(4, 16, 4, 2)
"""A few elements, so that small matrices have several tiles; six programs fill the device."""


def layer(rows: int, columns: int, dtype: Dtype = "float32") -> Linear:
    return Linear(direction="weight_gradient", batch=rows, inputs=1, outputs=columns, bias=True, dtype=dtype)


# On, one short of and one past tiles; fewer, as many and more tiles than programs; one row, one column.
SIZES = [(1, 1), (3, 16), (4, 17), (5, 15), (24, 32), (25, 33), (97, 47), (8, 100), (131, 7)]


def cases() -> list[Case]:
    """Every size and type; and every tile of the tuner's for some type, on aligned rows or odd ones."""
    some = covering([*itertools.product(SIZES, FLOATS)], "sums", itemgetter(0), itemgetter(1))
    found: list[Case] = [(layer(*size, dtype), SMALL) for size, dtype in some]  # type: ignore[arg-type]
    listed = [*itertools.product((96, 97), ("float16", "float32", "float64"))]
    for columns, dtype in drawn(listed, 1, "tiles of the bias gradient"):
        problem = layer(300, columns, dtype)  # type: ignore[arg-type]
        found += [(problem, tile) for tile in bias_gradient.candidates(TORCH_TYPE[problem.dtype], columns)]
    return found


class TestBiasGradient(Kernels):
    """The kernel alone, which gives db and not dw."""

    operator = replace(
        OPERATOR,
        reference=lambda *given: OPERATOR.reference(*given)[1],
        tolerance=lambda *given: OPERATOR.tolerance(*given)[1],  # type: ignore[index]
        excerpt=None,
    )
    cases = cases()

    def launch(self, problem: Linear, inputs: Tensors, configuration: Tile) -> Launch:
        return bias_gradient.launch(inputs[0], configuration, SM_COUNT)

    def counted(self, problem: Linear, configuration: Tile, inputs: Tensors, done: Ran) -> None:
        """Every byte of dy once; partial sums; and counters, which are set back."""
        rows, columns, tile = problem.batch, problem.outputs, configuration
        parts = bias_gradient.parts(rows, columns, tile, SM_COUNT)
        strips = math.ceil(columns / tile.block)
        partial = parts * columns * (8 if problem.dtype == "float64" else 4)
        of_dy = done.watch.loads.within(inputs[0])
        assert of_dy.byte == of_dy.distinct_byte == inputs[0].nbytes
        assert done.byte[0] == inputs[0].nbytes + partial
        assert done.byte[1] == done.outputs[0].nbytes + partial + 4 * strips
        assert done.byte[2] == 4 * strips * parts


def summed(dy: torch.Tensor) -> torch.Tensor:
    """db, computed into NaN."""
    return ran(bias_gradient.launch(dy, SMALL, SM_COUNT)).outputs[0]


@pytest.mark.parametrize("rows", [1, 4, 5, 23, 24, 25, 100])
def test_every_part_has_a_tile(rows: int) -> None:
    count = bias_gradient.parts(rows, 20, SMALL, SM_COUNT)
    assert 1 <= count <= math.ceil(rows / SMALL.rows)
    assert count * math.ceil(20 / SMALL.block) >= min(6, math.ceil(rows / SMALL.rows))


def test_a_16_bit_sum_keeps_what_16_bits_would_lose() -> None:
    """A thousand small terms beside a large one; all of them in float32."""
    dy = torch.full((1001, 16), 2.0**-6, dtype=torch.float16)
    dy[0] = 64.0
    db = summed(dy)
    assert torch.equal(db, torch.full((16,), 64 + 1000 * 2.0**-6, dtype=torch.float16))


def test_nan_and_infinity_spoil_their_column_only(seed: int) -> None:
    dy = uniform(layer(50, 20), seed)(50, 20)
    dy[7, 3], dy[49, 19] = math.nan, math.inf
    db = summed(dy)
    assert bool(db[3].isnan()) and bool(db[19].isinf())
    rest = [c for c in range(20) if c not in (3, 19)]
    torch.testing.assert_close(db[rest], dy.sum(0)[rest])


FAR = [(2**21 + 2**11, 1030), (1026, 2**21 + 2**12), (4, 2**30 + 16)]


@pytest.mark.parametrize("rows, columns", drawn(FAR, 1, "beyond 2^31"))
def test_beyond_two_to_the_31(rows: int, columns: int, seed: int) -> None:
    """The last tile of 2^31 elements, by the last program: many tiles, many columns, or long rows."""
    tile = SMALL
    dy = torch.empty(rows, columns, dtype=torch.float16)
    assert dy.numel() > 2**31
    strips, parts = math.ceil(columns / tile.block), math.ceil(rows / tile.rows)
    last = (slice((parts - 1) * tile.rows, rows), slice((strips - 1) * tile.block, columns))
    generator = torch.Generator().manual_seed(seed)
    dy[last] = torch.rand(dy[last].shape, generator=generator).half()
    partial = torch.empty(parts, columns)
    counters = torch.zeros(strips, dtype=torch.int32)
    db = torch.empty(columns, dtype=torch.float16)
    constants = {"SUM": tl.float32, "ALIGN": 2, "ROWS": tile.rows, "COLUMNS": tile.block}
    with repaired(), watched(), placed((strips * parts - 1,), (strips * parts,)):
        bias_gradient.column_sums[(1,)](*(dy, partial, counters, db, rows, columns, parts), **constants)
    torch.testing.assert_close(partial[-1, last[1]], dy[last].float().sum(0))
    assert int(counters[-1]) == (1 if parts > 1 else 0) and int(counters[-2]) == 0


def test_partial_sums_beyond_two_to_the_31(seed: int) -> None:
    """The last to arrive adds up sums that lie beyond 2^31 elements."""
    columns, parts, tile = 2**21 + 2**12, 1025, SMALL
    dy = torch.zeros(1, columns, dtype=torch.float16)  # with this many parts, the last has no rows
    partial = torch.empty(parts, columns)
    assert partial.numel() > 2**31
    strips = columns // tile.block
    last = slice(columns - tile.block, columns)
    generator = torch.Generator().manual_seed(seed)
    partial[:, last] = torch.rand(parts, tile.block, generator=generator)
    counters = torch.full((strips,), parts - 1, dtype=torch.int32)
    db = torch.empty(columns)
    constants = {"SUM": tl.float32, "ALIGN": 8, "ROWS": tile.rows, "COLUMNS": tile.block}
    with repaired(), watched(), placed((strips * parts - 1,), (strips * parts,)):
        bias_gradient.column_sums[(1,)](*(dy, partial, counters, db, 1, columns, parts), **constants)
    assert not partial[-1, last].any()  # its own, of no rows
    torch.testing.assert_close(db[last], partial[:, last].sum(0))
    assert int(counters[-1]) == 0


@pytest.fixture
def a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of three multiprocessors; each of our kernels has one configuration, so none is timed."""
    found = SimpleNamespace(major=8, minor=0, multi_processor_count=SM_COUNT)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    one = [choosing.Choice("pointer", GemmTile(32, 16, 32, warps=4, stages=1))]
    monkeypatch.setattr(choosing, "choices_of", lambda *asked: one)
    monkeypatch.setattr(bias_gradient, "candidates", lambda dtype, columns: (SMALL,))


END_TO_END = [
    p
    for p in OPERATOR.examples
    # What 8.0 has and the interpreter can.
    if not p.missing("triton", "cuda", (8, 0))
]

KINDS = tuple(
    attrgetter(*names) for names in (("batch", "inputs", "outputs"), ("direction", "bias"), ("dtype",))
)


@pytest.mark.parametrize("problem", covering(END_TO_END, "layers", *KINDS), ids=str)
def test_a_layer_from_end_to_end(problem: Linear, a_device: None, seed: int) -> None:
    """Our GEMM with the layer's operands and bias, and beside dw the bias gradient, into outputs of NaN."""
    inputs = inputs_of(problem, seed)
    launch = OPERATOR.implementations["triton"](problem, *inputs)
    check(OPERATOR, problem, inputs, launch)
    check_again(launch)
    of_bias = ", db 4x16 w4 p2" if problem.sums_bias_gradient else ""
    assert launch.configuration == f"pointer 32x16x32 w4 s1{of_bias}"


def test_time_spent_tuning_is_that_of_both_kernels(a_device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = layer(8, 8)
    inputs = inputs_of(problem, 0)
    whole = choosing.launch, bias_gradient.tuned_launch
    monkeypatch.setattr(choosing, "launch", lambda *given: replace(whole[0](*given), tuning_s=1.5))
    monkeypatch.setattr(bias_gradient, "tuned_launch", lambda dy: replace(whole[1](dy), tuning_s=0.25))
    assert OPERATOR.implementations["triton"](problem, *inputs).tuning_s == 1.75
