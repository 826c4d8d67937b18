"""Kernels on rows (layer normalization, softmax, quantisation), interpreted under the sanitizer."""

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch

from bench.spec import Launch
from kernels.layernorm import backward, backward_two_pass
from kernels.layernorm import launch as of_layernorm
from kernels.layernorm.designs import Designs
from kernels.layernorm.operator import OPERATOR as LAYERNORM
from kernels.layernorm.problem import EPSILON, LayerNorm
from kernels.layernorm.rows import Tile, alignment
from kernels.quantize import casting
from kernels.quantize.operator import OPERATOR as QUANTIZE
from kernels.quantize.problem import Quantize
from kernels.rows import Rows
from kernels.softmax import launch as of_softmax
from kernels.softmax.operator import OPERATOR as SOFTMAX
from kernels.softmax.problem import Softmax
from kernels.tensors import empty
from tests.drawing import covering, is_deep
from tests.kernels.interpreted import Beyond32Bits, Case, Far, Kernels, Ran, SpoiledByNan, Tensors
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import placed, watched
from tests.kernels.tensors import relative_error, used

MULTIPROCESSORS = 3
WAYS = ("forward", "backward")
GRADIENTS = {"whole": backward, "two-pass": backward_two_pass}
"""The modules of layer normalization's gradient for rows in registers, and read twice."""
METHODS = {"whole": "of_tiles", "two-pass": "of_chunks"}
"""The same of what does without a module for each."""


class By(NamedTuple):
    """A design and its tile, whatever the length of a row."""

    design: str
    tile: Tile

    def __str__(self) -> str:
        return f"{self.design} {self.tile}"


def rows(kind: type[Rows], direction: str, count: int, length: int, dtype: str = "float32") -> Any:
    return kind.model_validate({"direction": direction, "rows": count, "length": length, "dtype": dtype})


def cases(kind: type[Rows]) -> Iterator[Case]:
    """A few of the examples, and of chunks of a few elements; all of them in a deep run."""
    operator, launching = (LAYERNORM, of_layernorm) if kind is LayerNorm else (SOFTMAX, of_softmax)
    examples = [
        p
        for p in operator.examples
        if isinstance(p, LayerNorm | Softmax)
        and not p.missing("triton", "cuda", (9, 0))
        and not (p.dtype != "bfloat16" and p.length > 1025)  # the interpreter is slow
    ]
    for problem in few(examples, f"interpreted {kind}"):
        tiles = launching.candidates(problem)  # type: ignore[arg-type]
        for tile in dict.fromkeys((tiles[0], tiles[-1]) if problem.length < 1025 else tiles[:1]):
            yield problem, By("whole" if problem.in_registers else "two-pass", tile)
    # On, one past and one short of chunks; more tiles of rows than slices.
    sizes = ((1, 64), (7, 65), (23, 200), (10, 127), (3, 192), (2, 1))
    long = [
        rows(kind, direction, *size, dtype)
        for direction, size, dtype in itertools.product(WAYS, sizes, ("bfloat16", "float32"))
        if kind is Softmax or size[1] >= 64
    ]
    for problem in few(long, f"long rows of {kind}"):
        height = 4 if kind is LayerNorm and problem.direction == "backward" else 1
        yield problem, By("two-pass", Tile(height, 64, 1))
    if kind is LayerNorm:  # fewer, as many and more tiles than programs, ragged or not
        for count in (1, 2, 5, 6, 7, 24, 25):
            yield rows(kind, "backward", count, 24), By("whole", Tile(2, 32, 1))


def few(problems: list[Any], of: str) -> list[Any]:
    """Every size, and every data type in either direction; all of them in a deep run."""
    return covering(problems, of, lambda p: (p.rows, p.length), lambda p: (p.direction, p.dtype))


def far(kind: type[Rows], direction: str) -> Iterator[Far]:
    """By each design."""
    problem = rows(kind, direction, (2**31 + 2**20) // 1000 + 1, 1000, "float16")
    for by in (By("whole", Tile(4, 1024, 1)), By("two-pass", Tile(1, 256, 1))):
        count = (problem.rows - 1) % by.tile.rows + 1
        yield Far(problem, by, problem.model_copy(update={"rows": count}))


SMALL = (By("whole", Tile(4, 256, 1)), By("two-pass", Tile(1, 64, 1)))
"""Of rows of 200 elements."""


class RowKernels(SpoiledByNan, Beyond32Bits):
    """Both operators, by all designs."""

    def launch(self, problem: Any, inputs: Tensors, configuration: By) -> Launch:
        design, tile = configuration
        if isinstance(problem, LayerNorm) and problem.direction == "backward":
            *others, mean, rstd = inputs
            inputs = (*others, mean.float(), rstd.float())
            return GRADIENTS[design].launch(problem, inputs, tile, MULTIPROCESSORS)  # type: ignore[attr-defined, no-any-return]
        of = of_layernorm.FORWARD if isinstance(problem, LayerNorm) else of_softmax.DESIGNS[problem.direction]
        by = getattr(of, METHODS[design])
        return by(problem, inputs, tile)  # type: ignore[no-any-return]

    def counted(self, problem: Any, configuration: By, inputs: Tensors, done: Ran) -> None:
        assert done.byte == (*traffic(problem, configuration), 0) and done.watch.stores.repeated == 0
        assert done.watch.loads.within(inputs[0]).distinct_byte == inputs[0].nbytes
        if configuration.design == "whole":
            assert done.watch.loads.within(inputs[0]).byte == inputs[0].nbytes


def traffic(problem: Any, by: By) -> tuple[int, int]:
    """Bytes loaded and stored, exactly: the least there is, and what the docstrings name beside it."""
    read, written = problem.byte_read, problem.byte_written
    if isinstance(problem, Softmax):
        return read * (2 if by.design == "two-pass" else 1), written
    weight, data = problem.length * problem.item_byte, problem.elements * problem.item_byte
    if problem.direction == "forward":
        programs = problem.rows
        again = data + problem.rows * by.tile.block * problem.item_byte
        if by.design == "whole":
            programs, again = math.ceil(problem.rows / by.tile.rows), 0
        return read + again + (programs - 1) * 2 * weight, written
    if by.design == "whole":
        count = min(MULTIPROCESSORS * by.tile.per_sm, math.ceil(problem.rows / by.tile.rows))
        partial = partial_byte(problem, count)
        return read + (count - 1) * weight + partial, written + partial
    count = backward_two_pass.slices(problem, by.tile, MULTIPROCESSORS)
    strips, partial = math.ceil(problem.length / by.tile.block), partial_byte(problem, count)
    statistics = 8 * problem.rows
    loaded = read + 2 * data + (problem.rows + count - 1) * weight + 2 * strips * statistics + partial
    return loaded, written + statistics + partial


def partial_byte(problem: LayerNorm, count: int) -> int:
    return 2 * count * problem.length * 4


class TestLayerNorm(RowKernels):
    operator = LAYERNORM
    cases = tuple(cases(LayerNorm))
    spoiled = (
        *((rows(LayerNorm, "forward", 6, 200), by) for by in SMALL),
        (rows(LayerNorm, "backward", 6, 200), By("whole", Tile(4, 256, 1))),
        (rows(LayerNorm, "backward", 6, 200), By("two-pass", Tile(4, 64, 1))),
    )
    far = tuple(far(LayerNorm, "forward"))

    @pytest.mark.parametrize("first", [None, 0.0, 5000.0])
    @pytest.mark.parametrize(
        "by",
        [
            By("whole", Tile(2, 1024, 1)),
            By("two-pass", Tile(1, 128, 1)),
        ],
        ids=str,
    )
    def test_a_large_mean_costs_no_digits(self, by: By, first: float | None, seed: int) -> None:
        """Mean 1000, standard deviation 2, in float32; an outlier in front must not matter either."""
        problem = rows(LayerNorm, "forward", 6, 1000)
        x = torch.randn(6, 1000, generator=torch.Generator().manual_seed(seed)) * 2 + 1000
        if first is not None:
            x[:, 0] = first
        inputs = (x, *self.inputs(problem, seed)[1:])
        outputs = self.outputs(problem, inputs, by)
        assert relative_error(LAYERNORM, problem, inputs, outputs) < 6 * 2.0**-24

    @pytest.mark.parametrize("by", SMALL, ids=str)
    def test_infinity_spoils_its_row_as_in_torch(self, by: By, seed: int) -> None:
        problem = rows(LayerNorm, "forward", 6, 200)
        x, weight, bias = self.inputs(problem, seed)
        x[1, 77], x[2, 77] = math.inf, -math.inf
        y, mean, rstd = self.outputs(problem, (x, weight, bias), by)
        want, *_ = torch.native_layer_norm(x, [200], weight, bias, EPSILON)
        assert torch.equal(y.isnan(), want.isnan()) and bool(y[1:3].isnan().all())
        assert bool(rstd[1:3].isnan().all()) and bool(mean[3:].isfinite().all())

    def test_backward_beyond_2_to_the_31_elements(self, seed: int) -> None:
        """The last tile of 2^31 elements, and its partial sums, which lie beyond 2^31 as well."""
        length = 1000
        problem = rows(LayerNorm, "backward", (2**31 + 2**20) // length + 1, length, "float16")
        x, dy, dx = (torch.empty(problem.rows, length, dtype=torch.float16) for _ in range(3))
        mean, rstd = (torch.empty(problem.rows, 1) for _ in range(2))
        one = problem.model_copy(update={"rows": 1})
        x[-1:], dy[-1:], weight, mean[-1:], rstd[-1:] = self.inputs(one, seed)
        inputs = (x[-1:], dy[-1:], weight, mean[-1:], rstd[-1:])
        partial = torch.empty(2, problem.rows, length)
        assert partial[1].data_ptr() - partial.data_ptr() > 2**31 * 4
        with repaired(), watched(), placed((problem.rows - 1,), (problem.rows,)):
            backward.gradient[(1,)](
                *(x, dy, weight, mean, rstd, dx, partial, problem.rows, length),
                **{"ALIGN": 8, "EVEN": False, "ROWS": 1, "BLOCK": 1024, "STAGES": 2},
            )
        outputs = (dx[-1:], partial[0, -1], partial[1, -1])
        assert used(LAYERNORM, "triton", one, inputs, outputs) <= 1

        sums = torch.empty(2, problem.rows)
        dx[-1] = math.nan
        with repaired(), watched(), placed((problem.rows - 1,), (problem.rows,)):
            backward_two_pass.row_sums[(1,)](
                *(x, dy, weight, mean, rstd, sums, length), **{"ALIGN": 8, "BLOCK": 256}
            )
        # With a slice for every row, the first slice is the last row.
        grid = (math.ceil(length / 256), problem.rows)
        for block in range(grid[0]):
            with repaired(), watched(), placed((block, 0), grid):
                backward_two_pass.columns[(1,)](
                    *(x, dy, weight, mean, rstd, sums, dx, partial, problem.rows, length),
                    **{"ALIGN": 8, "ROWS": 1, "BLOCK": 256},
                )
        outputs = (dx[-1:], partial[0, 0], partial[1, 0])
        assert used(LAYERNORM, "triton", one, inputs, outputs) <= 1

    def test_partial_sums_beyond_2_to_the_31_elements(self, seed: int) -> None:
        """dbias from partial sums that begin beyond 2^31 elements, all but the last rows zero."""
        length, count = 2**26, 33
        partial = torch.empty(2, count, length)
        last = torch.rand(count, 32, generator=torch.Generator().manual_seed(seed))
        partial[1, :, -32:] = last
        dweight, dbias = torch.empty(length, dtype=torch.float16), torch.empty(length, dtype=torch.float16)
        blocks = length // 32
        with repaired(), watched(), placed((blocks - 1, 1), (blocks, 2)):
            backward.add_partial_sums[(1,)](
                *(partial, dweight, dbias, count, length),
                **{"ALIGN": alignment(length, 4), "ROWS": 32, "BLOCK": 32},
            )
        torch.testing.assert_close(dbias[-32:], last.sum(0).half())


class TestSoftmax(RowKernels):
    operator = SOFTMAX
    cases = tuple(cases(Softmax))
    spoiled = tuple((rows(Softmax, direction, 4, 200), by) for direction in WAYS for by in SMALL)
    far = tuple(one for direction in WAYS for one in far(Softmax, direction))

    @pytest.mark.parametrize("by", SMALL, ids=str)
    def test_rows_that_rise_fall_and_are_huge(self, by: By) -> None:
        """The largest element comes first, last or in between, and no exponential overflows."""
        rising = torch.linspace(-200, 300, 200)
        sine, low = rising.sin() * 1e30, torch.full((200,), -1e30)
        x = torch.stack([rising, rising.flip(0), sine, low, rising * 1e-3])
        problem = rows(Softmax, "forward", 5, 200)
        (y,) = self.outputs(problem, (x,), by)
        torch.testing.assert_close(y.double(), SOFTMAX.reference(problem, x), rtol=3e-5, atol=1e-30)

    @pytest.mark.parametrize("by", SMALL, ids=str)
    def test_infinity_spoils_what_it_spoils_in_torch(self, by: By, seed: int) -> None:
        problem = rows(Softmax, "forward", 8, 200)
        (x,) = self.inputs(problem, seed)
        x[1, 77], x[2, 77], x[3], x[4] = math.inf, -math.inf, -math.inf, math.nan
        x[5, :100] = -math.inf  # whole chunks of nothing, then numbers
        x[6, 40:] = -math.inf
        x[7, 10], x[7, 150] = math.nan, math.inf
        (y,) = self.outputs(problem, (x,), by)
        want = torch.softmax(x, 1)
        assert want.isnan().all(1).tolist() == [False, True, False, True, True, False, False, True]
        torch.testing.assert_close(y, want, equal_nan=True)


@pytest.mark.parametrize(
    ("kind", "direction", "dtype", "length", "name"),
    [
        (LayerNorm, "backward", "float16", 8192, "whole"),
        (LayerNorm, "backward", "float16", 8193, "two-pass"),
        (LayerNorm, "forward", "float16", 16384, "whole"),
        (LayerNorm, "forward", "float16", 16385, "two-pass"),
        (Softmax, "forward", "float32", 16384, "whole"),
        (Softmax, "forward", "float32", 16385, "two-pass"),
    ],
)
def test_the_launch_takes_the_design_that_suits_the_row(
    kind: type[Rows], direction: str, dtype: str, length: int, name: str
) -> None:
    problem = rows(kind, direction, 1, length, dtype)
    launching, more = (of_layernorm, (MULTIPROCESSORS,)) if kind is LayerNorm else (of_softmax, ())
    with (
        patch.object(GRADIENTS[name], "launch", return_value=name),
        patch.object(Designs, METHODS[name], return_value=name),
    ):
        tiles = launching.candidates(problem)  # type: ignore[arg-type]
        taken = [launching.with_tile(problem, (torch.empty(1),) * 5, tile, *more) for tile in tiles]  # type: ignore[arg-type]
    assert set(taken) == {name}


def tiles(problem: Quantize) -> list[Tile]:
    """Small ones, with which a problem has several programs, and one of the tuner's."""
    small = {"tensor": Tile(1, 64, 1), "mx": Tile(2, 32, 1)}.get(problem.scaling)
    return [small or casting.candidates(problem)[-1], casting.candidates(problem)[0]]


def quantized() -> list[Case]:
    """Every pair of type and scaling, every type of x and every length of the examples."""
    examples = [p for p in QUANTIZE.examples if is_deep() or p.rows * p.length < 10_000]
    drawn = covering(
        examples, "interpreted quantize", lambda p: (p.to, p.scaling), lambda p: (p.dtype, p.length)
    )
    return [(problem, tile) for problem in drawn for tile in tiles(problem)]


class TestQuantize(Kernels):
    operator = QUANTIZE
    cases = quantized()

    def launch(self, problem: Quantize, inputs: Tensors, configuration: Tile) -> Launch:
        (x,) = inputs
        return casting.with_tile(problem, x, empty(problem, x), configuration)

    def counted(self, problem: Quantize, configuration: Tile, inputs: Tensors, done: Ran) -> None:
        loaded, parts = problem.byte_read, 0
        if problem.scaling == "tensor":
            blocks = -(-problem.elements // configuration.block)
            parts = 4 * min(blocks, casting.PARTS)
            loaded = 2 * problem.byte_read + parts * blocks
        assert done.byte == (loaded, problem.byte_written + parts, 0)
        assert done.watch.stores.repeated == 0

    @pytest.mark.parametrize(
        "to, scaling", [("float8_e4m3", "mx"), ("float8_e5m2", "row"), ("int8", "tensor")]
    )
    def test_the_same_numbers_as_torch(self, to: str, scaling: str, seed: int) -> None:
        """Bit for bit where scales are powers of two; else but for quotients at the middle of two numbers."""
        problem = Quantize(rows=16, length=256, dtype="float32", to=to, scaling=scaling)  # type: ignore[arg-type]
        (x,) = self.inputs(problem, seed)
        x *= torch.logspace(-6, 6, 16)[:, None]  # rows of very different size
        y, scales = self.outputs(problem, (x,), casting.candidates(problem)[0])
        want_y, want_scales = QUANTIZE.implementations["aten"](problem, x).call()
        torch.testing.assert_close(
            scales.double(), want_scales.double(), rtol=0 if scaling == "mx" else 1e-6, atol=0
        )
        other = (y.double() != want_y.double()).sum()
        assert other == 0 if scaling == "mx" else other < 0.01 * y.numel()

    @pytest.mark.parametrize("scaling", ["tensor", "row", "mx"])
    def test_zeros_stay_zeros(self, scaling: str) -> None:
        problem = Quantize(rows=2, length=64, dtype="bfloat16", to="float8_e4m3", scaling=scaling)  # type: ignore[arg-type]
        x = torch.zeros(2, 64, dtype=torch.bfloat16)
        y, _ = self.outputs(problem, (x,), casting.candidates(problem)[0])
        assert (y.float() == 0).all()
