"""Products whose operands are turned first, run by the repaired interpreter under the sanitizer."""

import pytest
import torch

from bench.worker.check import poison
from kernels.gemm import turned
from kernels.gemm.choosing import Choice
from kernels.gemm.operands import operands
from kernels.gemm.operator import OPERATOR
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from tests.drawing import covering, drawn
from tests.kernels.gemm_cases import KINDS, bits, poison_gaps, storage
from tests.kernels.interpreted import check
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import placed, watched
from tests.kernels.tensors import uniform, used

SMALL = Tile(32, 16, 32, warps=4, stages=3)
PRODUCTS = (Choice("pointer", SMALL), Choice("tma", SMALL), Choice("persistent", SMALL))
EXAMPLES = [
    *(one for one in OPERATOR.examples if not one.missing("triton-turned", "cuda", (9, 0))),
    *(
        Gemm(m=m, n=n, k=k, layout=layout, dtype=dtype, pitch=pitch)
        # Squares that are whole, short of one, and past one; one row of squares and one column.
        for m, n, k, pitch in (
            (128, 128, 128, "tight"),
            (16, 32, 144, "tight"),
            (144, 16, 112, "padded"),
            (272, 48, 16, "padded"),
        )
        for layout in ("NN", "NT", "TT")
        for dtype in ("float8_e4m3", "int8", "tf32")
    ),
]


@pytest.mark.parametrize("problem", covering(EXAMPLES, "turned", *KINDS), ids=str)
@pytest.mark.parametrize("product", drawn(PRODUCTS, 1, "turned by"), ids=str)
def test_right_in_bounds_and_each_element_written_once(problem: Gemm, product: Choice, seed: int) -> None:
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    poison_gaps(inputs)
    of = operands(problem, *inputs)
    turns, after = turned.turned(of)
    spaces = [one for one, was in ((after.a, of.a), (after.b, of.b)) if one is not was]
    assert len(turns) == len(spaces) == (problem.layout[0] == "N") + (problem.layout[1] == "T")
    poison((of.d, *(storage(one) for one in spaces)))
    with repaired(), watched() as watch:
        for turn in turns:
            turn.launch().call()
    assert watch.loads.byte == watch.stores.byte == problem.turned_byte
    assert watch.loads.repeated == watch.stores.repeated == watch.atomics.byte == 0
    for one, was in ((after.a, of.a), (after.b, of.b)):
        assert torch.equal(bits(one), bits(was if one is was else was.mT))
    done = check(OPERATOR, problem, inputs, turned.prepare(of, product, sm_count=3).launch(), "triton-turned")
    assert done.outputs[0] is of.d
    assert done.byte[1] == problem.moved_written("triton-turned")


def test_each_launch_turns_what_its_operands_hold_then(seed: int) -> None:
    problem = Gemm(m=48, n=48, k=64, layout="NT", dtype="int8")  # both workspaces are of one size
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    of = operands(problem, *inputs)
    with repaired():
        launch = turned.prepare(of, PRODUCTS[0], sm_count=3).launch()
        launch.call()
        for one in inputs:
            one.copy_(one.roll(1, 0))
        launch.call()
    assert used(OPERATOR, "triton-turned", problem, inputs, (of.d,)) == 0


def test_beyond_two_gibi_elements(seed: int) -> None:
    """The last square of a tall matrix, and of a wide one: no product of a row and its length is 32-bit."""
    generator = torch.Generator().manual_seed(seed)
    side = turned.SIDE[1]
    for rows, length in ((2**24, 144), (144, 2**24)):
        x, y = (torch.empty(shape, dtype=torch.int8) for shape in ((rows, length), (length, rows)))
        part = torch.randint(-127, 128, (16, 16), generator=generator, dtype=torch.int8)
        x[-16:, -16:] = part
        programs = turned.programs(rows, length, 1)
        constants = {"WIDE": 16, "SIDE": side, "num_warps": turned.WARPS, "num_stages": 1}
        with repaired(), watched(), placed((programs - 1,), (programs,)):
            turned.turn[(1,)](x, y, rows, length, x.stride(0), y.stride(0), **constants)
        assert torch.equal(y[-16:, -16:], part.T)
