"""Rows of nothing in particular, for tests of what becomes of rows."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from bench.store import parquet
from bench.store.journal import Journal
from bench.store.schema import Measurement

Chance = np.random.Generator


def row(**facts: Any) -> Measurement:
    """A row of a small GEMM with random times; `facts` replace columns."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Measurement):
        if field.default is dataclasses.MISSING:
            values[field.name] = 0 if field.type == "int" else "x"
    values |= {
        "operator": "gemm",
        "role": "measurement",
        "status": "ok",
        "parameters": '{"k":3,"layout":"NN","m":1,"n":2}',
    }
    values |= {"median_s": random.random(), "samples_s": [random.random() for _ in range(5)]}
    return Measurement(**(values | facts))


def rows(count: int, **facts: Any) -> list[Measurement]:
    """Rows of as many different cases."""
    return [
        row(**({"parameters": f'{{"m":{m},"k":3,"layout":"NN","n":2}}'} | facts)) for m in range(1, count + 1)
    ]


def stored(made: Iterable[Measurement]) -> list[Measurement]:
    """The rows as a result file gives them back, without the disk."""
    return list(parquet.rows(parquet.plain_table(list(made))))


def written(path: Path, made: list[Measurement]) -> bytes:
    """Write a journal of these rows; its bytes."""
    journal = Journal(path, FileIO(path, "w"))
    journal.append(*made)
    journal.close()
    return path.read_bytes()


def again(rows: Iterable[Measurement], **changes: Any) -> list[Measurement]:
    """The rows with these columns changed."""
    return [dataclasses.replace(each, **changes) for each in rows]


def with_ends(one: Measurement, low: float | None, high: float | None) -> Measurement:
    """The row with these ends of its interval, as shares of its median; one that is None stays."""
    assert one.median_s is not None
    ends = {"low_s": low, "high_s": high}
    seconds = {name: share * one.median_s for name, share in ends.items() if share is not None}
    return dataclasses.replace(one, **seconds)


def with_interval(one: Measurement, share: float) -> Measurement:
    return with_ends(one, 1 - share, 1 + share)


def lasting(one: Measurement, factor: float) -> Measurement:
    """The row as if the case had taken so many times as long."""
    times = {name: factor * getattr(one, name) for name in ("median_s", "low_s", "high_s")}
    samples_s = [factor * sample_s for sample_s in one.samples_s or ()]
    return dataclasses.replace(one, samples_s=samples_s, **times)


NOT_YET: dict[str, None] = dict.fromkeys(
    ("run_low_s", "run_high_s", "run_half", "run_by", "noise_visits", "noise_runs", "noise_by")
)
"""Columns that older files lack."""


def without_time(one: Measurement, status: str, reason: str = "it says why") -> Measurement:
    gone = dict.fromkeys(("median_s", "low_s", "high_s", "samples_s", "stop", "settled"))
    return dataclasses.replace(one, status=status, reason=reason, clock="", **gone)  # type: ignore[arg-type]


def older(one: Measurement) -> Measurement:
    """The row as earlier versions published it: with an interval that says nothing of the run's noise."""
    return dataclasses.replace(one, protocol_version="p2", **NOT_YET)
