"""torch.compile's product: what Inductor, stood in for, is asked."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from bench.autotune.inductor import compiled
from bench.worker.check import outputs_of
from kernels.gemm import max_autotune
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.problem import Gemm
from tests.drawing import covering
from tests.kernels.gemm_cases import KINDS, error
from tests.kernels.tensors import uniform

SMALL = Gemm(m=12, n=7, k=5, dtype="float32")


class Backend:
    """Stands for Inductor: runs the graph as it is, and remembers what it was asked."""

    def __init__(self) -> None:
        self.options: list[dict[str, Any]] = []
        self.precisions: list[tuple[str, str]] = []

    def __call__(self, module: Any, _: Any, options: dict[str, Any]) -> Callable[..., Any]:
        self.options.append(options)
        self._remember()

        def run(*tensors: Any) -> Any:
            self._remember()
            return module(*tensors)

        return run

    def _remember(self) -> None:
        # Both ways to ask must agree, or the older one raises.
        self.precisions.append(
            (torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision)
        )


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    made = Backend()
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *a, **k: compile_(*a, **k, backend=made))
    compiled.cache_clear()
    yield made
    compiled.cache_clear()


CASES = [
    problem
    for problem in OPERATOR.examples
    if isinstance(problem, Gemm) and not problem.missing("inductor", "cuda", (9, 0))
]


@pytest.mark.parametrize("problem", covering(CASES, "inductor", *KINDS), ids=str)
def test_what_is_compiled_against_the_reference(
    problem: Gemm, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    compiled.cache_clear()
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    launch = max_autotune.launch(problem, *inputs)
    assert launch.outputs == ()  # each call allocates
    (d,) = outputs_of(launch.call())
    assert error(problem, inputs, d) <= tolerance(problem, "inductor")
    assert d.is_contiguous()
    compiled.cache_clear()


def test_inductor_is_asked_for_the_mode(backend: Backend, seed: int) -> None:
    max_autotune.launch(SMALL, *OPERATOR.inputs(SMALL, uniform(SMALL, seed))).call()
    from torch._inductor import config, list_mode_options  # a second of each process that collects tests

    assert backend.options == [list_mode_options("max-autotune-no-cudagraphs")]
    for name in backend.options[0]:  # else Inductor would refuse it
        assert hasattr(config, name)


@pytest.mark.parametrize("dtype, said", [("tf32", ("high", "tf32")), ("float32", ("highest", "ieee"))])
def test_tf32_is_tf32_when_compiled_and_when_called(
    dtype: Any, said: tuple[str, str], backend: Backend, seed: int
) -> None:
    problem = SMALL.model_copy(update={"dtype": dtype})
    launch = max_autotune.launch(problem, *OPERATOR.inputs(problem, uniform(problem, seed)))
    for before in ("tf32", "ieee"):  # as a launch of cuBLAS may have left it
        torch.backends.cuda.matmul.fp32_precision = before
        launch.call()
        assert torch.get_float32_matmul_precision() == "highest"
        assert torch.backends.cuda.matmul.allow_tf32 is False
    assert backend.precisions == [said] * 3 and len(backend.options) == 1
