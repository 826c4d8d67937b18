"""An interpreted launch, and what is checked of it whatever the kernel.

The files that interpret need a process of their own, because interpreting and compiling exclude each other:

    TRITON_INTERPRET=1 python -m pytest tests/kernels/softmax_interpreted.py

test_interpreted_kernels.py starts them; their names keep them out of an ordinary run.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from bench.spec import Launch, Operator, Problem
from bench.worker.check import outputs_of, poison
from tests.kernels.interpreter import repaired
from tests.kernels.sanitizer import Watch, at_the_end, watched
from tests.kernels.tensors import TORCH_TYPE, uniform, used

Tensors = tuple[torch.Tensor, ...]


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
