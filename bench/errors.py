"""UserError, the only class that commands catch; what its sentences have in common; writing a file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

BUG = "This is a bug in roofbench: please report it with the command and the whole traceback."

LIKE = 0.7
"""The least similarity, by difflib's ratio, of a name that is suggested: `gpu` does not mean `cpu`."""


class UserError(Exception):
    """Input that cannot work. The message is one sentence: where, what was given, what is possible.

    Commands show the sentence and end with exit code 2. They catch nothing else, so that a bug shows as one.
    """


def quoted(value: object) -> str:
    """A value as it may stand in a one-line message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}..."


def closest(given: str, possible: Iterable[str]) -> list[str]:
    """The up to three names that hold the one given, or the name most like it; none if no name is like it.

    Upper case, and folders, may be left out.
    """
    names: dict[str, str] = {}
    for name in possible:
        names |= {name.lower(): name} | {name.lower().rpartition("/")[2]: name}
    given = given.lower()
    near = [name for name in names if len(given) > 2 and given in name]
    near.sort(key=lambda name: not name.startswith(given))
    near = near or difflib.get_close_matches(given, names, 1, LIKE)
    return list(dict.fromkeys(names[name] for name in near))[:3]


def meant(given: str, possible: Iterable[str]) -> str:
    """` (did you mean gemm/square?)`, or nothing. It belongs before the list of all names."""
    return suggestion(closest(given, possible))


def suggestion(names: Sequence[str]) -> str:
    """` (did you mean cpu or cuda?)`, or nothing without names."""
    return f" (did you mean {' or '.join(names)}?)" if names else ""


def unknown(kind: str, given: str, of: str, possible: Iterable[str]) -> str:
    """`gemm has no parameter 'layuot' (did you mean layout?); it has m, n, k, layout`."""
    names = list(possible)
    return f"{of} has no {kind} {quoted(given)}{meant(given, names)}; it has {', '.join(names)}"


def write_text(path: Path, text: str) -> None:
    """Write a file, and its folder if need be; UserError if that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
