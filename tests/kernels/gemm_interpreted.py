"""GEMM kernels that give each tile to one program, run by the repaired interpreter under the sanitizer."""

import itertools
import math
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple, get_args

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from bench.spec import Launch
from bench.worker.check import poison
from kernels.gemm import autotune, pointer
from kernels.gemm.autotune import Choice
from kernels.gemm.blocks import store, walk_pointers
from kernels.gemm.operands import Operands, new_output, operands
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.tiles import Tile
from tests.drawing import covering, drawn
from tests.kernels.gemm_cases import KINDS, bits, error, poison_gaps, poisoned
from tests.kernels.interpreted import Case, Kernels, Ran, Tensors
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import Watch, watched
from tests.kernels.tensors import uniform, used

SMALL = Tile(32, 16, 32, warps=4, stages=3)
VARIANTS = ("pointer", "tma", "persistent")
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
BULK_TYPES = tuple(Gemm.implementation("triton-tma").dtypes)


class By(NamedTuple):
    """A kernel with its tile."""

    variant: str
    tile: Tile = SMALL
    sm_count: int = 3

    def __str__(self) -> str:
        return f"{self.variant} {self.tile} {self.sm_count}"


def able(variant: str) -> list[Gemm]:
    """The examples that this kernel computes on Hopper."""
    return [p for p in OPERATOR.examples if not p.missing(f"triton-{variant}", "cuda", (9, 0))]


def straddling(*sizes: tuple[int, ...], dtypes: tuple[str, ...], aligned: bool) -> list[Gemm]:
    """Of every layout and these types; `aligned` rows begin at multiples of 16 bytes."""
    return [
        Gemm.model_validate(
            {"m": m, "n": n, "k": k, "layout": layout, "dtype": dtype}
            | {"pitch": "padded" if aligned and any(size % 16 for size in (m, n, k)) else "tight"}
        )
        for m, n, k in sizes
        for layout in LAYOUTS
        for dtype in dtypes
        if not (m == 1 and dtype in ("float16", "float8_e4m3"))  # a product too small for its type
    ]


# On, one short of and one past SMALL's edges; more tiles of N than a group; k even, ragged, short.
BY_POINTERS = straddling(
    *((32, 16, 32), (31, 15, 31), (33, 17, 33), (65, 16 * 9 + 1, 64), (64, 150, 7), (95, 61, 97)),
    dtypes=("bfloat16", "float32"),
    aligned=False,
)
IN_BULK = straddling(
    *((32, 16, 32), (48, 160, 16), (80, 48, 112), (31, 15, 31), (33, 17, 33), (1, 1, 1), (95, 61, 97)),
    dtypes=BULK_TYPES,
    aligned=True,
)


def cases() -> Iterator[Case]:
    """Tiles of a few elements, and of the tuner's where there is more than one of them."""
    for problem in covering([*able("pointer"), *BY_POINTERS], "pointer", *KINDS):
        yield problem, By("pointer", SMALL._replace(stages=1))
    large = [problem for problem in able("pointer") if problem.m > 64 or problem.n > 64]
    for problem in drawn(large, 2, "pointer, large tile"):
        yield problem, By("pointer", Tile(128, 64, 64, warps=4, stages=4))
    for variant, others in (("tma", IN_BULK), ("persistent", IN_BULK[-20:])):
        for problem in covering([*able(variant), *others], variant, *KINDS):
            yield problem, By(variant)
    forms = (("bfloat16", 1), ("tf32", 0), ("float8_e4m3", 0), ("int8", 0))
    made = [*itertools.product(("tma", "persistent"), forms, LAYOUTS)]
    for variant, (dtype, beta), layout in covering(made, "descriptors", *map(itemgetter, range(3))):
        given = {"m": 71, "n": 133, "k": 65, "layout": layout, "dtype": dtype, "beta": beta}
        problem = Gemm.model_validate(given | {"pitch": "padded"})
        yield problem, By(variant, Tile(64, 128, 64, warps=4, stages=3))
    # 2 x 19 tiles, of which the last band has 3 of N; others were poisoned and would be found.
    bands = Gemm(m=48, n=16 * 18 + 1, k=16, dtype="float16", pitch="padded")
    yield bands, By(*drawn(VARIANTS, 1, "bands"))
    # 12 tiles: as one walk, unevenly, one each, and with more programs than tiles.
    for sm_count in drawn([1, 2, 5, 11, 12, 13, 132], 2, "programs"):
        yield Gemm(m=80, n=64, k=64, dtype="float16"), By("persistent", SMALL, sm_count)


class GemmKernels(Kernels):
    """With NaN between the rows of matrices, where nothing is used or written."""

    operator = OPERATOR
    gaps_are_untouched: Callable[[], bool]

    def inputs(self, problem: Gemm, seed: int) -> Tensors:
        inputs = super().inputs(problem, seed)
        poison_gaps(inputs)
        return inputs

    def operands(self, problem: Gemm, inputs: Tensors) -> Operands:
        of = operands(problem, *inputs)
        self.gaps_are_untouched = poisoned(of)
        return of

    def counted(self, problem: Gemm, configuration: Any, inputs: Tensors, done: Ran) -> None:
        assert self.gaps_are_untouched()


class TestTiles(GemmKernels):
    cases = tuple(cases())

    def launch(self, problem: Gemm, inputs: Tensors, configuration: By) -> Launch:
        variant, tile, sm_count = configuration
        return autotune.prepare(self.operands(problem, inputs), Choice(variant, tile), sm_count).launch()

    def counted(self, problem: Gemm, configuration: By, inputs: Tensors, done: Ran) -> None:
        """Loads as many as the formulas of pointer.py, whose ragged tiles wrap around, and tma.py."""
        super().counted(problem, configuration, inputs, done)
        tile = configuration.tile
        tiles_m, tiles_n = math.ceil(problem.m / tile.m), math.ceil(problem.n / tile.n)
        m, n = problem.m, problem.n
        if configuration.variant == "pointer":
            m, n = tiles_m * tile.m, tiles_n * tile.n
        loaded = (tiles_n * m + tiles_m * n) * problem.batch * problem.k * problem.item_byte
        scales = 8 * tiles_m * tiles_n * problem.batch if problem.dtype == "float8_e4m3" else 0
        more = problem.beta * problem.byte_written + scales
        assert done.byte == (loaded + more, problem.byte_written, 0)

    @pytest.mark.parametrize("variant", drawn(["tma", "persistent"], 1, "same bits"))
    def test_the_same_bits_by_any_number_of_programs(self, variant: str, seed: int) -> None:
        problem = Gemm(m=72, n=40, k=200, layout="TN", dtype="bfloat16")
        inputs = self.inputs(problem, seed)
        once, otherwise = (
            self.outputs(problem, inputs, By(variant, SMALL, sms))[0].clone() for sms in (3, 4)
        )
        assert torch.equal(bits(once), bits(otherwise))

    @pytest.mark.parametrize(
        "variant, dtype",
        covering(
            [("pointer", "float64"), *itertools.product(VARIANTS, ("float16", "tf32"))],
            "bias",
            *map(itemgetter, range(2)),
        ),
    )
    def test_a_bias_is_added_to_every_row(self, variant: str, dtype: str, seed: int) -> None:
        """As a linear layer asks: c is one row, read once a tile, of which each tile reads its piece."""
        sizes = {"m": 67, "n": 45, "k": 33} if variant == "pointer" else {"m": 88, "n": 45, "k": 56}
        problem = Gemm.model_validate({**sizes, "layout": "TN", "dtype": dtype})
        a, b = inputs = self.inputs(problem, seed)
        bias = uniform(problem, seed + 1)(problem.m)
        d = new_output(problem, a).fill_(math.nan)
        of = Operands(problem, a, b, d, c=bias)
        with repaired(), watched() as watch:
            autotune.prepare(of, Choice(variant, SMALL), 3).launch().call()
        assert error(problem, inputs, d, bias) <= 2 * tolerance(problem, "triton")
        assert watch.loads.within(bias).byte == math.ceil(45 / SMALL.n) * bias.nbytes


def test_tf32_errs_by_its_ten_bits_and_keeps_the_range_of_float32(seed: int) -> None:
    """What the guides say of it: an error of about 3e-4, and results of 1e30 that float16 could not hold."""
    problem = Gemm(m=33, n=40, k=64, layout="TN", dtype="tf32")
    a, b = (1e15 * one for one in OPERATOR.inputs(problem, uniform(problem, seed)))
    of = operands(problem, a, b)
    with repaired(), watched():
        pointer.prepare(of, SMALL, sm_count=3).launch().call()
    assert of.d.abs().max() > 1e30
    assert 1e-4 < error(problem, (a, b), of.d) < 1e-3


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
