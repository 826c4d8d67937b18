"""The fused kernel, run by the repaired interpreter under the sanitizer."""

import math
from operator import attrgetter

import pytest
import torch
from torch.nn import functional

from bench.spec import Launch
from kernels.activations.elementwise import Tile
from kernels.fusion import stream
from kernels.fusion.operator import OPERATOR, chain, tolerance
from kernels.fusion.problem import Fusion
from tests.drawing import covering, drawn
from tests.kernels.interpreted import Case, Ran, SpoiledByNan, Tensors, ran
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import placed, watched
from tests.kernels.tensors import uniform

overflowing = pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
"""What NumPy, which interprets, warns of and a GPU does not."""
TINY = Tile(16, 1)
STREAMS = [p for p in OPERATOR.examples if isinstance(p, Fusion)]

# Rows on, one short of and one past TINY's block; n on, one short of and one past several; sizes that 2 or 4
# divide, and not what 16 bytes hold; n that this divides, and rows that it does not.
STRADDLING_SIZES = (
    *((3, 16), (5, 15), (7, 17), (3, 7), (1, 47), (1, 48), (1, 49), (8, 49), (2, 24), (4, 40)),
    *((3, 18), (5, 20), (6, 12), (3, 6)),
)
STRADDLING = [
    Fusion(chain=chain, rows=rows, length=length, dtype=dtype)
    for rows, length in STRADDLING_SIZES
    for chain, dtype in (("bias-gelu", "bfloat16"), ("bias-residual", "float32"), ("residual", "float16"))
]

KINDS = (attrgetter("rows", "length"), attrgetter("chain"), attrgetter("dtype"))


def cases() -> list[Case]:
    """Every example with a block of the tuner's, small ones in many tiny blocks too.

    Each of the tuner's blocks meets problems of several of them, aligned and with a ragged end.
    """
    found: list[Case] = []
    for problem in covering([*STREAMS, *STRADDLING], "stream", *KINDS):
        found += [(problem, block) for block in (stream.CANDIDATES[0], TINY)[: 1 + (problem.elements <= 400)]]
    for block in drawn(stream.CANDIDATES, 1, "blocks"):
        for length in (2056, 1999):
            found.append((Fusion(chain="bias-residual", rows=5, length=length, dtype="float16"), block))
    return found


class TestFusion(SpoiledByNan):
    operator = OPERATOR
    cases = tuple(cases())
    spoiled = ((Fusion(chain="bias-residual", rows=5, length=15, dtype="float32"), TINY),)

    def launch(self, problem: Fusion, inputs: Tensors, configuration: Tile) -> Launch:
        return stream.launch(problem, *inputs, chosen=configuration)

    def counted(self, problem: Fusion, configuration: Tile, inputs: Tensors, done: Ran) -> None:
        """Exactly the loads that the essay promises."""
        assert done.byte[1:] == (problem.byte_written, 0)
        for tensor in inputs:
            loaded = done.watch.loads.within(tensor)
            assert loaded.distinct_byte == tensor.nbytes
            of_row = problem.elements * problem.item_byte
            assert loaded.byte == (tensor.nbytes if tensor.ndim == 2 else of_row)
        distinct = done.watch.loads.distinct_byte + done.watch.stores.distinct_byte
        assert distinct == problem.byte == problem.byte_moved("triton")


def test_columns_of_16_bytes_are_contiguous() -> None:
    """What the kernel tells the compiler of the bias's columns, which the interpreter takes no notice of."""
    for problem in [*STREAMS, *STRADDLING]:
        tensors = [torch.empty(0)] * (1 + len(problem.tensors[0]))
        align = stream.arguments(problem, TINY, *tensors)["ALIGN_LENGTH"]
        column = torch.arange(-(-problem.elements // align) * align).reshape(-1, align) % problem.length
        assert (column[:, 0] % align == 0).all() and (column.diff(dim=1) == 1).all()
        assert all(block.block % align == 0 for block in stream.CANDIDATES)


@overflowing
def test_gelu_is_the_tanh_form_over_its_whole_range() -> None:
    """Within a millionth of the argument; from -12 to 12 it falls to zero and rises to the argument."""
    x = torch.linspace(-12, 12, 4096)
    problem = Fusion(chain="bias-gelu", rows=4096, length=1, dtype="float32")
    (y,) = ran(stream.launch(problem, x[:, None], torch.zeros(1), chosen=stream.CANDIDATES[0])).outputs
    right = functional.gelu(x.double(), approximate="tanh")
    assert ((y[:, 0].double() - right).abs() <= 1e-6 * x.abs()).all()
    assert (y[:, 0].double() - functional.gelu(x.double())).abs().max() > 1e-4  # the erf form is another


def agree(got: torch.Tensor, want: torch.Tensor) -> None:
    """Infinite and NaN at the same places, with the same sign, and close elsewhere."""
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, equal_nan=True)


@overflowing
@pytest.mark.parametrize("name", ["bias", "residual", "bias-gelu", "bias-residual"])
def test_stream_of_special_values_is_as_torch_computes_it(name: str) -> None:
    """NaN stays NaN, infinities stay or cancel to NaN, and gelu of large numbers does not overflow."""
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0, -100.0, 1e20, -1e20, 3e38, -3e38])
    x, residual = (one.contiguous() for one in torch.broadcast_tensors(special[:, None], special[None, :]))
    problem = Fusion.model_validate({"chain": name, "rows": 10, "length": 10, "dtype": "float32"})
    bias = special.flip(0).contiguous()
    tensors = [x, *([bias] if "bias" in problem.steps else []), *([residual] if "residual" in name else [])]
    want = chain(problem, *tensors)
    assert isinstance(want, torch.Tensor)
    (y,) = ran(stream.launch(problem, *tensors, chosen=TINY)).outputs
    agree(y, want)


# Beyond 2^31 elements, aligned and not; 2^31 - 8, which 32 bits still hold.
FAR = [(32769, 65536), (65537, 65537), (16383, 131080)]


@pytest.mark.parametrize("rows, length", drawn(FAR, 1, "far end"))
def test_stream_at_the_far_end_of_a_large_tensor(rows: int, length: int, seed: int) -> None:
    """The last two blocks, of which one ends with the tensor; what lies before is never touched."""
    problem = Fusion(chain="bias-residual", rows=rows, length=length, dtype="float16")
    n, block = problem.elements, stream.CANDIDATES[1]
    x, y = torch.empty(n, dtype=torch.float16), torch.empty(n, dtype=torch.float16)
    programs = -(-n // block.block)
    begin = (programs - 2) * block.block
    fresh = uniform(problem, seed)
    bias = fresh(length)
    x[begin:] = fresh(n - begin)
    y[begin:] = math.nan
    with repaired(), watched() as watch:
        for program in (programs - 2, programs - 1):
            with placed((program,), (programs,)):
                stream.chain[(1,)](**stream.arguments(problem, block, y, x, bias, x))
    column = (torch.arange(begin, n) % length).long()
    right = 2 * x[begin:].double() + bias[column].double()
    assert (y[begin:].double() - right).abs().max() <= 2 * tolerance(problem, "triton") * right.abs().max()
    assert watch.stores.byte == 2 * (n - begin) and watch.stores.repeated == 0
