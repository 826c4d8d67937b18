"""What really changed from night to night: the machine, classes of series, single series.

All three by one rule, for each night by what was known then. `ruptures` says since when a row has its present
level (change_points.py). The nights since are compared with those of the level before: the change counts if
it is beyond a floor and more nights than chance explains are at least half as far out. One night says little,
since a series is some 5 % slower on one night in twenty with nothing changed. So chance is counted: how often
the device's rows were that far from their usual time lately, or this row itself, if that is more often. Among
many rows Benjamini and Hochberg's rate decides (bench/judge/change.py).

1. **The machine.** How far the ceilings of a bound (libraries' kernels, none of ours) departed together is
   taken off every series of that bound, as far as it stands out of their noise and the other series moved at
   least half as far: a few odd ceilings are no machine.
2. **Classes**, an implementation of an operator each: the mean departure of its members, a quarter of them
   cut off on either side, so that a changed set of members is no change.
3. **Single series** that no change of their class explains.

A change is open until its nights are back, or until HOLDS nights have its level: then that is the new normal.
Nothing is compared with nights of another segment; doubted and missing nights are passed over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from scipy import stats

from bench.case_name import row_name
from bench.judge.change import Change, adjusted
from bench.judge.history.change_points import change_points
from bench.judge.history.series import Flags, Floats, History

Kind = Literal["machine", "class", "series"]
BOUNDS = ("memory", "core")
PENALTY = 10.0
"""Of a change point (change_points.py): less than for the eye, since the test comes after it."""
LEAST = 6
"""Earlier nights from which on a series is judged ..."""
BEFORE: Mapping[Kind, int] = {"machine": 9, "class": 9, "series": LEAST}
"""... and a mean of departures, whose medians are guesses on the first nights."""
WINDOW = 34
"""Last nights that are looked at: twenty of a level, and a change with what came before it."""
HOLDS = 9
"""Nights of a level that make it the new normal: it is raised by the second, and open for a week."""
GONE = 30
"""Nights without a time after which nobody waits for a row: its case is not measured any longer."""
FLOORS = {"machine": float(np.log1p(0.02)), "class": float(np.log1p(0.01)), "series": float(np.log1p(0.02))}
"""Kind -> least change, ln."""
ODD = {"machine": 0.01, "class": 0.01, "series": 0.05}
"""Kind -> share of nights taken to be slower by anything up to ODD_REACH deviations, with nothing changed."""
ODD_REACH = 10.0
RAREST = 1e-3
"""No night is held to be rarer than this."""
ASSUMED = 500.0
"""Nights that this assumption counts for, in addition to those of the rows."""
RATE = 0.05
"""Share of the changes raised in one night that may be chance ..."""
ALONE = 0.002
"""... and the chance from which on none is raised, however few rows there are."""
LEAST_SIGMA = 1e-6
"""Even a row that never moved may move by that."""
USUAL = 6.0
"""Nights that the rows' usual spread counts for, in addition to a row's own: of few nights half of the rows
look calmer than they are."""
MAD_TO_SIGMA = 1.4826
BAND = 2.5
"""Half of the band of usual times in standard deviations of a night."""
HALF_TO_SIGMA = 1 / 4.3
"""A night's interval is Student's t over its three visits: 4.3 standard errors on either side."""
LEAST_MEMBERS, TRIMMED = 3, 0.25
"""Members that make a class's mean, and their share cut off on either side."""
NOISE_KEPT = 1.5
"""Standard deviations up to which the ceilings' movement is noise and taken off nothing."""


@dataclass(frozen=True)
class Step:
    """A change that two nights or more confirmed."""

    kind: Kind
    row: int
    """Index into `history.series` (series) or `classes` (class); 0 memory, 1 core (machine)."""
    began: int
    """Index of its first night."""
    change: Change
    """Level since / level before."""
    noise: float
    """Half of the band of usual nights before it, ln."""
    members: tuple[int, ...] = ()
    """Rows of `history.series` that moved with a class or with the machine."""
    real: bool = False
    """Whether chance does not explain it, among all rows of its kind."""
    name: str = ""
    """memory | core (machine), operator and implementation (class), all of the case (series)."""
    raised: int = -1
    """Index of the night that confirmed it: the alarm."""
    ended: int | None = None
    """Index of the night on which it was no longer open; None while it is."""


def _median(values: Floats) -> Floats:
    """[rows] median over what is known; NaN where nothing is. NumPy's nanmedian takes ten times as long."""
    if not values.size:
        return np.full(len(values), np.nan)
    count = (~np.isnan(values)).sum(axis=1)
    middle = np.stack(((count - 1) // 2, count // 2), axis=1)
    return np.asarray(np.take_along_axis(np.sort(values, axis=1), middle, axis=1).mean(axis=1))


def open_changes(kind: Kind, log: Floats, half: Floats, first: int, watched: Flags) -> dict[int, Step]:
    """Row -> the change of its present level, if it has one; of the rows that are watched.

    `log` and `half` are [rows, nights], NaN where there is no usable time, from the night `first` on.
    """
    order = np.argsort(~np.isnan(log), axis=1, kind="stable")[:, -WINDOW:]  # gaps first, times in order
    log, half = (np.take_along_axis(each, order, axis=1) for each in (log, half))
    count, nights, centre = (~np.isnan(log)).sum(axis=1), first + order, _median(log)
    watched = watched & (count > BEFORE[kind])
    watched &= nights[:, -1:].max(initial=0) - nights[:, -1:].max(axis=1, initial=0) < GONE
    # The standard deviation of a night, drawn towards what is usual among the rows.
    own = (
        MAD_TO_SIGMA * np.nan_to_num(_median(np.abs(log - centre[:, None]))) * (1 + 1 / np.maximum(count, 1))
    )
    usual = float(np.median(own[count >= LEAST])) if (count >= LEAST).any() else 0.0
    spread = np.maximum(np.sqrt((count * own**2 + USUAL * usual**2) / (count + USUAL)), LEAST_SIGMA)
    scores = (log - centre[:, None]) / spread[:, None]
    # A quick look, so that most rows are not split into levels: do the last two nights stand out?
    last, lately = log[:, -2:].mean(axis=1), _median(log[:, -2 - HOLDS : -2])
    moved = np.maximum(np.abs(last - centre), np.abs(last - lately)) > FLOORS[kind] / 2
    levels = {}
    for row in np.flatnonzero(watched & moved).tolist():
        there = np.flatnonzero(~np.isnan(log[row]))
        if (level := _levels(log[row, there], BEFORE[kind])) is not None:
            levels[row] = there, *level
            scores[row, there[level[1] :]] = np.nan  # what may be a change is no example of quiet nights
    quiet = np.sort(scores[watched].ravel())
    quiet = quiet[~np.isnan(quiet)]
    found = {}
    for row, (there, before, since) in levels.items():
        mine, began = log[row, there], int(nights[row, there[since]])
        sigma = max(float(spread[row]), HALF_TO_SIGMA * float(np.nanmedian([0.0, *half[row, there[since:]]])))
        one = _compared(kind, row, began, mine[before], mine[since:], sigma, quiet)
        if abs(one.change.log) > FLOORS[kind]:
            found[row] = one
    p = np.ones(len(centre))
    p[list(found)] = [one.change.p for one in found.values()]
    real = np.zeros(len(p), dtype=np.bool_)
    real[watched] = (adjusted(p[watched]) <= RATE) & (p[watched] <= ALONE)
    return {row: replace(one, real=bool(real[row])) for row, one in found.items()}


def _compared(
    kind: Kind, row: int, began: int, before: Floats, since: Floats, sigma: float, usual: Floats
) -> Step:
    """The nights of the present level compared with those before; `usual` are sorted scores."""
    centre = float(np.median(before))
    effect = float(np.median(since)) - centre
    error = sigma * float(np.sqrt(1 + np.pi / 2 / len(before)))  # the median is a guess, too
    out = int(((since - centre) / effect >= 0.5).sum()) if effect else 0
    itself = float(np.mean((before - centre) / effect >= 0.5)) if effect else 1.0
    by_chance = max(_tail(usual, effect / 2 / error, kind, len(before)), itself)
    p = min(1.0, 2 * float(stats.binom.sf(out - 1, len(since), by_chance))) if out > 1 else 1.0
    half = 1.96 * sigma * float(np.sqrt(1 / len(since) + np.pi / 2 / len(before)))
    return Step(kind, row, began, Change(effect, half, half, p), max(FLOORS[kind], BAND * error))


def _levels(log: Floats, least: int) -> tuple[slice, int] | None:
    """(the nights before, the first one of the present level) of a row; None if it has one level, or if fewer
    than `least` nights were before.

    What was before the last normal level says nothing of it.
    """
    points = [0, *change_points(log, least=2, penalty=PENALTY), len(log)]
    if len(points) < 3 or points[-1] - points[-2] >= HOLDS:
        return None
    normal = [begin for begin, end in pairwise(points[:-1]) if end - begin >= HOLDS]
    before = slice(normal[-1] if normal else 0, points[-2])
    return (before, before.stop) if before.stop - before.start >= least else None


def _tail(ordered: Floats, score: float, kind: Kind, nights: int) -> float:
    """Chance of a night beyond this score (in deviations; < 0 is fast), with nothing changed."""
    place = np.searchsorted(ordered, score, side="left" if score > 0 else "right")
    beyond = len(ordered) - place if score > 0 else place
    assumed = float(stats.t.sf(abs(score), (nights + USUAL) / 2))
    if score > 0:
        assumed = (1 - ODD[kind]) * assumed + ODD[kind] * max(0.0, 1 - score / ODD_REACH)
    return max(RAREST, float((beyond + ASSUMED * assumed) / (len(ordered) + ASSUMED)))


@dataclass(frozen=True)
class JudgedHistory:
    """A history, and what is to be said of it."""

    history: History
    steps: tuple[Step, ...]
    """The changes, in the order they were raised, the largest of a night first."""
    compared: Flags
    """[series] whether the last night has a time of it, and LEAST nights like it before."""
    own: Floats
    """[series, nights] ln seconds by which series were judged on the last night: less what the machine moved,
    NaN where doubted, or where the segment is another."""
    machine: Floats
    """[2, nights] how far the ceilings of BOUNDS departed, as seen on the last night, ln."""


def judged(history: History, nights: int | None = None) -> JudgedHistory:
    """The history night by night; of each night only what was known by then is used.

    `nights`: only so many of the last ones are judged; None: all.
    """
    judge = _Judge(history)
    count = len(history.nights)
    past: list[Step] = []
    standing: dict[tuple[Kind, int], Step] = {}
    for night in range(0 if nights is None else max(0, count - nights), count):
        tonight = judge.night(night, {row for kind, row in standing if kind == "class"})
        for key, step in list(standing.items()):
            one = tonight.get(key)
            if one is None or one.change.log * step.change.log < 0:
                past.append(replace(standing.pop(key), ended=night))
            else:
                members = tuple(sorted({*step.members, *one.members}))
                # A later level of the same change says less of it than all of its nights.
                newest = (one.change, one.noise) if one.began <= step.began else (step.change, step.noise)
                standing[key] = replace(step, change=newest[0], noise=newest[1], members=members)
        for key, one in tonight.items():
            if one.real and key not in standing:
                standing[key] = replace(one, name=judge.name(*key), raised=night)
    steps = sorted([*past, *standing.values()], key=lambda step: (step.raised, -abs(step.change.log)))
    return judge.result(steps)


class _Judge:
    """What is the same for all nights of a history."""

    def __init__(self, history: History) -> None:
        self.history = history
        table = history.series
        self.values: Floats = np.where(history.doubted, np.nan, history.log_s)
        self.ceiling: Flags = table["ceiling"].to_numpy(dtype=np.bool_)
        self.bound = np.where(table["bound"].to_numpy() == "memory", 0, 1)
        keys = ["operator", "implementation"]
        ours = table.loc[~self.ceiling, keys].astype(str)
        self.classes = ours.groupby(keys, sort=True).size().rename("count").reset_index()
        class_of = np.full(len(table), -1, dtype=np.int64)
        class_of[~self.ceiling] = ours.groupby(keys, sort=True).ngroup().to_numpy()
        self.class_of = class_of

    def night(self, night: int, standing: Collection[int]) -> dict[tuple[Kind, int], Step]:
        """The changes that stand out on a night, or may go on, by the nights of its segment until then.

        `standing` are the classes whose change is open, which explain their members' as new ones do.
        """
        first = self._first(night)
        own, moved, blur = self._own(first, night)
        found: dict[tuple[Kind, int], Step] = {}
        machine = open_changes("machine", moved, blur, first, np.ones(2, dtype=np.bool_))
        for row, one in machine.items():
            members = tuple(np.flatnonzero(self.ceiling & (self.bound == row)).tolist())
            found["machine", row] = replace(one, members=members)
        means = self._means(own)
        every = np.ones(len(means), dtype=np.bool_)
        classes = open_changes("class", means, np.full_like(means, np.nan), first, every)
        half = self.history.half[:, first : night + 1]
        series = open_changes("series", own, half, first, ~self.ceiling)
        for row, one in series.items():
            at = int(self.class_of[row])
            known = at in classes and (classes[at].real or at in standing)
            if not known or not _explains(classes[at], one):
                found["series", row] = one
        for row, one in classes.items():
            began = one.began - first
            departed = _median(own[:, began:]) - _median(own[:, max(0, began - WINDOW) : began])
            with_it = (self.class_of == row) & (departed / one.change.log > 0.5)
            members = tuple(at for at in np.flatnonzero(with_it).tolist() if ("series", at) not in found)
            found["class", row] = replace(one, members=members)
        return found

    def _first(self, night: int) -> int:
        """The first night of the same segment that may still be looked at."""
        segment = self.history.nights[night].segment
        first = night
        while first > max(0, night - 3 * WINDOW) and self.history.nights[first - 1].segment == segment:
            first -= 1
        return first

    def _own(self, first: int, night: int) -> tuple[Floats, Floats, Floats]:
        """(series less what the machine moved, the machine's movement [2, nights], its half-interval)."""
        values = self.values[:, first : night + 1]
        departed = values - _median(values[:, -WINDOW:])[:, None]
        moved, blur = (np.full((2, values.shape[1]), np.nan) for _ in range(2))
        own = values.copy()
        for which in range(2):
            ceilings = departed[self.ceiling & (self.bound == which)]
            series = np.flatnonzero(~self.ceiling & (self.bound == which))
            if not len(ceilings):
                continue
            moved[which] = by = _median(ceilings.T)
            sigma = MAD_TO_SIGMA * float(np.nanmedian([0.0, *_median(np.abs(ceilings - by))]))
            error = sigma * np.sqrt(np.pi / 2 / np.maximum((~np.isnan(ceilings)).sum(axis=0), 1))
            blur[which] = error / HALF_TO_SIGMA
            along = _median(departed[series].T) if len(series) >= LEAST_MEMBERS else by
            with np.errstate(invalid="ignore", divide="ignore"):
                theirs = (np.abs(by) > NOISE_KEPT * error) & (along / by > 0.5)
            moved[which] = np.where(theirs | (np.abs(by) <= NOISE_KEPT * error), by, 0.0)
            own[series] -= np.where(theirs, by, 0.0)
        return own, moved, blur

    def _means(self, own: Floats) -> Floats:
        """[classes, nights] trimmed mean departure of the members, ln; NaN for too few of them."""
        departed = own - _median(own[:, -WINDOW:])[:, None]
        means = np.full((len(self.classes), own.shape[1]), np.nan)
        for which in range(len(self.classes)):
            members = np.sort(departed[self.class_of == which], axis=0)  # NaN comes last
            for night, count in enumerate((~np.isnan(members)).sum(axis=0)):
                if count >= LEAST_MEMBERS:
                    cut = max(1, int(TRIMMED * count))
                    means[which, night] = members[cut : count - cut, night].mean()
        return means

    def name(self, kind: Kind, row: int) -> str:
        """What moved, for people."""
        if kind == "machine":
            return BOUNDS[row]
        if kind == "class":
            return " ".join(self.classes.iloc[row][["operator", "implementation"]].astype(str))
        return row_name(self.history.series.iloc[row])

    def result(self, steps: Sequence[Step]) -> JudgedHistory:
        """All of it, with what the last night was judged by."""
        own, machine = np.full_like(self.values, np.nan), np.full((2, self.values.shape[1]), np.nan)
        compared = np.zeros(len(own), dtype=np.bool_)
        if last := len(self.history.nights):
            first = self._first(last - 1)
            own[:, first:], machine[:, first:], _ = self._own(first, last - 1)
            compared = np.isfinite(own[:, -1]) & (np.isfinite(own[:, first:-1]).sum(axis=1) >= LEAST)
        return JudgedHistory(self.history, tuple(steps), compared, own, machine)


def _explains(of_class: Step, one: Step) -> bool:
    """Whether a series moved with its class."""
    change = of_class.change.log
    return change * one.change.log > 0 and abs(one.change.log) <= 2 * abs(change) + one.noise
