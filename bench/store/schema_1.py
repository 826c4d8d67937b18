"""What files and journals of schema 1 lack: the role of a row, and what its sweep wanted drawn.

Nothing but this module knows how schema 1 told roles: by the sweep's path. Figures of such files were drawn
from the sweeps of the checkout that drew them; schema_1_sweeps.json holds all of those as they were when
schema 1 ended, so that old results look the same whatever becomes of sweeps/.
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
    """The same for one row of a journal."""
    return {**values, "schema": SCHEMA, "role": _role(str(values.get("sweep")))}


def sweeps() -> dict[str, Any]:
    """Sweep -> what it declared (`Sweep.declared`), of every sweep that there was."""
    declared: dict[str, Any] = json.loads(SWEEPS.read_text("utf-8"))
    return declared


def _role(sweep: str) -> str:
    if sweep == "ceilings" or sweep.startswith("ceilings/"):
        return _NO_ROOFS.get(sweep, "roof")
    return "measurement"
