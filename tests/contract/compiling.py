"""One launch of every Triton kernel, compiled as a run would compile it, for a GPU that is not there."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

import kernels
from bench.autotune import tuning
from bench.spec import Launch, Problem, Unsupported
from kernels.gemm.problem import FORCED_TILES, Gemm
from tests.contract.stand_in import GPUS, Gpu, launches, triton_driver
from tests.kernels.tensors import uniform


@dataclass(frozen=True)
class Compilation:
    """What is to be compiled: picklable, and a test's name."""

    gpu: int
    """Place in GPUS."""
    operator: str
    implementation: str
    parameters: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        """`sm_90 gemm triton-tma float16 m=64 ...`."""
        return f"{GPUS[self.gpu]} {self.operator} {self.implementation} {self.problem()}"

    def problem(self) -> Problem:
        """The problem with these parameters."""
        return kernels.problem(self.operator)(**dict(self.parameters))


@dataclass
class Outcome:
    """What came of it."""

    compiled: int = 0
    """Configurations that compiled, loaded and were launched."""
    passed_over: list[str] = field(default_factory=list)
    """Those that were not, with the innermost cause, of a question that another one answered."""
    unsupported: str = ""
    failure: str = ""


def problems(operator: str, gpu: Gpu) -> Iterator[tuple[str, Problem]]:
    """(implementation, problem): each Triton kernel, data type, direction, layout, addend, function."""
    declared = kernels.operator(operator)
    examples = [*declared.examples, *(_long_products() if operator == "gemm" else ())]
    for implementation in declared.implementations:
        if not implementation.startswith("triton"):
            continue
        largest: dict[tuple[object, ...], Problem] = {}
        for problem in examples:
            kind = tuple(
                v for n, v in problem.parameters().items() if isinstance(v, str) or n in ("beta", "bias")
            )
            before = largest.get(kind)
            if _is_wanted(implementation, problem) and not problem.missing(
                implementation, "cuda", gpu.capability
            ):
                if before is None or (problem.flop, problem.byte) > (before.flop, before.byte):
                    largest[kind] = problem
        yield from ((implementation, problem) for problem in largest.values())


def _long_products() -> Iterator[Problem]:
    """GEMMs whose K is long enough to be split, aligned and not; one with few rows."""
    for dtype in Gemm.implementation("triton-pointer").dtypes:
        for layout in ("NN", "NT", "TN", "TT"):
            yield Gemm(m=256, n=128, k=4096, dtype=dtype, layout=layout)
            yield Gemm(m=256, n=16, k=2048, dtype=dtype, layout=layout)


def _is_wanted(implementation: str, problem: Problem) -> bool:
    """Leaves out GEMMs that compile nothing new: the number of compilations is what takes the time."""
    if not isinstance(problem, Gemm):
        return True
    if problem.pitch != "tight":
        return False
    # These choose among the kernels that are compiled under their own names.
    if implementation == "triton" or implementation.removeprefix("triton-") in FORCED_TILES:
        return problem.dtype == "float16" and problem.layout == "TN" and not problem.beta
    return not problem.beta or problem.layout == "TN"


def compile_one(asked: Compilation) -> Outcome:
    """Build the inputs, build the launch, launch: all but the GPU's part. For a process of its own."""
    outcome = _CHOOSER.begin()
    operator, problem = kernels.operator(asked.operator), asked.problem()
    with triton_driver(GPUS[asked.gpu]), torch.no_grad():
        before = launches()
        try:
            launch = operator.implementations[asked.implementation](
                problem, *operator.inputs(problem, uniform(problem, 1))
            )
            launch.call()
        except Unsupported as reason:
            outcome.unsupported = str(reason)
        except Exception as error:  # whatever it is, it is what a GPU would show
            outcome.failure = cause(error)
        if not (outcome.failure or outcome.unsupported):
            outcome.compiled = max(outcome.compiled, 1)
            if launches() == before:
                outcome.failure = "nothing was launched"
    return outcome


class _Chooser:
    """Replaces the tuner: takes the first configuration that compiles, without timing any."""

    def begin(self) -> Outcome:
        """The outcome of the next compilation, to be filled in."""
        self._outcome = Outcome()
        return self._outcome

    def tuned(
        self,
        question: tuple[object, ...],
        candidates: Sequence[Any],
        launch: Callable[[Any], Launch],
        compile: Callable[[Any], object] | None = None,  # noqa: A002
    ) -> Launch:
        refused: list[Exception] = []
        for candidate in candidates:
            try:
                if compile is not None:
                    compile(candidate)
                launch(candidate).call()
            except Exception as error:  # the compiler raises what it likes
                refused.append(error)
                self._outcome.passed_over.append(f"{candidate}: {cause(error)}")
                continue
            self._outcome.compiled += 1
            return replace(launch(candidate), tuning_s=0.0, configuration=str(candidate))
        raise refused[0]


# Here, before any module of kernels/ has taken this function from it.
_CHOOSER = _Chooser()
tuning.tuned = _CHOOSER.tuned


def cause(error: BaseException) -> str:
    """The innermost cause: its type, last line, and where it was raised."""
    while (
        inner := error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    ) is not None:
        error = inner
    lines = [line for line in str(error).splitlines() if line.strip()]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {lines[-1].strip() if lines else ''}{where}"
