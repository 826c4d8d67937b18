"""The shell of every page: the template with the head, colours for light and dark, and tables' look."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


@cache
def templates(folder: Path) -> Environment:
    """Templates of this folder, which extend `shell.html.j2`; words from files are escaped."""
    return Environment(
        loader=FileSystemLoader([folder, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page(template: Path, **words: Any) -> str:
    """The page of this template with these words."""
    return templates(template.parent).get_template(template.name).render(words)
