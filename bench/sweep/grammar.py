"""Grammar of sweep files: pydantic models, and the messages about what breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from bench.errors import meant, unknown
from bench.spec import Problem
from bench.sweep.claims import TESTS, Claim, Devices
from bench.sweep.models import Label, List, OneOrList, Strict, Text
from bench.sweep.yaml_nodes import Mistake, Node, Place, shown

Cache = Literal["cold", "warm"]
Threads = Literal["all", "one"]
Role = Literal["measurement", "roof", "probe", "calibration"]
"""The purpose of a sweep's rows. All but measurements are called ceilings and run before the others.

A roof bounds the other rows and is measured again at the run's end. A probe tells more about the device and
bounds nothing, so one visit is enough; the same holds for a calibration, to which the model is fitted.
"""

COLUMNS = ("implementation", "cache", "threads_asked", "device")
"""Columns by which a plot can group rows, besides the operator's parameters."""
QUANTITIES = ("median_s", "rate")
"""Possible quantities on the vertical axis of a curve."""
FORMER_KINDS = ("accuracy", "shares", "memory")
"""Kinds of plots in sweeps and result files up to November 28, 2026: each is read as a curve."""


class Source(Strict):
    """The document that a sweep reproduces, and the GPU and library of that document."""

    document: Text
    """Title of the document."""
    section: Label = ""
    """Section, as the document numbers it."""
    figure: Label = ""
    """Figure, as the document numbers it."""
    table: Label = ""
    """Table, as the document numbers it."""
    gpu: Text = ""
    """GPU on which the document measured."""
    library: Text = ""
    """Library and version with which the document measured."""
    range: Literal["document", "ours"] = "document"
    """Whose values the cases are: `ours` where the document prints no axis."""
    note: Text = ""
    """What differs from the document, or what it leaves open."""


class Plot(Strict):
    """One figure drawn from the sweep's rows."""

    kind: Annotated[
        Literal["curve", "quantization"],
        BeforeValidator(lambda kind: "curve" if kind in FORMER_KINDS else kind),
    ] = "curve"
    """quantization: rate and duration over m or n of kernels held to one tile, beside the staircase that
    tiles and waves predict."""
    x: Text
    """The parameter along the horizontal axis."""
    y: Text = "median_s"
    """median_s: seconds of one launch; rate: FLOP/s or bytes/s as the operator is quoted."""
    lines: OneOrList[Text] = ("implementation",)
    """Columns that tell the lines apart."""
    panels: OneOrList[Text] = ()
    """Columns that tell the panels apart."""
    log: OneOrList[Literal["x", "y"]] = ()
    """Axes drawn logarithmically."""
    per: OneOrList[Text] = ()
    """Parameters whose product the duration is divided by: [n, c, h, w] for each element."""

    @model_validator(mode="after")
    def _is_drawn_in_one_way(self) -> Plot:
        if self.y not in QUANTITIES:
            near = meant(self.y, QUANTITIES)
            raise ValueError(f"y cannot be {shown(self.y)}{near}; it is one of {', '.join(QUANTITIES)}")
        if self.per and self.y == "rate":
            raise ValueError("per divides a duration; a rate is for each second already")
        given = self.model_fields_set - {"kind", "x"}
        if self.kind == "quantization" and given:
            raise ValueError(f"kind: quantization is drawn one way: leave out {', '.join(sorted(given))}")
        return self


class Sweep(Strict):
    """One experiment: an operator at many sizes."""

    title: Text
    """What is measured, as a heading."""
    source: Source
    role: Role = "measurement"
    """What the rows are for: measurement, roof (bounds what others can reach), probe (says more of the
    device), or calibration (the model of tiles and waves is fitted to them)."""
    operator: str
    """A folder of kernels/."""
    implementations: OneOrList[str] = ()
    """Those to run; if left out, all but those on request."""
    cache: OneOrList[Cache] = ("cold",)
    """cold: each launch finds its data in memory; warm: in cache if they fit."""
    threads: OneOrList[Threads] = ("all",)
    """Cores of a CPU that compute: all, or one; a GPU has only `all`."""
    cases: List[dict[str, Any]]
    """Blocks of parameters: the lists of a block multiply, the blocks follow one another."""
    plot: OneOrList[Plot] = ()
    """The figures drawn from the rows."""
    claims: List[Claim] = ()
    """What the document says about the rows."""

    @property
    def declared(self) -> dict[str, Any]:
        """Title, source, plots and claims as they stand in the file, for JSON: what is drawn needs them."""
        return self.model_dump(mode="json", include={"title", "source", "plot", "claims"}, exclude_unset=True)


class TableClaims(Strict):
    """Claims about the rows of an imported table, which no sweep of ours has measured."""

    title: Text
    """What the table holds."""
    operator: str
    """A folder of kernels/, or an operator of imported rows alone."""
    rows: OneOrList[str]
    """The names that its rows have in the column `sweep`."""
    claims: List[Claim]
    """What the documents say about such rows."""


class Range(Strict):
    """Whole numbers from `from` to `to`; both are included if the steps meet them."""

    start: int = Field(alias="from")
    """The first number."""
    end: int = Field(alias="to")
    """The last number, if a step meets it."""
    step: int = Field(1, ge=1)
    """Distance from each to the next."""
    factor: float | None = Field(None, gt=1)
    """Ratio of each to the one before, rounded to whole numbers."""

    @model_validator(mode="after")
    def _not_empty(self) -> Range:
        if self.start > self.end:
            raise ValueError(f"empty range: from {self.start} is above to {self.end}")
        if self.factor is not None and "step" in self.model_fields_set:
            raise ValueError("a range has a step or a factor, not both")
        if self.factor is not None and self.start < 1:
            raise ValueError(f"a range with a factor begins at 1 or above, not at {self.start}")
        return self


@cache
def parameter_schemas(kind: type[Problem]) -> Mapping[str, Any]:
    """Parameter -> its JSON schema, of an operator."""
    properties: dict[str, Any] = kind.model_json_schema()["properties"]
    return properties


def whole_numbers(kind: type[Problem]) -> list[str]:
    """The parameters of an operator that are whole numbers."""
    return [name for name, field in parameter_schemas(kind).items() if field.get("type") == "integer"]


OWNERS: Mapping[str, tuple[str, type[BaseModel]]] = {
    "source": ("source", Source),
    "plot": ("plot", Plot),
    "claims": ("a claim", Claim),
    "device": ("device", Devices),
    **{name: (name, model) for name, model in TESTS.items()},
    "less": ("less", TESTS["ratio"]),
}

ITEMS = {"cases": "a block of cases", "claims": "a claim", "entries": "an entry"}
"""Keys of lists -> what their items are called."""


def contents(tree: Node) -> Sweep:
    """The file's contents, as far as they can be checked without knowing the operator. Raises Mistake."""
    if not isinstance(tree.value, dict):
        raise Mistake(tree.line, f"a sweep is a mapping that begins with `title:`, not {shown(tree.data())}")
    return validated(Sweep, tree.data(), "a sweep", line_of=tree.line_of)


Checked = TypeVar("Checked", bound=BaseModel)


def validated(
    model: type[Checked],
    data: Any,
    owner: str,
    owners: Mapping[str, tuple[str, type[BaseModel]]] = OWNERS,
    at: Place = (),
    line_of: Callable[[Place], int] = lambda place: 0,
) -> Checked:
    """The model of the data `at` this place.

    Raises the first Mistake in it, except that a misspelt key comes before a missing one.
    """

    def mistake(error: ErrorDetails) -> Mistake:
        path = error["loc"]
        place = (*at, *path)
        inside = [step for step in path[:-1] if step in owners]
        of, holder = owners[str(inside[-1])] if inside else (owner, model)
        if error["type"] == "extra_forbidden":
            key = str(path[-1])
            possible = [f.alias or name for name, f in holder.model_fields.items()]
            return Mistake(place, unknown("key", key, of, possible))
        if error["type"] == "missing":
            return Mistake(place[:-1], f"{of} needs the key {str(path[-1])!r}")
        name = next((step for step in reversed(path) if isinstance(step, str)), owner)
        if len(path) == 2 and path[0] in ITEMS:
            name = ITEMS[str(path[0])]
        return Mistake(place, worded(error, name))

    def place(error: ErrorDetails) -> tuple[bool, int]:
        return error["type"] == "missing", line_of((*at, *error["loc"]))

    try:
        return model.model_validate(data)
    except ValidationError as errors:
        raise mistake(min(errors.errors(include_url=False), key=place)) from errors


_WANTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "string_pattern_mismatch": "an id such as MM-01",
}
"""pydantic's error -> what should stand there, where its own words are those of Python."""


def worded(error: ErrorDetails, name: str) -> str:
    """The sentence for pydantic's error in the value of `name`."""
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "literal_error":
        # pydantic quotes text but not numbers: `'NN', 'NT' or 'TN'`, `0 or 1`.
        choices = re.findall(r"'([^']*)'|(-?[0-9]+)", str(context["expected"]))
        possible = [text or number for text, number in choices]
        hint = meant(given, possible) if isinstance(given, str) else ""
        return f"{name} cannot be {shown(given)}{hint}; it is one of {', '.join(possible)}"
    if kind == "value_error":
        return str(context["error"])
    theirs = re.sub("^(Input|String) should (be|have) ", "", error["msg"])
    theirs = theirs.replace("greater than or equal to", "at least").replace("greater than", "above")
    return f"{name} must be {_WANTED.get(kind, theirs)}, not {shown(given)}"
