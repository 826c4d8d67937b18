from typing import get_args

import pytest
import torch

from bench.spec import Dtype
from kernels import operator
from kernels.gemm.operator import OPERATOR, excerpt, factors, tolerance
from kernels.gemm.problem import Gemm, Layout
from tests.kernels.gemm_cases import error
from tests.kernels.processes import compiled, interpreted
from tests.kernels.tensors import TORCH_TYPE, uniform


def test_triton_kernel_interpreted() -> None:
    pytest.importorskip("triton")
    interpreted("tests/kernels/gemm_interpreted.py")


def test_triton_kernel_compiled_for_every_architecture() -> None:
    pytest.importorskip("triton")
    compiled("tests.kernels.gemm_compiled")


def test_operator_binds_every_declared_name() -> None:
    assert operator("gemm") is OPERATOR


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


@pytest.mark.parametrize("problem", OPERATOR.examples, ids=str)
def test_inputs_are_what_the_problem_counts(problem: Gemm, seed: int) -> None:
    a, b = OPERATOR.inputs(problem, uniform(problem, seed))
    assert a.is_contiguous() and b.is_contiguous()
    assert (a.nbytes + b.nbytes) == problem.byte_read
    left, right = factors(problem, a, b)
    assert left.shape == (problem.n, problem.k) and right.shape == (problem.k, problem.m)


@pytest.mark.parametrize(
    "problem",
    [
        *(p for p in OPERATOR.examples if not Gemm.implementation("onednn").missing(p.dtype, "cpu", None)),
        *(Gemm(m=97, n=53, k=4096, dtype=d) for d in ("float16", "bfloat16", "float32", "float64")),
    ],
    ids=str,
)
def test_onednn_against_the_reference(problem: Gemm, seed: int) -> None:
    a, b = OPERATOR.inputs(problem, uniform(problem, seed))
    launch = OPERATOR.implementations["onednn"](problem, a, b)
    c = launch.call()
    assert isinstance(c, torch.Tensor) and c.dtype == a.dtype and c.is_contiguous()
    assert error(problem, (a, b), c) <= tolerance(problem, "onednn")
    assert launch.call() is c is launch.outputs[0]  # preallocated: a launch allocates nothing


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


def test_a_small_problem_is_checked_whole() -> None:
    problem = Gemm(m=64, n=64, k=64, dtype="float32")
    tensors = (torch.zeros(64, 64), torch.zeros(64, 64))
    assert excerpt(problem, tensors, (torch.zeros(64, 64),))[0] is problem


@pytest.mark.parametrize("layout", get_args(Layout))
def test_excerpt_is_part_of_the_problem_and_meets_every_block(layout: Layout, seed: int) -> None:
    problem = Gemm(m=1000, n=417, k=301, layout=layout, dtype="float32")
    a, b = OPERATOR.inputs(problem, uniform(problem, seed))
    c = OPERATOR.reference(problem, a, b)
    assert isinstance(c, torch.Tensor)

    smaller, some, (part,) = excerpt(problem, (a, b), (c,))
    assert smaller.k == problem.k and smaller.layout == layout
    assert smaller.flop < problem.flop / 10
    assert error(smaller, some, part) < 1e-14

    torch.manual_seed(seed)
    row, column = (int(torch.randint(-(-size // 32), ())) * 32 for size in (417, 1000))
    wrong = c.clone()
    wrong[row : row + 32, column : column + 32] += c.abs().max() * 0.01
    smaller, some, (part,) = excerpt(problem, (a, b), (wrong,))
    assert error(smaller, some, part) > 0.009 > tolerance(smaller, "onednn")


def test_excerpt_stays_small_and_keeps_the_ends() -> None:
    problem = Gemm(m=20_000, n=8192, k=1, dtype="float32")
    a, b = torch.arange(20_000.0)[None], torch.arange(8192.0)[:, None]
    assert problem.flop > 1e8
    smaller, (some_a, some_b), _ = excerpt(problem, (a, b), (torch.zeros(1, 1).expand(8192, 20_000),))
    assert 200 <= smaller.m <= 258 and 256 <= smaller.n <= 258
    assert some_a[0, 0] == 0 and some_a[0, -1] == 19_999
    assert some_b[0, 0] == 0 and some_b[-1, 0] == 8191
    assert (some_b.flatten().diff() <= 63).all()
