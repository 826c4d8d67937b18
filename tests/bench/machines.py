"""Made-up GPUs and matrix products, for tests of the model of tiles and waves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from bench.model.ceilings import condition
from bench.model.tile_wave import Machine, Products
from bench.spec import Problem, parameters_text
from bench.store.schema import ARROW, Measurement
from bench.sweep.load import SWEEPS, load_all
from kernels import problem
from tests.bench.rows import row as any_row
from tests.our_sweeps import role


def machine(chance: np.random.Generator) -> Machine:
    """Any GPU from the smallest to what may come, each number by itself."""

    def between(low: float, high: float) -> float:
        return float(np.exp(chance.uniform(math.log(low), math.log(high))))

    sm_count, byte_per_s = int(chance.integers(8, 220)), between(3e11, 9e12)
    return Machine(
        sm_count=sm_count,
        cache_byte=int(between(2**21, 2**28)),
        flop_per_s=between(3e13, 3e15),
        byte_per_s=byte_per_s,
        launch_s=between(1e-6, 1e-5),
        cached_byte_per_s=byte_per_s * between(1.0, 5.0),
        sm_byte_per_s=byte_per_s / sm_count * between(1.0, 4.0),
        step_s=between(4e-8, 5e-7),
        tile_s=between(3e-7, 5e-6),
        split_s=between(1e-6, 1e-5),
        tail=float(chance.uniform(0.0, 1.0)),
    )


def sizes(chance: np.random.Generator, count: int, most: int = 2**15) -> np.ndarray:
    """[count, 3] of m, n, k, even in their logarithms, 1 to `most`."""
    return np.floor(np.exp(chance.uniform(0.0, math.log(most + 1), (count, 3))))


def products(chance: np.random.Generator, shapes: np.ndarray, item: float | None = None) -> Products:
    """These m, n, k in types of 1 to 8 bytes; in the cache, beside it, and in between."""
    m, n, k = np.asarray(shapes, dtype=np.float64).reshape(-1, 3).T
    count = len(m)
    items = chance.choice([1.0, 2.0, 4.0, 8.0], count) if item is None else np.full(count, float(item))
    byte = (m * k + k * n + m * n) * items * chance.uniform(1.0, 1.3, count)
    ring = byte * np.where(chance.random(count) < 0.5, 1.0, chance.uniform(1.0, 8.0, count))
    ring = np.where(chance.random(count) < 0.3, math.inf, ring)
    return Products(m, n, k, items, byte, ring, np.zeros(count))


def one(of: Products, at: int) -> Products:
    """One of the products, as an array of one."""
    return Products(*(part[at : at + 1] for part in of))


def bfloat16(shapes: np.ndarray) -> Products:
    """These m, n, k in bfloat16, data in memory."""
    m, n, k = np.asarray(shapes, dtype=np.float64).reshape(-1, 3).T
    item = np.full(len(m), 2.0)
    byte, nothing = (m * k + k * n + m * n) * item, np.zeros(len(m))
    return Products(m, n, k, item, byte, np.full(len(m), math.inf), nothing)


def calibration_shapes() -> np.ndarray:
    """[64, 3]: m, n, k of sweeps/ceilings/gemm_shapes.yaml."""
    ((_, cases),) = load_all([SWEEPS / "ceilings" / "gemm_shapes.yaml"], problem, 132)
    return np.array([case.problem.product for case in cases], dtype=np.float64)


def moved(of: Machine, chance: np.random.Generator, share: dict[str, float]) -> Machine:
    """The machine with these numbers moved by so much of their logarithm, one standard deviation."""
    drawn = {n: getattr(of, n) * float(np.exp(chance.normal(0.0, s))) for n, s in share.items()}
    return dataclasses.replace(of, **drawn)


def framed(rows: Sequence[Measurement]) -> pd.DataFrame:
    """Rows as they are once a file of them was read, `condition` with them."""
    frame = pa.Table.from_pylist([dataclasses.asdict(row) for row in rows], schema=ARROW).to_pandas()
    return frame.assign(
        condition=[condition(*one) for one in zip(frame["cache"], frame["threads_asked"], strict=True)]
    )


def timed(
    problem: Problem, implementation: str, seconds: float | None, sweep: str = "some/sweep", **facts: Any
) -> Measurement:
    """A cold row of this problem on an H100; `facts` replace columns."""
    values = {"device": "h100-sxm", "device_name": "NVIDIA H100 80GB HBM3", "device_kind": "cuda"}
    values |= {"sm_count": 132, "cache_byte": 50 * 2**20, "cache": "cold", "run_id": "r", "sweep": sweep}
    values |= {"role": role(sweep)}
    values |= {"parameters": parameters_text(problem.parameters()), "configuration": ""}
    values |= problem.facts(implementation) | {"median_s": seconds, "samples_s": None}
    return any_row(**(values | facts))
