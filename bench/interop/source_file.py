"""Descriptions of public sources: bench/interop/sources/NAME.yaml says what a source's files hold.

A value is a constant; a text that begins with `=`, which is an expression over the columns as
`pandas.DataFrame.eval` reads it (`=B * H`); or a text with columns in braces (`{Kernel} [{Grid x:.0f}]`).

    files      a regular expression over a file's path, with `__` for `/` and without .gz; its named groups
               are columns (a file that several tables match is read by those that can)
    reader     how the file becomes lines with columns (bench/interop/readers.py)
    columns    every column that such a file may have (of documents, those that are read); `?` behind a name:
               not every file has it
    melt       columns whose values are lines of their own: {columns, name, value}
    extract    column -> regular expression whose named groups become columns
    lookup     new column -> {of: column, values: {theirs: ours}}
    let        new column -> expression; these see those before them
    rows       what is timed: a line gives a row for each entry whose `where` holds
    left_out   reason -> `where`: lines that are not imported, and why
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bench.errors import UserError, unknown
from bench.sweep.grammar import Cache

FOLDER = Path(__file__).with_name("sources")
UNIT_S: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
Value = str | int | float | bool


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


Regex = Annotated[str, AfterValidator(_regex)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Timing(_Part):
    """What a published time means."""

    by: Literal["kernel", "events", "wall"]
    """A profiler's time of the kernels, events around launches, or the host's clock."""
    statistic: Literal["median", "mean", "minimum"]
    cache: Cache
    clocks: Literal["fixed", "free"] = "free"
    includes: tuple[Literal["launch", "gaps", "autograd", "allocation", "synchronization"], ...] = ()
    """What is inside the time besides the kernels."""
    overhead_s: float = 6e-5
    """Longest that a launch takes in these times: it is taken to be this or a device's shortest time."""
    fill: str = ""
    """Contents of the inputs, as far as they are known."""


class Lookup(_Part):
    """A column by another one's value."""

    of: str
    values: dict[Value, Any]


class Melt(_Part):
    """Columns with one quantity of several cases: each of their cells that is not empty becomes a line."""

    columns: Regex
    """Names of the columns."""
    name: str
    """The new column of their names."""
    value: str
    """The new column of their cells."""


class Entry(_Part):
    """Rows of one operator."""

    where: str = ""
    operator: str
    implementation: Value
    parameters: dict[str, Value]
    time: str
    unit: Literal["s", "ms", "us", "ns"]
    kernels: Value = ""
    """The kernels that ran, with their grids, where the source says so."""
    fewer_flop: str = ""
    """Expression: where an algorithm (Winograd, FFT) may do less arithmetic than is counted."""


class Reader(_Part):
    """How a file becomes lines with columns; which of the keys count depends on `kind`."""

    kind: Literal["csv", "json", "text", "workbook", "documents"]
    levels: tuple[str, ...] = ()
    """json: names of the columns that hold the keys of nested mappings, from the outside in."""
    line: Regex = ""
    """text: what a line with a time looks like; its named groups are columns."""
    heading: Regex = ""
    """text: a line whose named groups hold for all lines below it; workbook: a sheet's name; documents: the
    headings, joined by bars, of the tables that are read."""
    omit: Regex = ""
    """workbook: what is left out of names of columns; one of which nothing is left is no column."""


class Table(_Part):
    """One kind of file."""

    files: Regex
    reader: Reader
    columns: tuple[str, ...] = ()
    melt: Melt | None = None
    extract: dict[str, Regex] = Field(default_factory=dict)
    lookup: dict[str, Lookup] = Field(default_factory=dict)
    let: dict[str, str] = Field(default_factory=dict)
    device: Value
    libraries: Value = ""
    timing: Timing | None = None
    """Where it differs from the source's."""
    rows: tuple[Entry, ...]
    left_out: dict[str, str] = Field(default_factory=dict)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Columns without which a file is no such table."""
        return tuple(name for name in self.columns if not name.endswith("?"))

    @cached_property
    def known(self) -> frozenset[str]:
        """Every column that a file may have."""
        return frozenset(name.removesuffix("?") for name in self.columns)


class Source(_Part):
    """One source: who measured, where it is to be had, and its tables."""

    name: str = ""
    who: str
    repository: str
    commit: str
    licence: str
    paths: tuple[str, ...]
    """Folders of the repository that hold the files; none if no repository does."""
    timing: Timing
    devices: dict[str, str] = Field(default_factory=dict)
    """Their name of a device -> its driver's."""
    tables: tuple[Table, ...]

    @cached_property
    def timings(self) -> Mapping[Timing, str]:
        """Each way of timing of its tables -> its name, as `events-warm-mean`, with a number if need be."""
        named: dict[Timing, str] = {}
        for timing in (self.timing, *(table.timing for table in self.tables)):
            if timing is not None and timing not in named:
                name = f"{timing.by}-{timing.cache}-{timing.statistic}"
                alike = sum(other.startswith(name) for other in named.values())
                named[timing] = f"{name}-{alike + 1}" if alike else name
        return named


def names() -> list[str]:
    """Every source that is described."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def described(name: str, folder: Path = FOLDER) -> Source:
    """The description of that name; UserError says what is wrong with it, or which there are."""
    path = folder / f"{name}.yaml"
    if not path.is_file():
        raise UserError(unknown("source", name, "bench/interop/sources", names()))
    try:
        read = yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return Source.model_validate({"name": name} | read)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{path}:{line}: not YAML: {error.problem}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {place}: {first['msg'].removeprefix('Value error, ')}") from error
