"""Two runs, case by case: what became slower, what became faster, what stayed, and what nobody can tell.

*   SLOWER and FASTER: medians at least MINIMUM_EFFECT apart, and not by chance, among as many cases as are
    compared (bench/judge/change.py; ceilings are a family of their own). The interval of an effect holds all
    the noise that is known (bench/judge/noise.py): within a visit, between visits, between runs. What a flag
    blames, a neighbour say, widens it by as much as that may have done; it vetoes nothing.
*   Not so where the machine may explain it: the ceilings of the same libraries moved as far, as near as they
    tell, or, on a GPU, the cycles (seconds x the clock of the SMs) did not change along; nor by one visit
    on a CPU, or one that had not settled. Then it is UNDECIDED, with that reason.
*   SAME: neither, and the 95 % interval of the effect lies within MINIMUM_EFFECT either side of none; within
    SAME_WITHIN on a CPU.
*   All else is UNDECIDED: the effect's interval says how much may be hidden.

What is then known of a whole comparison is in bench/judge/comparison.py.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import get_args

from bench.environment.chosen_code import environment_change
from bench.format import change_text
from bench.judge.change import LEVEL, Change, Z, among_all, chance
from bench.judge.comparability import differing, waved
from bench.judge.comparison import LEAST, MINIMUM_EFFECT, WHOLE, Compared, Comparison, Verdict
from bench.judge.comparison_side import CaseInRun, CaseKey, Shift, Side, between_runs, side
from bench.judge.frame import DeviceRun
from bench.judge.noise import HOUR_S, HOURS_APART
from bench.judge.within_run import half_of_ratio
from bench.judge.work_class import WorkClass, work_of
from bench.store.schema import Measurement, RunKey

SAME_WITHIN: Mapping[str, Mapping[WorkClass, float]] = {
    "cpu": {work: 0.10 if work is WorkClass.COMPUTE else 0.25 for work in WorkClass}
}
"""Kind of device -> kind of work -> greatest change that counts as none; MINIMUM_EFFECT on others. Chosen,
not measured: what the intervals of quiet nights of a shared CPU leave room for."""
Pair = tuple[CaseKey, CaseInRun, CaseInRun]
"""A case that both sides timed."""


def compare(
    before: Sequence[DeviceRun], after: Sequence[DeviceRun], across: Collection[str] = ()
) -> Comparison:
    """Every case of either side, judged.

    `across` names blocking facts to wave through. Of several runs on a side each case's newest row counts.
    UserError for a name that is no blocking fact, and for a side with rows of no device or of several.
    """
    through = waved(across)
    sides = side(before, "A"), side(after, "B")
    compared: list[Compared] = []
    comparable: list[Pair] = []
    chosen: dict[str, None] = {}
    for case, look_before, look_after in _pairs(*sides):
        if (alone := _unpaired(case, look_before, look_after, sides)) is not None:
            compared.append(alone)
            continue
        assert look_before is not None and look_after is not None
        environments = look_before.row.environment, look_after.row.environment
        chosen |= dict.fromkeys(filter(None, [environment_change(*environments)]))
        stops = [each for each in differing(look_before.row, look_after.row) if each.fact not in through]
        if stops:
            facts = ", ".join(each.fact for each in stops)
            changes = ", ".join(f"{each.fact} {each.before} -> {each.after}" for each in stops)
            compared.append(Compared(case, "NOT COMPARABLE", facts, changes))
        else:
            comparable.append((case, look_before, look_after))
    # Two devices' speeds and clocks are part of what is compared; one device's are not.
    one_device = "device" not in through
    shifts = {
        (a, b): shift
        for a, before_run in sides[0].runs.items()
        for b, after_run in sides[1].runs.items()
        if one_device and (shift := between_runs(before_run, after_run)) is not None
    }
    measured = [(_measured(*pair, shifts, one_device), pair) for pair in comparable]
    compared += [of for of, _ in measured if of.effect is None]
    for is_ceiling in (False, True):
        family = [each for each in measured if each[0].effect and each[0].is_ceiling is is_ceiling]
        effects = among_all([of.effect for of, _ in family if of.effect])
        for effect, (of, (_, look, other)) in zip(effects, family, strict=True):
            compared.append(_judged(of, effect, look, other, one_device))
    order = {verdict: place for place, verdict in enumerate(get_args(Verdict))}
    compared.sort(key=lambda of: (order[of.verdict], -abs(of.effect.log) if of.effect else 0.0, of.case))
    return Comparison(*sides, shifts, tuple(compared), tuple(chosen))


def _pairs(before: Side, after: Side) -> Iterator[tuple[CaseKey, CaseInRun | None, CaseInRun | None]]:
    """Every case of either side with what each has of it.

    The same problem measured in another manner on either side (cold here, warm there), or in a sweep of
    another name, is a pair too: that is then the fact that differs. Only what has no partner is paired so.
    """
    ones, others = dict(before.looks), dict(after.looks)
    alike: Sequence[Callable[[CaseKey, CaseInRun], tuple[str, ...]]] = (
        lambda case, look: case,
        lambda case, look: case[:4],  # in whatever manner
        lambda case, look: (*case[1:], look.row.role),  # in whatever sweep; a ceiling is no measurement
    )
    for key in alike:
        partners: dict[tuple[str, ...], list[CaseKey]] = defaultdict(list)
        for case, look in others.items():
            partners[key(case, look)].append(case)
        for case, look in list(ones.items()):
            if found := partners[key(case, look)]:
                yield case, ones.pop(case), others.pop(found.pop(0))
    yield from ((case, look, None) for case, look in ones.items())
    yield from ((case, None, look) for case, look in others.items())


def _unpaired(
    case: CaseKey, before: CaseInRun | None, after: CaseInRun | None, sides: tuple[Side, Side]
) -> Compared | None:
    """The verdict where there are no two times; None where there are."""
    looks = {name: look for name, look in (("A", before), ("B", after)) if look is not None}
    bad = {name: look.row for name, look in looks.items() if not look.row.is_timed}
    if bad:
        status = {name: row.status if row.status != "ok" else "no time" for name, row in bad.items()}
        why = ", ".join(f"{word} in {name}" for name, word in status.items())
        reasons = dict.fromkeys(row.reason for row in bad.values() if row.reason)
        return Compared(case, "INVALID", why, "; ".join(reasons))
    if before is not None and after is not None:
        return None
    without, name = (sides[0], "A") if before is None else (sides[1], "B")
    why = without.absent.get(case, "")
    reason = f"{why.split(':')[0] or 'no row'} in {name}"
    before_s, after_s = (look.row.median_s if look else None for look in (before, after))
    return Compared(case, "GONE" if before else "NEW", reason, why, before_s=before_s, after_s=after_s)


def _measured(
    case: CaseKey,
    before: CaseInRun,
    after: CaseInRun,
    shifts: Mapping[tuple[RunKey, RunKey], Shift],
    one_device: bool,
) -> Compared:
    """The effect of two times, as if it were the only one. `one_device`: how its runs differ is no effect."""
    before_s, after_s = before.row.median_s, after.row.median_s
    assert before_s and after_s
    known = Compared(case, "UNDECIDED", before_s=before_s, after_s=after_s, role=before.row.role)
    for name, look in (("A", before), ("B", after)):
        if look.within is None:
            why = "it waited for a processor" if look.flags else "too few samples"
            return replace(known, reason=f"no interval in {name}: {why}")
    assert before.within and after.within
    own = [look.runs.half for look in (before, after)]
    runs = own
    if one_device:  # where the device's own runs tell how they differ they do so for both
        told = [look.runs.half for look in (before, after) if look.runs.by == "history"]
        when = [datetime.fromisoformat(look.row.utc) for look in (before, after) if look.row.utc]
        far = len(when) == 2 and abs((when[1] - when[0]).total_seconds()) > HOUR_S
        times = HOURS_APART.get(before.row.device_kind, 1.0) if far else 1.0
        runs = [times * max(told or [half]) for half in own]
    # Two rows' squares, with the noise of these two runs and what two scatters tell in place of each one's.
    more = half_of_ratio(before.within, after.within) ** 2 + sum(half**2 for half in runs)
    more -= sum(half**2 for half in (*own, before.within.half, after.within.half))
    log = math.log(after_s / before_s)
    down = math.sqrt(max(0.0, after.down**2 + before.up**2 + more)) + after.cause
    up = math.sqrt(max(0.0, after.up**2 + before.down**2 + more)) + before.cause
    shared = math.hypot(runs[0] + before.cause, runs[1] + after.cause)
    facing = down if log > 0 else up
    p, drift = float(chance(log, facing / Z)), 0.0
    chosen = before.row.configuration, after.row.configuration
    if all(chosen) and chosen[0] != chosen[1]:  # often the reason
        known = replace(known, detail=f"{chosen[0]} -> {chosen[1]}")
    shift, work = shifts.get((RunKey.of(before.row), RunKey.of(after.row))), work_of(before.row)
    # By its own kind of ceilings if there are enough of them: memory may be slower and the cores not.
    alike = shift.by_work.get(work) if shift else None
    what, moved = (f"the machine's {work.text}", alike) if alike else (WHOLE, shift)
    if moved is not None:
        # What is left of the effect must have its sign, beyond all that is not known of either.
        left = max(0.0, math.copysign(1, log) * (log - moved.by))
        beyond = float(chance(left, math.hypot(facing, moved.error) / Z))
        if p < LEVEL <= beyond:
            moved_text = f"{change_text(math.exp(moved.by))} in {moved.ceilings} ceilings"
            known = replace(known, reason=f"{what} may have moved as far", detail=moved_text)
        p = max(p, beyond)
        # What the machine did may be all or nothing of what a case shows.
        if what != WHOLE and abs(moved.by) > max(LEAST, moved.error):
            drift = moved.by
    effect = Change(log, down + max(drift, 0.0), up + max(-drift, 0.0), p)
    return replace(known, effect=effect, shared=shared)


def _judged(
    known: Compared, effect: Change, before: CaseInRun, after: CaseInRun, one_device: bool
) -> Compared:
    """The verdict on an effect; its p-value counts how many cases are compared."""
    work = work_of(before.row)
    within = math.log1p(SAME_WITHIN.get(before.row.device_kind, {}).get(work, MINIMUM_EFFECT))
    verdict = effect.verdict(LEAST, within)
    reason, detail = known.reason, known.detail
    if verdict == "UNDECIDED" and not reason:
        blamed = ", ".join(sorted({*before.flags, *after.flags}))
        reason = "the interval includes no change"
        if not effect.low <= 1 <= effect.high:
            reason = "about 1 %" if abs(effect.log) < LEAST else "chance, among so many cases"
        reason += f" ({blamed})" if blamed else ""
    elif verdict == "SAME":
        reason = ""
    elif verdict != "UNDECIDED" and any(map(_tells_little, (before.row, after.row))):
        verdict, reason = "UNDECIDED", "one visit"
    elif verdict != "UNDECIDED" and one_device and work is WorkClass.COMPUTE:
        reason, cycles = "", _in_cycles(before.row, after.row)
        if cycles is not None and math.copysign(1, effect.log) * cycles < LEAST:
            verdict, reason = "UNDECIDED", "the clock explains it"
            detail = f"{change_text(math.exp(cycles))} in cycles"
    return replace(known, verdict=verdict, reason=reason, detail=detail, effect=effect)


def _tells_little(row: Measurement) -> bool:
    """Whether a row is of one visit to a shared CPU, or of one that had not settled.

    Of 13 false verdicts on the pairs of `results/reference/fresh_nights` most were on caches visited once.
    """
    return row.visits == 1 and bool(row.samples_s) and (row.device_kind == "cpu" or row.settled is False)


def _in_cycles(before: Measurement, after: Measurement) -> float | None:
    """ln(cycles after / cycles before) by the clock of the SMs; None where it is not known."""
    if not before.sm_clock_hz or not after.sm_clock_hz:
        return None
    assert before.median_s and after.median_s
    return math.log(after.median_s * after.sm_clock_hz / (before.median_s * before.sm_clock_hz))
