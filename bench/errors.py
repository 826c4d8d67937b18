"""The one class for what a person did wrong: commands show its sentence and end with exit code 2."""

from __future__ import annotations


class UserError(Exception):
    """What was given and cannot work, in one sentence: where, what was given, what is possible.

    Nothing else is caught at the top of a command, so that a mistake of ours shows as one.
    """
