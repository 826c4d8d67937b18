"""Two runs, case by case: what became slower, what became faster, what stayed, and what nobody can tell.

A verdict needs evidence on either side. SLOWER and FASTER need all of

*   95 % intervals that do not meet, each the row's own widened by the machine's noise between visits and
    between runs (bench/judge/noise.py), once: some rows' intervals include that between visits already;
*   medians at least MINIMUM_EFFECT apart;
*   a rank test of the samples below RANK_BAR (bench/judge/ranks.py);
*   the same, in sign and size, in cycles: seconds x the SM's clock on a GPU, seconds / the seconds of a fixed
    kernel beside it on a CPU. Rows at memory's speed are exempt: the cores' clock is not theirs.

SAME needs medians less than MINIMUM_EFFECT apart and two intervals no wider than NARROW. All else is UNSURE,
with the reason. A row that a flag casts doubt on is UNSURE. A row whose sampling ran out of budget is judged
like any other: its interval is as wide as its samples leave it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
from scipy import stats

from bench.judge import ranks
from bench.judge.comparability import NEVER_BLOCKING, Difference, differing, waved
from bench.judge.comparison_side import Case, Look, Side, between_runs, has_interval, side
from bench.judge.noise import Noise, state_s, visit_count
from bench.sampling.publish import reach

if TYPE_CHECKING:
    from bench.judge.frame import Run
    from bench.store.schema import Measurement

Verdict = Literal["SLOWER", "FASTER", "SAME", "UNSURE", "INVALID", "NOT COMPARABLE", "NEW", "GONE"]
JUDGED: tuple[Verdict, ...] = ("SLOWER", "FASTER", "SAME", "UNSURE")
"""Verdicts on comparable cases."""

MINIMUM_EFFECT = 0.01
"""Least difference of medians that counts, as a share of the smaller."""
LEAST = math.log1p(MINIMUM_EFFECT)
NARROW = 0.02
"""Largest half-width of an interval, as a share, on which SAME may rest."""
RANK_BAR = 0.002
"""Largest p of the rank test."""


Pair = tuple[Case, Look, Look]
"""A case that both sides timed."""


@dataclass(frozen=True)
class Effect:
    """Seconds after / seconds before, with its 95 % interval."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Compared:
    """One case and its verdict."""

    case: Case
    verdict: Verdict
    reason: str = ""
    """Why, in words that many cases share: to be counted. Empty for SLOWER, FASTER and SAME."""
    detail: str = ""
    """What is this case's own about it."""
    effect: Effect | None = None
    """Of comparable cases, unless an interval is unknown."""
    before_s: float | None = None
    after_s: float | None = None
    sound: bool = False
    """Whether both rows may be relied on: no flag, an interval, a known noise."""


@dataclass(frozen=True)
class Mean:
    """The geometric mean effect over the sound comparable cases of an operator."""

    operator: str
    effect: Effect
    cases: int


@dataclass(frozen=True)
class Comparison:
    """Everything that two sides say of one another."""

    before: Side
    after: Side
    between: Mapping[tuple[str, str], Noise]
    """(run of A, run of B) -> what the same ceilings differ by in the two."""
    cases: tuple[Compared, ...]
    """By verdict in the order of Verdict, then the biggest effect first, then by name."""
    waved: tuple[Difference, ...] = ()
    """Blocking facts that differed and were waved through."""
    told: tuple[Difference, ...] = ()
    """Facts that never block and differ, of all rows together."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Blocking fact -> pairs of which one side or both do not know it."""

    def of(self, *verdicts: Verdict) -> list[Compared]:
        """The cases with one of these verdicts."""
        return [one for one in self.cases if one.verdict in verdicts]

    @property
    def comparable(self) -> int:
        """Cases that got a verdict on their times."""
        return len(self.of(*JUDGED))

    @property
    def same_run(self) -> bool:
        """Whether some run stands on both sides, so that rows are compared with themselves."""
        return bool(set(self.before.facts["run"]) & set(self.after.facts["run"]))

    @property
    def same_commit(self) -> bool:
        """Whether two runs of one commit are compared: every FASTER and SLOWER is then a false alarm."""
        commits = self.before.facts["commit"], self.after.facts["commit"]
        return commits[0] == commits[1] and len(commits[0]) == 1 and not self.waved and not self.same_run

    @property
    def exit_code(self) -> int:
        """1: any SLOWER, whatever else there is; 2: any INVALID; 3: nothing comparable; 0: none of these."""
        if self.of("SLOWER"):
            return 1
        if self.of("INVALID"):
            return 2
        return 0 if self.comparable else 3

    def means(self) -> Iterator[Mean]:
        """By operator, in order of their names.

        The interval is the wider of what the effects' spread over the cases leaves (Student's t) and what the
        cases' own intervals leave. A machine that ran slower as a whole is in neither.
        """
        effects: dict[str, list[Effect]] = defaultdict(list)
        for one in self.cases:
            if one.sound and one.effect is not None:
                effects[one.case.operator].append(one.effect)
        for operator, found in sorted(effects.items()):
            logs = np.log([one.ratio for one in found])
            halves = np.log([one.high / one.low for one in found]) / 2
            half = float(np.sqrt(np.sum(halves**2))) / len(found)
            if len(found) > 1:
                t = float(stats.t.ppf(0.975, len(found) - 1))
                half = max(half, t * float(np.std(logs, ddof=1)) / math.sqrt(len(found)))
            mean = float(np.mean(logs))
            yield Mean(operator, Effect(*(math.exp(mean + by) for by in (0, -half, half))), len(found))


def compare(before: Sequence[Run], after: Sequence[Run], across: Collection[str] = ()) -> Comparison:
    """Every case of either side, judged.

    `across` names blocking facts to wave through. Of several runs on a side each case's newest row counts.
    UserError for a name that is no blocking fact, and for a side with rows of no device or of several.
    """
    through = waved(across)
    sides = side(before, "A"), side(after, "B")
    found: list[Compared] = []
    comparable: list[Pair] = []
    unknown: Counter[str] = Counter()
    passed: dict[Difference, None] = {}
    for case, one, other in _pairs(*sides):
        if (alone := _unpaired(case, one, other, sides)) is not None:
            found.append(alone)
            continue
        assert one is not None and other is not None
        differs, not_known = differing(one.row, other.row)
        unknown.update(not_known)
        stops = [each for each in differs if each.fact not in through]
        passed |= dict.fromkeys(each for each in differs if each.fact in through)
        if stops:
            facts = ", ".join(each.fact for each in stops)
            told = ", ".join(f"{each.fact} {each.before} -> {each.after}" for each in stops)
            found.append(Compared(case, "NOT COMPARABLE", facts, told))
        else:
            comparable.append((case, one, other))
    # Two devices' clocks are part of what is compared; one device's are not.
    between = {
        (one, other): between_runs(before_run, after_run)
        for one, before_run in sides[0].runs.items()
        for other, after_run in sides[1].runs.items()
    }
    judge = _Judge(*sides, between, in_cycles="device" not in through)
    found += judge.verdicts(comparable)
    order = {verdict: place for place, verdict in enumerate(get_args(Verdict))}
    found.sort(key=lambda each: (order[each.verdict], -_size(each.effect), each.case))
    return Comparison(*sides, between, tuple(found), tuple(passed), tuple(_told(*sides)), unknown)


def _pairs(before: Side, after: Side) -> Iterator[tuple[Case, Look | None, Look | None]]:
    """Every case of either side with what each has of it.

    The same problem measured in another manner on either side (cold here, warm there) is a pair too: that
    manner is then the fact that differs. Only what has no partner in its own manner is paired so.
    """
    problems: dict[tuple[str, ...], tuple[dict[Case, Look], dict[Case, Look]]] = {}
    for place, looks in enumerate((before.looks, after.looks)):
        for case, look in looks.items():
            problems.setdefault(case[:4], ({}, {}))[place][case] = look
    for ones, others in problems.values():
        for case in [case for case in ones if case in others]:
            yield case, ones.pop(case), others.pop(case)
        for case, other in zip(list(ones), list(others), strict=False):
            yield case, ones.pop(case), others.pop(other)
        yield from ((case, look, None) for case, look in ones.items())
        yield from ((case, None, look) for case, look in others.items())


def _unpaired(case: Case, one: Look | None, other: Look | None, sides: tuple[Side, Side]) -> Compared | None:
    """The verdict where there are no two times; None where there are."""
    looks = {name: look for name, look in (("A", one), ("B", other)) if look is not None}
    bad = {name: look.row for name, look in looks.items() if not look.row.is_timed}
    if bad:
        status = {name: row.status if row.status != "ok" else "no time" for name, row in bad.items()}
        if len(set(status.values())) == 1:
            why = f"{next(iter(status.values()))} in {' and '.join(status)}"
        else:
            why = ", ".join(f"{status[name]} in {name}" for name in status)
        told = dict.fromkeys(row.reason for row in bad.values() if row.reason)
        return Compared(case, "INVALID", why, "; ".join(told))
    if one is None and other is not None:
        why = sides[0].absent.get(case, "")
        return Compared(case, "NEW", _status(why, "A"), why, after_s=other.row.median_s)
    if other is None and one is not None:
        why = sides[1].absent.get(case, "")
        return Compared(case, "GONE", _status(why, "B"), why, before_s=one.row.median_s)
    return None


def _status(why: str, name: str) -> str:
    return f"{why.split(':')[0]} in {name}" if why else f"no row in {name}"


@dataclass(frozen=True)
class _Judge:
    """Gives verdicts on comparable pairs, knowing both sides."""

    before: Side
    after: Side
    between: Mapping[tuple[str, str], Noise]
    in_cycles: bool

    def verdicts(self, pairs: Sequence[Pair]) -> list[Compared]:
        """One for each pair. The rank test comes last, of all pairs at once: it costs most."""
        judged = [self._by_intervals(*pair) for pair in pairs]
        open_ = [place for place, each in enumerate(judged) if each.verdict in ("SLOWER", "FASTER")]
        samples = [
            (ranks.independent(one.row.visit_samples_s), ranks.independent(other.row.visit_samples_s))
            for _, one, other in (pairs[place] for place in open_)
        ]
        for place, p in zip(open_, ranks.p_values(samples), strict=True):
            if not p < RANK_BAR:
                why = "the rank test sees no difference"
                judged[place] = replace(judged[place], verdict="UNSURE", reason=why, detail=f"p = {p:.2g}")
        return judged

    def _by_intervals(self, case: Case, one: Look, other: Look) -> Compared:
        before_s, after_s = one.row.median_s, other.row.median_s
        assert before_s and after_s
        known = Compared(case, "UNSURE", before_s=before_s, after_s=after_s)
        looks = {"A": one, "B": other}
        for name, look in looks.items():
            if not has_interval(look.row):
                return replace(known, reason=f"no interval in {name}: too few samples")
        between = self.between[one.row.run_id, other.row.run_id].of(one.bound)
        a, b = self._reach(self.before, one, between), self._reach(self.after, other, between)
        known = replace(known, effect=_effect(after_s / before_s, a, b))
        for name, look in looks.items():
            if look.suspect_flags:
                also = ", ".join(look.suspect_flags) if len(look.suspect_flags) > 1 else ""
                return replace(known, reason=f"{look.suspect_flags[0]} in {name}", detail=also)
        for name, held, look in (("A", self.before, one), ("B", self.after, other)):
            if visit_count(look.row) == 1 and held.runs[look.row.run_id].noise.of(look.bound) is None:
                return replace(known, reason=f"one visit in {name}, and no case of its run had two")
        known = replace(known, sound=True, detail=_chosen(one.row, other.row))
        apart = math.log(after_s / before_s)
        if abs(apart) < LEAST:
            if max(a.down + a.up, b.down + b.up) < 2 * NARROW:
                return replace(known, verdict="SAME")
            return replace(known, reason="medians less than 1 % apart, but an interval is too wide for SAME")
        if abs(apart) <= (a.up + b.down if apart > 0 else a.down + b.up):
            return replace(known, reason="the intervals meet")
        if self.in_cycles and "memory" not in (one.bound, other.bound):
            cycles = _in_cycles(one.row, other.row)
            if cycles is not None and math.copysign(1, apart) * cycles < LEAST:
                told = f"{round(100 * math.expm1(cycles), 1) + 0.0:+.1f} % in cycles"
                return replace(known, reason="the clock explains it", detail=told)
        return replace(known, verdict="SLOWER" if apart > 0 else "FASTER")

    def _reach(self, held: Side, look: Look, between: float | None) -> _Reach:
        """The row's own 95 % interval, widened by the machine's noise between visits and between runs.

        Between visits it is less the more visits there were, and a step is the difference of two of them; the
        interval of a row without the machine's state beside it includes it already (`publish`), but for a
        ceiling's. Between runs no number of visits lessens it: half of it on either side.
        """
        row = look.row
        assert row.median_s and row.low_s and row.high_s
        noise = held.runs[row.run_id].noise.of(look.bound) or 0.0
        included = state_s(row) is None and row.role == "measurement"
        visits = 0.0 if included else noise / math.sqrt(2 * visit_count(row))
        half = max(visits, (between or 0.0) / 2)
        return _Reach(*reach(row.median_s, row.low_s, row.high_s, half))


class _Reach(NamedTuple):
    """How far a row's truth may lie below and above its median: natural logarithms."""

    down: float
    up: float


def _effect(ratio: float, a: _Reach, b: _Reach) -> Effect:
    down, up = math.hypot(b.down, a.up), math.hypot(b.up, a.down)
    return Effect(ratio, ratio * math.exp(-down), ratio * math.exp(up))


def _in_cycles(before: Measurement, after: Measurement) -> float | None:
    """ln(cycles after / cycles before); None where a clock is not known."""
    speeds = _speed(before), _speed(after)
    if speeds[0] is None or speeds[1] is None:
        return None
    assert before.median_s and after.median_s
    return math.log(after.median_s * speeds[1]) - math.log(before.median_s * speeds[0])


def _speed(row: Measurement) -> float | None:
    """The clock beside the row: hertz on a GPU, on a CPU 1 / seconds of the fixed kernel before and after."""
    if row.device_kind == "cuda":
        hertz = row.sm_clock_hz
        return hertz if hertz is not None and hertz > 0 else None
    beside_s = state_s(row)
    return None if beside_s is None else 1 / beside_s


def _chosen(before: Measurement, after: Measurement) -> str:
    """What the implementation chose differently: often the reason."""
    if not before.configuration or not after.configuration or before.configuration == after.configuration:
        return ""
    return f"{before.configuration} -> {after.configuration}"


def _size(effect: Effect | None) -> float:
    return abs(math.log(effect.ratio)) if effect else 0.0


def _told(before: Side, after: Side) -> Iterator[Difference]:
    for fact in NEVER_BLOCKING:
        one, other = before.facts[fact.name], after.facts[fact.name]
        if one != other and one and other:
            yield Difference(fact.name, ", ".join(one), ", ".join(other))
