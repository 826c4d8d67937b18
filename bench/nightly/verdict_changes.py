"""Verdicts on the claims tonight and on the last nights before, and which of them changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
UNHEARD = ("NOT MEASURED", "NOT APPLICABLE")


@dataclass(frozen=True)
class VerdictChange:
    """A claim whose verdict tonight is another than before."""

    tonight: JudgedClaim
    before: tuple[tuple[str, JudgedClaim], ...]
    """(run, verdict) of the nights before on which rows spoke to the claim, in time order; one at least."""
    flipped: bool
    """Whether tonight decides the opposite of what the last night decided that decided it."""

    def __str__(self) -> str:
        """`MM-01 of gemm/aligned_k was SUPPORTED on 3 nights, last 1.210 [...]; tonight UNDECIDED, ...`."""
        claim, effect = self.tonight.claim, self.tonight.effect
        words = Counter(each.verdict for _, each in self.before)
        was = ", ".join(f"{word} on {count_text(n, 'night')}" for word, n in words.most_common())
        last = f", last {before}" if (before := self.before[-1][1].effect) is not None else ""
        numbers = self.tonight.reason or (f"{effect}, n = {effect.clusters}" if effect else "")
        return (
            f"{claim.id} of {self.tonight.declared.name} was {was}{last}; tonight {self.tonight.verdict}, "
            f"{numbers}; expected {claim.expect}. {claim.says}."
        )

    def as_json(self) -> dict[str, Any]:
        """Tonight's verdict as `claims --json` writes it, and those of the nights before."""
        before = [{"run_id": run_id} | entry(each) for run_id, each in self.before]
        names = ("run_id", "verdict", "value", "low", "high", "clusters")
        return entry(self.tonight) | {
            "flipped": self.flipped,
            "before": [{name: each[name] for name in names} for each in before],
        }


def verdict_changes(history: History, tonight: int) -> list[VerdictChange]:
    """What changed on this night of the history, flips first, by the claims that its own file keeps.

    Of the nights before, the last BEFORE of the same protocol are judged, by tonight's claims.
    """
    files = [file for file, _ in _files(history, [tonight])]
    declared = read_sweeps(files) if files else {}
    stored = {
        name: claims
        for name, sweep in declared.get(history.nights[tonight].run, {}).items()
        if (claims := kept(name, sweep)) and claims.claims
    }
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
        return judge(night, list(stored.values())) if night else []

    before = {run: verdicts([at for at in alike if history.nights[at].run == run]) for run in last}
    changes = []
    for place, judged in enumerate(verdicts([tonight])):
        nights = [(run.run_id, each[place]) for run, each in before.items() if each]
        heard = tuple((run_id, each) for run_id, each in nights if each.verdict not in UNHEARD)
        if (change := _change(judged, heard)) is not None:
            changes.append(change)
    return sorted(changes, key=lambda change: not change.flipped)


def _files(history: History, places: Iterable[int]) -> list[tuple[Path, RunKey]]:
    """The file of each of these nights, and its run there."""
    nights = [history.nights[at] for at in places]
    return [(night.file, night.run) for night in nights if night.file is not None]


def _protocols(history: History, at: int) -> set[str]:
    """The protocols of the times of this night."""
    return set(history.series["protocol"][np.isfinite(history.log_s[:, at])])


def _change(tonight: JudgedClaim, before: tuple[tuple[str, JudgedClaim], ...]) -> VerdictChange | None:
    """A flip, or a word that the claim had on none of the nights before; None otherwise."""
    if not before or tonight.verdict == "NOT APPLICABLE":
        return None
    words = [each.verdict for _, each in before]
    decided = [word for word in words if word in DECIDED]
    flipped = tonight.verdict in DECIDED and bool(decided) and decided[-1] != tonight.verdict
    return VerdictChange(tonight, before, flipped) if flipped or tonight.verdict not in words else None


def flip_lines(changes: Sequence[VerdictChange], most: int) -> Iterator[str]:
    """The lines that stand at the top of a night's page; at most so many, and the number of the others."""
    flipped = [change for change in changes if change.flipped]
    for change in flipped[:most]:
        yield f"* FLIPPED: {change}"
    if len(flipped) > most:
        yield f"* FLIPPED: {count_text(len(flipped) - most, 'further claim')}, in the JSON"


def quiet_lines(changes: Sequence[VerdictChange], most: int) -> Iterator[str]:
    """The section on changes to and from the words that decide nothing; none without such changes."""
    quiet = [change for change in changes if not change.flipped]
    if not quiet:
        return
    yield from ("## Verdicts that changed without a flip", "")
    yield from (f"* {change}" for change in quiet[:most])
    if len(quiet) > most:
        yield f"* ... and {len(quiet) - most} more, in the JSON"
    yield ""
