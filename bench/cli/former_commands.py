"""Commands of earlier releases: each is answered by a sentence on what takes its place, for one release."""

from __future__ import annotations

from collections.abc import Mapping

FORMER: Mapping[str, str] = {
    "first-minutes": "`first-minutes` is gone: begin on a new GPU with `doctor`, then `make bench`",
}
"""Name of a command that is no more -> what to do instead."""
