"""What is tested of the kernels of every operator, by Triton's interpreter under the sanitizer.

The files that interpret need a process of their own, because interpreting and compiling exclude each other:

    TRITON_INTERPRET=1 python -m pytest tests/kernels/rows_interpreted.py

test_interpreted_kernels.py starts them; their names keep them out of an ordinary run.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import pytest
import torch

from bench.spec import Launch, Operator, Problem
from bench.worker.check import outputs_of, poison
from tests.drawing import is_deep
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import Watch, at_the_end, watched
from tests.kernels.tensors import TORCH_TYPE, uniform, used

Tensors = tuple[torch.Tensor, ...]


Case = tuple[Any, Any]
"""A problem, and the configuration of the kernels that solves it."""


class Far(NamedTuple):
    """A problem of more than 2^31 elements, of which its last programs are run."""

    problem: Problem
    configuration: Any
    last: Problem
    """What those programs compute: its tensors are the far corners of the others."""
    programs: int = 1

    def __str__(self) -> str:
        return f"{self.problem} {self.configuration}"


class Ran(NamedTuple):
    """What a launch wrote into poison, and what its kernels touched."""

    outputs: Tensors
    watch: Watch

    @property
    def byte(self) -> tuple[int, int, int]:
        """Loaded, stored and atomically changed, repeats included."""
        return self.watch.loads.byte, self.watch.stores.byte, self.watch.atomics.byte


def ran(launch: Launch) -> Ran:
    """Interpret a launch; AssertionError if it returns other tensors than those that it allocated."""
    poison(launch.outputs)
    with repaired(), watched() as watch:
        outputs = outputs_of(launch.call())
    assert all(got is own for got, own in zip(outputs, launch.outputs, strict=True))
    return Ran(outputs, watch)


class Kernels:
    """Tests of an operator's kernels; a subclass says with which problems, and how they are launched."""

    operator: ClassVar[Operator]
    way: ClassVar[str] = "triton"
    """The implementation whose tolerance they keep."""
    cases: ClassVar[Sequence[Case]]
    """Sizes on, one short of and one past what a program takes, in every type and configuration."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        for name, values in {"case": "cases", "spoiled": "spoiled", "far": "far"}.items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, getattr(self, values), ids=_named)

    def launch(self, problem: Any, inputs: Tensors, configuration: Any) -> Launch:
        """The launch of a problem with this configuration."""
        raise NotImplementedError

    def inputs(self, problem: Any, seed: int) -> Tensors:
        """The problem's tensors, the same for the same seed."""
        torch.manual_seed(seed)  # of what operators choose at random themselves
        return self.operator.inputs(problem, uniform(problem, seed))

    def outputs(self, problem: Any, inputs: Tensors, configuration: Any) -> Tensors:
        """What the launch writes."""
        return ran(self.launch(problem, inputs, configuration)).outputs

    def counted(self, problem: Any, configuration: Any, inputs: Tensors, done: Ran) -> None:
        """AssertionError unless as many bytes were moved as the kernels' docstrings say."""
        raise NotImplementedError

    def test_right_in_bounds_and_each_byte_counted(self, case: Case, seed: int) -> None:
        """Each element of each output is written once; of every eighth, and in a deep run, again the same."""
        problem, configuration = case
        inputs = self.inputs(problem, seed)
        launch = self.launch(problem, inputs, configuration)
        self.counted(problem, configuration, inputs, check(self.operator, problem, inputs, launch, self.way))
        if is_deep() or seed % 8 == 0:
            check_again(launch)


class SpoiledByNan(Kernels):
    """And those with a NaN among the inputs."""

    spoiled: ClassVar[Sequence[Case]]
    """Small problems."""

    def test_nan_spoils_what_it_spoils_in_the_reference(self, spoiled: Case, seed: int) -> None:
        """One element of each input in turn, at random."""
        problem, configuration = spoiled
        for place, tensor in enumerate(self.inputs(problem, seed)):
            if not tensor.is_floating_point():
                continue
            inputs = list(self.inputs(problem, seed))
            at = tuple(seed // (7 + axis) % size for axis, size in enumerate(tensor.shape))
            inputs[place][at] = math.nan
            outputs = self.outputs(problem, tuple(inputs), configuration)
            for got, want in zip(outputs, outputs_of(self.operator.reference(problem, *inputs)), strict=True):
                if got.is_floating_point():
                    assert torch.equal(got.isnan(), want.isnan()), f"input {place} at {at}"


class Beyond32Bits(Kernels):
    """And those of tensors of more than 2^31 elements."""

    far: ClassVar[Sequence[Far]]

    def test_last_programs_of_more_than_2_to_the_31_elements(self, far: Far, seed: int) -> None:
        def launch(inputs: Tensors) -> Launch:
            return self.launch(far.problem, inputs, far.configuration)

        check_far_end(self.operator, far.problem, far.last, launch, seed, far.programs)


def _named(value: object) -> str:
    return " ".join(map(str, value)) if type(value) is tuple else str(value)


def check(operator: Operator, problem: Problem, inputs: Tensors, launch: Launch, way: str = "triton") -> Ran:
    """Right, in bounds, each element of each output written once, and no input changed."""
    before = [tensor.to(torch.float64, copy=True) for tensor in inputs]
    done = ran(launch)
    assert used(operator, way, problem, inputs, done.outputs) <= 1  # and so no poison is left
    for output in done.outputs:
        stored = done.watch.stores.within(output)
        assert stored.byte == output.numel() * output.element_size() and not stored.repeated
    assert all(torch.equal(tensor.double(), was) for tensor, was in zip(inputs, before, strict=True))
    return done


def check_again(launch: Launch) -> None:
    """A launch that ran writes the same bits again: counters are back at 0, what was there is not used."""
    once = [output.clone() for output in launch.outputs]
    assert all(torch.equal(one, other) for one, other in zip(once, ran(launch).outputs, strict=True))


def check_far_end(
    operator: Operator,
    problem: Problem,
    last: Problem,
    launch: Callable[[Tensors], Launch],
    seed: int,
    programs: int = 1,
) -> None:
    """The last programs of a launch on more than 2^31 elements are right; no other page is ever touched.

    They compute the problem `last`, whose tensors are the far corners of the others.
    """

    def untouched(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype or TORCH_TYPE[problem.dtype])

    inputs, ends = operator.inputs(problem, untouched), operator.inputs(last, uniform(last, seed))
    assert inputs[0].numel() > 2**31
    for whole, end in zip(inputs, ends, strict=True):
        corner(whole, end).copy_(end)
    with repaired(), watched(), at_the_end(programs):
        outputs = outputs_of(launch(inputs).call())
    right = outputs_of(operator.reference(last, *ends))
    computed = tuple(corner(output, part) for output, part in zip(outputs, right, strict=True))
    assert used(operator, "triton", last, ends, computed) <= 1


def corner(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """The far end of a tensor, as large as the part."""
    return whole[tuple(slice(-size, None) for size in part.shape)]
