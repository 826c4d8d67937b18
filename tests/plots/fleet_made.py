"""Result files of a made-up fleet: nodes of GPUs in racks, of which a few units are slow for known reasons.

`python -m tests.plots.fleet_made FOLDER [UNITS [NIGHTS]]` writes one: a GPU too hot, a GPU with slow memory,
and a node whose power is limited. docs/simulated_fleet/ is `python -m tests.plots.fleet_made FOLDER 40 12`,
each month joined in one file.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from bench.store import parquet
from bench.store.schema import Measurement
from tests.bench.rows import row

SLUG, NAME = "simulated-gpu", "Simulated GPU"
"""No row of a fleet that does not exist passes for one of a GPU that does."""
PER_NODE = 8
NODES_PER_RACK = 4
UNIT, RUN = 0.012, 0.004
"""Standard deviations of ln time: between units of one kind, and between a case's visits on one unit."""
FIRST = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Kernel:
    """A case of the suite, as a row has it."""

    operator: str
    parameters: dict[str, Any]
    dtype: str
    median_s: float
    flop: int
    byte: int
    clock_hz: float
    """SM clock of a usual unit while it runs."""
    power_w: float
    cache: str = "cold"
    arithmetic: str = "matrix"

    @property
    def is_compute(self) -> bool:
        """Whether the SM clock decides its time."""
        return self.flop > 64 * self.byte


def _gemm(m: int, dtype: str, median_s: float) -> Kernel:
    sizes, byte = {"m": m, "n": 8192, "k": 8192}, 2 * (2 * m * 8192 + 8192**2)
    return Kernel("gemm", sizes, dtype, median_s, 2 * m * 8192**2, byte, 1.43e9, 694.0)


def _stream(kind: str, length: int, cache: str, median_s: float) -> Kernel:
    parameters = {"kind": kind, "length": length}
    return Kernel("stream", parameters, "float32", median_s, 0, 8 * length, 1.98e9, 440.0, cache, "vector")


def _transfer(direction: str, memory: str, median_s: float) -> Kernel:
    parameters = {"direction": direction, "memory": memory}
    return Kernel("transfer", parameters, "float32", median_s, 0, 2**30, 1.98e9, 120.0, arithmetic="vector")


SUITE = (
    *(
        _gemm(8192, "bfloat16", 1.62e-3),
        _gemm(8192, "float8_e4m3", 0.86e-3),
        _gemm(16384, "bfloat16", 3.2e-3),
    ),
    *(_stream("copy", 2**28, "cold", 0.72e-3), _stream("read", 2**28, "cold", 0.35e-3)),
    _stream("triad", 2**28, "cold", 1.07e-3),
    *(_stream("read", 2**22, "warm", 3.1e-6), _stream("copy", 2**21, "warm", 4.0e-6)),
    Kernel("launch", {}, "float32", 2.3e-6, 0, 0, 1.98e9, 110.0, arithmetic="vector"),
    *(_transfer("to_device", "pinned", 19e-3), _transfer("to_host", "pinned", 20e-3)),
    _transfer("to_device", "pageable", 90e-3),
)


@dataclass(frozen=True)
class Slow:
    """What is wrong with one unit, or with a whole node."""

    at: int
    """Index of the unit; of the first unit of a node."""
    units: int
    why: str
    """heat, memory, or limit."""
    by: float
    """Share by which the time is longer, 0.08."""
    since: int = 0
    """Index of the first night on which it is."""


def three(units: int, since: int = 0) -> tuple[Slow, ...]:
    """One too hot, one with slow memory, one node whose power is limited, spread over the fleet."""
    node = units // PER_NODE // 2 * PER_NODE
    return (
        Slow(units // 3, 1, "heat", 0.12, since),
        Slow(units * 4 // 5, 1, "memory", 0.08),
        Slow(node, min(PER_NODE, units - node), "limit", 0.06),
    )


def write(
    folder: Path,
    units: int,
    slow: Sequence[Slow] = (),
    nights: int = 1,
    seed: int = 0,
    concurrent: bool = True,
    without: Sequence[int] = (),
) -> None:
    """Result files of every unit but `without`, each night alone and, if so asked, together; expected.txt."""
    chance = np.random.default_rng(seed)
    own = UNIT * chance.standard_normal((units, 3))
    manners = (False, True) if concurrent else (False,)
    for night, together in itertools.product(range(nights), manners):
        noise = RUN * chance.standard_normal((units, len(SUITE)))
        for unit in set(range(units)) - set(without):
            rows = list(_rows(unit, night, together, own[unit], noise[unit], slow))
            file = f"{rows[0].run_id}-gpu{unit % PER_NODE}.parquet"
            parquet.write(folder / _node(unit) / SLUG / file, rows)
    nodes = sorted({_node(unit) for unit in range(units)})
    (folder / "expected.txt").write_text("".join(f"{node} {PER_NODE}\n" for node in nodes))


def _node(unit: int) -> str:
    return f"node{unit // PER_NODE + 1:03d}"


def _rows(
    unit: int, night: int, together: bool, own: np.ndarray, noise: np.ndarray, slow: Sequence[Slow]
) -> Iterator[Measurement]:
    wrong = [s for s in slow if s.at <= unit < s.at + s.units and night >= s.since]
    began = FIRST + timedelta(days=night, minutes=40 if together else 0, seconds=unit // PER_NODE)
    facts = {
        "device": SLUG, "device_name": NAME, "device_kind": "cuda", "device_id": f"{unit:016x}",
        "host": _node(unit), "pci_bus": f"0000:{0x1B + 0x18 * (unit % PER_NODE):02x}:00.0",
        "gpu_uuid": f"GPU-{unit:08x}-0000-0000-0000-000000000000", "serial": f"16539231{unit:05d}",
        "tags": json.dumps({"simulated": "yes", "rack": f"r{unit // PER_NODE // NODES_PER_RACK + 1:02d}"}),
        "job_id": f"SLURM_JOB_ID={4711 + unit // PER_NODE}", "run_id": f"{began:%Y%m%dT%H%M%SZ}-4f2a91c",
        "utc": began.isoformat(), "concurrent_gpus": PER_NODE if together else 1, "driver": "580.95.05",
        "torch": "2.13.0", "clock": "graph", "protocol": "p2-1", "fill": "uniform", "persistence": "on",
        "ecc": "on", "mig": "off", "threads": 1, "samples_s": None, "visits": 3,
    }  # fmt: skip
    for kernel, luck in zip(SUITE, noise, strict=True):
        yield row(**facts | _state(kernel, together, own, luck, wrong, unit))


def _state(
    kernel: Kernel, together: bool, own: np.ndarray, luck: float, wrong: Sequence[Slow], unit: int
) -> dict[str, Any]:
    """The case, its time, and the unit's state meanwhile."""
    by_class = own[0] if kernel.is_compute else own[1] * 0.5 if kernel.operator == "stream" else own[2] * 0.3
    log = by_class + luck
    clock_hz, power_w, limit_w, temperature_c = kernel.clock_hz, kernel.power_w, 700.0, 62.0
    held_power, held_thermal, reasons = (0.35, 0.0, "power cap") if kernel.is_compute else (0.0, 0.0, "")
    if together:
        log += 0.015 if kernel.is_compute else 0.05 if kernel.operator == "transfer" else 0.0
        temperature_c += 5
    if kernel.is_compute:
        clock_hz *= float(np.exp(-by_class - (0.015 if together else 0)))
    for fault in wrong:
        if fault.why == "heat" and kernel.is_compute:
            log += np.log1p(fault.by)
            clock_hz, power_w, temperature_c = clock_hz / (1 + fault.by), 0.84 * power_w, 88.0
            held_power, held_thermal, reasons = 0.02, 0.61, "thermal slowdown (software)"
        elif fault.why == "heat":
            temperature_c = 79.0
        if fault.why == "memory" and kernel.operator == "stream" and kernel.cache == "cold":
            log += np.log1p(fault.by)
        if fault.why == "limit":
            limit_w = 600.0
            if kernel.is_compute:
                log += np.log1p(fault.by)
                clock_hz, power_w, held_power = clock_hz / (1 + fault.by), 598.0, 0.78
    median_s = float(f"{kernel.median_s * np.exp(log):.4g}")  # few digits make a small file
    return {
        "sweep": f"fleet/{kernel.operator}", "operator": kernel.operator,
        "implementation": {"gemm": "cublas", "transfer": "cuda"}.get(kernel.operator, "aten"),
        "parameters": json.dumps(kernel.parameters | {"dtype": kernel.dtype}, sort_keys=True),
        "dtype": kernel.dtype, "arithmetic": kernel.arithmetic, "rate": "flop" if kernel.flop else "byte",
        "cache": kernel.cache, "flop": kernel.flop, "byte": kernel.byte, "byte_moved": kernel.byte,
        "median_s": median_s, "low_s": float(f"{median_s * 0.996:.4g}"),
        "high_s": float(f"{median_s * 1.004:.4g}"), "sm_clock_hz": round(clock_hz, -6),
        "memory_clock_hz": 2.619e9, "power_w": float(round(power_w + 300 * (own[2] + luck))),
        "temperature_c": temperature_c + unit % 5, "limit_reasons": reasons or None, "held_power": held_power,
        "held_thermal": held_thermal, "held_hardware": 0.0, "foreign_processes": 0, "power_limit_w": limit_w,
    }  # fmt: skip


if __name__ == "__main__":
    count, length = map(int, [*sys.argv[2:4], *("200", "1")[len(sys.argv) - 2 :]])
    write(Path(sys.argv[1]), count, three(count, length // 3), length, without=[5, count - 1])
