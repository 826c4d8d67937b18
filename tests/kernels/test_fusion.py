import math
from typing import get_args

import pytest
import torch

from bench.spec import Dtype
from bench.worker.check import outputs_of
from kernels.fusion.operator import OPERATOR, tolerance
from kernels.fusion.problem import Chain, Fusion
from tests.kernels.problems import inputs_of
from tests.kernels.tensors import Dispatches, relative_error

CHAINS: tuple[Chain, ...] = get_args(Chain)
DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
LARGER = [Fusion(chain=chain, rows=300, length=1024, dtype=dtype) for chain in CHAINS for dtype in DTYPES]


@pytest.mark.parametrize("chain", CHAINS)
def test_reference_is_the_chain_step_by_step(chain: Chain, seed: int) -> None:
    problem = Fusion(chain=chain, rows=3, length=300, dtype="float32")
    inputs = tuple(tensor.double() for tensor in inputs_of(problem, seed))
    rest = list(inputs)
    value = rest.pop(0)
    for step in chain.split("-"):
        match step:
            case "bias":
                value = value + rest.pop(0)[None, :]
            case "residual":
                value = value + rest.pop(0)
            case "gelu":
                value = value / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)))
    assert not rest
    (y,) = outputs_of(OPERATOR.reference(problem, *inputs))
    torch.testing.assert_close(y, value)


@pytest.mark.parametrize("fused", ["triton", "inductor"])
def test_what_is_fused_moves_each_tensor_once(fused: str) -> None:
    for problem in (*OPERATOR.examples, *LARGER):
        assert problem.byte_moved(fused) == problem.byte and problem.byte_again(fused) == 0
        assert problem.moved_written(fused) == problem.byte_written


@pytest.mark.parametrize("chain", CHAINS)
def test_aten_moves_what_its_kernels_read_and_write(chain: Chain, seed: int) -> None:
    problem = Fusion(chain=chain, rows=5, length=999, dtype="float32")
    launch = OPERATOR.implementations["aten"](problem, *inputs_of(problem, seed))
    with Dispatches() as dispatches:
        launch.call()
    read = [sum(tensor.nbytes for tensor in call.read) for call in dispatches.calls]
    written = [sum(tensor.nbytes for tensor in call.results) for call in dispatches.calls]
    assert len(read) == len(problem.steps)
    assert sum(read) + sum(written) == problem.byte_moved("aten")
    assert sum(written) == problem.moved_written("aten")
    assert sum(read) - problem.byte_read == problem.byte_again("aten")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("chain", ["bias-gelu", "bias-residual"])
def test_a_fused_chain_may_not_round_between_its_steps(chain: Chain, dtype: Dtype, seed: int) -> None:
    problem = Fusion(chain=chain, rows=300, length=1024, dtype=dtype)
    inputs = inputs_of(problem, seed)
    unfused = OPERATOR.implementations["aten"](problem, *inputs).call()
    assert relative_error(OPERATOR, problem, inputs, outputs_of(unfused)) > tolerance(problem, "triton")
