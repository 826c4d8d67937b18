"""GEMM: D = op(A) op(B) + beta C, the heart of linear layers, attention and convolution.

Sizes and layouts are the documents': BLAS, column-major. A is m x k, B is k x n, C and D are m x n. The two
letters of `layout` say for A, then B, whether it is stored as it is (N) or transposed (T). alpha = 1. In
row-major (torch) terms:

    letter of A:  N -> a is [k, m]   T -> a is [m, k]
    letter of B:  N -> b is [n, k]   T -> b is [k, n]
    c and d are [n, m]

so NN leads with m, k, m (of A, B, D) and NT with m, n, m: which dimension must be aligned differs.
A forward `nn.Linear` is TN, its activation gradient NN, its weight gradient NT.

`pitch` says where rows begin: `tight`, one after the other; `padded`, at the next multiple of 128 bytes, as
an application may lay out a matrix whose sizes it cannot choose. The sizes, and so the work, stay the same.

`batch` is how many products of these sizes are computed at once, each of its own A and B, which lie one after
the other in memory: [batch, rows, columns]. To models they are one product, stacked along M.

`float8_e4m3` multiplies 8-bit floats, each matrix with one float32 scale, and gives bfloat16. In
`float8_e5m2` only A is of that format and B is of the other, since cuBLAS does not multiply two of it; so it
is in training, where gradients need the range. `mxfp8` and `nvfp4` have a scale for each 32 or 16 elements
along K (number_types.py), exist in layout TN, and give bfloat16 too. `int8` multiplies integers and gives
int32, exactly. The others give what they are given.

`sparsity` 2of4 says that of each four elements of A along K the two smaller ones are zero. All
implementations compute the same product and all FLOP are counted; `cusparselt` alone stores and multiplies no
zeros.

Strongest known: cuBLAS, measured as `cublas` and `cublaslt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from bench.spec import ITEM_BYTE, PACKED, DeviceKind, Dtype, Dtypes, Implementation, MatrixProblem, Size
from kernels.implementations import ADA, AMPERE, ANY, HOPPER, LIBRARY, VOLTA, WITH_FLOAT64, on_cpu, on_cuda

Layout = Literal["NN", "NT", "TN", "TT"]

_BLACKWELL = (10, 0)
_BLOCKS: Dtypes = dict.fromkeys(("mxfp8", "nvfp4"), _BLACKWELL)
_CUBLAS: Dtypes = {**LIBRARY, "float64": ANY, "float8_e4m3": ADA, "int8": (7, 5)}
_INDUCTOR: Dtypes = {**LIBRARY, "float64": ANY}
_TORCH_CUDA: Dtypes = {**_CUBLAS, "float8_e5m2": ADA, **_BLOCKS}
_TORCH_CPU: Dtypes = {**WITH_FLOAT64, "int8": ANY, "float8_e4m3": ANY, "float8_e5m2": ANY}
_TRITON: Dtypes = {
    # Below 8.0 Triton's dot uses no tensor cores, 16-bit tiles spill and int8 does not compile.
    "float16": AMPERE,
    "bfloat16": AMPERE,
    "tf32": AMPERE,
    "float32": VOLTA,
    "float64": VOLTA,
    "float8_e4m3": ADA,
    "int8": AMPERE,
}
_TMA: Dtypes = dict.fromkeys(("float16", "bfloat16", "tf32", "float8_e4m3", "int8"), HOPPER)
_SPARSE: Dtypes = dict.fromkeys(("float16", "bfloat16", "int8"), AMPERE)

FORCED_TILES = ("256x128", "128x128", "64x64")
"""M x N of the tiles that have a name, largest first: those that statements of the guides are about."""

BLOCK_SCALED: Mapping[Dtype, int] = {"mxfp8": 32, "nvfp4": 16}
"""Types with scales for blocks -> elements of a block."""
SCALED = ("float8_e4m3", "float8_e5m2", *BLOCK_SCALED)
BATCHED = ("cublas", "onednn", "triton", "triton-pointer")
"""Implementations that compute several products at once."""
MOST_BATCH = 2**16 - 1
"""Most products of one launch of ours: programs along the second axis of a CUDA grid."""
BULK_COPIES = ("triton-tma", "triton-persistent")
"""Implementations that move operands by TMA and so need every row to begin at a multiple of 16 bytes."""
INT8_LARGEST_K = (2**31 - 1) // 127**2
"""Beyond it a sum of int8 products could pass int32."""


class Gemm(MatrixProblem):
    """Matrix multiplications of one size: `m`, `n`, `k`, `layout`, `dtype`; and `beta`, `pitch`, `batch`."""

    operator: ClassVar[str] = "gemm"
    added: ClassVar[Mapping[str, int | str]] = {"batch": 1, "sparsity": "none"}
    implementations: ClassVar[tuple[Implementation, ...]] = (
        on_cuda("cublas", "torch.mm, addmm, bmm, _scaled_mm or _int_mm with out=", _TORCH_CUDA),
        on_cuda("cublaslt", "cuBLASLt called directly, the algorithm that its heuristic puts first", _CUBLAS),
        *(
            on_cuda(f"cublaslt-{tile}", f"cuBLASLt held to tiles of {tile}", _CUBLAS, on_request=True)
            for tile in FORCED_TILES
        ),
        on_cpu("onednn", "torch.mm and so on, out=: MKL for float32 and float64, oneDNN below", _TORCH_CPU),
        on_cuda("cublas-quantized", "A in float8_e4m3, B quantised in each launch by us", {"bfloat16": ADA}),
        on_cuda("cusparselt", "A stored without its zeros; the quickest of its algorithms", _SPARSE),
        on_cuda("inductor", "max-autotune: the quickest of cuBLAS and its templates", _INDUCTOR),
        on_cuda("triton", "our kernel for this shape and device, by the rule in autotune.py", _TRITON),
        on_cuda("triton-pointer", "a grid of tiles addressed by pointers: any size, anywhere", _TRITON),
        on_cuda("triton-tma", "a grid of tiles moved by bulk tensor copies", _TMA),
        on_cuda("triton-persistent", "one program an SM that walks over tiles, by bulk copies", _TMA),
        on_cuda("triton-split-k", "K cut into parts for more programs, summed by the last one", _TRITON),
        *(
            on_cuda(f"triton-{tile}", f"a grid of tiles of exactly {tile}", _TRITON, on_request=True)
            for tile in FORCED_TILES
        ),
    )

    m: Size
    n: Size
    k: Size
    layout: Layout = "NN"
    beta: Literal[0, 1] = 0
    pitch: Literal["tight", "padded"] = "tight"
    batch: Size = 1
    sparsity: Literal["none", "2of4"] = "none"

    @model_validator(mode="after")
    def _has_a_result(self) -> Gemm:
        if self.dtype == "int8" and self.k > INT8_LARGEST_K:
            raise ValueError(f"int8 sums pass int32 beyond k={INT8_LARGEST_K}; given k={self.k}")
        if self.dtype in BLOCK_SCALED and (self.layout, self.pitch, self.k % 32) != ("TN", "tight", 0):
            given = f"{self.layout}, {self.pitch} and k={self.k}"
            raise ValueError(
                f"{self.dtype} is for layout TN, rows without gaps and k in multiples of 32; given {given}"
            )
        if self.beta and self.output_dtype != self.dtype:
            raise ValueError(f"beta=1 is for types whose result has the operands' type, not for {self.dtype}")
        if self.beta and self.batch > 1:
            raise ValueError(f"beta=1 is for a single product, not for batch={self.batch}")
        plain = (self.layout, self.pitch, self.batch, self.beta) == ("TN", "tight", 1, 0)
        if self.sparsity == "2of4" and not (plain and self.dtype in _SPARSE):
            raise ValueError(
                f"sparsity=2of4 is for {', '.join(_SPARSE)} in layout TN, rows without gaps, batch=1, beta=0"
            )
        if self.sparsity == "2of4" and self.k % 4:
            raise ValueError(f"sparsity=2of4 takes k in multiples of 4, not k={self.k}")
        return self

    @property
    def output_dtype(self) -> str:
        """The type of D: bfloat16 for what is scaled, int32 for int8, else the operands'."""
        if self.dtype in SCALED:
            return "bfloat16"
        return "int32" if self.dtype == "int8" else self.dtype

    @property
    def output_item_byte(self) -> int:
        """Bytes of one element of D."""
        return 4 if self.dtype == "int8" else ITEM_BYTE[self.output_dtype]  # type: ignore[index]

    @property
    def flop(self) -> int:
        """2 m n k batch: a multiply and an add for each of the products of numbers. beta C is not counted."""
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def product(self) -> tuple[int, int, int]:
        """m batch, n, k: the batch is stacked along M."""
        return self.m * self.batch, self.n, self.k

    @property
    def byte_read(self) -> int:
        """batch (m k + k n) elements, A and B once, and their scales; m n more, C, if beta = 1."""
        elements = self.batch * self.k * (self.m + self.n) + self.beta * self.m * self.n
        return elements * self.item_byte // PACKED.get(self.dtype, 1) + self._scale_byte

    @property
    def _scale_byte(self) -> int:
        """Two float32 numbers, or a byte for each block."""
        if self.dtype in BLOCK_SCALED:
            return self.batch * self.k * (self.m + self.n) // BLOCK_SCALED[self.dtype]
        return 8 if self.dtype in SCALED else 0

    @property
    def byte_stored(self) -> int:
        """The inputs with the gaps between padded rows."""
        row_a, row_b, row_d = self.row_byte()
        of_a = row_a * (self.k if self.layout[0] == "N" else self.m)
        of_b = row_b * (self.n if self.layout[1] == "N" else self.k)
        return self.batch * (of_a + of_b) // PACKED.get(self.dtype, 1) + self.beta * self.n * row_d

    @property
    def byte_written(self) -> int:
        """D once: m n batch elements of its own type."""
        return self.m * self.n * self.batch * self.output_item_byte

    def read_once(self, implementation: str) -> int:
        """The inputs, but of cuSPARSELt's A half the elements, and two bits for each that say where it was.

        Quantising leaves A with one byte for each of its elements.
        """
        of_a = self.m * self.k
        less = {"cusparselt": of_a * self.item_byte // 2 - of_a // 8, "cublas-quantized": of_a}
        return self.byte_read - less.get(implementation, 0)

    def byte_again(self, implementation: str) -> int:
        """D right after torch.addmm copied C into it; what quantising reads: B twice, and its bytes."""
        if implementation == "cublas-quantized":
            return self.n * self.k * (self.item_byte + 1)
        return self.byte_written if self._copies_c(implementation) else 0

    def moved_written(self, implementation: str) -> int:
        """D, twice where C is copied to it first; and B as bytes, where it is quantised."""
        if implementation == "cublas-quantized":
            return self.byte_written + self.n * self.k
        return self.byte_written * (2 if self._copies_c(implementation) else 1)

    def _copies_c(self, implementation: str) -> bool:
        return self.beta == 1 and implementation in ("cublas", "onednn")

    def facts(self, implementation: str) -> dict[str, Any]:
        """Facts, with the units that bound what skips zeros or multiplies 16 bits as 8, unlike `dtype`."""
        units = {"cusparselt": "sparse", "cublas-quantized": "8-bit"}
        arithmetic = units.get(implementation, self.arithmetic)
        return super().facts(implementation) | {"arithmetic": arithmetic}

    def row_byte(self) -> tuple[int, int, int]:
        """Bytes from one row of A, of B and of D to the next, as they are stored."""
        of_a = self.m if self.layout[0] == "N" else self.k
        of_b = self.k if self.layout[1] == "N" else self.n
        step = 128 if self.pitch == "padded" else 1
        rows = of_a * self.item_byte, of_b * self.item_byte, self.m * self.output_item_byte
        return rows[0] + -rows[0] % step, rows[1] + -rows[1] % step, rows[2] + -rows[2] % step

    def refusal(self, implementation: str) -> str:
        """Shapes, layouts and batches that an implementation does not do."""
        if self.batch > 1 and (reason := self._refusal_of_batch(implementation)):
            return reason
        if implementation in ("cublas", "onednn") and self.output_dtype != self.dtype:
            return self._refusal_of_8_bits(implementation)
        if implementation in BULK_COPIES:
            odd = next((b for b in self.row_byte() if b % 16), 0)
            if odd:
                return f"{implementation} needs rows at multiples of 16 bytes; these have {odd}"
        if implementation == "cusparselt":
            return self._refusal_of_sparsity()
        if implementation == "cublas-quantized":
            fits = self.layout == "TN" and not self.m % 16 and not self.k % 16
            if not fits or self.pitch == "padded" or self.beta:
                return f"{implementation} does layout TN with m and k in multiples of 16, tight and without C"
        if implementation == "inductor" and self.pitch == "padded":
            return "inductor chooses its own strides, so pitch=padded is not its to do"
        return ""

    def _refusal_of_batch(self, implementation: str) -> str:
        if implementation not in BATCHED:
            return f"{implementation} computes one product, not batch={self.batch}"
        if implementation in ("cublas", "onednn"):
            eight = self.output_dtype != self.dtype
            return f"torch has no batched product of {self.dtype}" if eight else ""
        too_many = f"{implementation} computes up to {MOST_BATCH} products at once, not {self.batch}"
        return too_many if self.batch > MOST_BATCH else ""

    def _refusal_of_sparsity(self) -> str:
        """What cuSPARSELt asks for."""
        if self.sparsity == "none":
            return "cusparselt multiplies matrices with sparsity=2of4 alone"
        of_a, of_n = (32, 16) if self.dtype == "int8" else (16, 8)
        if self.m % of_a or self.k % of_a or self.n % of_n:
            needs = f"m and k in multiples of {of_a} and n in multiples of {of_n}"
            return f"cusparselt takes {self.dtype} with {needs}; given {self.m} x {self.n} x {self.k}"
        return ""

    def _refusal_of_8_bits(self, implementation: str) -> str:
        """What torch's entry points to 8-bit products ask for: `_scaled_mm` for floats, and `_int_mm`."""
        name = "_scaled_mm" if self.dtype != "int8" else "_int_mm"
        given = f"given {self.m} x {self.n} x {self.k} {self.layout}"
        if self.pitch == "padded" and self.row_byte()[2] != self.m * self.output_item_byte:
            return f"torch.{name} writes rows without gaps; pitch=padded has some"
        if implementation == "onednn":
            # With transposed operands of one row or column torch 2.13 computes something else.
            single = 1 in (self.m, self.n, self.k)
            return f"torch.{name} is not to be trusted with a size of 1 on a CPU; {given}" if single else ""
        if self.dtype != "int8" and (self.layout != "TN" or self.m % 16 or self.k % 16):
            return f"torch.{name} does layout TN with m and k in multiples of 16; {given}"
        if self.dtype == "int8" and (self.n <= 16 or self.m % 8 or self.k % 8):
            return f"torch.{name} needs n above 16, and m and k in multiples of 8; {given}"
        return ""

    def missing(self, implementation: str, device: DeviceKind, capability: tuple[int, int] | None) -> str:
        """Also: on all but Blackwell cuBLASLt multiplies 8-bit types in layout TN alone."""
        reason = super().missing(implementation, device, capability)
        transposed = self.dtype in ("float8_e4m3", "int8") and self.layout != "TN"
        by_cublaslt = implementation.startswith("cublaslt")
        if not reason and by_cublaslt and transposed and (capability or ANY) < _BLACKWELL:
            return f"cuBLASLt does {self.dtype} in layout TN here, not {self.layout}"
        return reason

    def probe(self) -> Gemm:
        """At most 256 a side, and one of a batch: a few milliseconds even where a type has no fast path."""
        sides = {side: min(256, getattr(self, side)) for side in ("m", "n", "k")}
        return self.model_copy(update={**sides, "batch": 1})


PROBLEM = Gemm
