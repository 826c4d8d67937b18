"""Kernels on rows (layer normalization, softmax, quantisation), interpreted under the sanitizer."""

import math
from typing import Any

import pytest
import torch

from bench.spec import Launch
from kernels.layernorm import backward
from kernels.layernorm import launch as of_layernorm
from kernels.layernorm.operator import OPERATOR as LAYERNORM
from kernels.layernorm.problem import EPSILON, LayerNorm
from kernels.layernorm.row_tiles import Tile, alignment
from kernels.quantize import casting
from kernels.quantize.operator import OPERATOR as QUANTIZE
from kernels.quantize.problem import Quantize
from kernels.row_wise import Rows
from kernels.softmax import forward_backward as of_softmax
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
SMALL = Tile(4, 256, 1)
"""Of rows of 200 elements."""


def rows(kind: type[Rows], direction: str, count: int, length: int, dtype: str = "float32") -> Any:
    return kind.model_validate({"direction": direction, "rows": count, "length": length, "dtype": dtype})


def cases(kind: type[Rows]) -> list[Case]:
    """A few of the examples with the first and the last of their tiles; all of them in a deep run."""
    operator, module = (LAYERNORM, of_layernorm) if kind is LayerNorm else (SOFTMAX, of_softmax)
    examples = [
        p
        for p in operator.examples
        if isinstance(p, LayerNorm | Softmax)
        and not p.missing("triton", "cuda", (9, 0))
        and not (p.dtype != "bfloat16" and p.length > 1025)  # the interpreter is slow
    ]
    # Every size, and every data type in either direction.
    few = covering(
        examples, f"interpreted {kind}", lambda p: (p.rows, p.length), lambda p: (p.direction, p.dtype)
    )
    found: list[Case] = []
    for problem in few:
        tiles = module.candidates(problem)  # type: ignore[attr-defined]
        taken = (tiles[0], tiles[-1]) if problem.length < 1025 else tiles[:1]
        found += [(problem, tile) for tile in dict.fromkeys(taken)]
    # Fewer, as many and more tiles than programs, ragged or not.
    counts = (1, 2, 5, 6, 7, 24, 25) if kind is LayerNorm else ()
    return [*found, *((rows(kind, "backward", count, 24), Tile(2, 32, 1)) for count in counts)]


def far(kind: type[Rows], direction: str) -> Far:
    """The last rows of 2^31 elements and more."""
    problem, tile = rows(kind, direction, (2**31 + 2**20) // 1000 + 1, 1000, "float16"), Tile(4, 1024, 1)
    count = (problem.rows - 1) % tile.rows + 1
    return Far(problem, tile, problem.model_copy(update={"rows": count}))


class RowKernels(SpoiledByNan, Beyond32Bits):
    """Both operators."""

    def launch(self, problem: Any, inputs: Tensors, configuration: Tile) -> Launch:
        if isinstance(problem, LayerNorm):
            return of_layernorm.with_tile(problem, inputs, configuration, MULTIPROCESSORS)
        return of_softmax.with_tile(problem, inputs, configuration)

    def counted(self, problem: Any, configuration: Tile, inputs: Tensors, done: Ran) -> None:
        """The least there is, and what the docstrings name beside it: weights, and partial sums."""
        read, written = problem.byte_read, problem.byte_written
        if isinstance(problem, LayerNorm):
            weight = problem.length * problem.item_byte
            tiles = math.ceil(problem.rows / configuration.rows)
            if problem.direction == "forward":
                read += (tiles - 1) * 2 * weight
            else:
                count = min(MULTIPROCESSORS * configuration.per_sm, tiles)
                partial = 2 * count * problem.length * 4
                read, written = read + (count - 1) * weight + partial, written + partial
        assert done.byte == (read, written, 0) and done.watch.stores.repeated == 0
        x = done.watch.loads.within(inputs[0])
        assert x.distinct_byte == x.byte == inputs[0].nbytes


class TestLayerNorm(RowKernels):
    operator = LAYERNORM
    cases = tuple(cases(LayerNorm))
    spoiled = tuple((rows(LayerNorm, direction, 6, 200), SMALL) for direction in WAYS)
    far = (far(LayerNorm, "forward"),)

    @pytest.mark.parametrize("first", [None, 0.0, 5000.0])
    def test_a_large_mean_costs_no_digits(self, first: float | None, seed: int) -> None:
        """Mean 1000, standard deviation 2, in float32; an outlier in front must not matter either."""
        problem = rows(LayerNorm, "forward", 6, 1000)
        x = torch.randn(6, 1000, generator=torch.Generator().manual_seed(seed)) * 2 + 1000
        if first is not None:
            x[:, 0] = first
        inputs = (x, *self.inputs(problem, seed)[1:])
        outputs = self.outputs(problem, inputs, Tile(2, 1024, 1))
        assert relative_error(LAYERNORM, problem, inputs, outputs) < 6 * 2.0**-24

    def test_infinity_spoils_its_row_as_in_torch(self, seed: int) -> None:
        problem = rows(LayerNorm, "forward", 6, 200)
        x, weight, bias = self.inputs(problem, seed)
        x[1, 77], x[2, 77] = math.inf, -math.inf
        y, mean, rstd = self.outputs(problem, (x, weight, bias), SMALL)
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
    spoiled = tuple((rows(Softmax, direction, 4, 200), SMALL) for direction in WAYS)
    far = tuple(far(Softmax, direction) for direction in WAYS)

    def test_rows_that_rise_fall_and_are_huge(self) -> None:
        """The largest element comes first, last or in between, and no exponential overflows."""
        rising = torch.linspace(-200, 300, 200)
        sine, low = rising.sin() * 1e30, torch.full((200,), -1e30)
        x = torch.stack([rising, rising.flip(0), sine, low, rising * 1e-3])
        problem = rows(Softmax, "forward", 5, 200)
        (y,) = self.outputs(problem, (x,), SMALL)
        torch.testing.assert_close(y.double(), SOFTMAX.reference(problem, x), rtol=3e-5, atol=1e-30)

    def test_infinity_spoils_what_it_spoils_in_torch(self, seed: int) -> None:
        problem = rows(Softmax, "forward", 8, 200)
        (x,) = self.inputs(problem, seed)
        x[1, 77], x[2, 77], x[3], x[4] = math.inf, -math.inf, -math.inf, math.nan
        x[5, :100] = -math.inf
        x[6, 40:] = -math.inf
        x[7, 10], x[7, 150] = math.nan, math.inf
        (y,) = self.outputs(problem, (x,), SMALL)
        want = torch.softmax(x, 1)
        assert want.isnan().all(1).tolist() == [False, True, False, True, True, False, False, True]
        torch.testing.assert_close(y, want, equal_nan=True)


def tiles(problem: Quantize) -> list[Tile]:
    """Small ones, with which a problem has several programs, and one of the tuner's."""
    small = {"tensor": Tile(1, 64, 1), "mx": Tile(2, 32, 1)}.get(problem.scaling)
    return [small or casting.candidates(problem)[-1], casting.candidates(problem)[0]]


def quantized() -> list[Case]:
    """Every pair of type and scaling, every type of x and every length of the examples."""
    examples = [p for p in QUANTIZE.examples if is_deep() or p.rows * p.length < 3_000]
    drawn = covering(examples, "interpreted quantize", lambda p: p.scaling, lambda p: (p.dtype, p.length))
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

    @pytest.mark.parametrize("scaling", ["mx", "row", "tensor"])
    def test_the_same_numbers_as_torch(self, scaling: str, seed: int) -> None:
        """Bit for bit where scales are powers of two; else but for quotients at the middle of two numbers."""
        problem = Quantize(rows=16, length=256, dtype="float32", to="float8_e4m3", scaling=scaling)  # type: ignore[arg-type]
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
