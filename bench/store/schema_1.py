"""Upgrade of files and journals of schema 1, which lack the role of a row and the plots of its sweep.

Schema 1 told roles by the sweep's path, which only this module knows. Figures of such files were drawn from
the sweeps of the checkout; schema_1_sweeps.json holds all sweeps as they were when schema 1 ended, so that
old results look the same however sweeps/ changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.store.schema import ARROW, SCHEMA

SWEEPS = Path(__file__).with_name("schema_1_sweeps.json")
_NO_ROOFS = {
    "ceilings/cache": "probe",
    "ceilings/one_sm": "probe",
    "ceilings/one_tile": "probe",
    "ceilings/gemm_shapes": "calibration",
}


def upgraded(table: pa.Table) -> pa.Table:
    """A file's rows with the columns of the present schema. `sweep` must be among its columns."""
    sweeps = table["sweep"].combine_chunks().dictionary_encode()
    roles = pa.array([_role(name) for name in sweeps.dictionary.to_pylist()], pa.string())
    table = table.append_column(ARROW.field("role"), roles.take(sweeps.indices))
    if "schema" in table.column_names:
        number = pa.array([SCHEMA] * len(table), pa.int64())
        table = table.set_column(table.schema.get_field_index("schema"), ARROW.field("schema"), number)
    return table


def upgraded_row(values: Mapping[str, Any]) -> dict[str, Any]:
    """One row of a journal with the columns of the present schema."""
    return {**values, "schema": SCHEMA, "role": _role(str(values.get("sweep")))}


def sweeps() -> dict[str, Any]:
    """Sweep -> what it declared (`Sweep.declared`), for every sweep of schema 1."""
    declared: dict[str, Any] = json.loads(SWEEPS.read_text("utf-8"))
    return declared


def _role(sweep: str) -> str:
    if sweep == "ceilings" or sweep.startswith("ceilings/"):
        return _NO_ROOFS.get(sweep, "roof")
    return "measurement"
