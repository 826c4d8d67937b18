"""The table of columns in results/README.md, from their declarations: `python -m bench.store.columns`."""

from __future__ import annotations

from pathlib import Path

from bench.store.schema import ARROW, FIELDS

BEGIN, END = "<!-- columns -->\n", "<!-- /columns -->"
"""Marks before and after the table of columns in results/README.md."""


def columns_markdown() -> str:
    """A Markdown table with a row for each column: name, type, what it says."""
    lines = ["| column | type | what it says |", "|---|---|---|"]
    for name, field in FIELDS.items():
        kind = str(ARROW.field(name).type).replace("list<item: ", "list of ").rstrip(">")
        null = ", nullable" if ARROW.field(name).nullable else ""
        says = field.metadata["says"].replace("|", "or")
        lines.append(f"| `{name}` | {kind}{null} | {says} |")
    return "\n".join(lines) + "\n"


def readme_with_columns(text: str) -> str:
    """The text of results/README.md with a new table of columns."""
    head, rest = text.split(BEGIN, 1)
    return head + BEGIN + columns_markdown() + rest[rest.index(END) :]


if __name__ == "__main__":  # python -m bench.store.columns
    readme = Path(__file__).parents[2] / "results" / "README.md"
    readme.write_text(readme_with_columns(readme.read_text("utf-8")), "utf-8")
