"""What the tests of the doctor share: an H100, a worker whose rows a test sets, and findings by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bench.device.datasheet import find_datasheet
from bench.device.detect import Device
from bench.selfcheck.finding import Finding

H100 = find_datasheet("NVIDIA H100 80GB HBM3")
assert H100 is not None


def device(kind: Any = "cuda", **facts: Any) -> Device:
    of_gpu: dict[str, Any] = {"index": 0, "uuid": "GPU-5ba8", "capability": (9, 0), "datasheet": H100}
    of_cpu: dict[str, Any] = {"index": None, "uuid": "", "capability": None, "datasheet": None}
    values: dict[str, Any] = {"name": "NVIDIA H100 80GB HBM3", "slug": "h100", "id": "id", "sm_count": 132}
    values |= {"cache_byte": 50 << 20, "memory_byte": 80 << 30, "driver": "580.82.07"}
    return Device(kind=kind, **(values | (of_gpu if kind == "cuda" else of_cpu) | facts))


def levels(found: Iterator[Finding]) -> dict[str, str]:
    """Name -> level; every WARN and FAIL says what to do, every sentence is one."""
    listed = list(found)
    for one in listed:
        assert bool(one.remedy) == (one.level != "PASS"), one
        assert one.sentence.endswith(".") and "\n" not in one.sentence, one
        assert one.remedy[:1] == one.remedy[:1].upper() and "\n" not in one.remedy, one
        json.dumps(one.json(), allow_nan=False)
    return {one.name: one.level for one in listed}


class Stub:
    """An attended worker with a row for each implementation; a list of rows is given one by one."""

    def __init__(
        self, rows: Mapping[str, Any], default: Mapping[str, Any] | None = None, kind: str = "cuda"
    ) -> None:
        self.device = device(kind)
        self.rows = {name: list(row) if isinstance(row, list) else row for name, row in rows.items()}
        self.default = default
        self.grace_s = 0.0
        self.graces: dict[str, float] = {}
        self.asked: list[dict[str, Any]] = []
        self.closed = False

    def answer(self, request: dict[str, Any], sampling_s: float = 0.0) -> dict[str, Any]:
        name = request["implementation"]
        self.asked.append(request)
        self.graces[name] = self.grace_s
        row = self.rows.get(name, self.default)
        assert row is not None, name
        return dict(row.pop(0) if isinstance(row, list) else row)

    def close(self) -> None:
        self.closed = True


OK = {"status": "ok", "reason": "", "relative_error": 1e-4, "tolerance": 1e-3}


def row(status: str, reason: str = "it says so", **facts: Any) -> dict[str, Any]:
    return {"status": status, "reason": reason, **facts}
