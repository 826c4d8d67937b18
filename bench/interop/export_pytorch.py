"""Export to PyTorch's benchmark database, table `oss_ci_benchmark_v3`: JSON, one record a line.

The columns are those of clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql in pytorch/test-infra. The
uploader there (.github/scripts/upload_benchmark_results.py) reads files called *.json and adds time, commit
and job, unless a record has them. Operators stand in `model`, as tritonbench's do. The dashboard shows the
mean of `benchmark_values`, cut off at two decimals: so there is one value, the median, in nanoseconds, of
which a hundredth does not matter. Every value of an `extra_info` is text: those columns are maps of text to
text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bench.case_name import row_name
from bench.interop.export_points import Point, rounded

METRIC = "latency_ns"
NANOSECONDS = 1e9
MODES = {"forward": "fwd", "backward": "bwd"}
"""Our directions as tritonbench calls them. Others keep their name; operators without one are forward."""


def text(points: Sequence[Point]) -> str:
    """The file's content, for one point of each series."""
    return "".join(json.dumps(_record(point)) + "\n" for point in points)


def _record(point: Point) -> dict[str, Any]:
    row = point.row
    parameters: dict[str, Any] = json.loads(row.parameters)
    direction = str(parameters.get("direction", "forward"))
    return {
        "benchmark": {
            "name": "roofbench",
            "mode": MODES.get(direction, direction),
            "dtype": row.dtype,
            "extra_info": _texts(
                {"sweep": row.sweep, "cache": row.cache, "regime": row.regime, "clock": row.clock}
                | {"threads": row.threads, "protocol": row.protocol, "run_id": row.run_id}
                | {"commit": row.commit, "flags": " ".join(point.flags)}
            ),
        },
        "model": {
            "name": row.operator,
            "type": "roofbench",
            "backend": row.implementation,
            "origins": [],
            "extra_info": _texts(
                {"case": row_name(row), "series": point.name, "configuration": row.configuration}
            ),
        },
        "inputs": {
            name: {"dtype": row.dtype, "extra_info": {"value": str(value)}}
            for name, value in parameters.items()
            if name != "dtype"
        },
        "metric": {
            "name": METRIC,
            "benchmark_values": [_nanoseconds(row.median_s)],
            "extra_info": _texts(
                {"aggregation": "p50", "unit": "ns"}
                | {"low_ns": _nanoseconds(row.low_s), "high_ns": _nanoseconds(row.high_s)}
            ),
        },
        "dependencies": {
            "pytorch": _dependency("pytorch/pytorch", row.torch, {"libraries": row.libraries}),
            **({"triton": _dependency("triton-lang/triton", row.triton, {})} if row.triton else {}),
        },
        "runners": [_runner(point)],
    }


def _runner(point: Point) -> dict[str, Any]:
    row = point.row
    about = {"type": row.device, "extra_info": _texts({"driver": row.driver, "device_id": row.device_id})}
    if row.device_kind == "cuda":
        return about | {"gpu_info": row.device_name, "gpu_count": 1}
    return about | {"cpu_info": row.device_name, "cpu_count": row.sm_count}


def _dependency(repository: str, version: str, more: dict[str, str]) -> dict[str, Any]:
    return {"repo": repository, "branch": "", "sha": "", "version": version, "extra_info": _texts(more)}


def _nanoseconds(seconds: float | None) -> float | None:
    return None if seconds is None else rounded(seconds * NANOSECONDS)


def _texts(values: dict[str, Any]) -> dict[str, str]:
    """The values as text, without those that are unknown."""
    return {name: str(value) for name, value in values.items() if value is not None and value != ""}
