"""Shards: parts of a suite for runs that divide it among themselves (the tasks of an array job).

A hash of its key gives each case its part, so no run needs to know what the others do, and a case keeps its
part when sweeps or cases are added, or fewer are chosen; only another number of parts moves it. Parts are of
equal size up to chance. Ceilings are in every part, since no row can be judged without the roof that the same
run measured.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from bench.errors import UserError


@dataclass(frozen=True)
class Shard:
    """Part `part` of `parts`, counted from 1."""

    part: int
    parts: int

    def __post_init__(self) -> None:
        if not 1 <= self.part <= self.parts:
            raise ValueError(f"{self}: there is no such part")

    @classmethod
    def of(cls, text: str) -> Shard:
        """The part that --bench-shard asks for, as in `2/4`; UserError for any other text."""
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UserError(f"--bench-shard {text}: give I/N, part I of N, as in 1/4 (I from 1 to N)")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of_run(cls, run_id: str) -> Shard | None:
        """The part that a run measured, by its id; None if it measured the whole suite."""
        match = re.search(r"-s([0-9]+)of([0-9]+)(-[0-9]+)?$", run_id)
        return cls(int(match[1]), int(match[2])) if match else None

    @property
    def suffix(self) -> str:
        """The ending of the run's id: `-s2of4`."""
        return f"-s{self.part}of{self.parts}"

    def __contains__(self, key: str) -> bool:
        """Whether the case of this key (`Case.key`) is in this part; not for ceilings, which are in all."""
        digest = hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest()
        return int.from_bytes(digest) % self.parts == self.part - 1

    def __str__(self) -> str:
        return f"{self.part}/{self.parts}"
