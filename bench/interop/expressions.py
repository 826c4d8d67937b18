"""Values of a source's description for each line of a file: constants, texts with columns, expressions."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from bench.errors import UserError, quoted
from bench.interop.readers import as_numbers

if TYPE_CHECKING:
    import pandas as pd

    from bench.interop.source_file import Table


def values_of(frame: pd.DataFrame, value: Any, path: Path) -> pd.Series:
    """A value for each line: that of the expression, the text with the line's columns, or the constant."""
    import pandas as pd

    if isinstance(value, str) and value.startswith("="):
        value = evaluated(frame, value[1:], path)
        if isinstance(value, pd.Series):
            return value
    elif isinstance(value, str) and "{" in value:
        names = [name for _, name, *_ in Formatter().parse(value) if name]
        try:
            # What is not known of a line leaves its whole text empty.
            known = frame[names].notna().all(axis=1).tolist()
            lines = zip(known, *(frame[name].tolist() for name in names), strict=True)
            texts = [value.format(**dict(zip(names, of, strict=True))) if k else "" for k, *of in lines]
        except (KeyError, ValueError) as error:  # no such column, or no number
            raise UserError(f"{path}: {quoted(value)} cannot be written: {error}") from error
        return pd.Series(texts, index=frame.index, dtype=object)
    return pd.Series([value] * len(frame), index=frame.index, dtype=object)


def derived(lines: Table, frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The frame with the lines and columns that a description adds."""
    if melt := lines.melt:
        melted = [name for name in frame.columns if re.fullmatch(melt.columns, str(name))]
        others = [name for name in frame.columns if name not in melted]
        frame = frame.melt(others, melted, melt.name, melt.value).dropna(subset=[melt.value])
        frame = frame.reset_index(drop=True)
    for name, between in lines.split.items():
        texts = frame[name].astype(str).str.split(between, regex=False)
        frame = frame.assign(**{name: texts}).explode(name, ignore_index=True)
    for name, pattern in lines.extract.items():
        parts = frame[name].astype(str).str.extract(pattern)
        for column in parts:
            frame[column] = as_numbers(parts[column])
    for name, lookup in lines.lookup.items():
        frame[name] = frame[lookup.of].map(lookup.values)
    for name, expression in lines.let.items():
        frame[name] = evaluated(frame, expression, path)
    return frame


def holds(frame: pd.DataFrame, condition: str, path: Path) -> pd.Series:
    """Whether the condition, an expression, holds, for each line; an empty one does."""
    column = values_of(frame, f"={condition}" if condition else True, path)
    return column.fillna(value=False).astype(bool)


def evaluated(frame: pd.DataFrame, expression: str, path: Path) -> Any:
    """The expression over the columns, as pandas reads it. UserError if it cannot be computed."""
    try:
        return frame.eval(expression, engine="python")
    except Exception as error:  # pandas lets every error of an expression through
        raise UserError(f"{path}: {quoted(expression)} cannot be computed: {error}") from error


def as_text(column: pd.Series) -> pd.Series:
    """The column as text, empty where a cell is."""
    return column.fillna("").astype(str)


def as_numbers_or_nan(column: pd.Series) -> pd.Series:
    """The column as numbers; NaN, which is no time, where a cell says in words why there is none."""
    import pandas as pd

    return pd.to_numeric(column, errors="coerce").astype(float)


def plain(value: Any) -> Any:
    """A cell as a parameter: whole numbers are int, whatever their column's type."""
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value
