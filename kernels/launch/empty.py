"""An empty Triton kernel: what remains is the launch itself, the floor under every other time.

It takes no argument, so nothing is packed for it, and runs one program of one warp.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import torch
import triton

from bench.spec import Launch
from kernels.launch.problem import LaunchFloor


@triton.jit
def empty() -> None:
    """Nothing."""
    return


def launch(problem: LaunchFloor, x: torch.Tensor) -> Launch:
    """One launch of nothing: it writes nothing, and x is not touched."""
    return Launch.of(empty[(1,)], (), num_warps=1)
