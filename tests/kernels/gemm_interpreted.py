"""The pointer kernel, run by the repaired interpreter under the sanitizer."""

import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from bench.spec import Dtype, Launch
from bench.worker.check import poison
from kernels.gemm import pointer
from kernels.gemm.blocks import store, walk_pointers
from kernels.gemm.operands import Operands, new_output, operands
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.tiles import Tile
from tests.drawing import covering, drawn
from tests.kernels.gemm_cases import KINDS, bits, gaps, poison_gaps, storage
from tests.kernels.interpreted import Ran, check
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import Watch, watched
from tests.kernels.tensors import uniform, used

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
    for layout in get_args(Layout)
    for dtype in ("bfloat16", "float32")
]

EXAMPLES = [p for p in OPERATOR.examples if not p.missing("triton-pointer", "cuda", (9, 0))]
LARGE = [problem for problem in EXAMPLES if problem.m > 64 or problem.n > 64]


def multiplied(way: str, problem: Gemm, seed: int, launch: Callable[[Operands], Launch]) -> Ran:
    """A product that is right (`check`), and nothing read or written between the rows of matrices."""
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    poison_gaps(inputs)
    of = operands(problem, *inputs)
    poison((whole := storage(of.d),))
    before = whole.clone()
    done = check(OPERATOR, problem, inputs, launch(of), way)
    assert torch.equal(bits(gaps(whole, problem)), bits(gaps(before, problem)))
    return done


def by_pointers(problem: Gemm, tile: Tile, seed: int) -> Ran:
    return multiplied(
        "triton-pointer", problem, seed, lambda of: pointer.prepare(of, tile, sm_count=3).launch()
    )


@pytest.mark.parametrize(
    "problem, tile",
    [
        *((problem, SMALL) for problem in covering([*EXAMPLES, *STRADDLING], "pointer", *KINDS)),
        *((problem, REAL) for problem in drawn(LARGE, 2, "pointer, large tile")),
    ],
    ids=str,
)
def test_right_in_bounds_and_each_element_written_once(problem: Gemm, tile: Tile, seed: int) -> None:
    """With a tile of a few elements, and with one of the tuner's where there is more than one of it."""
    done = by_pointers(problem, tile, seed)
    tiles = math.ceil(problem.m / tile.m) * math.ceil(problem.n / tile.n) * problem.batch
    more = problem.beta * problem.byte_written + (8 * tiles if problem.dtype == "float8_e4m3" else 0)
    loaded = tiles * (tile.m + tile.n) * problem.k * problem.item_byte + more
    assert done.byte == (loaded, problem.byte_written, 0)


@pytest.mark.parametrize("group", drawn([4, 16], 1, "pointer, groups"))
def test_whatever_runs_together_each_tile_is_computed_once(group: int, seed: int) -> None:
    """2 x 19 tiles, of which the last band has 3 of N; others were poisoned and would be found."""
    problem = Gemm(m=48, n=16 * 18 + 1, k=16, dtype="float16")
    done = by_pointers(problem, SMALL._replace(group=group), seed)
    assert done.byte[1] == problem.byte_written


@pytest.mark.parametrize("dtype", drawn(["float16", "tf32", "float64"], 1, "pointer, bias"))
def test_a_bias_is_added_to_every_row(dtype: Dtype, seed: int) -> None:
    """As a linear layer asks: c is one row, read once a tile."""
    problem = Gemm(m=67, n=45, k=33, layout="TN", dtype=dtype)
    make = uniform(problem, seed)
    a, b = OPERATOR.inputs(problem, make)
    bias = make(problem.m)
    d = new_output(problem, a).fill_(math.nan)
    with repaired(), watched() as watch:
        pointer.prepare(Operands(problem, a, b, d, c=bias), SMALL, sm_count=3).launch().call()
    right = OPERATOR.reference(problem, a, b) + bias.double()
    assert float((d.double() - right).abs().max() / right.abs().max()) <= 2 * tolerance(problem, "triton")
    assert watch.loads.within(bias).byte == math.ceil(45 / SMALL.n) * bias.nbytes


def test_tf32_errs_by_its_ten_bits_and_keeps_the_range_of_float32(seed: int) -> None:
    """What the guides say of it: an error of about 3e-4, and results of 1e30 that float16 could not hold."""
    problem = Gemm(m=33, n=40, k=64, layout="TN", dtype="tf32")
    a, b = (1e15 * one for one in OPERATOR.inputs(problem, uniform(problem, seed)))
    of = operands(problem, a, b)
    with repaired(), watched():
        pointer.prepare(of, SMALL, sm_count=3).launch().call()
    right = OPERATOR.reference(problem, a, b)
    assert isinstance(right, torch.Tensor) and of.d.isfinite().all() and right.abs().max() > 1e30
    assert 1e-4 < float((of.d.double() - right).abs().max() / right.abs().max()) < 1e-3


def test_an_element_never_written_is_found(seed: int) -> None:
    """A row too few leaves poison."""
    problem = Gemm(m=64, n=64, k=8, dtype="float32")
    a, b = OPERATOR.inputs(problem, uniform(problem, seed))
    poison((d := new_output(problem, a),))
    smaller = problem.model_copy(update={"n": 63})
    with repaired():
        pointer.prepare(Operands(smaller, a, b[:63], d[:63]), SMALL, sm_count=3).launch().call()
    assert math.isinf(used(OPERATOR, "triton-pointer", problem, (a, b), (d,)))
    assert used(OPERATOR, "triton-pointer", smaller, (a, b[:63]), (d[:63],)) <= 1


def test_rows_beyond_2_to_the_31_elements_are_reached(seed: int) -> None:
    """The last step along K of operands whose offsets pass 2^31; pages nobody touches cost no memory."""
    k, m, n = 2**25, 70, 80
    make = uniform(Gemm(m=m, n=n, k=k, dtype="float16"), seed)
    a, b = torch.empty(k, m, dtype=torch.float16), torch.empty(k, n, dtype=torch.float16)
    a[-32:], b[-32:] = make(32, m), make(32, n)
    d = torch.full((n, m), math.nan, dtype=torch.float16)
    with repaired(), watched():
        last_step[(1,)](a, b, d, k - 32, k, m, n)
    right = b[-32:].double().t() @ a[-32:].double()
    torch.testing.assert_close(d[:16, :32].double(), right[:16, :32], rtol=2**-10, atol=2**-10)


@triton.jit  # type: ignore[untyped-decorator]
def last_step(a, b, d, first, last, m, n):  # type: ignore[no-untyped-def]
    """The walk of the first tile, 32 x 16, from `first` to `last` along K alone."""
    along_m = tl.arange(0, 32)
    along_n = tl.arange(0, 16)
    arithmetic: tl.constexpr = ("ieee", tl.float32)
    operands = a, b, m, n, m, n
    total = walk_pointers(
        operands, along_m, along_n, first, last, (True, True), arithmetic, (32, 16, 32), True
    )
    store(total, d, along_m, along_n, m, n, m)


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
