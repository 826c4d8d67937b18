"""Result files of made-up fleets, by the store's own writer, for tests of what is said of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.store.parquet import write
from bench.store.schema import Measurement
from tests.bench.rows import row

CASES: dict[str, dict[str, Any]] = {
    "square": {"operator": "gemm", "flop": 2 * 8192**3, "byte": 6 * 8192**2},
    "tall": {"operator": "gemm", "flop": 2 * 16384 * 4096**2, "byte": 2 * (2 * 16384 * 4096 + 4096**2)},
    "copy": {"operator": "stream", "flop": 0, "byte": 2**30, "arithmetic": "vector"},
    "read": {"operator": "stream", "flop": 0, "byte": 2**31, "arithmetic": "vector"},
    "copy-warm": {"operator": "stream", "flop": 0, "byte": 2**24, "arithmetic": "vector", "cache": "warm"},
    "empty": {"operator": "launch", "flop": 0, "byte": 0},
    "to-host": {"operator": "transfer", "flop": 0, "byte": 2**28},
}
WORK = {
    **{"square": "compute", "tall": "compute", "copy": "memory", "read": "memory"},
    **{"copy-warm": "cache", "empty": "launch", "to-host": "transfer"},
}
"""The kind of work that each of the cases is."""
H100 = "nvidia-h100-80gb-hbm3"


@dataclass
class Gpu:
    """A GPU, and what is odd about it."""

    node: str
    slot: int
    kind: str = H100
    slow: dict[str, float] = field(default_factory=dict)
    """Kind of work, or `all`, or `compute together` -> time over a healthy one's."""
    tags: dict[str, str] = field(default_factory=dict)
    fails: dict[str, str] = field(default_factory=dict)
    """Case -> status."""


def gpus(nodes: int, each: int) -> list[Gpu]:
    """Healthy GPUs: node000 ..., so many in each."""
    return [Gpu(f"node{node:03d}", slot) for node in range(nodes) for slot in range(each)]


def run(
    gpu: Gpu, chance: np.random.Generator, together: int = 1, day: int = 1, sd: float = 0.01
) -> list[Measurement]:
    """The rows of one run on a GPU; `together`: GPUs at work at the same time; `sd` of a unit's own speed."""
    seed = zlib.crc32(f"{gpu.node} {gpu.slot}".encode())  # its own speed is the same in every run
    own = 3**0.5 * sd * np.random.default_rng(seed).uniform(-1, 1)
    rows = []
    for at, (case, columns) in enumerate(CASES.items()):
        seconds = 1e-3 * (at + 1) * np.exp(own + sd / 4 * chance.uniform(-1, 1))
        for name in ("all", WORK[case], f"{WORK[case]} together" if together > 1 else ""):
            seconds *= gpu.slow.get(name, 1.0)
        facts: dict[str, Any] = {
            "cache": "cold", "arithmetic": "matrix", "dtype": "bfloat16", **columns, "sweep": f"fleet/{case}",
            "parameters": json.dumps({"name": case}), "device": gpu.kind, "device_name": gpu.kind,
            "device_kind": "cuda", "device_id": f"{seed:08x}", "host": gpu.node,
            "gpu_uuid": f"GPU-{seed:08x}", "pci_bus": f"0000:{16 * gpu.slot + 0x0B:02x}:00.0",
            "concurrent_gpus": together,
            "tags": json.dumps(gpu.tags) if gpu.tags else None, "run_id": f"202611{day:02d}T030000Z-abc",
            "utc": f"2026-11-{day:02d}T03:{at:02d}:00Z", "median_s": seconds, "low_s": 0.997 * seconds,
            "high_s": 1.003 * seconds, "samples_s": [seconds],
        }  # fmt: skip
        if status := gpu.fails.get(case):
            facts |= {"status": status, "median_s": None, "low_s": None, "high_s": None, "samples_s": None}
        rows.append(row(**facts))
    return rows


def written(
    folder: Path,
    fleet: Sequence[Gpu],
    chance: np.random.Generator,
    together: bool = False,
    change: Callable[[Measurement], Measurement] = lambda each: each,
    **noise: Any,
) -> Path:
    """A file for each GPU below a folder for its kind, and with `together` a second one."""
    for gpu in fleet:
        for count in (1, 8) if together else (1,):
            path = folder / gpu.kind / f"{gpu.node}-gpu{gpu.slot}-{count}.parquet"
            write(path, [change(each) for each in run(gpu, chance, count, **noise)])
    return folder
