"""Quantisation's kernels, run by the repaired interpreter under the sanitizer."""

import pytest
import torch

from bench.spec import Launch
from kernels.layernorm.rows import Tile
from kernels.quantize import casting
from kernels.quantize.operator import OPERATOR
from kernels.quantize.problem import Quantize
from kernels.tensors import empty
from tests.drawing import covering, is_deep
from tests.kernels.interpreted import Case, Kernels, Ran, Tensors


def tiles(problem: Quantize) -> list[Tile]:
    """Small ones, with which a problem has several programs, and one of the tuner's."""
    small = {"tensor": Tile(1, 64, 1), "mx": Tile(2, 32, 1)}.get(problem.scaling)
    return [small or casting.candidates(problem)[-1], casting.candidates(problem)[0]]


def cases() -> list[Case]:
    """Every pair of type and scaling, every type of x and every length of the examples."""
    examples = [p for p in OPERATOR.examples if is_deep() or p.rows * p.length < 10_000]
    drawn = covering(
        examples, "interpreted quantize", lambda p: (p.to, p.scaling), lambda p: (p.dtype, p.length)
    )
    return [(problem, tile) for problem in drawn for tile in tiles(problem)]


class TestQuantize(Kernels):
    operator = OPERATOR
    cases = cases()

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
        want_y, want_scales = OPERATOR.implementations["aten"](problem, x).call()
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
