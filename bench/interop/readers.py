"""How files of public sources become tables: text columns, numbers where every cell is one."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from bench.interop.source_file import Reader


class AnotherForm(UserError):
    """A file is not of the form that a table's reader and columns say; another table may be of it."""


def read(path: Path, reader: Reader) -> pd.DataFrame:
    """The lines of a file, compressed (.gz, .bz2) or not. AnotherForm if it has no such form."""
    import pandas as pd

    try:
        data = _UNPACKED.get(path.suffix, bytes)(path.read_bytes())
        frame = pd.DataFrame(_READERS[reader.kind](data, reader))
    except Exception as error:  # on damaged bytes libraries may raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise AnotherForm(f"{path}: is no {reader.kind} as described: {reason}") from error
    if frame.empty:
        raise AnotherForm(f"{path}: holds no line as described")
    for name in frame.columns if reader.kind != "parquet" else ():  # which has types
        frame[name] = as_numbers(frame[name])
    return frame


def as_numbers(column: pd.Series) -> pd.Series:
    """The column as numbers if every cell is one."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce")
    return numbers if numbers.notna().eq(column.notna()).all() else column


def _csv(data: bytes, reader: Reader) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(io.BytesIO(data), low_memory=False)


def _parquet(data: bytes, reader: Reader) -> Any:
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data), use_threads=False)
    return table.to_pandas(use_threads=False).reset_index(drop=True)


def _json(data: bytes, reader: Reader) -> pd.DataFrame:
    """The innermost entries of nested lists, or of mappings nested as `levels` say.

    Of a mapping the values that are none themselves hold for everything inside it; below the last level
    nested keys are joined by a dot.
    """
    import pandas as pd

    text = data.decode("utf-8")
    if reader.lists:
        nan_as_cpp_prints_it = re.compile(r":\s*-?nan\b", re.IGNORECASE)
        tree = json.loads(nan_as_cpp_prints_it.sub(": NaN", text))
        return pd.json_normalize(list(_entries(tree, reader.lists)))
    return pd.json_normalize(list(_nested(json.loads(text), reader.levels, {})))


def _nested(tree: Any, levels: tuple[str, ...], around: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if not levels:
        yield {**around, **(tree or {})}  # a key without a value: something that did not run
        return
    last = len(levels) == 1
    inner = {key: value for key, value in tree.items() if isinstance(value, dict) or (last and value is None)}
    plain = {key: value for key, value in tree.items() if key not in inner}
    for key, value in inner.items():
        yield from _nested(value, levels[1:], {**around, **plain, levels[0]: key})


def _entries(tree: dict[str, Any], keys: tuple[str, ...], name: str = "") -> Iterator[dict[str, Any]]:
    """The innermost entries, with what stands around them: `devices.0.name`, `benchmarks.name`."""
    around = _listed({key: value for key, value in tree.items() if key not in keys[:1]})
    around = {name: around} if name else around
    if not keys:
        yield around
        return
    for entry in tree[keys[0]]:
        for line in _entries(entry, keys[1:], keys[0] if keys[1:] else ""):
            yield {**around, **line}


def _listed(tree: Any) -> Any:
    """Lists of entries as mappings by their tag, by their name if they have a value, or by their place."""
    if isinstance(tree, dict):
        return {key: _listed(value) for key, value in tree.items()}
    if not isinstance(tree, list) or not all(isinstance(entry, dict) for entry in tree):
        return tree
    named: dict[str, Any] = {}
    for place, entry in enumerate(tree):
        name = entry.get("tag", entry.get("name", place) if "value" in entry else place)
        named[str(name)] = entry["value"] if "value" in entry else _listed(entry)
    return named


def _text(data: bytes, reader: Reader) -> Iterator[dict[str, Any]]:
    """Lines that look like `line`, below the last line that looked like `heading`."""
    line, heading = re.compile(reader.line), re.compile(reader.heading) if reader.heading else None
    above: dict[str, Any] = {}
    for text in data.decode("utf-8", errors="replace").splitlines():
        if heading is not None and (match := heading.search(text)):
            above = match.groupdict()
        elif match := line.search(text):
            yield above | match.groupdict()


def _workbook(data: bytes, reader: Reader) -> Iterator[dict[str, Any]]:
    """The tables of a workbook's sheets. A table begins with a row of headings: columns, in lower case.

    Columns in addition to those of the headings: the named groups of `heading`; `sheet`; `section`, the text
    of the first column above the line; `above`, the texts above the sheet's first table; and `sheet.key`, in
    lower case, for each row of two cells of a sheet whose name `heading` does not match.
    """
    import openpyxl

    def column(text: object) -> str:
        return re.sub(reader.omit, "", " ".join(str(text).split()).lower()).strip()

    facts: dict[str, Any] = {}
    lines: list[dict[str, Any]] = []
    with warnings.catch_warnings(action="ignore"):  # openpyxl speaks of colours and such
        for sheet in openpyxl.load_workbook(io.BytesIO(data), data_only=True, read_only=True):
            rows = (
                {i: cell for i, cell in enumerate(cells) if cell is not None and str(cell).strip()}
                for cells in sheet.iter_rows(values_only=True)
            )
            if match := re.search(reader.heading, sheet.title):
                lines += [match.groupdict() | {"sheet": sheet.title} | line for line in _tables(rows, column)]
            else:
                pairs = [tuple(row.values()) for row in rows if len(row) == 2]
                facts |= {column(f"{sheet.title}.{key}"): str(value) for key, value in pairs}
    facts.pop("", None)
    return (facts | line for line in lines)


def _tables(rows: Iterable[dict[int, Any]], column: Callable[[str], str]) -> Iterator[dict[str, Any]]:
    """The lines of a sheet: rows with a number, below the last row of four texts or more, the headings."""
    section, above = "", ""
    headings: dict[int, str] = {}
    for row in rows:
        texts = [" ".join(cell.split()) for cell in row.values() if isinstance(cell, str)]
        if len(texts) < len(row):
            if headings:
                named = {heading: row.get(place) for place, heading in headings.items()}
                yield {"section": section, "above": above, **named}
            continue
        section = texts[0] if 0 in row else section
        if len(texts) >= 4:
            headings = {place: name for place, text in row.items() if place > 0 and (name := column(text))}
        elif not headings:
            above = " ".join([above, *texts]).strip()


def _documents(data: bytes, reader: Reader) -> Iterator[dict[str, Any]]:
    """The rows of the tables of a document in Markdown.

    Columns in addition to those of the table: `section`, the headings above it; `caption`, the line above it;
    and `headings`, its own, joined by bars.
    """
    for table in _in_markdown(data.decode("utf-8").splitlines()):
        names = [_cell(name) for name in table["header"]]
        about = {"section": table["section"], "caption": table["caption"], "headings": " | ".join(names)}
        for row in table["rows"] if re.search(reader.heading, about["headings"]) else []:
            yield about | dict(zip(names, [_cell(text) or None for text in row], strict=False))


def _in_markdown(lines: list[str]) -> Iterator[dict[str, Any]]:
    sections: list[str] = []
    caption, fenced = "", False
    table: dict[str, Any] | None = None
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        cells = line.strip().removeprefix("|").removesuffix("|").split("|")
        if table and "|" in line:
            table["rows"] += [] if _RULE.fullmatch(line) else [cells]
            continue
        if table:
            yield table
            table = None
        fence = re.match(r"\s*```+(.*)", line)
        if fence and "```" not in fence[1]:  # marks at both ends are a line of code
            # Authors forget to close fences: marks with a word open one, whatever was open.
            fenced = bool(fence[1].strip()) or not fenced
        if fence or fenced:
            continue
        if "|" in line and _RULE.fullmatch(following):
            section = " / ".join(filter(None, sections))
            table = {"section": section, "caption": caption, "header": cells, "rows": []}
        elif heading := re.match(r"(#+)\s+(.*)", line):
            level, caption = len(heading[1]), ""
            sections = [*sections[: level - 1], *[""] * (level - 1 - len(sections)), heading[2].strip(" #")]
        elif line.strip():
            caption = line.strip()
    if table:
        yield table


_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*")
"""The line below the headings of a table in Markdown."""


def _cell(text: str) -> str:
    """Without emphasis, line breaks and the end of a comment."""
    return " ".join(re.sub(r"<br\s*/?>|[*`]|-->", " ", text).split())


_UNPACKED: Mapping[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".bz2": bz2.decompress}
_READERS: Mapping[str, Callable[[bytes, Reader], Any]] = {
    "csv": _csv,
    "json": _json,
    "text": _text,
    "workbook": _workbook,
    "documents": _documents,
    "parquet": _parquet,
}
