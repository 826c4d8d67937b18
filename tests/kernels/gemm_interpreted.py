"""The pointer kernel, run by the repaired interpreter under the sanitizer: right, in bounds, each once.

Needs its own process, because interpreting and compiling exclude each other:

    TRITON_INTERPRET=1 python -m pytest tests/kernels/gemm_interpreted.py

test_gemm.py starts it; its name keeps it out of an ordinary run.
"""

import math

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from kernels.gemm import pointer
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from tests.kernels.gemm_cases import error
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import Watch, watched
from tests.kernels.tensors import uniform

SMALL = Tile(32, 16, 32, warps=4, stages=1)
REAL = Tile(128, 64, 64, warps=4, stages=4)

STRADDLING = [
    Gemm(m=m, n=n, k=k, layout=layout, dtype=dtype)
    # On, one short of and one past SMALL's edges; more tiles of N than a group; k even, ragged, short.
    for m, n, k in (
        (32, 16, 32),
        (31, 15, 31),
        (33, 17, 33),
        (65, 16 * 9 + 1, 64),
        (64, 150, 7),
        (95, 61, 97),
    )
    for layout in ("NN", "NT", "TN", "TT")
    for dtype in ("bfloat16", "float32")
]


def multiply(problem: Gemm, tile: Tile, seed: int, programs: int | None = None) -> tuple[float, Watch]:
    """Error of C, computed into a tensor of NaN, and what the kernel touched."""
    a, b = OPERATOR.inputs(problem, uniform(problem, seed))
    c = torch.full((problem.n, problem.m), math.nan, dtype=a.dtype)
    grid = (programs,) if programs else pointer.grid(problem, tile.m, tile.n)
    with repaired(), watched() as watch:
        pointer.multiply[grid](
            **pointer.operands(problem, a, b, c),
            BLOCK_M=tile.m,
            BLOCK_N=tile.n,
            BLOCK_K=tile.k,
            GROUP=pointer.GROUP,
        )
    return error(problem, (a, b), c), watch


@pytest.mark.parametrize("tile", [SMALL, REAL], ids=str)
@pytest.mark.parametrize("problem", [*OPERATOR.examples, *STRADDLING], ids=str)
def test_right_in_bounds_and_each_element_written_once(problem: Gemm, tile: Tile, seed: int) -> None:
    """At every example, with a tile of a few elements and with one of the tuner's."""
    wrong, watch = multiply(problem, tile, seed)

    assert wrong <= tolerance(problem, "triton")  # and so not NaN: every element was written
    assert watch.stores.byte == problem.byte_written
    assert watch.stores.repeated == 0
    tiles = math.ceil(problem.m / tile.m) * math.ceil(problem.n / tile.n)
    assert watch.loads.byte == tiles * (tile.m + tile.n) * problem.k * problem.item_byte
    assert watch.atomics.byte == 0


def test_an_element_never_written_is_found(seed: int) -> None:
    """One program too few leaves NaN."""
    problem = Gemm(m=64, n=64, k=8, dtype="float32")
    all_programs = pointer.grid(problem, SMALL.m, SMALL.n)[0]
    wrong, _ = multiply(problem, SMALL, seed, programs=all_programs - 1)
    assert math.isnan(wrong)


@triton.jit  # type: ignore[untyped-decorator]
def copy(x, y, n, SKIP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """y[0..n) = x[0..n) in blocks of BLOCK that advance by SKIP, without a mask."""
    i = tl.program_id(0) * SKIP + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i))


def run_copy(n_x: int, n_y: int, *, skip: int) -> Watch:
    """Copy between the beginnings of larger tensors: only their extent tells what is out of bounds."""
    x, y = torch.zeros(64)[:n_x], torch.zeros(64)[:n_y]
    with repaired(), watched() as watch:
        copy[(2,)](x, y, n_x, SKIP=skip, BLOCK=16)
    return watch


def test_a_load_out_of_bounds_is_found() -> None:
    """One element past the end of what is read."""
    with pytest.raises(InterpreterError, match="load out of bounds: 1 of 16"):
        run_copy(31, 32, skip=16)


def test_a_store_out_of_bounds_is_found() -> None:
    """Two elements past the end of what is written."""
    with pytest.raises(InterpreterError, match="store out of bounds: 2 of 16"):
        run_copy(32, 30, skip=16)


def test_an_element_written_twice_is_found() -> None:
    """Two programs that overlap by half a block."""
    assert run_copy(32, 32, skip=16).stores.repeated == 0
    assert run_copy(32, 32, skip=8).stores.repeated == 8


@triton.jit  # type: ignore[untyped-decorator]
def bfloat16_arithmetic(x, y, rounded, product, small, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """rounded = bfloat16(x); product = rounded * bfloat16(y); small = rounded < bfloat16(y)."""
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i).to(tl.bfloat16)
    b = tl.load(y + i).to(tl.bfloat16)
    tl.store(rounded + i, a)
    tl.store(product + i, a * b)
    tl.store(small + i, (a < b).to(tl.int32))


@pytest.mark.parametrize("source", [torch.float16, torch.float32, torch.float64])
def test_bfloat16_is_computed_as_torch_computes_it(source: torch.dtype, seed: int) -> None:
    """The interpreter's repairs: bit for bit."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(4096, generator=generator, dtype=torch.float64).to(source) for _ in range(2))
    rounded, product = torch.zeros(2, 4096, dtype=torch.bfloat16)
    small = torch.zeros(4096, dtype=torch.int32)
    with repaired():
        bfloat16_arithmetic[(1,)](x, y, rounded, product, small, BLOCK=4096)
    assert torch.equal(rounded, x.bfloat16())
    assert torch.equal(product, x.bfloat16() * y.bfloat16())
    assert torch.equal(small.bool(), x.bfloat16() < y.bfloat16())
