"""Claims that tonight decides the other way than the last nights before did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.cli.claims import entry
from bench.device.datasheet import find_datasheet
from bench.format import count_text
from bench.judge.claims import JudgedClaim, judge, kept
from bench.judge.frame import runs
from bench.judge.history.series import History
from bench.store.parquet import read_rows, read_sweeps
from bench.store.schema import RunKey

BEFORE = 3
"""Nights before tonight whose verdicts are compared with its own: to judge more would take long."""
DECIDED = ("SUPPORTED", "CONTRADICTED")


@dataclass(frozen=True)
class Flip:
    """A claim that tonight decides the opposite of what the last night decided that decided it."""

    tonight: JudgedClaim
    before: tuple[tuple[str, JudgedClaim], ...]
    """(run, verdict) of the nights before, in time order."""

    def __str__(self) -> str:
        """`MM-01 of gemm/aligned_k was SUPPORTED on 3 nights, last 1.2 [...]; tonight CONTRADICTED, ...`."""
        claim, effect = self.tonight.claim, self.tonight.effect
        words = Counter(each.verdict for _, each in self.before)
        was = ", ".join(f"{word} on {count_text(n, 'night')}" for word, n in words.most_common())
        last = f", last {before}" if (before := self.before[-1][1].effect) is not None else ""
        numbers = f"{effect}, n = {effect.clusters}" if effect else ""
        return (
            f"{claim.id} of {self.tonight.declared.name} was {was}{last}; tonight {self.tonight.verdict}, "
            f"{numbers}; expected {claim.expect}. {claim.says}."
        )

    def as_json(self) -> dict[str, Any]:
        """Tonight's verdict as `claims --json` writes it, and those of the nights before."""
        names = ("run_id", "verdict", "value", "low", "high", "clusters")
        before = [{"run_id": run_id} | entry(each) for run_id, each in self.before]
        return entry(self.tonight) | {"before": [{name: each[name] for name in names} for each in before]}


def flips(history: History) -> list[Flip]:
    """The flips of the last night, by the claims that its own file keeps.

    Of the nights before, the last BEFORE of the same protocol are judged, by tonight's claims.
    """
    tonight = len(history.nights) - 1
    files = [file for file, _ in _files(history, [tonight])]
    declared = read_sweeps(files) if files else {}
    stored = [
        claims
        for name, sweep in declared.get(history.nights[tonight].run, {}).items()
        if (claims := kept(name, sweep)) and claims.claims
    ]
    protocols = _protocols(history, tonight)
    alike = [at for at in range(tonight) if _protocols(history, at) == protocols]
    last = list(dict.fromkeys(history.nights[at].run for at in alike))[-BEFORE:]
    if not stored or not last:
        return []

    def verdicts(places: Iterable[int]) -> list[JudgedClaim]:
        # Tens of thousands of rows without a time play no part here, and flagging them takes seconds.
        every = [row for night in _files(history, places) for row in read_rows(*night)]
        rows = [row for row in every if row.is_timed]
        night = [replace(run, datasheet=find_datasheet(run.device_name)) for run in runs(rows, True)]
        return judge(night, stored) if night else []

    before = {run: verdicts([at for at in alike if history.nights[at].run == run]) for run in last}
    found = []
    for place, judged in enumerate(verdicts([tonight])):
        nights = tuple((run.run_id, each[place]) for run, each in before.items() if each)
        decided = [each.verdict for _, each in nights if each.verdict in DECIDED]
        if judged.verdict in DECIDED and decided and decided[-1] != judged.verdict:
            found.append(Flip(judged, nights))
    return found


def _files(history: History, places: Iterable[int]) -> list[tuple[Path, RunKey]]:
    """The file of each of these nights, and its run there."""
    nights = [history.nights[at] for at in places]
    return [(night.file, night.run) for night in nights if night.file is not None]


def _protocols(history: History, at: int) -> set[str]:
    """The protocols of the times of this night."""
    return set(history.series["protocol"][np.isfinite(history.log_s[:, at])])
