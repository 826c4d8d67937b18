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

`float8_e4m3` multiplies 8-bit floats, each matrix with one float32 scale, and gives bfloat16; `int8`
multiplies integers and gives int32, exactly. The others give what they are given.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from bench.spec import ITEM_BYTE, DeviceKind, Dtype, Implementation, Problem

Size = Annotated[int, Field(ge=1)]
Layout = Literal["NN", "NT", "TN", "TT"]

_ANY = (0, 0)
_AMPERE = (8, 0)  # tensor cores for tf32, bfloat16 and float64; asynchronous copies
_HOPPER = (9, 0)  # bulk tensor copies (TMA), wgmma
_FLOAT8 = (8, 9)

_CUBLAS: dict[Dtype, tuple[int, int]] = {
    "float16": (5, 3),
    "bfloat16": _AMPERE,
    "tf32": _AMPERE,
    "float32": _ANY,
    "float64": _ANY,
    "float8_e4m3": _FLOAT8,
    "int8": (7, 5),
}
_TRITON: dict[Dtype, tuple[int, int]] = {
    # Below 8.0 Triton's dot uses no tensor cores, 16-bit tiles spill and int8 does not compile.
    "float16": _AMPERE,
    "bfloat16": _AMPERE,
    "tf32": _AMPERE,
    "float32": (7, 0),
    "float64": (7, 0),
    "float8_e4m3": _FLOAT8,
    "int8": _AMPERE,
}
_TMA: dict[Dtype, tuple[int, int]] = dict.fromkeys(
    ("float16", "bfloat16", "tf32", "float8_e4m3", "int8"), _HOPPER
)
_16_BIT: dict[Dtype, tuple[int, int]] = dict.fromkeys(("float16", "bfloat16"), _HOPPER)

FORCED_TILES = ("256x128", "128x256", "128x128", "256x64", "64x256", "128x64", "64x128", "64x64")
"""M x N of the tiles that can be asked for by name: those of the guide's section 2.3, largest first."""

BULK_COPIES = ("triton-tma", "triton-persistent", "triton-specialized")
"""Those that move operands by TMA and so need every row to begin at a multiple of 16 bytes."""
SKINNY = 64
"""Most columns (n) or rows (m) of D for which `triton-skinny` exists."""
INT8_LARGEST_K = (2**31 - 1) // 127**2
"""Beyond it a sum of int8 products could pass int32."""


def _of_triton(name: str, summary: str, dtypes: dict[Dtype, tuple[int, int]] = _TRITON) -> Implementation:
    return Implementation(name, summary, devices=("cuda",), dtypes=dtypes)


class Gemm(Problem):
    """One matrix multiplication: `m`, `n`, `k`, `layout`, `dtype`; and `beta`, `pitch`."""

    operator: ClassVar[str] = "gemm"
    arithmetic: ClassVar[Literal["matrix", "vector"]] = "matrix"
    rate: ClassVar[Literal["flop", "byte"]] = "flop"
    implementations: ClassVar[tuple[Implementation, ...]] = (
        Implementation(
            "cublas",
            "torch.mm, addmm, _scaled_mm or _int_mm with out=, which call cuBLAS",
            devices=("cuda",),
            dtypes=_CUBLAS,
        ),
        Implementation(
            "cublaslt",
            "cuBLASLt called directly, the algorithm that its heuristic puts first",
            devices=("cuda",),
            dtypes=_CUBLAS,
        ),
        Implementation(
            "cublaslt-best",
            "the quickest of the algorithms that cuBLASLt's heuristic names, timed on the device",
            devices=("cuda",),
            dtypes=_CUBLAS,
        ),
        *(
            Implementation(
                f"cublaslt-{tile}",
                f"cuBLASLt held to tiles of {tile}: the quickest algorithm that has them",
                devices=("cuda",),
                dtypes=_CUBLAS,
            )
            for tile in FORCED_TILES
        ),
        Implementation(
            "onednn",
            "torch.mm, addmm or _int_mm with out= on a CPU: MKL for float32 and float64, oneDNN below",
            devices=("cpu",),
            dtypes={"float16": _ANY, "bfloat16": _ANY, "float32": _ANY, "float64": _ANY, "int8": _ANY},
        ),
        Implementation(
            "inductor",
            "torch.compile in mode max-autotune: the quickest of cuBLAS and Inductor's own templates",
            devices=("cuda",),
            dtypes={d: c for d, c in _CUBLAS.items() if d not in ("float8_e4m3", "int8")},
        ),
        _of_triton("triton", "our kernel for this shape and device, by the rule in choosing.py"),
        _of_triton("triton-pointer", "a grid of tiles addressed by pointers: any size, any architecture"),
        _of_triton("triton-tma", "a grid of tiles moved by bulk tensor copies", _TMA),
        _of_triton("triton-persistent", "one program an SM that walks over tiles, by bulk copies", _TMA),
        _of_triton(
            "triton-specialized", "the same with warps that only copy; right where it was checked", _16_BIT
        ),
        _of_triton("triton-split-k", "K cut into parts for more programs, summed by the last to arrive"),
        _of_triton("triton-stream-k", "every SM gets an equal share of all steps along K"),
        _of_triton("triton-skinny", f"for m or n up to {SKINNY}: the other operand streams past once"),
        *(
            _of_triton(f"triton-{tile}", f"a grid of tiles of exactly {tile}, whatever the shape asks for")
            for tile in FORCED_TILES
        ),
    )

    m: Size
    n: Size
    k: Size
    layout: Layout = "NN"
    beta: Literal[0, 1] = 0
    pitch: Literal["tight", "padded"] = "tight"

    @model_validator(mode="after")
    def _has_a_result(self) -> Gemm:
        if self.dtype == "int8" and self.k > INT8_LARGEST_K:
            raise ValueError(f"int8 sums pass int32 beyond k={INT8_LARGEST_K}; given k={self.k}")
        if self.beta and self.dtype in ("int8", "float8_e4m3"):
            raise ValueError(f"beta=1 is for types whose result has the operands' type, not for {self.dtype}")
        return self

    @property
    def output_dtype(self) -> str:
        """The type of D: bfloat16 for float8_e4m3, int32 for int8, else the operands'."""
        return {"float8_e4m3": "bfloat16", "int8": "int32"}.get(self.dtype, self.dtype)

    @property
    def output_item_byte(self) -> int:
        """Bytes of one element of D."""
        return 4 if self.dtype == "int8" else ITEM_BYTE[self.output_dtype]  # type: ignore[index]

    @property
    def flop(self) -> int:
        """2 m n k: a multiply and an add for each of the m n k products. beta C is not counted."""
        return 2 * self.m * self.n * self.k

    @property
    def product(self) -> tuple[int, int, int]:
        """m, n, k."""
        return self.m, self.n, self.k

    @property
    def byte_read(self) -> int:
        """(m k + k n) elements, A and B once; m n more, C, where beta = 1; two scales for float8_e4m3."""
        scales = 8 if self.dtype == "float8_e4m3" else 0
        elements = self.m * self.k + self.k * self.n + self.beta * self.m * self.n
        return elements * self.item_byte + scales

    @property
    def byte_stored(self) -> int:
        """The inputs with the gaps between padded rows."""
        row_a, row_b, row_d = self.row_byte()
        of_a = row_a * (self.k if self.layout[0] == "N" else self.m)
        of_b = row_b * (self.n if self.layout[1] == "N" else self.k)
        return of_a + of_b + self.beta * self.n * row_d

    @property
    def byte_written(self) -> int:
        """D once: m n elements of its own type."""
        return self.m * self.n * self.output_item_byte

    def byte_moved(self, implementation: str) -> int:
        """`byte`; torch.addmm with out= copies C to D before it adds to D: m n read and written again."""
        copies = self.beta and implementation in ("cublas", "onednn")
        return self.byte + (2 * self.byte_written if copies else 0)

    def byte_again(self, implementation: str) -> int:
        """Of torch.addmm's copy: D, which is read again right after it was written."""
        return self.byte_written if self.beta and implementation in ("cublas", "onednn") else 0

    def moved_written(self, implementation: str) -> int:
        """D, twice where torch.addmm copies C to it first."""
        return self.byte_written * (2 if self.beta and implementation in ("cublas", "onednn") else 1)

    def row_byte(self) -> tuple[int, int, int]:
        """Bytes from one row of A, of B and of D to the next, as they are stored."""
        of_a = self.m if self.layout[0] == "N" else self.k
        of_b = self.k if self.layout[1] == "N" else self.n
        step = 128 if self.pitch == "padded" else 1
        rows = of_a * self.item_byte, of_b * self.item_byte, self.m * self.output_item_byte
        return rows[0] + -rows[0] % step, rows[1] + -rows[1] % step, rows[2] + -rows[2] % step

    def refusal(self, implementation: str) -> str:
        """Shapes and layouts that an implementation does not do."""
        if implementation in ("cublas", "onednn") and self.dtype in ("int8", "float8_e4m3"):
            return self._refusal_by_torch(implementation)
        if implementation in BULK_COPIES:
            odd = next((b for b in self.row_byte() if b % 16), 0)
            if odd:
                return f"{implementation} needs rows at multiples of 16 bytes; these have {odd}"
        if implementation == "triton-skinny" and min(self.m, self.n) > SKINNY:
            return f"triton-skinny needs m or n up to {SKINNY}; given {self.m} x {self.n}"
        if implementation == "inductor" and self.pitch == "padded":
            return "inductor chooses its own strides, so pitch=padded is not its to do"
        return ""

    def _refusal_by_torch(self, implementation: str) -> str:
        """What torch's own entry points to 8-bit products ask for."""
        name = "_scaled_mm" if self.dtype == "float8_e4m3" else "_int_mm"
        given = f"given {self.m} x {self.n} x {self.k} {self.layout}"
        if self.pitch == "padded" and self.row_byte()[2] != self.m * self.output_item_byte:
            return f"torch.{name} writes rows without gaps; pitch=padded has some"
        if implementation == "onednn":
            # With transposed operands of one row or column torch 2.13 computes something else.
            single = 1 in (self.m, self.n, self.k)
            return f"torch.{name} is not to be trusted with a size of 1 on a CPU; {given}" if single else ""
        if self.dtype == "float8_e4m3" and (self.layout != "TN" or self.m % 16 or self.k % 16):
            return f"torch.{name} does layout TN with m and k in multiples of 16; {given}"
        if self.dtype == "int8" and (self.n <= 16 or self.m % 8 or self.k % 8):
            return f"torch.{name} needs n above 16, and m and k in multiples of 8; {given}"
        return ""

    def missing(self, implementation: str, device: DeviceKind, capability: tuple[int, int] | None) -> str:
        """Also: cuBLASLt multiplies 8-bit types of layout TN alone, on all but Blackwell."""
        found = super().missing(implementation, device, capability)
        lt = implementation.startswith("cublaslt") and self.dtype in ("float8_e4m3", "int8")
        if not found and lt and self.layout != "TN" and (capability or (0, 0)) < (10, 0):
            return f"cuBLASLt does {self.dtype} in layout TN here, not {self.layout}"
        return found

    def probe(self) -> Gemm:
        """At most 256 a side: a few milliseconds even where a type has no fast path."""
        return self.model_copy(
            update={s: min(256, getattr(self, s)) for s in ("m", "n", "k")},
        )


PROBLEM = Gemm
