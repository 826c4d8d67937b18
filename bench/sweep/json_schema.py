"""JSON Schema of sweeps for completion in an editor, made from the models and the operators' problems.

It checks less than `bench.sweep.load`, which also expands ranges and runs the problems' own validators.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bench.spec import Problem
from bench.sweep.grammar import COLUMNS, QUANTITIES, Range, Sweep, whole_numbers
from bench.sweep.models import PerSm

Schema = dict[str, Any]


def schema_text(problems: Sequence[type[Problem]]) -> str:
    """The content of sweeps/schema.json."""
    return json.dumps(schema(problems), indent=1, ensure_ascii=False) + "\n"


def schema(problems: Sequence[type[Problem]]) -> Schema:
    """JSON Schema of a sweep of any of these operators."""
    whole = Sweep.model_json_schema(by_alias=True)
    kinds = sorted(problems, key=lambda kind: kind.operator)
    whole["$defs"] |= {model.__name__: model.model_json_schema(by_alias=True) for model in (Range, PerSm)}
    for kind in kinds:
        whole["$defs"] |= _of_block(kind)
    whole["properties"]["operator"]["enum"] = [kind.operator for kind in kinds]
    whole["allOf"] = [
        {
            "if": {"properties": {"operator": {"const": kind.operator}}, "required": ["operator"]},
            "then": {"properties": _of_operator(kind)},
        }
        for kind in kinds
    ]
    # The draft that most editors support.
    return {"$schema": "http://json-schema.org/draft-07/schema#", **whole}


def _of_operator(kind: type[Problem]) -> Schema:
    """The part of the schema of a sweep's top-level keys that depends on the operator."""
    parameters = list(kind.model_fields)
    whole = whole_numbers(kind)
    columns = {"enum": [*COLUMNS, *parameters]}
    plot = {
        "properties": {
            "x": {"enum": parameters},
            "y": {"enum": [*QUANTITIES, *whole]},
            "lines": _one_or_list(columns),
            "panels": _one_or_list(columns),
            "per": _one_or_list({"enum": whole}),
        }
    }
    return {
        "implementations": _one_or_list({"enum": [i.name for i in kind.implementations]}),
        "cases": {"items": {"$ref": f"#/$defs/{kind.operator}"}},
        "plot": {"if": {"type": "array"}, "then": {"items": plot}, "else": plot},
    }


def _one_or_list(item: Schema) -> Schema:
    return {"anyOf": [item, {"type": "array", "items": item}]}


def _of_block(kind: type[Problem]) -> dict[str, Schema]:
    """Definitions of a block of this operator and of the values of each parameter."""
    fields = kind.model_json_schema()["properties"]
    any_name = "|".join(fields)
    keys = {name: f"^(({any_name})=)*{name}(=({any_name}))*$" for name in fields}
    takes = {name: {"$ref": f"#/$defs/{kind.operator}.{name}"} for name in fields}
    required = [name for name, field in kind.model_fields.items() if field.is_required()]
    block: Schema = {
        "type": "object",
        "description": f"Parameters of {kind.operator}, alone or joined by =, and their values",
        # The names alone are for completion; the patterns also match names joined by `=`.
        "properties": takes,
        "patternProperties": {keys[name]: takes[name] for name in fields},
        "additionalProperties": False,
        # JSON Schema expresses "some key matches" only as "not every key fails to match".
        "allOf": [{"not": {"propertyNames": {"not": {"pattern": keys[name]}}}} for name in required],
    }
    values = {f"{kind.operator}.{name}": _values(field) for name, field in fields.items()}
    return {kind.operator: block, **values}


def _values(field: Schema) -> Schema:
    """One value of a parameter or a list of them; whole numbers also as ranges and multiples of the SMs."""
    item = {key: entry for key, entry in field.items() if key not in ("title", "default")}
    if field.get("type") == "integer":
        item = {"anyOf": [item, {"$ref": "#/$defs/Range"}, {"$ref": "#/$defs/PerSm"}]}
    return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]}
