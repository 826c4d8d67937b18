"""One visit's row: what the case is and where it ran, beside what the worker found."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.device.detect import Device, short_hash
from bench.errors import UserError
from bench.sampling.protocol import Protocol
from bench.spec import parameters_text
from bench.store.schema import FIELDS, JOB_IDS, Measurement
from bench.sweep.load import Case

ROOT = Path(__file__).parents[2]
SEED = 20_231_115
"""Seed of the inputs and of the order of visits."""
UNIT = ("host", "pci_bus", "gpu_uuid", "serial")
"""Columns that name the machine and its device."""


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


def tags_of(given: Iterable[str]) -> dict[str, str]:
    """The tags of `--bench-tag key=value`, key by key. UserError says which cannot be kept, and why."""
    tags: dict[str, str] = {}
    for text in given:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value or not re.fullmatch(r"[A-Za-z0-9_.-]+", key):
            raise UserError(f"--bench-tag {text!r}: give key=value; a key is letters, digits and _ . -")
        if tags.setdefault(key, value) != value:
            raise UserError(f"--bench-tag {text!r}: {key} is {tags[key]} already; give each key once")
    return tags


def origin(device: Device, tags: Mapping[str, str], anonymous: bool) -> dict[str, str | None]:
    """The columns that say on which unit and for which job a run was made; null what is not known.

    `anonymous` hashes what names the unit, so that its rows can still be told from those of others.
    """
    unit = zip(UNIT, (device.host, device.pci_bus, device.uuid, device.serial), strict=True)
    job = next((f"{name}={os.environ[name]}" for name in JOB_IDS if os.environ.get(name)), None)
    columns = {name: (short_hash(value) if anonymous else value) if value else None for name, value in unit}
    return columns | {"job_id": job, "tags": json.dumps(dict(tags), sort_keys=True) if tags else None}


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
        "role": case.role,
        "parameters": parameters_text(problem.parameters()),
        "cache": case.cache,
        "threads_asked": case.threads,
        **problem.facts(name),
    }
    return Measurement(**(values | {k: v for k, v in facts.items() if k in FIELDS}))
