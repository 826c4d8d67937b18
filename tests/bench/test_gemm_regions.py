"""Regions of shapes of a GEMM: their edges, and alignment by the bytes that the operator itself counts."""

from typing import Any

import pytest

from bench.judge.gemm_regions import region
from bench.spec import Dtype
from kernels.gemm.problem import Gemm


def place(m: int, n: int, k: int, dtype: Dtype = "float16", layout: Any = "NN", pitch: Any = "tight") -> str:
    return region(Gemm(m=m, n=n, k=k, dtype=dtype, layout=layout, pitch=pitch).parameters())


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((4096, 4096, 1024), "16-bit large"),
        ((4096, 4088, 1024), "16-bit other"),
        ((4096, 4096, 1016), "16-bit other"),
        ((4096, 4096, 520), "16-bit other"),
        ((4096, 4096, 512), "16-bit large, short K"),
        ((8192, 8192, 32), "16-bit large, short K"),
        ((4088, 4088, 8192), "16-bit middle"),
        ((1032, 1032, 64), "16-bit middle"),
        ((1032, 1024, 64), "16-bit other"),
        ((1024, 1024, 8192), "16-bit small"),
        ((64, 64, 64), "16-bit small"),
        ((64, 4096, 4096), "16-bit decode"),
        ((4096, 64, 4096), "16-bit decode"),
        ((4096, 1, 8192), "16-bit decode"),
        ((4096, 72, 4096), "16-bit other"),
        ((4088, 64, 4096), "16-bit other"),
        ((4096, 64, 4088), "16-bit other"),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_regions(shape: tuple[int, int, int], wanted: str, dtype: Dtype) -> None:
    assert place(*shape, dtype) == wanted


@pytest.mark.parametrize(
    ("dtype", "layout", "large", "other"),
    [
        ("float8_e4m3", "TN", "float8 TN large", "float8 other"),
        ("float8_e4m3", "NN", "float8 other", "float8 other"),
        ("int8", "TN", "int8 TN large", "int8 other"),
        ("int8", "NT", "int8 other", "int8 other"),
        ("tf32", "TN", "tf32 TN large", "tf32 other"),
        ("tf32", "NN", "tf32 other", "tf32 other"),
        ("float32", "NN", "float32 large", "float32 other"),
        ("float64", "NN", "float64", "float64"),
        ("float8_e5m2", "TN", "float8 TN large", "float8 other"),
        ("mxfp8", "TN", "mxfp8 large", "mxfp8 other"),
        ("nvfp4", "TN", "nvfp4 large", "nvfp4 other"),
    ],
)
def test_other_regions(dtype: Dtype, layout: str, large: str, other: str) -> None:
    assert place(4096, 4096, 1024, dtype, layout) == large
    for small in ((4064, 4096, 1024), (4096, 4064, 1024), (4096, 4096, 992)):
        assert place(*small, dtype, layout) == other


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("dtype", Gemm.implementation("triton").dtypes)
def test_unaligned_is_what_the_problem_says_of_its_rows(dtype: Dtype, layout: Any) -> None:
    """One more element in each size: the rows' bytes, by the operator's own count, decide."""
    unaligned = 0
    for m, n, k in [(4096 + a, 4096 + b, 4096 + c) for a in (0, 4, 8) for b in (0, 1) for c in (0, 1, 8)]:
        problem = Gemm(m=m, n=n, k=k, dtype=dtype, layout=layout)
        wanted = any(byte % 16 for byte in problem.row_byte())
        assert (place(m, n, k, dtype, layout) == "unaligned") is wanted, problem
        assert place(m, n, k, dtype, layout, "padded") != "unaligned"
        unaligned += wanted
    assert unaligned
