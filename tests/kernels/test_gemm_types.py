"""Products of types below 16 bits, of pruned matrices, and of 16 bits by way of 8."""

from typing import Any

import pytest
import torch

from bench.spec import Dtype, Launch, Unsupported
from kernels import operator
from kernels.gemm.number_types import swizzled
from kernels.gemm.operator import OPERATOR
from kernels.gemm.problem import Gemm
from tests.kernels.tensors import uniform, used


@pytest.mark.parametrize("dtype, block", [("mxfp8", 32), ("nvfp4", 16)])
def test_each_block_has_its_own_scale(dtype: Dtype, block: int, seed: int) -> None:
    """Block by block, of numbers that are decoded here by other means.

    The 21 scales of b are of three sizes at least, equally often: all are alike in 3^-20, once in 3e9 runs.
    """
    problem = Gemm(m=9, n=7, k=96, layout="TN", dtype=dtype)
    a, b, *scales = OPERATOR.inputs(problem, uniform(problem, seed))
    by = [2.0 ** (one.double() - 127) if dtype == "mxfp8" else one.double() for one in scales]
    assert all(one.shape[1] == 96 // block and len(one.double().unique()) > 1 for one in scales)
    want = torch.zeros(7, 9, dtype=torch.float64)
    numbers = [
        one.double() if dtype == "mxfp8" else torch.tensor(list(map(four_bits, one))) for one in (a, b)
    ]
    for at in range(96 // block):
        left, right = (one[:, at * block : (at + 1) * block] for one in reversed(numbers))
        want += (left @ right.t()) * by[1][:, at, None] * by[0][None, :, at]
    torch.testing.assert_close(OPERATOR.reference(problem, a, b, *scales), want)


def four_bits(row: torch.Tensor) -> list[float]:
    """Sign, two bits of exponent, one of mantissa; the lower half of a byte first."""
    numbers = []
    for byte in row.tolist():
        for code in (byte & 15, byte >> 4 & 15):
            exponent, mantissa = code >> 1 & 3, code & 1
            size = (1 + mantissa / 2) * 2 ** (exponent - 1) if exponent else mantissa / 2
            numbers.append(-size if code & 8 else size)
    return numbers


@pytest.mark.parametrize("rows, blocks", [(1, 1), (128, 4), (130, 9), (300, 6)])
def test_scales_are_laid_out_as_cublas_documents_it(rows: int, blocks: int) -> None:
    """Its formula: in a tile of 128 x 4 the scale of (r, c) is at (r % 32) 16 + (r / 32) 4 + c."""
    scale = (torch.arange(rows * blocks) % 251 + 1).to(torch.uint8).view(rows, blocks)
    flat = swizzled(scale)
    across = -(-blocks // 4)
    assert len(flat) == 512 * across * -(-rows // 128) and (flat > 0).sum() == rows * blocks
    for r in range(rows):
        for c in range(blocks):
            tile = r // 128 * across + c // 4
            assert flat[512 * tile + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] == scale[r, c]


@pytest.mark.parametrize("dtype", Gemm.implementation("cusparselt").dtypes)
def test_of_a_pruned_matrix_two_of_four_remain(dtype: Dtype, seed: int) -> None:
    dense = Gemm(m=64, n=32, k=128, layout="TN", dtype=dtype)
    problem = dense.model_copy(update={"sparsity": "2of4"})
    whole, a = (OPERATOR.inputs(given, uniform(given, seed))[0] for given in (dense, problem))
    kept = (a != 0).view(64, 32, 4)
    assert (kept.sum(-1) <= 2).all() and kept.any(-1).float().mean() > 0.98
    assert torch.equal(a[a != 0], whole[a != 0])
    gone = torch.where(a == 0, whole.double().abs(), 0).view(64, 32, 4).amax(-1)
    left = torch.where(a != 0, whole.double().abs(), 1e9).view(64, 32, 4).amin(-1)
    assert (gone <= left).all()


def test_cusparselt_gets_the_compressed_matrix_and_gives_d(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """With functions in torch's place that have its signatures and keep its shapes: `_cslt_sparse_mm` gives
    A B, transposed if it is asked to (torch/_meta_registrations.py)."""
    problem = Gemm(m=32, n=16, k=64, layout="TN", dtype="int8", sparsity="2of4")
    asked: list[dict[str, Any]] = []

    def multiply(a: torch.Tensor, b: torch.Tensor, **how: Any) -> torch.Tensor:
        asked.append(how)
        return (a.double() @ b.double()).t().to(torch.int32) if how["transpose_result"] else a

    monkeypatch.setattr(torch.backends.cusparselt, "is_available", lambda: True)
    monkeypatch.setattr(torch, "_cslt_compress", lambda a: a)
    monkeypatch.setattr(torch, "_cslt_sparse_mm", multiply)
    monkeypatch.setattr(torch, "_cslt_sparse_mm_search", lambda a, b, **how: 7)
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    launch = OPERATOR.implementations["cusparselt"](problem, *inputs)
    d = launch.call()
    assert used(OPERATOR, "cusparselt", problem, inputs, (d,)) <= 1  # type: ignore[arg-type]
    assert asked == [{"out_dtype": torch.int32, "transpose_result": True, "alg_id": 7}]
    assert launch.configuration == "algorithm 7"


@pytest.mark.parametrize("small", [False, True])
def test_a_product_by_way_of_8_bits(small: bool, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """With torch's quantisation in place of our kernel, which the interpreter proves: right to 8 bits, and
    quantised anew in each launch."""
    casting = pytest.importorskip("kernels.quantize.casting")
    asked = []

    def launch(problem: Any, x: torch.Tensor, results: tuple[torch.Tensor, ...]) -> Launch:
        made = operator("quantize").implementations["aten"](problem, x)
        asked.append(problem)

        def call() -> tuple[torch.Tensor, ...]:
            made.call()
            for result, output in zip(results, made.outputs, strict=True):
                result.copy_(output)
            return results

        return Launch(call, outputs=results)

    monkeypatch.setattr(casting, "launch", launch)
    problem = Gemm(m=48, n=40, k=64, layout="TN", dtype="bfloat16")
    a, b = OPERATOR.inputs(problem, uniform(problem, seed))
    product = OPERATOR.implementations["cublas-quantized"](problem, a, b)
    product.call()
    b *= 1e-3 if small else 3  # as another batch would be
    d = product.call()
    assert isinstance(d, torch.Tensor) and d is product.outputs[0]
    assert 0.05 < used(OPERATOR, "cublas-quantized", problem, (a, b), (d,)) <= 1
    assert used(OPERATOR, "cublas", problem, (a, b), (d,)) > 1
    assert [(one.rows, one.length, one.scaling) for one in asked] == [(40, 64, "tensor")]


def test_torch_without_cusparselt_is_said(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(torch.backends.cusparselt, "is_available", lambda: False)
    problem = Gemm(m=32, n=16, k=64, layout="TN", dtype="float16", sparsity="2of4")
    with pytest.raises(Unsupported, match="no cuSPARSELt"):
        OPERATOR.implementations["cusparselt"](problem, *OPERATOR.inputs(problem, uniform(problem, seed)))
