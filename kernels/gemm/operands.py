"""What every kernel of ours is called with but for its configuration: tensors, sizes, what divides them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from bench.spec import Launch
from kernels.gemm.problem import SCALED, Gemm
from kernels.gemm.tiles import GROUP, Tile


@dataclass(frozen=True)
class Operands:
    """The tensors of D = op(A) op(B) + C, row-major as `kernels.gemm.problem` says; batch first if not 1.

    Rows are contiguous; they may begin further apart than they are long. Fewer than 2^31 - 256 rows, and
    elements of a row, each.
    """

    problem: Gemm
    a: torch.Tensor
    """[k, m] if A is stored as it is (N), else [m, k]."""
    b: torch.Tensor
    """[n, k] if B is stored as it is (N), else [k, n]."""
    d: torch.Tensor
    """[n, m]: what is written."""
    c: torch.Tensor | None = None
    """What is added: [n, m] (beta = 1), or [m], a bias, the same for every row."""
    scales: tuple[torch.Tensor, torch.Tensor] | None = None
    """The scales of A and of B, of scaled types."""

    @property
    def addend(self) -> str:
        """What is added to the product: `none`, `matrix` or `bias`."""
        return "none" if self.c is None else "bias" if self.c.dim() == 1 else "matrix"

    @property
    def rows_are_k(self) -> tuple[bool, bool]:
        """Whether A, and B, are stored with a row for each k: [k, m] and [k, n]."""
        return self.problem.layout[0] == "N", self.problem.layout[1] == "T"

    def blocks(self, tile: Tile) -> tuple[list[int], list[int]]:
        """Rows and columns of A, and of B, as they are stored, that a tile takes in one step along K."""
        (a_rows_are_k, b_rows_are_k), (m, n, k) = self.rows_are_k, tile[:3]
        return [k, m] if a_rows_are_k else [m, k], [k, n] if b_rows_are_k else [n, k]

    def arguments(self, kernel: Any, tile: Tile) -> dict[str, Any]:
        """Those of the arguments that the kernels of this folder share which this one takes, by name.

        Sizes and row lengths come with the powers of two that divide them, up to 16 bytes' worth (ALIGN),
        since Triton's own specialisation knows only 16 elements. A size that leads no tensor is part of no
        address but as a factor: 1, and one compilation, for all of its values.
        """
        import triton.language as tl  # tensors and sizes are also the libraries' business, Triton is not

        leading = leading_sizes(self.problem)
        wide = 16 // self.problem.item_byte
        a_scale, b_scale = self.scales or (None, None)
        row_c = self.c.stride(0) if self.addend == "matrix" and self.c is not None else 0
        rows = {"row_a": self.a.stride(-2), "row_b": self.b.stride(-2), "row_d": self.d.stride(-2)}
        sizes = {"m": self.problem.m, "n": self.problem.n, "k": self.problem.k}
        sums = {"float64": tl.float64, "int8": tl.int32}.get(self.problem.dtype, tl.float32)
        known = [math.gcd(size, wide) if name in leading else 1 for name, size in sizes.items()]
        every = {
            "a_pointer": self.a,
            "b_pointer": self.b,
            "c_pointer": self.c,
            "d_pointer": self.d,
            "a_scale": a_scale,
            "b_scale": b_scale,
            **sizes,
            **rows,
            "row_c": row_c,
            "ROWS_ARE_K": self.rows_are_k,
            "ALIGN": (*known, *(math.gcd(row, wide) for row in rows.values())),
            "ARITHMETIC": ("tf32" if self.problem.dtype == "tf32" else "ieee", sums),
            "ADD": self.addend,
            "BLOCK_M": tile.m,
            "BLOCK_N": tile.n,
            "BLOCK_K": tile.k,
            "GROUP": GROUP,
            "EVEN_K": self.problem.k % tile.k == 0,
        }
        return {name: every[name] for name in kernel.arg_names if name in every}


class Prepared(NamedTuple):
    """A kernel, its grid and its arguments."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    output: torch.Tensor

    def launch(self) -> Launch:
        """Its launch on the current device and stream."""
        return Launch.of(self.kernel[self.grid], (self.output,), **self.arguments)

    def compile(self) -> None:
        """Make what `launch` will run, and do not run it."""
        self.kernel.warmup(**self.arguments, grid=(1,))


def leading_sizes(problem: Gemm) -> set[str]:
    """The sizes that are the length of a row of A, of B or of D: those whose alignment counts."""
    of_a, of_b = problem.layout
    return {"m", "m" if of_a == "N" else "k", "k" if of_b == "N" else "n"}


def has_wide_loads(problem: Gemm) -> bool:
    """Whether pointers can move 16 bytes at a time: rows of A, B and D start and end at multiples of them."""
    sizes = (getattr(problem, size) * problem.item_byte for size in leading_sizes(problem))
    return all(byte % 16 == 0 for byte in (*sizes, *problem.row_byte()))


def operands(
    problem: Gemm, a: torch.Tensor, b: torch.Tensor, *more: torch.Tensor, d: torch.Tensor | None = None
) -> Operands:
    """The operands of a launch: `operator.inputs` in their order, and D newly allocated, not filled."""
    d = new_output(problem, a) if d is None else d
    if problem.dtype in SCALED:
        a_scale, b_scale = more
        return Operands(problem, a, b, d, scales=(a_scale, b_scale))
    return Operands(problem, a, b, d, c=more[0] if problem.beta else None)


def factors(problem: Gemm, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """op(B) [n, k] and op(A) [k, m], batch first if not 1, as views: their row-major product is D."""
    return (b if problem.layout[1] == "N" else b.mT, a if problem.layout[0] == "N" else a.mT)


def new_output(problem: Gemm, like: torch.Tensor) -> torch.Tensor:
    """D [n, m], batch first if not 1, on the device of `like`, rows as the problem says, not filled."""
    kind = getattr(torch, {"tf32": "float32"}.get(problem.output_dtype, problem.output_dtype))
    row = problem.row_byte()[2] // problem.output_item_byte
    rows = (problem.n, row) if problem.batch == 1 else (problem.batch, problem.n, row)
    return torch.empty(rows, dtype=kind, device=like.device)[..., : problem.m]
