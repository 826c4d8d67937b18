"""A chain of loads, each of which needs the one before.

One warp, all of whose lanes load the same cell: one request at a time. A step is that load and the two
instructions that make an address of an index, a few cycles. The loop counts while the load is waited for.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
import torch
import triton
import triton.language as tl

from bench.spec import Launch
from kernels.latency.problem import Latency


@triton.jit(do_not_specialize=["steps"])
def chase(
    table_pointer,  # [lines, 32] int32, contiguous; column 0 has the index of the next cell
    begin_pointer,  # [chains] int32, index of each chain's first cell
    end_pointer,  # [chains] int32; every element is written once
    steps,
):
    """Follow the table from each beginning and store where the chain ends."""
    chain = tl.program_id(0)
    at = tl.load(begin_pointer + chain)
    for _ in tl.range(0, steps, num_stages=1):
        at = tl.load(table_pointer + at)
    tl.store(end_pointer + chain, at)


def launch(problem: Latency, table: torch.Tensor, begin: torch.Tensor) -> Launch:
    """A block for each chain; the ends [chains] are allocated here."""
    end = torch.empty_like(begin)
    return Launch.of(chase[(problem.chains,)], (end,), table, begin, end, problem.steps, num_warps=1)
