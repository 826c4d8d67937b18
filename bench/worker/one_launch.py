"""One launch of a case in steady state, marked for a profiler: all else of the process lies outside of it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from bench.spec import Operator, Problem
from bench.worker.failure import failure
from bench.worker.measure_case import Bench, Slots

WARM = 3
"""Pairs of launches before it: the first ones compile, tune and allocate."""


def one_launch(bench: Bench, operator: Operator, name: str, problem: Problem, cold: bool) -> dict[str, Any]:
    """Columns status and reason of the launch by the implementation `name`, and its wall_s, seconds.

    Nsight records from cudaProfilerStart to cudaProfilerStop if its options say so.
    """
    try:
        slots = Slots(bench, operator, name, problem, 1)
        for _ in range(WARM):
            slots.warm_launch_s()
        if cold:
            bench.clock.flush()
        bench.synchronize()
        with torch.cuda.profiler.profile() if bench.device.type == "cuda" else nullcontext():
            begin = bench.now()
            slots.calls[0]()
            bench.synchronize()
            return {"status": "ok", "reason": "", "wall_s": bench.now() - begin}
    except Exception as error:
        return failure(error)
