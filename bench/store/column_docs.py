"""The table of results/README.md: what the columns of a result file say, from the place that defines them."""

from __future__ import annotations

from bench.store.schema import ARROW, FIELDS

BEGIN, END = "<!-- columns -->\n", "<!-- /columns -->"
"""What stands before and behind the table."""


def columns_markdown() -> str:
    """A row for each column: name, type, what it says."""
    lines = ["| column | type | what it says |", "|---|---|---|"]
    for name, field in FIELDS.items():
        kind = str(ARROW.field(name).type).replace("list<item: ", "list of ").rstrip(">")
        null = ", nullable" if ARROW.field(name).nullable else ""
        says = field.metadata["says"].replace("|", "or")
        lines.append(f"| `{name}` | {kind}{null} | {says} |")
    return "\n".join(lines) + "\n"


def readme_with_columns(text: str) -> str:
    """results/README.md with its table of columns made anew."""
    head, rest = text.split(BEGIN, 1)
    return head + BEGIN + columns_markdown() + rest[rest.index(END) :]
