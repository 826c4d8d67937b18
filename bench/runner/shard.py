"""One of several parts of a suite, for runs that share it out among themselves (the tasks of an array job).

Each case has its part by a hash of its own key, so no run needs to know what the others do, and a case keeps
its part when sweeps are added, cases appear beside it, or fewer are chosen; only another number of parts
moves it. Parts are alike in size as far as chance has it. Ceilings are in every part: nothing is read without
the roof that the same run measured.
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
        """The part that --bench-shard asks for, as in `2/4`; UserError for what says no part."""
        found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise UserError(f"--bench-shard {text}: give I/N, part I of N, as in 1/4 (I from 1 to N)")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def of_run(cls, run_id: str) -> Shard | None:
        """The part that a run measured, as its id tells; None if it was no part."""
        found = re.search(r"-s([0-9]+)of([0-9]+)(-[0-9]+)?$", run_id)
        return cls(int(found[1]), int(found[2])) if found else None

    @property
    def suffix(self) -> str:
        """What a run's id has behind it: `-s2of4`."""
        return f"-s{self.part}of{self.parts}"

    def __contains__(self, key: str) -> bool:
        """Whether the case of this key (`Case.key`) is in this part; not to be asked of ceilings."""
        digest = hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest()
        return int.from_bytes(digest) % self.parts == self.part - 1

    def __str__(self) -> str:
        return f"{self.part}/{self.parts}"
