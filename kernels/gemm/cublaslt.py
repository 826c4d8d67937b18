"""cuBLASLt called directly: the algorithm can be seen, chosen and held to a tile, and C is added on the way.

torch.mm asks cuBLAS, which asks this library's heuristic and does not tell what came of it. Here the same
heuristic is asked in the open, for its first answer, or for the quickest of those with a certain tile: the
guide's figures of tile and wave quantization hold cuBLAS to 256 x 128.

Nothing is turned around: the documents' column-major D = op(A) op(B) + C, which is what cuBLASLt computes,
is our row-major one in memory (problem.py), so the letters of the layout and the lengths of rows are passed
as they are. Its header calls a tile "C/D matrix rows x columns", of the column-major D: M x N, as we do.

Sums are of the types that operator.py's `cublas` has, parts of a split K too: an algorithm that would reduce
them in 16 bits is not taken. Pointers' alignment is told as it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from bench.autotune.tuning import TIMED, is_timing, tuned
from bench.spec import Launch, Unsupported
from kernels.gemm.cublaslt_library import Algorithm, Held, Library, Question, algorithms, loaded
from kernels.gemm.operands import Operands

FIRST = "first"
"""What to take besides a tile such as `256x128`."""

_TYPE = {
    torch.float32: 0,
    torch.float64: 1,
    torch.float16: 2,
    torch.int8: 3,
    torch.int32: 10,
    torch.bfloat16: 14,
    torch.float8_e4m3fn: 28,
}
"""cudaDataType_t."""
_COMPUTE = {
    "float16": 68,
    "bfloat16": 68,
    "float8_e4m3": 68,
    "float32": 68,  # IEEE: CUBLAS_COMPUTE_32F cuts nothing off
    "tf32": 77,
    "float64": 70,
    "int8": 72,
}
"""cublasComputeType_t."""
_SCALAR = {"float64": np.float64, "int8": np.int32}
"""The type of alpha and beta, where it is not float32; `_TYPE` has its number."""
_EPILOGUE_BIAS = 4
"""cublasLtEpilogue_t."""
_REDUCED_IN_COMPUTE_TYPE = 2
"""cublasLtReductionScheme_t: also allows what reduces nothing."""
_ALIGNED_BYTE = 256
"""Beyond this cuBLASLt does not ask."""

_ALL = 256
"""More answers than it has, to look for a tile among them."""


def launch(of: Operands, which: str, library: Library | None = None) -> Launch:
    """D in `of.d` on torch's current stream, by the `first` algorithm or by one with a tile.

    The first launch of a problem asks the heuristic and, unless it wants the `first`, times its answers. Its
    configuration is the algorithm, its tile (M x N), stages, split of K, and cluster.
    Unsupported if there is no cuBLASLt, or none of its algorithms does this. `library` defaults to the one
    on the tensors' device.
    """
    library = library or loaded(of.d.device.index or 0)
    chosen, spent_s = _chosen(library, of, which)
    configuration = str(chosen.algorithm)
    return Launch(chosen.call(of), outputs=(of.d,), tuning_s=spent_s, configuration=configuration)


class _Product:
    """What all launches of one problem share: descriptors of matrices, alpha and beta, the library."""

    def __init__(self, library: Library, of: Operands) -> None:
        self.library = library
        dtype = of.problem.dtype
        scalar = _SCALAR.get(dtype, np.float32)
        self.alpha = np.ones(1, dtype=scalar)
        self.beta = np.full(1, of.addend == "matrix", dtype=scalar)
        a, b, d = (_TYPE[tensor.dtype] for tensor in (of.a, of.b, of.d))
        of_scalar = _TYPE[getattr(torch, np.dtype(scalar).name)]
        self.types = (_COMPUTE[dtype], of_scalar, a, b, d, d)
        self.matrices = (
            *(_matrix(library, of.a), _matrix(library, of.b)),
            *(_matrix(library, _added(of)), _matrix(library, of.d)),
        )

    def operation(self, of: Operands) -> Held:
        """The descriptor that holds one launch's own addresses: scales and bias."""
        made = Held(self.library, "matmul_desc", self.types[0], self.types[1])
        made.set("TRANSA", int(of.problem.layout[0] == "T"))
        made.set("TRANSB", int(of.problem.layout[1] == "T"))
        if of.scales is not None:
            made.set("FAST_ACCUM", 1)
            made.set("A_SCALE_POINTER", of.scales[0].data_ptr())
            made.set("B_SCALE_POINTER", of.scales[1].data_ptr())
        if of.addend == "bias" and of.c is not None:
            made.set("EPILOGUE", _EPILOGUE_BIAS)
            made.set("BIAS_POINTER", of.c.data_ptr())
        return made

    def question(self, of: Operands) -> Question:
        """The question for the heuristic."""
        wishes = Held(self.library, "matmul_preference")
        wishes.set("MAX_WORKSPACE_BYTES", self.library.workspace.nbytes)
        for name, tensor in zip("ABCD", (of.a, of.b, _added(of), of.d), strict=True):
            wishes.set(f"MIN_ALIGNMENT_{name}_BYTES", _aligned(tensor))
        if of.d.dtype.itemsize == 2:
            wishes.set("REDUCTION_SCHEME_MASK", _REDUCED_IN_COMPUTE_TYPE)
        return Question(self.library, self.operation(of), self.matrices, wishes)

    def arguments(self, of: Operands, algorithm: Algorithm, operation: Held) -> tuple[int, ...]:
        """The arguments of cublasLtMatmul, but for the stream."""
        a, b, c, d = (matrix.address for matrix in self.matrices)
        return (
            *(self.library.handle, operation.address, self.alpha.ctypes.data),
            *(of.a.data_ptr(), a, of.b.data_ptr(), b, self.beta.ctypes.data),
            *(_added(of).data_ptr(), c, of.d.data_ptr(), d, algorithm.address),
            *(self.library.workspace.data_ptr(), self.library.workspace.nbytes),
        )


class _Chosen(NamedTuple):
    """One problem and the algorithm for it."""

    product: _Product
    algorithm: Algorithm

    def call(self, of: Operands) -> Callable[[], torch.Tensor]:
        """The launch for these tensors, which raises Unsupported if cuBLASLt declines."""
        operation = self.product.operation(of)
        arguments = self.product.arguments(of, self.algorithm, operation)
        matmul = functools.partial(self.product.library.call, "matmul")
        kept = (self, of, operation)  # cuBLASLt has their addresses only

        def call() -> torch.Tensor:
            # The stream at each call: a graph is captured on a stream of its own.
            matmul(*arguments, int(torch.cuda.current_stream(of.d.device).cuda_stream))
            assert kept
            return of.d

        return call

    def refused(self, of: Operands) -> str:
        """Why it cannot run, which shows only when it is tried; empty if it can. Writes D."""
        try:
            self.call(of)()
        except Unsupported as reason:
            return str(reason)
        return ""


def _chosen(library: Library, of: Operands, which: str) -> tuple[_Chosen, float]:
    """The choice for problems of this kind, and the seconds that timing took just now."""
    tensors = (of.a, of.b, _added(of), of.d)
    facts = " ".join(f"{tensor.stride(0)}@{_aligned(tensor)}" for tensor in tensors)
    key = (which, of.problem, of.addend, facts)
    known: _Chosen | None = library.chosen.get(key)
    if known is not None:
        return known, 0.0
    product = _Product(library, of)
    question = product.question(of)
    usable, refusal = [], ""
    for algorithm in _candidates(product, question, which, str(of.problem)):
        chosen = _Chosen(product, algorithm)
        refusal = chosen.refused(of)
        if not refusal:
            usable.append(chosen)
    if not usable:
        raise Unsupported(refusal or f"cuBLASLt's heuristic names no algorithm for {of.problem}")
    asked = ("gemm", f"cublaslt-{which}", library.call("get_version"), of.problem, of.addend, facts)
    by_text = {str(each.algorithm): each for each in usable}
    best = tuned(asked, list(by_text), lambda text: Launch(by_text[text].call(of), outputs=(of.d,)))
    chosen = by_text[best.configuration]
    if is_timing() or len(by_text) == 1:  # else it is only the first that came
        library.chosen[key] = chosen
    return chosen, best.tuning_s


def _candidates(product: _Product, question: Question, which: str, problem: str) -> list[Algorithm]:
    if which == FIRST:
        return question.heuristic(1)
    try:
        offered = question.heuristic(_ALL)
    except Unsupported:  # so says a heuristic that has no answer; there may be algorithms all the same
        offered = []
    matching = [each for each in offered if each.tile == which] or _made(product, question, which)
    if not matching:
        tiles = ", ".join(dict.fromkeys(each.tile for each in offered)) or "none"
        raise Unsupported(f"cuBLASLt has no tile {which} for {problem}; its heuristic offers {tiles}")
    return matching[:TIMED]


def _made(product: _Product, question: Question, tile: str) -> list[Algorithm]:
    """Algorithms that list this tile among what they can do, with all of their stages; K is not split."""
    library = product.library
    wanted = int(library.bindings.MatmulTile[f"TILE_{tile}"])
    configured = (
        able.having(TILE_ID=wanted, STAGES_ID=stages)
        for able in algorithms(library, *product.types)
        if wanted in able.able("TILE_IDS")
        for stages in able.able("STAGES_IDS") or [0]
    )
    return [each for each in configured if question.allows(each)]


def _matrix(library: Library, tensor: torch.Tensor) -> Held:
    """The descriptor of a matrix: our rows are cuBLASLt's columns."""
    rows, length = tensor.shape
    return Held(library, "matrix_layout", _TYPE[tensor.dtype], length, rows, tensor.stride(0))


def _added(of: Operands) -> torch.Tensor:
    """C; where nothing is read of it (beta = 0), D in its place."""
    return of.c if of.addend == "matrix" and of.c is not None else of.d


def _aligned(tensor: torch.Tensor) -> int:
    return math.gcd(tensor.data_ptr(), _ALIGNED_BYTE)
