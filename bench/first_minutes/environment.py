"""What a run of the first minutes was made on: versions, settings, and all that nvidia-smi says."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from bench.device.detect import Device
from bench.environment.dependencies import missing, required
from bench.runner.row import commit

SETTINGS = (
    "CUDA",
    "NVIDIA",
    "TORCH",
    "PYTORCH",
    "TRITON",
    "CUBLAS",
    "OMP",
    "MKL",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
)
"""Beginnings of the environment variables that change what computes; others are nobody's business."""
SMI_S = 20.0


def environment(device: Device) -> dict[str, Any]:
    """Facts by name: plain values, a version for each package (None: missing), texts of several lines."""
    lacking = {one.name for one in missing(("cublaslt",))}
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": {name: value for name, value in asdict(device).items() if name != "datasheet"},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {
            one.name: None if one.name in lacking else _version(one.name) for one in required(("cublaslt",))
        },
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)},
        "nvidia-smi -q": _nvidia_smi() if device.kind == "cuda" else "not asked: no GPU is measured",
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "there, version unknown"


def _nvidia_smi() -> str:
    try:
        done = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True, timeout=SMI_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not known: {error}"
    return done.stdout or done.stderr
