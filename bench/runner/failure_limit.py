"""Giving an implementation up whose cases all fail alike."""

from __future__ import annotations

from bench.causes import operator_file
from bench.store.schema import Measurement
from bench.sweep.load import Case

FAILURES = ("error", "crashed", "timeout")
"""Statuses that count as failures. A wrong result does not: every wrong result is worth knowing."""
ALIKE = 3
"""Cases with the same failure after which an implementation is given up: each further case would cost a
compilation, a crash, or the ten minutes after which a worker counts as hung."""

Implementation = tuple[bool, str, str]
"""(whether it is a ceiling, operator, implementation): a ceiling is stopped by failures of ceilings only."""
Failure = tuple[str, str]
"""(status, reason); of a hang without the reason, which holds a deadline that differs from case to case."""


class FailureLimit:
    """Gives an implementation up when ALIKE of its cases have ended in the same failure.

    One is enough where the reason is about the operator's file, which every case needs.

    A resumed run counts anew: the cause may have been fixed.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        """A sentence for the user on each implementation that was given up."""
        self._failed: dict[Implementation, dict[Failure, dict[str, str]]] = {}
        """Implementation -> failure -> key of each case with it -> name of the case."""
        self._reasons: dict[Implementation, str] = {}

    def saw(self, case: Case, row: Measurement) -> None:
        """Count the outcome of a visit; it may be the failure for which its implementation is given up.

        After a success errors and crashes are counted anew: the implementation works here, and they may
        belong to one data type. Hangs are not, since each of them costs its whole deadline.
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
        _, operator, implementation = what
        if row.reason.startswith(operator_file(operator)):
            self._reasons[what] = f"not tried, since {case.name} ended in an error that all its cases have"
            return
        if len(alike) < ALIKE:
            return
        after = f"{len(alike)} cases ended alike ({'; '.join(alike.values())}), {row.status}: {row.reason}"
        self._reasons[what] = f"not tried, since {after}"
        self.lines.append(f"{operator} {implementation} is given up for the rest of this run: {after}")

    def reason(self, case: Case) -> str:
        """Why the case's implementation was given up; empty if it was not."""
        return self._reasons.get(_implementation(case), "")


def _implementation(case: Case) -> Implementation:
    return case.role != "measurement", case.problem.operator, case.implementation
