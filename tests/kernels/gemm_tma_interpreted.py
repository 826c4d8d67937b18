"""The kernels that move tiles by descriptors, run by the repaired interpreter under the sanitizer."""

import itertools
import math
from operator import itemgetter
from typing import Any, get_args

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bench.spec import Dtype
from bench.worker.check import poison
from kernels.gemm import persistent, tma
from kernels.gemm.operands import Operands, new_output, operands
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.problem import Gemm, Layout
from kernels.gemm.tiles import Tile
from tests.drawing import covering, drawn
from tests.kernels import gemm_interpreted
from tests.kernels.gemm_cases import KINDS, bits
from tests.kernels.interpreted import Ran
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import watched
from tests.kernels.tensors import uniform, used

SMALL = Tile(32, 16, 32, warps=4, stages=3)
LARGE = Tile(64, 128, 64, warps=4, stages=3)
VARIANTS = {"triton-tma": tma, "triton-persistent": persistent}
TYPES = tuple(Gemm.implementation("triton-tma").dtypes)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)

STRADDLING = [
    Gemm(m=m, n=n, k=k, layout=layout, dtype=dtype, pitch=pitch)
    # On, short of and past SMALL's edges; more tiles of N than a group; k even, ragged, short.
    for m, n, k, pitch in (
        (32, 16, 32, "tight"),
        (48, 160, 16, "tight"),
        (80, 48, 112, "tight"),
        (31, 15, 31, "padded"),
        (33, 17, 33, "padded"),
        (1, 1, 1, "padded"),
        (95, 61, 97, "padded"),
    )
    for layout in LAYOUTS
    for dtype in TYPES
    if not (m == 1 and dtype in ("float16", "float8_e4m3"))  # a product too small for its type
]
EXAMPLES = [one for one in OPERATOR.examples if one.dtype in TYPES and not one.refusal("triton-tma")]


def multiplied(variant: str, problem: Gemm, tile: Tile, seed: int, sm_count: int = 3) -> Ran:
    return gemm_interpreted.multiplied(
        variant, problem, seed, lambda of: VARIANTS[variant].prepare(of, tile, sm_count).launch()
    )


def holds(variant: str, problem: Gemm, tile: Tile, seed: int, sm_count: int = 3) -> None:
    """Right, in bounds, each element written once, and loads as many as the formula in tma.py says."""
    done = multiplied(variant, problem, tile, seed, sm_count)
    tiles_m, tiles_n = math.ceil(problem.m / tile.m), math.ceil(problem.n / tile.n)
    loads = (tiles_n * problem.m + tiles_m * problem.n) * problem.k * problem.item_byte
    scales = 8 * tiles_m * tiles_n if problem.dtype == "float8_e4m3" else 0
    loads += problem.beta * problem.byte_written + scales
    assert done.byte == (loads, problem.byte_written, 0)


@pytest.mark.parametrize("problem", covering([*EXAMPLES, *STRADDLING], "tma", *KINDS), ids=str)
def test_one_program_a_tile(problem: Gemm, seed: int) -> None:
    holds("triton-tma", problem, SMALL, seed)


@pytest.mark.parametrize("problem", covering([*EXAMPLES, *STRADDLING[-20:]], "persistent", *KINDS), ids=str)
def test_one_program_an_sm(problem: Gemm, seed: int) -> None:
    holds("triton-persistent", problem, SMALL, seed)


MADE: list[tuple[str, tuple[Dtype, Any], Layout]] = list(
    itertools.product(VARIANTS, (("bfloat16", 1), ("tf32", 0), ("float8_e4m3", 0), ("int8", 0)), LAYOUTS)
)


@pytest.mark.parametrize(
    "variant, type_and_beta, layout",
    covering(MADE, "descriptors", *(itemgetter(place) for place in range(3))),
)
def test_ragged_at_tiles_of_the_tuners_size(
    variant: str, type_and_beta: tuple[Dtype, Any], layout: Layout, seed: int
) -> None:
    """More than one a side."""
    dtype, beta = type_and_beta
    problem = Gemm(m=71, n=133, k=65, layout=layout, dtype=dtype, beta=beta, pitch="padded")
    holds(variant, problem, LARGE, seed)


@pytest.mark.parametrize(
    "variant, group", drawn(list(itertools.product(VARIANTS, (4, 16))), 2, "groups by descriptors")
)
def test_whatever_runs_together_each_tile_is_computed_once(variant: str, group: int, seed: int) -> None:
    """2 x 19 tiles, of which the last band has 3 of N."""
    problem = Gemm(m=48, n=16 * 18 + 1, k=16, dtype="float16", pitch="padded")
    holds(variant, problem, SMALL._replace(group=group), seed)


@pytest.mark.parametrize("sm_count", drawn([1, 2, 5, 11, 12, 13, 132], 2, "programs"))
def test_any_number_of_programs_covers_all_tiles(sm_count: int, seed: int) -> None:
    """12 tiles: as one walk, unevenly, one each, and with more programs than tiles."""
    holds("triton-persistent", Gemm(m=80, n=64, k=64, dtype="float16"), SMALL, seed, sm_count)


@pytest.mark.parametrize("variant", drawn(list(VARIANTS), 1, "same bits"))
def test_the_same_bits_every_time_and_by_any_number_of_programs(variant: str, seed: int) -> None:
    problem = Gemm(m=72, n=40, k=200, layout="TN", dtype="bfloat16")
    once, again, otherwise = (
        bits(multiplied(variant, problem, SMALL, seed, sms).outputs[0]) for sms in (3, 3, 4)
    )
    assert torch.equal(once, again) and torch.equal(once, otherwise)


@pytest.mark.parametrize(
    "variant, dtype", drawn(list(itertools.product(VARIANTS, ("float16", "tf32"))), 2, "bias by descriptors")
)
def test_a_bias_is_added_to_every_row(variant: str, dtype: Dtype, seed: int) -> None:
    """As a linear layer asks: c is one row, of which each tile reads its piece."""
    problem = Gemm(m=88, n=45, k=56, layout="TN", dtype=dtype)
    make = uniform(problem, seed)
    a, b = OPERATOR.inputs(problem, make)
    bias = make(problem.m)
    d = new_output(problem, a).fill_(math.nan)
    with repaired(), watched() as watch:
        VARIANTS[variant].prepare(Operands(problem, a, b, d, c=bias), SMALL, sm_count=3).launch().call()
    right = OPERATOR.reference(problem, a, b) + bias.double()
    assert float((d.double() - right).abs().max() / right.abs().max()) <= 2 * tolerance(problem, "triton")
    assert watch.loads.within(bias).byte == math.ceil(45 / SMALL.n) * bias.nbytes


def test_a_tile_never_written_is_found(seed: int) -> None:
    """One program too few leaves poison."""
    problem = Gemm(m=64, n=64, k=16, dtype="float16")
    of = operands(problem, *(inputs := OPERATOR.inputs(problem, uniform(problem, seed))))
    poison((of.d,))
    with repaired():
        tma.by(of, SMALL, 7, walks=False).launch().call()
    assert math.isinf(used(OPERATOR, "triton-tma", problem, inputs, (of.d,)))


@triton.jit  # type: ignore[untyped-decorator]
def rounded_to_float8(x, narrow, wide, product, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """narrow = float8(x); wide = float32(narrow); product [16, 16] of narrow's first 256 with themselves."""
    i = tl.arange(0, N)
    tl.store(narrow + i, tl.load(x + i).to(tl.float8e4nv))
    tl.store(wide + i, tl.load(narrow + i, mask=i < N, other=0.0).to(tl.float32))
    square = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    matrix = tl.load(narrow + square)
    tl.store(product + square, tl.dot(matrix, matrix))


def test_float8_is_interpreted_as_the_numbers_that_its_bits_stand_for(seed: int) -> None:
    """Decoded by hand: sign, 4 bits of exponent about 7, 3 of fraction; to the nearest, ties to even."""
    pattern = np.arange(127)  # the finite ones that are not negative, ascending
    exponent, fraction = pattern >> 3, pattern & 7
    value = np.where(exponent > 0, (1 + fraction / 8) * 2.0 ** (exponent - 7), fraction / 8 * 2.0**-6)
    ties = (value[1:] + value[:-1]) / 2
    random = np.random.default_rng(seed)
    beyond = [448, 449, 465, 1e4, math.inf]
    drawn = 2.0 ** random.uniform(-11, 9, 1024 - len(value) - len(ties) - len(beyond))
    x = np.concatenate([value, ties, beyond, drawn]).astype(np.float32) * random.choice([-1, 1], 1024)
    distance = np.abs(np.minimum(np.abs(x), 448)[:, None].astype(np.float64) - value)
    nearest = np.abs(distance - distance.min(1, keepdims=True)) < 1e-12
    chosen = np.where(nearest.sum(1) == 2, (nearest & (pattern % 2 == 0)).argmax(1), nearest.argmax(1))

    narrow = torch.zeros(1024, dtype=torch.float8_e4m3fn)
    wide, product = torch.zeros(1024), torch.zeros(16, 16)
    with repaired():
        rounded_to_float8[(1,)](torch.from_numpy(x.astype(np.float32)), narrow, wide, product, N=1024)
    expected = np.copysign(value[chosen], x)
    np.testing.assert_array_equal(wide.numpy(), expected)
    matrix = expected[:256].reshape(16, 16)
    np.testing.assert_allclose(product.numpy(), matrix @ matrix, rtol=1e-5, atol=1e-2)
