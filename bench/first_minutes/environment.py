"""What a run of the first minutes was made on: versions, settings, and all that nvidia-smi says."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from bench.device.detect import Device
from bench.environment.dependencies import missing, required, version
from bench.runner.rows import commit

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
EXTRAS = ("cublaslt",)
SMI_S = 20.0


def environment(device: Device) -> dict[str, Any]:
    """Facts by name: plain values, a version for each package (None: missing), texts of several lines."""
    lacking = {package.name for package in missing(EXTRAS)}
    packages = [package.name for package in required(EXTRAS)]
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": {name: value for name, value in asdict(device).items() if name != "datasheet"},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {
            name: None if name in lacking else version(name) or "there, version unknown" for name in packages
        },
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)},
        "nvidia-smi -q": _nvidia_smi() if device.kind == "cuda" else "not asked: no GPU is measured",
    }


def _nvidia_smi() -> str:
    try:
        done = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True, timeout=SMI_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not known: {error}"
    return done.stdout or done.stderr
