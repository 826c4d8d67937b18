"""What the models of sweep files are made of: strictness, text, lists, and multiples of the SMs."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

T = TypeVar("T")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _one_or_list(value: Any) -> Any:
    return _tuple(value) if isinstance(value, list | tuple) else (value,)


List = Annotated[tuple[T, ...], BeforeValidator(_tuple)]
"""A list; that it is not empty, bench.sweep.yaml_nodes checks."""
OneOrList = Annotated[tuple[T, ...], BeforeValidator(_one_or_list)]
"""A list, or `x` for `[x]`."""

Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(lambda t: " ".join(t.split()))
]
"""Text of at least one visible character; line breaks become spaces."""

Label = Annotated[
    Text, BeforeValidator(lambda v: str(v) if isinstance(v, int) and not isinstance(v, bool) else v)
]
"""Number of a figure, table or section: 2 or "2 (b)"."""


class Strict(BaseModel):
    """A model that converts no value and allows no unknown key."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class PerSm(Strict):
    """A multiple of the device's SM count (on a CPU: of its cores)."""

    per_sm: int = Field(ge=1)
    """How many for each SM."""
    plus: int = 0
    """How many more (fewer, if negative) in all."""
