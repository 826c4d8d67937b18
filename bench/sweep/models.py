"""What the models of sweep files are made of: strictness, text, lists, and multiples of the SMs."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

T = TypeVar("T")


class _List:
    """A list in the JSON Schema; with `or_one`, `x` may stand for `[x]`."""

    def __init__(self, or_one: bool = False) -> None:
        self.or_one = or_one

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        # The models need not check this: bench.sweep.yaml_nodes refuses every empty list.
        many = handler(core) | {"minItems": 1}
        return {"anyOf": [many["items"], many]} if self.or_one else many


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _one_or_list(value: Any) -> Any:
    return _tuple(value) if isinstance(value, list | tuple) else (value,)


List = Annotated[tuple[T, ...], BeforeValidator(_tuple), _List()]
OneOrList = Annotated[tuple[T, ...], BeforeValidator(_one_or_list), _List(or_one=True)]

Text = Annotated[str, StringConstraints(pattern=r"\S"), AfterValidator(lambda text: " ".join(text.split()))]
"""Text of at least one visible character; line breaks become spaces."""

Label = Annotated[
    Text,
    BeforeValidator(lambda v: str(v) if isinstance(v, int) and not isinstance(v, bool) else v),
    WithJsonSchema({"type": ["integer", "string"]}),
]
"""Number of a figure, table or section: 2 or "2 (b)"."""


class Strict(BaseModel):
    """A model that converts no value and allows no unknown key."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class PerSm(Strict):
    """A multiple of the device's SM count (on a CPU: of its cores)."""

    per_sm: int = Field(ge=1, description="How many for each SM")
    plus: int = Field(0, description="How many more (fewer, if negative) in all")
