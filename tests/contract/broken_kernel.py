"""Kernels that fail, to show that the contract sees it."""

import torch
import triton
import triton.language as tl

from bench.spec import Launch, Problem


@triton.jit
def absent(x):  # type: ignore[no-untyped-def]
    """Calls what Triton's language does not have."""
    tl.store(x, tl.no_such_function())


@triton.jit  # type: ignore[untyped-decorator]
def empty() -> None:
    """Nothing."""
    return


def launch(problem: Problem, x: torch.Tensor) -> Launch:
    """Does not compile."""
    return Launch(lambda: absent[(1,)](x))


def launch_on_a_grid_too_high(problem: Problem, x: torch.Tensor) -> Launch:
    """Compiles; CUDA allows 65,535 programs along the second axis."""
    return Launch(lambda: empty[(1, 65536)]())
