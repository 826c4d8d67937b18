"""The kernels that measure ceilings, run by the repaired interpreter under the sanitizer."""

import itertools
import math
import random
from operator import attrgetter, itemgetter

import torch

from bench.spec import Launch
from kernels.fma import multiply_add
from kernels.fma.operator import OPERATOR as FMA
from kernels.fma.problem import FusedMultiplyAdd
from kernels.latency.chasing import chase
from kernels.latency.chasing import launch as launch_chase
from kernels.latency.operator import OPERATOR as LATENCY
from kernels.latency.problem import Latency
from kernels.stream import copying
from kernels.stream.operator import OPERATOR as STREAM
from kernels.stream.problem import Stream
from tests.drawing import covering, run_seed
from tests.kernels.interpreted import Beyond32Bits, Case, Far, Kernels, Ran, Tensors
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import placed, watched
from tests.kernels.tensors import FLOATS, TORCH_TYPE


class Once(Kernels):
    """Kernels that read every element once and write it once."""

    def counted(self, problem: Stream, configuration: int, inputs: Tensors, done: Ran) -> None:
        assert done.byte == (problem.byte_read, problem.byte_written, 0)
        assert done.watch.loads.repeated == 0


def copy(length: int, dtype: str = "float32") -> Stream:
    return Stream(kind="copy", length=length, dtype=dtype)  # type: ignore[arg-type]


def copies() -> list[Case]:
    """The examples; nothing but a rest, one short of a block, a block, one more; several; any length."""
    examples = [p for p in STREAM.examples if not p.missing("triton", "cuda", (9, 0))]
    drawn = covering(examples, "stream", attrgetter("length", "programs"), attrgetter("dtype"))
    shares = covering([*itertools.product([1, 2, 3, 7], FLOATS)], "shares", itemgetter(0), itemgetter(1))
    cases: list[Case] = [(problem, problem.programs or 3) for problem in drawn]
    for programs, dtype in shares:
        size = copying.BLOCK_BYTE // TORCH_TYPE[dtype].itemsize  # type: ignore[index]
        lengths = [1, size - 1, size, size + 1, programs * size, programs * size + 1]
        lengths.append(random.Random(run_seed() + programs).randrange(1, 5 * size))
        cases += [(copy(length, dtype), programs) for length in lengths]
    # A rest of whole pieces and around.
    return cases + [(copy(copying.BLOCK_BYTE // 4 + 2 * copying.PIECE + piece), 2) for piece in (-1, 0, 1)]


class TestCopy(Once):
    operator = STREAM
    cases = copies()

    def launch(self, problem: Stream, inputs: Tensors, configuration: int) -> Launch:
        return copying.launch_with(configuration, problem, *inputs)

    def test_blocks_are_shared_out_as_evenly_as_can_be(self, seed: int) -> None:
        """Of three programs and eight blocks two get three, the third two and the rest."""
        size = copying.BLOCK_BYTE // 4
        problem = copy(8 * size + 10)
        (x,), y = self.inputs(problem, seed), torch.empty(problem.length)
        shares = []
        for program in range(3):
            with repaired(), watched() as watch, placed((program,), (3,)):
                copying.copy[(1,)](x, y, problem.length, BLOCK=size, PIECE=copying.PIECE)
            shares.append(watch.loads.byte // 4)
        assert shares == [3 * size, 3 * size, 2 * size + 10]
        assert torch.equal(x, y)

    def test_beyond_two_to_the_31(self, seed: int) -> None:
        """The last block and the rest of 2^31 elements and more, by the programs whose turn they are."""
        size = copying.BLOCK_BYTE // 2
        blocks, rest = 2**31 // size + 3, 1001
        x, y = (torch.empty(blocks * size + rest, dtype=torch.float16) for _ in range(2))
        (last,) = self.inputs(copy(size + rest, "float16"), seed)
        x[-len(last) :] = last
        y[-len(last) :] = math.nan
        # As many programs as blocks: each has one, and the rest falls to the first.
        for program in (blocks - 1, 0):
            with repaired(), watched(), placed((program,), (blocks,)):
                copying.copy[(1,)](x, y, x.numel(), BLOCK=size, PIECE=copying.PIECE)
        assert torch.equal(y[-len(last) :], last)


def chains() -> list[Case]:
    """The examples; any length by any number of programs; a chain so long that its tolerance is used."""

    def chain(**given: int) -> Case:
        return FusedMultiplyAdd(**({"dtype": "float32", "flop_per_byte": 1} | given)), None  # type: ignore[arg-type]

    chance = random.Random(run_seed())
    cases: list[Case] = [(problem, None) for problem in FMA.examples]
    for threads in (32, 256):
        tile = 32 * threads
        for length in (tile, tile + 1, 3 * tile - 1, 3 * tile, chance.randrange(1024, 5 * tile)):
            cases.append(chain(length=length, block_threads=threads, programs=chance.randrange(1, 7)))
    return [*cases, chain(length=4096, flop_per_byte=2048, block_threads=128)]


LONG = FusedMultiplyAdd(dtype="float32", length=2**31 + 3 * 32_768 + 5, flop_per_byte=1, block_threads=1024)


class TestChain(Once, Beyond32Bits):
    operator = FMA
    cases = chains()
    # The last tile and the rest, by the programs whose turn they are.
    far = (Far(LONG, None, LONG.model_copy(update={"length": LONG.tile + 5}), programs=2),)

    def launch(self, problem: FusedMultiplyAdd, inputs: Tensors, configuration: None) -> Launch:
        return multiply_add.launch(problem, *inputs)


class TestChase(Kernels):
    operator = LATENCY
    cases = tuple((problem, None) for problem in LATENCY.examples)

    def launch(self, problem: Latency, inputs: Tensors, configuration: None) -> Launch:
        return launch_chase(problem, *inputs)

    def counted(self, problem: Latency, configuration: None, inputs: Tensors, done: Ran) -> None:
        """A load for each step, and all cells visited where there are steps enough."""
        of_table = done.watch.loads.within(inputs[0])
        assert of_table.byte == 4 * problem.steps * problem.chains
        assert of_table.distinct_byte == 4 * min(problem.lines, problem.steps * problem.chains)
        assert done.byte == (of_table.byte + 4 * problem.chains, 4 * problem.chains, 0)

    def test_beyond_two_to_the_31_bytes(self) -> None:
        """From the first cell to the last and back, in pages of which no others are touched."""
        problem = Latency(dtype="float32", footprint_byte=2**32, steps=3)
        table = torch.empty(problem.lines, 32, dtype=torch.int32)
        last = (problem.lines - 1) * 32
        table[0, 0], table[-1, 0] = last, 0
        begin, end = torch.zeros(1, dtype=torch.int32), torch.full((1,), -1, dtype=torch.int32)
        with repaired(), watched():
            chase[(1,)](table, begin, end, problem.steps)
        assert end.item() == last
