"""torch.compile's product: what Inductor, stood in for, is asked, and what it is said to have chosen."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._inductor

from bench.worker.check import outputs_of
from kernels.gemm import max_autotune
from kernels.gemm.operator import OPERATOR, tolerance
from kernels.gemm.problem import Gemm
from tests.drawing import covering
from tests.kernels.gemm_cases import KINDS, error
from tests.kernels.tensors import uniform

SMALL = Gemm(m=12, n=7, k=5, dtype="float32")


class Kernel:
    """As Inductor's own callers of kernels are: equal to themselves alone."""

    def __init__(self, name: str, description: str = "") -> None:
        self.name, self.description = name, description


class Backend:
    """Stands for Inductor: runs the graph as it is, and tells what it is told to tell when it compiles."""

    def __init__(self) -> None:
        self.options: list[dict[str, Any]] = []
        self.tells: list[dict[Kernel, float]] = []
        self.raises: Exception | None = None
        self.precisions: list[tuple[str, str]] = []

    def __call__(self, module: Any, _: Any, options: dict[str, Any]) -> Callable[..., Any]:
        self.options.append(options)
        if self.raises:
            raise self.raises
        self._remember()
        for timings in self.tells:
            for saver in savers():
                saver(timings, "mm", [], list(timings), lambda: None, {})

        def run(*tensors: Any) -> Any:
            self._remember()
            return module(*tensors)

        return run

    def _remember(self) -> None:
        # Both ways to ask must agree, or the older one raises.
        self.precisions.append(
            (torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision)
        )


def savers() -> list[Any]:
    from torch._inductor.select_algorithm import get_algorithm_selector_cache

    return get_algorithm_selector_cache().feedback_saver_fns


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    made = Backend()
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *a, **k: compile_(*a, **k, backend=made))
    forget()
    yield made
    forget()


def forget() -> None:
    """What was compiled last is forgotten for another problem, which nothing here calls."""
    max_autotune._product(Gemm(m=2, n=2, k=2, dtype="float64"))


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
    forget()
    inputs = OPERATOR.inputs(problem, uniform(problem, seed))
    launch = max_autotune.launch(problem, *inputs)
    assert launch.outputs == ()  # each call allocates
    (d,) = outputs_of(launch.call())
    assert error(problem, inputs, d) <= tolerance(problem, "inductor")
    assert d.is_contiguous()
    forget()


def test_inductor_is_asked_for_the_mode_and_to_choose_anew(backend: Backend, seed: int) -> None:
    max_autotune.launch(SMALL, *OPERATOR.inputs(SMALL, uniform(SMALL, seed))).call()
    mode = torch._inductor.list_mode_options("max-autotune-no-cudagraphs")
    assert backend.options == [{**mode, "fx_graph_cache": False}]
    for name in backend.options[0]:  # else Inductor would refuse it
        assert hasattr(torch._inductor.config, name)


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
    assert backend.precisions == [said] * 4 and len(backend.options) == 1


FAST = Kernel(
    "triton_mm_7",
    "ACC_TYPE='tl.float32', ALLOW_TF32=True, BLOCK_K=32, BLOCK_M=64, BLOCK_N=128, EVEN_K=True, GROUP_M=8, "
    "USE_FAST_ACCUM=False, num_stages=3, num_warps=4, num_consumer_groups=0",
)


@pytest.mark.parametrize(
    "tells, said",
    [
        ([], ""),
        ([{}], ""),
        (
            [{Kernel("mm"): 2.0, FAST: 1.0, Kernel("triton_mm_8"): float("inf")}],
            "triton_mm_7 64x128x32 w4 s3",
        ),
        ([{Kernel("mm"): 0.5, FAST: 1.0}], "mm"),
        # Of two questions the last is the product's: padding is decided by a question of its own before.
        ([{FAST: 1.0}, {Kernel("mm"): 3.0}], "mm"),
    ],
)
def test_the_configuration_is_the_kernel_that_won(
    tells: list[dict[Kernel, float]], said: str, backend: Backend, seed: int
) -> None:
    backend.tells = tells
    inputs = OPERATOR.inputs(SMALL, uniform(SMALL, seed))
    launch = max_autotune.launch(SMALL, *inputs)
    launch.call()
    assert launch.configuration == max_autotune.launch(SMALL, *inputs).configuration == said
    assert len(backend.options) == 1 and savers() == []
    savers().append(print)  # another's: a call that compiles nothing leaves Inductor alone
    launch.call()
    assert savers().pop() is print
