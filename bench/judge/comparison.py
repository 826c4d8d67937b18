"""What two runs say of one another: the verdict on each case, the mean of each operator, the machine's.

The cases of an operator are judged together, too: the mean effects have the same verdicts, and count.
There, and by its ceilings, a machine that became slower as a whole is SLOWER.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from bench.judge.change import Change, Z, among_all, chance
from bench.judge.comparison_side import CaseKey, Shift, Side
from bench.judge.noise import is_published
from bench.store.schema import RunKey

Verdict = Literal["SLOWER", "FASTER", "SAME", "UNDECIDED", "INVALID", "NOT COMPARABLE", "NEW", "GONE"]
JUDGED: tuple[Verdict, ...] = ("SLOWER", "FASTER", "SAME", "UNDECIDED")
"""Verdicts on comparable cases."""

MINIMUM_EFFECT = 0.01
"""Least difference of medians that counts, as a share of the smaller."""
LEAST = math.log1p(MINIMUM_EFFECT)
WHOLE = "the machine as a whole"


@dataclass(frozen=True)
class Compared:
    """One case and its verdict."""

    case: CaseKey
    verdict: Verdict
    reason: str = ""
    """Why, in words that many cases share: to be counted. Empty for SLOWER, FASTER and SAME."""
    detail: str = ""
    """What is this case's own about it."""
    effect: Change | None = None
    """The effect of comparable cases, unless an interval is unknown."""
    before_s: float | None = None
    after_s: float | None = None
    role: str = "measurement"
    """What its rows are for."""
    shared: float = 0.0
    """The part of the effect's half-width, |ln|, that all cases of an operator may share."""

    @property
    def is_ceiling(self) -> bool:
        """Whether it is a ceiling: these are judged apart."""
        return self.role != "measurement"


@dataclass(frozen=True)
class Mean:
    """The geometric mean effect over the comparable cases of an operator, and its verdict."""

    operator: str
    effect: Change
    cases: int
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    """Everything that two sides say of one another."""

    before: Side
    after: Side
    shifts: Mapping[tuple[RunKey, RunKey], Shift]
    """(run of A, run of B) -> what the machine as a whole did between the two, where its ceilings tell."""
    cases: tuple[Compared, ...]
    """The cases by verdict in the order of Verdict, then the biggest effect first, then by name."""
    environments: tuple[str, ...] = ()
    """What chose other code on one side than on the other: variables, settings, instructions."""

    def of(self, *verdicts: Verdict) -> list[Compared]:
        """The cases with one of these verdicts."""
        return [case for case in self.cases if case.verdict in verdicts]

    @property
    def kind(self) -> str:
        """The kind of device that was measured before: cpu | cuda."""
        return next((look.row.device_kind for look in self.before.looks.values()), "")

    @property
    def in_common(self) -> int:
        """Cases that both sides have."""
        return len(self.cases) - len(self.of("NEW", "GONE"))

    @property
    def published(self) -> int:
        """Of the judged cases those whose noise between runs is other people's on both sides."""
        sides = self.before.looks, self.after.looks
        return sum(
            all(is_published(looks[each.case].row) for looks in sides if each.case in looks)
            for each in self.of(*JUDGED)
        )

    @property
    def renamed(self) -> int:
        """Cases that are the same work in sweeps of other names, and for that reason not compared."""
        return sum("sweep" in each.reason.split(", ") for each in self.of("NOT COMPARABLE"))

    @property
    def disturbed(self) -> list[str]:
        """Flags that blame the machine, of rows that are SLOWER or FASTER."""
        changed = [each.case for each in self.of("SLOWER", "FASTER")]
        looks = [side.looks.get(case) for side in (self.before, self.after) for case in changed]
        return sorted({flag for look in looks if look for flag in look.flags})

    @property
    def exit_code(self) -> int:
        """1: a case, an operator or the machine is SLOWER, whatever else; 2: any INVALID; 3: nothing decided.

        0: something was decided, and nothing became slower.
        """
        verdicts = {*(each.verdict for each in self.cases), *(mean.verdict for mean in self.means)}
        if "SLOWER" in verdicts or any(moved.by > 0 for moved in self.machine.values()):
            return 1
        if "INVALID" in verdicts:
            return 2
        return 0 if verdicts & {"FASTER", "SAME"} else 3

    @property
    def machine(self) -> Mapping[str, Shift]:
        """What of the machine surely became slower or faster -> by how much; between any two runs."""
        return {
            what: moved
            for shift in self.shifts.values()
            for what, moved in (
                *((f"the machine's {work.text}", of_work) for work, of_work in shift.by_work.items()),
                (WHOLE, shift),
            )
            if moved.is_sure and abs(moved.by) >= LEAST
        }

    @cached_property
    def means(self) -> Sequence[Mean]:
        """Mean effects of the operators by name; that of ceilings, which are no one's aim, is a separate one.

        The interval adds as squares what all cases of a run may share, the noise between runs, and what the
        cases' own intervals leave: it is that of the mean of these cases, however much they differ. For a
        verdict it is widened by the square root of two: what cases share is known from their own intervals.
        """
        made = []
        for is_ceiling in (False, True):
            of: dict[str, list[Compared]] = defaultdict(list)
            for each in self.cases:
                if each.effect is not None and each.is_ceiling is is_ceiling:
                    of[f"{'ceilings: ' * is_ceiling}{each.case.operator}"].append(each)
            for (name, cases), mean in zip(of.items(), among_all(list(map(_mean, of.values()))), strict=True):
                verdict = cases[0].verdict if len(cases) == 1 else mean.verdict(LEAST, LEAST)
                made.append(Mean(name, mean, len(cases), verdict))
        return sorted(made, key=lambda mean: mean.operator)


def _mean(cases: Sequence[Compared]) -> Change:
    effects = [each.effect for each in cases if each.effect is not None]
    mean = float(np.mean([effect.log for effect in effects]))
    halves = np.array([(effect.down + effect.up) / 2 for effect in effects])
    shared = np.array([each.shared for each in cases])
    own = float(np.sqrt(np.sum(np.maximum(halves**2 - shared**2, 0)))) / len(cases)
    half = math.hypot(own, float(np.mean(shared)))
    return Change(mean, half, half, float(chance(mean, math.sqrt(2) * half / Z)))
