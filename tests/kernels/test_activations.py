import sys
from collections.abc import Callable
from typing import get_args

import pytest
import torch

from bench.spec import Dtype
from kernels import operator
from kernels.activations.operator import OPERATOR, aten, inputs, reference, tolerance
from kernels.activations.problem import Activation, Direction, Function
from tests.kernels.problems import inputs_of
from tests.kernels.tensors import TORCH_TYPE, relative_error, uniform

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
FUNCTIONS: tuple[Function, ...] = get_args(Function)

IN_TORCH: dict[Function, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "gelu-tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_reference_is_what_torch_defines(function: Function, seed: int) -> None:
    problem = Activation(function=function, n=2, c=3, h=5, w=7, dtype="float64")
    (x,) = inputs_of(problem, seed)
    x = 4 * x
    torch.testing.assert_close(reference(problem, x), IN_TORCH[function](x))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_reference_backward_is_autograds(function: Function, seed: int) -> None:
    """And what it takes beside dy is what autograd saves."""
    problem = Activation(function=function, direction="backward", n=2, c=3, h=5, w=7, dtype="float64")
    random = uniform(problem, seed)
    x, dy = (4 * random(2, 3, 5, 7)).requires_grad_(), random(2, 3, 5, 7)
    y = IN_TORCH[function](x)
    (want,) = torch.autograd.grad(y, x, dy, retain_graph=True)
    node = y.grad_fn
    assert node is not None
    saved = node._saved_result if function in ("relu", "sigmoid", "tanh") else node._saved_self  # type: ignore[attr-defined]
    torch.testing.assert_close(reference(problem, saved.detach(), dy), want)
    torch.testing.assert_close(aten(problem, saved.detach(), dy).call(), want)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_aten_launches_one_kernel(function: Function, direction: Direction, seed: int) -> None:
    problem = Activation(function=function, direction=direction, n=64, dtype="float32")
    launch = aten(problem, *inputs_of(problem, seed))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        launch.call()
    assert len([event for event in profile.events() if event.name.startswith("aten::")]) == 1


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("function", FUNCTIONS[1:])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tolerance_is_one_rounding_of_the_result(
    function: Function, direction: Direction, dtype: Dtype, seed: int
) -> None:
    """The exact result, rounded, takes up most of it; cut off instead of rounded, it breaks it."""
    problem = Activation(function=function, direction=direction, n=1 << 17, dtype=dtype)
    random = torch.Generator().manual_seed(seed)

    def as_in_a_run(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        # On a coarser grid than the type's, which ends short of 1.
        return torch.empty(shape, dtype=TORCH_TYPE[problem.dtype]).uniform_(-1, 1, generator=random)

    tensors = inputs(problem, as_in_a_run)
    exact = reference(problem, *tensors)
    rounded = exact.to(TORCH_TYPE[dtype])
    share = relative_error(OPERATOR, problem, tensors, (rounded,)) / tolerance(problem, "triton")
    assert 0.9 < share <= 1
    truncated = (exact.float().view(torch.int32) & (-1 << (16 if dtype == "bfloat16" else 13))).view(
        torch.float32
    )
    wrong = truncated.to(TORCH_TYPE[dtype])
    assert relative_error(OPERATOR, problem, tensors, (wrong,)) > tolerance(problem, "triton")


def test_a_cpu_run_needs_no_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "kernels.activations.operator")
    fresh = operator("activations")
    problem = Activation(function="gelu", n=5, dtype="float32")
    assert fresh.implementations["aten"](problem, torch.zeros(5, 1, 1, 1)).call() is not None
