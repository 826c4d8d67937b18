"""Rows as plain values, as files hold them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from bench.store.schema import ARROW, FIELDS, Measurement


def record(row: Measurement) -> dict[str, Any]:
    """A row as plain values, by column. A lone surrogate, which is no Unicode character, becomes `?`."""
    return {name: _plain(getattr(row, name)) for name in FIELDS}


def records(rows: Sequence[Measurement]) -> dict[str, list[Any]]:
    """The same of many rows: a list for each column."""
    columns: dict[str, list[Any]] = {}
    for field in ARROW:
        values = list(map(attrgetter(field.name), rows))
        is_number = pa.types.is_primitive(field.type)
        columns[field.name] = values if is_number else list(map(_plain, values))
    return columns


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):  # of one type each; most have a thousand numbers
        return [_plain(item) for item in value] if value and isinstance(value[0], str) else list(value)
    return value
