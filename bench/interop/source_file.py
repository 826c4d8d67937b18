"""Descriptions of public sources: bench/interop/sources/NAME.yaml says what a source's files hold.

A value is a constant; a text that begins with `=`, which is an expression over the columns as
`pandas.DataFrame.eval` reads it (`=B * H`); or a text with columns in braces (`{Kernel} [{Grid x:.0f}]`).

    files      a regular expression over a file's path, with `__` for `/`, without .gz or .bz2; its named
               groups are columns (a file that several tables match is read by those that can); of files that
               differ in the group `newest` alone the one of the highest version counts
    reader     how the file becomes lines with columns (bench/interop/readers.py)
    columns    every column that such a file may have (of documents, those that are read); `?` behind a name:
               not every file has it
    melt       columns whose values are lines of their own: {columns, name, value}
    split      column -> what stands between its texts, each of which becomes a line of its own
    extract    column -> regular expression whose named groups become columns
    lookup     new column -> {of: column, values: {theirs: ours}}
    let        new column -> expression; these see those before them
    rows       what is timed: a line gives a row for each entry whose `where` holds
    left_out   reason -> `where`: lines that are not imported, and why

For `rows` two more columns are there: `release`, the source's commit or its package's version, and `l2_byte`,
the size of the device's last-level cache.

Files of one's own (bench/interop/file_format.py) are described in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bench.device.datasheet import read_model
from bench.errors import UserError, unknown
from bench.sweep.grammar import Cache

FOLDER = Path(__file__).with_name("sources")
IN_A_SECOND: Mapping[str, float] = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
Value = str | int | float | bool
LINE, DEVICE = "number of the line", "device of the row"
"""Columns of lines beside their own: of one's own files, whose mistakes are told by lines, and of sources."""


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


Regex = Annotated[str, AfterValidator(_regex)]


class NothingRead(UserError):
    """Nothing is read of a source whose files should be there."""


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
    result: dict[str, Value | None] = Field(default_factory=dict)
    """Columns of the results that are not as usual. A count of the problem (`byte_moved`) is increased by the
    value; `ring_byte` is the problem's `byte` and the value. A `run_id` gets the device's name, each row of
    such a run names the files of all, and `protocol` says who measured."""


class Reader(_Part):
    """How a file becomes lines with columns; which of the keys count depends on `kind`."""

    kind: Literal["csv", "json", "text", "workbook", "documents", "parquet"]
    levels: tuple[str, ...] = ()
    """json: names of the columns that hold the keys of nested mappings, from the outside in."""
    lists: tuple[str, ...] = ()
    """json: keys of the nested lists whose innermost entries are the lines, from the outside in."""
    line: Regex = ""
    """text: what a line with a time looks like; its named groups are columns."""
    heading: Regex = ""
    """text: a line whose named groups hold for all lines below it; workbook: a sheet's name; documents: the
    headings, joined by bars, of the tables that are read."""
    omit: Regex = ""
    """workbook: what is left out of names of columns; one of which nothing is left is no column."""


class Table(_Part):
    """One kind of file: what its lines have, what is added to them, and what is timed."""

    files: Regex = ""
    reader: Reader
    columns: tuple[str, ...] = ()
    melt: Melt | None = None
    split: dict[str, str] = Field(default_factory=dict)
    extract: dict[str, Regex] = Field(default_factory=dict)
    lookup: dict[str, Lookup] = Field(default_factory=dict)
    let: dict[str, str] = Field(default_factory=dict)
    left_out: dict[str, str] = Field(default_factory=dict)
    device: Value = ""
    libraries: Value = ""
    timing: Timing | None = None
    """How it was timed, where that differs from the source's."""
    rows: tuple[Entry, ...] = ()

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Columns without which a file is no such table."""
        return tuple(name for name in self.columns if not name.endswith("?"))

    @cached_property
    def known(self) -> frozenset[str]:
        """Every column that a file may have."""
        return frozenset(name.removesuffix("?") for name in self.columns)

    @property
    def complete(self) -> bool:
        """Whether a file may have no other columns."""
        return bool(self.columns) and self.reader.kind != "documents"

    def match(self, path: Path) -> re.Match[str] | None:
        """Whether a file at this path below the source's folder is of this kind, and its named groups."""
        flat = "__".join(path.parts).removesuffix(".gz").removesuffix(".bz2")
        return re.search(rf"(?:^|__)(?:{self.files})$", flat)


class Source(_Part):
    """One source: who measured, where it is to be had, and its tables."""

    name: str = ""
    who: str
    repository: str
    commit: str
    others: tuple[str, ...] = ()
    """More commits whose files count: those of 0123456... are in the clone's folder commit-0123456."""
    installed: str = ""
    """The distribution, on PyPI, that holds the files; `commit` is the version described here."""
    licence: str
    paths: tuple[str, ...]
    """Folders of the repository, or of the package, that hold the files; none if neither does."""
    timing: Timing
    devices: dict[str, str] = Field(default_factory=dict)
    """Their name of a device -> its driver's."""
    usual: str = ""
    """The operator that is imported unless another is given; empty: all."""
    calibrates: tuple[str, ...] = ()
    """Sweeps that calibrate the model: rows of their cases are rows of theirs."""
    tables: tuple[Table, ...]

    @cached_property
    def operators(self) -> list[str]:
        """What its rows are of."""
        return list(dict.fromkeys(entry.operator for table in self.tables for entry in table.rows))

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
    return read_model(path, Source, name=name)
