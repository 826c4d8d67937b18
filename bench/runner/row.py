"""One visit's row: what the case is and where it ran, beside what the worker found."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.device.detect import Device
from bench.sampling.protocol import Protocol
from bench.spec import parameters_text
from bench.store.schema import FIELDS, Measurement
from bench.sweep.load import Case

ROOT = Path(__file__).parents[2]
SEED = 20_231_115
"""Seed of the inputs and of the order of visits."""


def commit() -> str:
    """Commit of the checkout, `+` behind it if files differ; empty if git does not know."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=12"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def visit_row(case: Case, device: Device, protocol: Protocol, facts: Mapping[str, Any]) -> Measurement:
    """The row of one visit. `facts` are its other columns; what is no column is left out."""
    problem, name = case.problem, case.implementation
    values: dict[str, Any] = {
        "torch": "",
        "triton": "",
        "libraries": "",
        "clock": "",
        "fill": "",
        "seed": SEED,
        "utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "device": device.slug,
        "device_name": device.name,
        "device_kind": device.kind,
        "device_id": device.id,
        "sm_count": device.sm_count,
        "cache_byte": device.cache_byte,
        "driver": device.driver,
        "protocol": protocol.hash,
        "protocol_version": protocol.version,
        "regime": protocol.regime,
        "sweep": case.sweep,
        "parameters": parameters_text(problem.parameters()),
        "cache": case.cache,
        "threads_asked": case.threads,
        **problem.facts(name),
    }
    return Measurement(**(values | {k: v for k, v in facts.items() if k in FIELDS}))
