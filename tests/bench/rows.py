"""Rows of nothing in particular, for tests of what becomes of rows."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.store import parquet
from bench.store.journal import Journal
from bench.store.schema import ARROW, Measurement, record


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
    return list(parquet.rows(pa.Table.from_pylist([record(one) for one in made], schema=ARROW)))


def written(path: Path, made: list[Measurement]) -> bytes:
    """Write a journal of these rows; its bytes."""
    with Journal(path) as journal:
        journal.append(*made)
    return path.read_bytes()
