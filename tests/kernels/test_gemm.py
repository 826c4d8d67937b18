from typing import get_args

import pytest
import torch

from bench.spec import Dtype
from kernels.gemm.operands import factors
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.problem import BLOCK_SCALED, INT8_LARGEST_K, Gemm, Layout
from tests.drawing import covering
from tests.kernels.gemm_cases import KINDS, error
from tests.kernels.tensors import TORCH_TYPE, uniform


@pytest.mark.parametrize("layout", get_args(Layout))
def test_reference_is_the_column_major_product(layout: Layout, seed: int) -> None:
    problem = Gemm(m=3, n=5, k=7, layout=layout, dtype="float64")
    a, b = OPERATOR.inputs(problem, uniform(problem, seed))
    # Read as BLAS does: column-major storage of leading dimension lda is the transpose of ours.
    stored_a, stored_b = a.t(), b.t()
    op_a = stored_a if layout[0] == "N" else stored_a.t()
    op_b = stored_b if layout[1] == "N" else stored_b.t()
    assert op_a.shape == (3, 7) and op_b.shape == (7, 5)
    c = OPERATOR.reference(problem, a, b)
    assert isinstance(c, torch.Tensor)
    torch.testing.assert_close(c.t(), op_a @ op_b)


@pytest.mark.parametrize("problem", covering(OPERATOR.examples, "inputs", *KINDS), ids=str)
def test_inputs_are_what_the_problem_counts(problem: Gemm, seed: int) -> None:
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    a, b = inputs[:2]
    if problem.dtype in BLOCK_SCALED:
        return
    rows = problem.row_byte()
    assert (a.stride(-2) * problem.item_byte, b.stride(-2) * problem.item_byte) == rows[:2]
    assert all(one.stride(-1) == 1 for one in inputs)
    if problem.pitch == "padded":
        assert not any(row % 128 for row in rows)
    left, right = factors(problem, a, b)
    several = () if problem.batch == 1 else (problem.batch,)
    assert left.shape == (*several, problem.n, problem.k) and right.shape == (*several, problem.k, problem.m)


def test_the_scales_of_8_bit_floats_multiply_the_product(seed: int) -> None:
    problem = Gemm(m=16, n=24, k=32, layout="TN", dtype="float8_e4m3")
    a, b, a_scale, b_scale = OPERATOR.inputs(problem, uniform(problem, seed))
    assert a_scale.dtype == b_scale.dtype == torch.float32 and a_scale.shape == b_scale.shape == (1,)
    with_scales = OPERATOR.reference(problem, a, b, a_scale, b_scale)
    one = torch.ones(1)
    assert isinstance(with_scales, torch.Tensor)
    plain = OPERATOR.reference(problem, a, b, one, one)
    torch.testing.assert_close(with_scales, plain * a_scale.double() * b_scale.double())


def test_the_largest_int8_sum_fits_int32() -> None:
    k = INT8_LARGEST_K
    assert k * 127**2 < 2**31 <= (k + 1) * 127**2
    Gemm(m=1, n=1, k=k, dtype="int8")


def test_adding_c_costs_what_each_implementation_makes_of_it() -> None:
    plain = Gemm(m=64, n=32, k=16, dtype="float32")
    added = Gemm(m=64, n=32, k=16, dtype="float32", beta=1)
    d_byte = plain.byte_written
    assert added.byte == plain.byte + d_byte == added.byte_moved("triton") == added.byte_moved("cublaslt")
    assert added.byte_moved("onednn") == added.byte + 2 * d_byte  # torch copies C to D before it adds
    assert added.moved_written("onednn") == 2 * d_byte and added.byte_again("onednn") == d_byte
    assert added.flop == plain.flop


def test_each_product_of_a_batch_has_its_own_operands(seed: int) -> None:
    problem = Gemm(m=5, n=4, k=3, layout="TN", batch=3, dtype="float64")
    a, b = OPERATOR.inputs(problem, uniform(problem, seed))
    d = OPERATOR.reference(problem, a, b)
    for index in range(3):
        torch.testing.assert_close(d[index], b[index] @ a[index].t())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_tolerance_is_within_ten_times_of_what_a_plain_sum_does(dtype: Dtype, seed: int) -> None:
    problem = Gemm(m=128, n=96, k=512, dtype=dtype)
    a, b = OPERATOR.inputs(problem, uniform(problem, seed))
    left, right = factors(problem, a.float(), b.float())
    c = torch.zeros(problem.n, problem.m)
    for i in range(problem.k):
        c.addcmul_(left[:, i : i + 1], right[i : i + 1])
    share = error(problem, (a, b), c.to(TORCH_TYPE[dtype])) / tolerance(problem, "triton")
    assert 0.1 < share <= 1


def test_a_16_bit_sum_would_be_noticed(seed: int) -> None:
    problem = Gemm(m=128, n=96, k=512, dtype="float16")
    a, b = OPERATOR.inputs(problem, uniform(problem, seed))
    left, right = factors(problem, a, b)
    c = torch.zeros(problem.n, problem.m, dtype=torch.float16)
    for i in range(problem.k):
        c += left[:, i : i + 1] * right[i : i + 1]
    assert error(problem, (a, b), c) > tolerance(problem, "triton")


@pytest.mark.parametrize("dtype, flag", [("tf32", "tf32"), ("float32", "ieee")])
def test_each_cublas_launch_sets_its_own_precision(
    dtype: Dtype, flag: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    matmul = torch.backends.cuda.matmul
    seen: list[str] = []

    def mm(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        seen.append(matmul.fp32_precision)
        return out

    monkeypatch.setattr(torch, "mm", mm)
    problem = Gemm(m=4, n=4, k=4, dtype=dtype)
    launch = OPERATOR.implementations["cublas"](problem, *OPERATOR.inputs(problem, uniform(problem, seed)))
    matmul.fp32_precision = "ieee" if flag == "tf32" else "tf32"  # as a launch of the other may have left it
    launch.call()
    assert seen == [flag]
    assert matmul.fp32_precision == "ieee"
    assert matmul.allow_tf32 is False  # the older flag can still be read
    assert not matmul.allow_fp16_reduced_precision_reduction and not matmul.allow_fp16_accumulation
    assert not matmul.allow_bf16_reduced_precision_reduction
