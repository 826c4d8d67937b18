"""The GEMM kernels in Gluon, run by the emulator: right at awkward sizes, in any order, and in every order.

    python -m tests.kernels.test_gemm_gluon_emulated

prints how many states each walk meets, and what is found in each broken copy of a kernel.
"""

import itertools
import math
import os
import random
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, get_args

import pytest

from kernels.gemm.operands import Operands, operands
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.problem import BLOCK_SCALED, Gemm, Layout
from tests.drawing import SEED, drawn, is_deep
from tests.kernels.gemm_cases import error, poison_gaps, poisoned
from tests.kernels.tensors import uniform, used

pytest.importorskip("triton", minversion="3.7")
from kernels.gemm import gluon_blackwell, gluon_hopper, gluon_scaled
from tests.kernels.gluon_emulator import Emulated, emulate
from tests.kernels.gluon_mutations import Mutation, mutations, planted
from tests.kernels.gluon_ptx import out_of_step
from tests.kernels.gluon_walk import walk

KERNELS: dict[str, ModuleType] = {
    "hopper": gluon_hopper,
    "blackwell": gluon_blackwell,
    "scaled": gluon_scaled,
}
CAPABILITY = {"hopper": (9, 0), "blackwell": (10, 0), "scaled": (10, 0)}


class Case(NamedTuple):
    """A product and how it is computed."""

    kernel: str
    problem: Gemm
    chosen: Any
    """Its schedule."""
    bias: bool = False
    """Whether one row is added to every row, as a linear layer asks."""
    programs: int = 1
    """How many blocks, or pairs, share the tiles, at most."""

    def __str__(self) -> str:
        more = ("bias",) * self.bias
        return " ".join((self.kernel, str(self.problem), str(self.chosen), f"p{self.programs}", *more))


def schedules(kernel: str, problem: Gemm, stages: int | None = None) -> list[Any]:
    """What a device may choose from; with as many stages, if given, or as few as its lag allows."""
    found = []
    for one in KERNELS[kernel].candidates(problem, CAPABILITY[kernel], 132):
        fewest = max(stages or one.tile.stages, getattr(one, "lag", 0) + 1)
        found.append(one._replace(tile=one.tile._replace(stages=fewest)))
    return found


def check(case: Case, seed: int, *, module: ModuleType | None = None) -> Emulated:
    """Run it, by another module's kernel if given; AssertionError (a Fault among them) if anything is wrong.

    D is right within the operator's tolerance; what lies between rows holds NaN and is neither used nor
    written; every element is written once, and bulk copies bring as many bytes as the kernel's formula says.
    """
    problem = case.problem
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    if problem.dtype not in BLOCK_SCALED:
        poison_gaps(inputs)
    of = operands(problem, *inputs)
    if case.bias:
        of = Operands(problem, of.a, of.b, of.d, uniform(problem, seed + 1)(problem.m), of.scales)
    gaps_are_untouched = poisoned(of)
    sm_count = case.programs * getattr(case.chosen, "blocks", 1)
    prepared = KERNELS[case.kernel].prepare(of, case.chosen, sm_count)
    kernel = (module or KERNELS[case.kernel]).multiply
    done = emulate(kernel, prepared.grid[0], prepared.arguments, seed)
    assert gaps_are_untouched(), "gaps between rows are written"
    if case.bias:
        share = error(problem, inputs, of.d, of.c) / (2 * tolerance(problem, "triton"))
    else:
        share = used(OPERATOR, "triton-gluon", problem, inputs, (of.d,))
    assert share <= 1, f"{share} of the tolerance"  # a NaN is more
    assert done.traffic.stored == problem.byte_written
    assert done.traffic.loaded == _bulk_byte(case, of)
    return done


def _bulk_byte(case: Case, of: Operands) -> int:
    """What bulk copies bring: tma.py's formula, and scales, of rows and blocks rounded up to whole copies."""
    problem, tile = case.problem, case.chosen.tile
    tiles_m, tiles_n = math.ceil(problem.m / tile.m), math.ceil(problem.n / tile.n)
    if problem.dtype in BLOCK_SCALED:
        rows_a, rows_b = (128 * math.ceil(rows / 128) for rows in (problem.m, problem.n))
        blocks = 4 * math.ceil(problem.k // BLOCK_SCALED[problem.dtype] / 4)
        row = of.a.shape[1] * of.a.element_size() + blocks
        scales = blocks * (tiles_n * (rows_a - problem.m) + tiles_m * (rows_b - problem.n))
        return (tiles_n * problem.m + tiles_m * problem.n) * row + scales
    byte = (tiles_n * problem.m + tiles_m * problem.n) * problem.k * problem.item_byte
    if case.bias and case.kernel == "blackwell":  # of a pair each brings its own
        byte += tiles_n * case.chosen.blocks * problem.m * problem.item_byte
    return byte + problem.beta * problem.byte_written


TYPES = Gemm.implementation("triton-gluon").dtypes
PRIMES = (61, 127, 131, 257, 263)


def sizes(chance: random.Random, scaled: bool) -> list[tuple[int, int, int]]:
    """m, n and k, by this chance: 1, primes, ragged, a short k, many tiles, many steps."""
    step = 16 if scaled else 1

    def multiple(size: int) -> int:
        return step * max(1, size // step) if scaled else size

    def k(size: int) -> int:
        return 32 * max(1, size // 32) if scaled else size

    ragged = chance.randrange(130, 400)
    return [
        (multiple(1), 1, k(chance.randrange(1, 300))),
        (multiple(chance.choice(PRIMES)), chance.choice(PRIMES), k(chance.choice(PRIMES))),
        (multiple(ragged), chance.randrange(130, 400), k(chance.randrange(65, 200))),
        (multiple(chance.randrange(1, 300)), chance.randrange(100, 300), k(chance.randrange(1, 64))),
        (multiple(chance.randrange(520, 800)), chance.randrange(260, 400), k(ragged)),
        (multiple(chance.randrange(2, 150)), chance.randrange(2, 150), k(chance.randrange(600, 900))),
    ]


def cases(kernel: str) -> list[Case]:
    """All types, layouts, addends and kinds of sizes that this kernel takes; sizes by the seed."""
    chance = random.Random(f"{os.environ.get(SEED)} {kernel}")
    found = []
    scaled = kernel == "scaled"
    for dtype, layout in itertools.product(TYPES, get_args(Layout)):
        if (dtype in BLOCK_SCALED) != scaled or TYPES[dtype] > CAPABILITY[kernel]:
            continue
        for (m, n, k), addend in itertools.product(sizes(chance, scaled), ("none", "matrix", "bias")):
            named: dict[str, Any] = {"m": m, "n": n, "k": k, "layout": layout, "dtype": dtype}
            try:
                problem = Gemm(**named, pitch="tight" if scaled else "padded", beta=int(addend == "matrix"))
            except ValueError:
                continue  # of this type there is no such product
            if problem.refusal("triton-gluon") or (addend == "bias" and dtype not in ("float16", "bfloat16")):
                continue
            chosen = chance.choice(schedules(kernel, problem, chance.choice((None, 2))))
            found.append(Case(kernel, problem, chosen, addend == "bias", chance.choice((1, 2, 3))))
    return found


@pytest.mark.parametrize(
    "case", [case for name in KERNELS for case in drawn(cases(name), 2, f"gluon {name}")], ids=str
)
def test_right_at_awkward_sizes(case: Case, seed: int) -> None:
    check(case, seed)


def small(
    kernel: str, dtype: str, addend: str, stages: int | None, wide: int = 0, layout: Layout = "TN", **of: Any
) -> Case:
    """Three tiles of three steps each, for one program: buffers and sums are used more than once."""
    packed = {"mxfp8": 128, "nvfp4": 256, "float8_e4m3": 128}.get(dtype, 64)
    named: dict[str, Any] = {
        "dtype": dtype,
        "layout": layout,
        "beta": int(addend == "matrix"),
        "k": 3 * packed,
    }
    for chosen in schedules(kernel, Gemm(m=128, n=128, **named), stages):
        if all(getattr(chosen, name) == value for name, value in of.items()) and wide in (0, chosen.tile.m):
            problem = Gemm(m=chosen.tile.m, n=3 * chosen.tile.n, **named)
            return Case(kernel, problem, chosen, addend == "bias")
    raise LookupError(f"{kernel} has no schedule with {of}")


WALKS = (
    [
        ("hopper", "bfloat16", addend, {"lag": lag, "wide": wide})
        for addend in ("none", "matrix", "bias")
        for lag in (0, 1)
        for wide in (128, 256)
    ]
    + [
        ("blackwell", "bfloat16", addend, {"blocks": blocks, "wide": wide})
        for addend in ("none", "matrix", "bias")
        for blocks, wide in ((1, 64), (1, 128), (2, 128))
    ]
    + [("scaled", "mxfp8", "none", {"wide": wide}) for wide in (128, 256)]
)


def slow(kernel: str, dtype: str, addend: str, of: dict[str, Any]) -> bool:
    """Whether a walk takes longer than a run of all tests has for it: 30000 states and more."""
    return of.get("blocks") == 2 and addend != "none"


@pytest.mark.parametrize(
    "kernel, dtype, addend, of",
    drawn([one for one in WALKS if is_deep() or not slow(*one)], 2, "gluon walks"),
)
def test_right_in_every_order(kernel: str, dtype: str, addend: str, of: dict[str, Any], seed: int) -> None:
    done = check(small(kernel, dtype, addend, 2, **of), seed)
    assert walk(done.launches[0]).states > 100


def test_the_walk_leaves_out_only_orders_that_tell_nothing_new(seed: int) -> None:
    """On the smallest product that reuses a buffer: both find no fault, in far fewer states."""
    problem = Gemm(m=128, n=128, k=192, layout="TN", dtype="float16")
    chosen = next(one for one in schedules("hopper", problem, 2) if one.lag == 0 and one.tile.m == 128)
    (launch,) = check(Case("hopper", problem, chosen), seed).launches
    assert walk(launch).states < walk(launch, whole=True).states / 5


PROVING: dict[str, list[Case]] = {
    "hopper": [
        small("hopper", "bfloat16", "none", 2, lag=1),
        small("hopper", "float8_e4m3", "none", 3, lag=0),
        small("hopper", "bfloat16", "matrix", 2, lag=1),
        small("hopper", "bfloat16", "bias", 2, lag=1, layout="NT"),
    ],
    "blackwell": [
        small("blackwell", "bfloat16", "none", 2, 64, blocks=1),
        small("blackwell", "bfloat16", "matrix", 2, 256, blocks=1),
        small("blackwell", "bfloat16", "bias", 2, 128, blocks=1, layout="NT"),
        small("blackwell", "bfloat16", "none", 2, 128, blocks=2),
    ],
    "scaled": [small("scaled", "mxfp8", "none", 2, wide) for wide in (128, 256)],
}
"""Products that between them reach every synchronising call of a kernel."""


def found(kernel: str, mutation: Mutation, folder: Path, seed: int) -> str:
    """What is wrong with this copy of a kernel, "" if nothing is found."""
    module = mutation.load(folder)
    for case in PROVING[kernel]:
        try:
            walk(check(case, seed, module=module).launches[0])
        except (AssertionError, NotImplementedError) as fault:
            return str(fault) or type(fault).__name__
    return ""


BROKEN = [
    (name, one) for name, module in KERNELS.items() for one in (*mutations(module), *planted(name, module))
]


HARMLESS = ("left out, in _multiply: mbarrier.wait(lead.index(turn % STAGES), turn // STAGES & 1)",)
"""Copies that are right although changed: Hopper's groups keep their distance, for speed alone."""


@pytest.mark.parametrize(
    "kernel, mutation", drawn(BROKEN, 3, "gluon mutations"), ids=lambda one: getattr(one, "what", one)
)
def test_every_synchronising_call_is_needed(
    kernel: str, mutation: Mutation, tmp_path: Path, seed: int
) -> None:
    assert bool(found(kernel, mutation, tmp_path, seed)) is not (mutation.what in HARMLESS)


def test_an_arrival_before_all_warps_are_there_is_found_in_compiled_code() -> None:
    def found(*lines: str) -> int:
        return len(out_of_step(SimpleNamespace(ptx="\n".join(lines))))  # type: ignore[arg-type]

    waited, together = "wgmma.wait_group.sync.aligned 0;", "bar.sync 0, 128;"
    arrival = "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];"
    assert not found(waited, together, arrival)
    assert found(waited, arrival, together) == 1
    store = "st.shared.v4.b32 [%r1], {%r2, %r3, %r4, %r5};"
    copy = "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];"
    assert found(store, "fence.proxy.async.shared::cta;", copy) == 1


def main() -> None:
    """Every walk, and every broken copy; some minutes."""
    for kernel, dtype, addend, of in WALKS:
        met = walk(check(case := small(kernel, dtype, addend, 2, **of), 1).launches[0])
        print(f"{case}: {met.states} states, {met.transitions} transitions", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for kernel, mutation in BROKEN:
            fault = found(kernel, mutation, Path(folder), 1)
            print(f"{kernel}: {mutation.what}: {fault or 'NOTHING FOUND'}"[:300], flush=True)


if __name__ == "__main__":
    sys.exit(main())
