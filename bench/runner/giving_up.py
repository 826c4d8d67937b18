"""When an implementation is asked no more: three of its cases have ended in the same failure.

An implementation that does not work on a device would otherwise cost every one of its cases a compilation, a
crash, or the ten minutes after which a worker counts as hung.
"""

from __future__ import annotations

from bench.store.schema import Measurement
from bench.sweep.load import Case

FAILURES = ("error", "crashed", "timeout")
"""Statuses that count. A wrong result does not: it is a finding, and every one of them is wanted."""
ALIKE = 3
"""Cases with the same failure after which no other is tried."""

Implementation = tuple[bool, str, str]
"""(whether it is a ceiling, operator, implementation): a ceiling is stopped by failures of ceilings only."""
Failure = tuple[str, str]
"""(status, reason); of a hang without the reason, which holds a deadline that differs from case to case."""


class GivingUp:
    """Counts what failed in this run. A run that is resumed counts anew: what failed may have been mended."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        """For each implementation that is asked no more, a sentence for the person."""
        self._failed: dict[Implementation, dict[Failure, dict[str, str]]] = {}
        """What failed how: by the key of each case, its name."""
        self._reasons: dict[Implementation, str] = {}

    def saw(self, case: Case, row: Measurement) -> None:
        """Take note of a visit, which may be the one for which its implementation is given up.

        After a case that succeeds errors and crashes are counted anew: the implementation does work here, and
        they may belong to one data type. Hangs are not, since each of them costs its whole deadline.
        """
        what = _implementation(case)
        failed = self._failed.setdefault(what, {})
        if row.status == "ok":
            for failure in [failure for failure in failed if failure[0] != "timeout"]:
                del failed[failure]
        if row.status not in FAILURES or what in self._reasons:
            return
        alike = failed.setdefault((row.status, "" if row.status == "timeout" else row.reason), {})
        alike[row.case] = case.name
        if len(alike) < ALIKE:
            return
        _, operator, implementation = what
        after = f"{len(alike)} cases ended alike ({'; '.join(alike.values())}), {row.status}: {row.reason}"
        self._reasons[what] = f"not tried, since {after}"
        self.lines.append(f"{operator} {implementation} is given up for the rest of this run: {after}")

    def reason(self, case: Case) -> str:
        """Why the case is not worth asking for; empty if it is."""
        return self._reasons.get(_implementation(case), "")


def _implementation(case: Case) -> Implementation:
    return case.role != "measurement", case.problem.operator, case.implementation
