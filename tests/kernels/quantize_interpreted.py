"""Quantisation's kernels, run by the repaired interpreter under the sanitizer.

    TRITON_INTERPRET=1 python -m pytest tests/kernels/quantize_interpreted.py

test_interpreted_kernels.py starts it; its name keeps it out of an ordinary run.
"""

import pytest
import torch

from bench.worker.check import poison
from kernels.layernorm.tiles import Tile
from kernels.quantize import casting
from kernels.quantize.operator import OPERATOR, TORCH_TYPE
from kernels.quantize.problem import Quantize
from tests.drawing import covering
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import Watch, watched
from tests.kernels.tensors import uniform, used


def empty(problem: Quantize) -> tuple[torch.Tensor, torch.Tensor]:
    """y and scales, not yet written."""
    mx = problem.scaling == "mx"
    return (
        torch.empty(problem.rows, problem.length, dtype=TORCH_TYPE[problem.to]),
        torch.empty(problem.rows, problem.length // 32, dtype=torch.uint8)
        if mx
        else torch.empty(problem.scales),
    )


def ran(problem: Quantize, x: torch.Tensor, tile: Tile) -> tuple[tuple[torch.Tensor, ...], Watch]:
    """What the kernels wrote into poison, and what they touched."""
    results = empty(problem)
    poison(results)
    with repaired(), watched() as watch:
        casting.with_tile(problem, x, results, tile).call()
    return results, watch


def tiles(problem: Quantize) -> list[Tile]:
    """Small ones, with which a problem has several programs, and one of the tuner's."""
    small = {"tensor": Tile(1, 64, 1), "mx": Tile(2, 32, 1)}.get(problem.scaling)
    return [small or casting.candidates(problem)[-1], casting.candidates(problem)[0]]


EXAMPLES = [p for p in OPERATOR.examples if p.rows * p.length < 20_000 or p.dtype == "bfloat16"]


@pytest.mark.parametrize(
    "problem",
    covering(EXAMPLES, "interpreted quantize", lambda p: (p.to, p.scaling), lambda p: (p.dtype, p.length)),
    ids=str,
)
def test_right_in_bounds_and_each_element_written_once(problem: Quantize, seed: int) -> None:
    (x,) = OPERATOR.inputs(problem, uniform(problem, seed))
    before = x.clone()
    for tile in tiles(problem):
        results, watch = ran(problem, x, tile)
        assert used(OPERATOR, "triton", problem, (x,), results) <= 1
        parts = 0
        if problem.scaling == "tensor":
            programs = min(-(-problem.elements // tile.block), casting.PARTS)
            parts = 4 * programs
            assert watch.loads.byte == 2 * problem.byte_read + parts * -(-problem.elements // tile.block)
        else:
            assert watch.loads.byte == problem.byte_read
        assert watch.stores.byte == problem.byte_written + parts
        assert watch.stores.repeated == 0 == watch.atomics.byte
    assert torch.equal(x, before)


@pytest.mark.parametrize("to, scaling", [("float8_e4m3", "mx"), ("float8_e5m2", "row"), ("int8", "tensor")])
def test_the_same_numbers_as_torch(to: str, scaling: str, seed: int) -> None:
    """Bit for bit where scales are powers of two; else but for quotients at the middle of two numbers."""
    problem = Quantize(rows=16, length=256, dtype="float32", to=to, scaling=scaling)  # type: ignore[arg-type]
    (x,) = OPERATOR.inputs(problem, uniform(problem, seed))
    x *= torch.logspace(-6, 6, 16)[:, None]  # rows of very different size
    (y, scales), _ = ran(problem, x, casting.candidates(problem)[0])
    want_y, want_scales = OPERATOR.implementations["aten"](problem, x).call()
    torch.testing.assert_close(
        scales.double(), want_scales.double(), rtol=0 if scaling == "mx" else 1e-6, atol=0
    )
    other = (y.double() != want_y.double()).sum()
    assert other == 0 if scaling == "mx" else other < 0.01 * y.numel()


@pytest.mark.parametrize("scaling", ["tensor", "row", "mx"])
def test_zeros_stay_zeros(scaling: str) -> None:
    problem = Quantize(rows=2, length=64, dtype="bfloat16", to="float8_e4m3", scaling=scaling)  # type: ignore[arg-type]
    (y, _), _ = ran(problem, torch.zeros(2, 64, dtype=torch.bfloat16), casting.candidates(problem)[0])
    assert (y.float() == 0).all()
