"""Result files of made-up fleets, by the store's own writer, for tests of what is said of them."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.store.parquet import write
from bench.store.schema import Measurement
from tests.bench.rows import row

CASES: dict[str, dict[str, Any]] = {
    "square": {"operator": "gemm", "flop": 2 * 8192**3, "byte": 6 * 8192**2, "dtype": "bfloat16"},
    "square8": {"operator": "gemm", "flop": 2 * 8192**3, "byte": 3 * 8192**2, "dtype": "float8_e4m3"},
    "tall": {"operator": "gemm", "flop": 2 * 16384 * 4096**2, "byte": 2 * (2 * 16384 * 4096 + 4096**2)},
    "skinny": {"operator": "gemm", "flop": 2 * 8 * 8192**2, "byte": 2 * 8192**2},
    "copy": {"operator": "stream", "flop": 0, "byte": 2**30, "arithmetic": "vector"},
    "read": {"operator": "stream", "flop": 0, "byte": 2**31, "arithmetic": "vector"},
    "copy-warm": {"operator": "stream", "flop": 0, "byte": 2**24, "arithmetic": "vector", "cache": "warm"},
    "read-warm": {"operator": "stream", "flop": 0, "byte": 2**24, "arithmetic": "vector", "cache": "warm"},
    "empty": {"operator": "launch", "flop": 0, "byte": 0},
    "to-device": {"operator": "transfer", "flop": 0, "byte": 2**28},
    "to-host": {"operator": "transfer", "flop": 0, "byte": 2**28},
}
CLASS = {
    **dict.fromkeys(("square", "square8", "tall"), "compute"),
    **dict.fromkeys(("skinny", "copy", "read"), "memory"),
    **dict.fromkeys(("copy-warm", "read-warm"), "cache"),
    **{"empty": "launch", "to-device": "transfer", "to-host": "transfer"},
}
"""The class that each of the cases belongs to."""
H100 = "nvidia-h100-80gb-hbm3"
STATE: dict[str, Any] = {
    "sm_clock_hz": 1.7e9, "memory_clock_hz": 2.6e9, "power_w": 600.0, "temperature_c": 60.0,
    "held_power": 0.5, "held_thermal": 0.0, "held_hardware": 0.0, "foreign_processes": 0,
    "power_limit_w": 700.0, "ecc": "on", "persistence": "on", "mig": "off", "driver": "570.1",
}  # fmt: skip


@dataclass
class Gpu:
    """A GPU, and what is odd about it."""

    node: str
    slot: int
    kind: str = H100
    slow: dict[str, float] = field(default_factory=dict)
    """Class, or `all`, or `compute together` -> time over a healthy one's."""
    state: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    fails: dict[str, str] = field(default_factory=dict)
    """Case -> status."""

    @property
    def pci_bus(self) -> str:
        return f"0000:{16 * self.slot + 0x0B:02x}:00.0"

    def factor(self, case: str, together: bool) -> float:
        """Its time of a case over a healthy GPU's."""
        names = ("all", CLASS[case], f"{CLASS[case]} together")[: 3 if together else 2]
        return math.prod(self.slow.get(name, 1.0) for name in names)


def gpus(nodes: int, each: int) -> list[Gpu]:
    """Healthy GPUs: node000 ..., so many in each."""
    return [Gpu(f"node{node:03d}", slot) for node in range(nodes) for slot in range(each)]


def run(
    gpu: Gpu,
    chance: np.random.Generator,
    together: int = 1,
    day: int = 1,
    unit_sd: float = 0.012,
    run_sd: float = 0.004,
) -> list[Measurement]:
    """The rows of one run on a GPU; `together`: GPUs at work at the same time.

    The unit's own speed follows from its node and slot alone, so that it is the same in every run.
    """
    seed = zlib.crc32(f"{gpu.node} {gpu.slot}".encode())
    own = unit_sd * np.random.default_rng(seed).standard_normal()
    rows = []
    for at, (case, columns) in enumerate(CASES.items()):
        healthy_s = 1e-3 * (at + 1) * np.exp(own + run_sd * chance.standard_normal())
        seconds = healthy_s * gpu.factor(case, together > 1)
        facts: dict[str, Any] = {
            **columns, **STATE, **gpu.state, "sweep": f"fleet/{case}", "cache": columns.get("cache", "cold"),
            "parameters": json.dumps({"name": case}), "arithmetic": columns.get("arithmetic", "matrix"),
            "dtype": columns.get("dtype", "bfloat16"), "device": gpu.kind,
            "device_name": NAMES.get(gpu.kind, gpu.kind), "device_kind": "cuda",
            "device_id": f"{seed:08x}", "host": gpu.node, "pci_bus": gpu.pci_bus,
            "gpu_uuid": f"GPU-{seed:08x}", "serial": f"{seed}", "concurrent_gpus": together,
            "tags": json.dumps(gpu.tags) if gpu.tags else None, "run_id": f"202611{day:02d}T030000Z-abc",
            "utc": f"2026-11-{day:02d}T03:{at:02d}:00Z", "median_s": seconds, "low_s": 0.997 * seconds,
            "high_s": 1.003 * seconds, "samples_s": [seconds],
        }  # fmt: skip
        if status := gpu.fails.get(case):
            facts |= {"status": status, "median_s": None, "low_s": None, "high_s": None, "samples_s": None}
        rows.append(row(**facts))
    return rows


NAMES = {H100: "NVIDIA H100 80GB HBM3", "nvidia-b200": "NVIDIA B200"}


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


def cpu(node: str | None, host: str, chance: np.random.Generator) -> list[Measurement]:
    """The rows of a CPU; `node`: what its tag says."""
    gpu = Gpu(host, 0, "cpu-amd-epyc")
    none = dict.fromkeys(["pci_bus", "gpu_uuid", "serial", "concurrent_gpus", *STATE]) | {"driver": "570.1"}
    tags = json.dumps({"node": node, "rack": "r1"}) if node else None
    return [replace(each, **none, device_kind="cpu", tags=tags) for each in run(gpu, chance)]
