"""UserError, the only class that commands catch; the line that they print for a bug; writing a file."""

from __future__ import annotations

from pathlib import Path

BUG = "This is a bug in roofbench: please report it with the command and the whole traceback."


class UserError(Exception):
    """Input that cannot work. The message is one sentence: where, what was given, what is possible.

    Commands show the sentence and end with exit code 2. They catch nothing else, so that a bug shows as one.
    """


def write_text(path: Path, text: str) -> None:
    """Write a file, and its folder if need be; UserError if that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
