"""GEMM: C = op(A) op(B), the heart of linear layers, attention and convolution.

Sizes and layouts are the documents': BLAS, column-major. A is m x k, B is k x n, C is m x n. The two
letters of `layout` say for A, then B, whether it is stored as it is (N) or transposed (T). alpha = 1,
beta = 0. In row-major (torch) terms, with every tensor contiguous:

    letter of A:  N -> a is [k, m]   T -> a is [m, k]
    letter of B:  N -> b is [n, k]   T -> b is [k, n]
    C is [n, m]

so NN leads with m, k, m (of A, B, C) and NT with m, n, m: which dimension must be aligned differs.
A forward `nn.Linear` is TN, its activation gradient NN, its weight gradient NT.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bench.spec import Implementation, Problem

Size = Annotated[int, Field(ge=1)]
Layout = Literal["NN", "NT", "TN", "TT"]

_ANY = (0, 0)
_TENSOR_CORES_TF32_BF16 = (8, 0)  # Ampere brought tf32 and bfloat16


class Gemm(Problem):
    """One matrix multiplication: `m`, `n`, `k`, `layout`, `dtype`."""

    operator: ClassVar[str] = "gemm"
    arithmetic: ClassVar[Literal["matrix", "vector"]] = "matrix"
    rate: ClassVar[Literal["flop", "byte"]] = "flop"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation(
            "cublas",
            "torch.mm with out=, which calls cuBLAS",
            devices=("cuda",),
            dtypes={
                "float16": (5, 3),
                "bfloat16": _TENSOR_CORES_TF32_BF16,
                "tf32": _TENSOR_CORES_TF32_BF16,
                "float32": _ANY,
                "float64": _ANY,
            },
        ),
        Implementation(
            "onednn",
            "torch.mm with out= on a CPU: MKL for float32 and float64, oneDNN for the 16-bit types",
            devices=("cpu",),
            dtypes={"float16": _ANY, "bfloat16": _ANY, "float32": _ANY, "float64": _ANY},
        ),
        Implementation(
            "triton",
            "our tiled kernel: pointer tiles in grouped order, tuned on the device (pointer.py)",
            devices=("cuda",),
            dtypes={
                # Below 8.0 Triton's dot uses no tensor cores and 16-bit tiles spill.
                "float16": (8, 0),
                "bfloat16": (8, 0),
                "tf32": (8, 0),
                "float32": (7, 0),
                "float64": (7, 0),
            },
        ),
    )

    m: Size
    n: Size
    k: Size
    layout: Layout = "NN"

    @property
    def flop(self) -> int:
        """2 m n k: a multiply and an add for each of the m n k products."""
        return 2 * self.m * self.n * self.k

    @property
    def byte_read(self) -> int:
        """(m k + k n) elements: A and B once. beta = 0, so C is not read."""
        return (self.m * self.k + self.k * self.n) * self.item_byte

    @property
    def byte_written(self) -> int:
        """C once: m n elements."""
        return self.m * self.n * self.item_byte

    def probe(self) -> "Gemm":
        """At most 256 a side: a few milliseconds even where a type has no fast path."""
        return self.model_copy(
            update={s: min(256, getattr(self, s)) for s in ("m", "n", "k")},
        )


PROBLEM = Gemm
