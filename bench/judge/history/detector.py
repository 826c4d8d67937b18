"""What really changed from night to night: the machine, classes of series, single series.

Of each night, in this order:

1. **The machine.** How far the ceilings of a bound (libraries' kernels, none of ours) departed from their own
   rolling medians is how far the machine moved. It is taken off every series of that bound, as far as it
   stands out of its own noise: noise taken off three thousand series at once would move them all together.
   And only where the median of those series moved at least half as far: a few odd ceilings are no machine.
2. **Classes**, an implementation of an operator each: the mean departure of its members from their own
   rolling medians, a quarter of them cut off on either side, so that neither one member nor a night's odd
   ones move it, and a changed set of members is no change.
3. **Single series** that no open change of their class explains.

All three by one rule (monitor.py): the last nights, two at least, stand out on one side by more than
chance explains, at Benjamini and Hochberg's rate over all rows looked at, and by more than a floor. A change
is open until two nights running are back, or for seven nights more: then it is the new normal. Nothing is
compared with nights of another segment; doubted and missing nights are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
import pandas as pd

from bench.case_name import row_name
from bench.judge.history.monitor import HALF_TO_SIGMA, Candidate, Ending, Open, Track, Watch
from bench.judge.history.rolling import LEAST, NEVER, Window
from bench.judge.history.series import Flags, Floats, History

Kind = Literal["machine", "class", "series"]
BOUNDS = ("memory", "core")

FLOOR = float(np.log1p(0.02))
"""A series' change of less than 2 % is raised by nobody ..."""
CLASS_FLOOR = float(np.log1p(0.01))
"""... a class's of 1 %."""
ODD = 0.05
"""Share of a series' nights that are taken to be odd with nothing changed, before there are counts ..."""
FEW_ODD = 0.01
"""... and of a class's and the machine's, whose odd members are cut off."""
LEAST_MEMBERS = 3
"""Members that make a class's mean."""
TRIMMED = 0.25
"""Share of the members cut off on either side."""
NOISE_KEPT = 1.5
"""Standard deviations up to which the ceilings' movement is noise and taken off nothing."""


@dataclass(frozen=True)
class ConfirmedChange:
    """One change that two nights running, or more, confirmed."""

    kind: Kind
    name: str
    """memory | core (machine), operator and implementation (class), all of the case (series)."""
    row: int
    """Index into `history.series` (series) or `JudgedHistory.classes` (class); 0 memory, 1 core (machine)."""
    began: int
    """Index of the first night of it."""
    raised: int
    """Index of the night that confirmed it: the alarm."""
    ended: int | None
    """Index of the night that ended it; None while it is open."""
    ending: Ending | None
    """Back in the old band; held for a week, so the new normal; its segment ended; unmeasured for a month."""
    effect: float
    """ln(level since / level before); > 0 is slower."""
    noise: float
    """Half of the band before it, ln: effect / noise is how far it stands out."""
    members: tuple[int, ...]
    """Rows of `history.series` that moved with a class or with the machine."""


@dataclass(frozen=True)
class JudgedHistory:
    """A history, and what is to be said of it."""

    history: History
    machine: Track
    """[2, nights]: memory, core; the median departure of the ceilings, ln."""
    series: Track
    """[series, nights]; ln seconds less what the machine moved. Ceilings as they are."""
    classes: pd.DataFrame
    """A row for each: operator, implementation, count (of its series)."""
    by_class: Track
    """[classes, nights]; the mean departure of the members, ln."""
    steps: tuple[ConfirmedChange, ...]
    """The changes of all nights, in the order they were raised, the largest effect of a night first."""
    short: Flags
    """[series] too few nights so far to be judged tonight."""


def judged(history: History) -> JudgedHistory:
    """The history night by night; of each night only what was known by then is used."""
    return _Judge(history).judged()


class _Judge:
    """The state from one night to the next."""

    def __init__(self, history: History) -> None:
        self.history = history
        table = history.series
        count = len(table)
        days = [datetime.fromisoformat(night.utc).weekday() for night in history.nights]
        self.ceiling: Flags = table["ceiling"].to_numpy(dtype=np.bool_)
        self.bound = np.where(table["bound"].to_numpy() == "memory", 0, 1)
        self.values: Floats = np.where(history.doubted, np.nan, history.log_s)
        self.classes, self.class_of = _classes(table)
        self.machine = Watch(2, days, FLOOR, FEW_ODD)
        self.by_class = Watch(len(self.classes), days, CLASS_FLOOR, FEW_ODD)
        self.series = Watch(count, days, FLOOR, ODD)
        self.probes = Window(count)
        """The ceilings, less what of the machine's movement has become normal."""
        self.normal: Floats = np.zeros(2)
        """What has, ln."""
        self.along: Floats = np.full((2, len(days)), np.nan)
        """[bounds, nights] how far the other series of a bound departed, ln."""
        self.members = [np.flatnonzero(self.class_of == which) for which in range(len(self.classes))]
        self.changes: list[tuple[Kind, Open]] = []

    def judged(self) -> JudgedHistory:
        segment = self.history.nights[0].segment if self.history.nights else 0
        for at, night in enumerate(self.history.nights):
            if night.segment != segment:
                segment = night.segment
                for watch in (self.machine, self.by_class, self.series):
                    watch.restart(at)
                self.probes.restart(at)
                self.normal[:] = 0
            self._night(at)
        counts = self.series.window.usual().nights
        return JudgedHistory(
            history=self.history,
            machine=self.machine.track,
            series=self.series.track,
            classes=self.classes,
            by_class=self.by_class.track,
            steps=tuple(self._steps()),
            short=np.asarray(counts < LEAST),
        )

    def _night(self, night: int) -> None:
        values = self.values[:, night]
        moved = self._machine(night, values)
        own = np.where(self.ceiling, values, values - moved[self.bound])
        self.series.look(night, own, self.history.half[:, night])
        self.by_class.look(night, self._means(), np.full(len(self.classes), np.nan))
        for candidate in self.by_class.candidates(np.ones(len(self.classes), dtype=np.bool_)):
            self._raise_class(night, candidate)
        for candidate in self.series.candidates(~self.ceiling):
            if not self._joins(candidate):
                self.changes.append(("series", self.series.raise_(night, candidate)))
        self._end(night)

    def _machine(self, night: int, values: Floats) -> Floats:
        """How far the machine moved since the segment began, [memory, core], ln; noise left out."""
        less = np.where(self.ceiling, values - self.normal[self.bound], np.nan)
        usual = self.probes.usual()
        departed = less - usual.centre
        by: Floats = np.full(2, np.nan)
        blur: Floats = np.zeros(2)
        for which in range(2):
            there = (self.bound == which) & ~np.isnan(departed)
            if there.any():
                by[which] = np.median(departed[there])
                blur[which] = np.median(usual.sigma[there]) * np.sqrt(np.pi / 2 / there.sum())
        self.probes.push(less, night)
        self.machine.look(night, by, blur / HALF_TO_SIGMA)
        along = self.along[:, night] = self._moved_along(values, by)
        for candidate in self.machine.candidates(np.ones(2, dtype=np.bool_)):
            if np.nanmedian(self.along[candidate.row, candidate.began : night + 1]) / candidate.effect > 0.5:
                self.changes.append(("machine", self.machine.raise_(night, candidate)))
                self.probes.until[(self.bound == candidate.row) & self.ceiling] = candidate.began
        level: Floats = np.zeros(2)
        for which, change in self.machine.open.items():
            level[which] = change.effect
        noise = NOISE_KEPT * np.fmax(self.machine.sigma, blur)
        rest = by - level
        with np.errstate(divide="ignore", invalid="ignore"):
            theirs = (np.abs(rest) > noise) & ((along - level) / rest > 0.5)
            return np.asarray(self.normal + level + np.where(theirs, rest * (1 - (noise / rest) ** 2), 0.0))

    def _moved_along(self, values: Floats, by: Floats) -> Floats:
        """Tonight's median departure of each bound's other series, ln; of fewer than LEAST_MEMBERS, `by`."""
        departed = values - self.normal[self.bound] - self.series.window.usual().centre
        there = ~self.ceiling & ~np.isnan(departed)
        members = [departed[there & (self.bound == which)] for which in range(2)]
        moved = [np.median(own) if len(own) >= LEAST_MEMBERS else np.nan for own in members]
        return np.where(np.isnan(moved), by, moved)

    def _means(self) -> Floats:
        """The trimmed mean of the departures of each class's members tonight, ln; NaN for too few."""
        means = np.full(len(self.classes), np.nan)
        for which, rows in enumerate(self.members):
            there = self.series.departed_by_day[rows]
            there = np.sort(there[~np.isnan(there)])
            if len(there) >= LEAST_MEMBERS:
                cut = max(1, int(TRIMMED * len(there)))
                means[which] = there[cut : len(there) - cut].mean()
        return means

    def _raise_class(self, night: int, candidate: Candidate) -> None:
        change = self.by_class.raise_(night, candidate)
        self.changes.append(("class", change))
        free = [int(row) for row in self.members[candidate.row] if row not in self.series.open]
        with_it = self.series.recent(free, candidate.began) / candidate.effect > 0.5
        change.members.update(row for row, moved in zip(free, with_it, strict=True) if moved)
        self.series.hide(change.members, change)

    def _joins(self, candidate: Candidate) -> bool:
        """Whether an open change of its class explains a series' change; it is then part of that one."""
        change = self.by_class.open.get(int(self.class_of[candidate.row]))
        if change is None or candidate.effect * change.effect <= 0:
            return False
        if abs(candidate.effect) > abs(change.effect) + candidate.noise:
            return False
        change.members.add(candidate.row)
        self.series.hide([candidate.row], change)
        return True

    def _end(self, night: int) -> None:
        for change in self.series.end(night):
            self.series.release([change.candidate.row], change, change.ending == "accepted")
        for change in self.by_class.end(night):
            # Members are measured from their own medians: where these move along, the class is at 0 again.
            self.by_class.release([change.candidate.row], change, new_normal=False)
            self.series.release(change.members, change, change.ending == "accepted")
        for change in self.machine.end(night):
            which = change.candidate.row
            if change.ending == "accepted":
                self.normal[which] += change.effect
            self.machine.release([which], change, new_normal=False)
            probes = np.flatnonzero((self.bound == which) & self.ceiling)
            self.probes.forget(probes, change.candidate.began)
            self.probes.until[probes] = NEVER

    def _steps(self) -> Iterable[ConfirmedChange]:
        order = sorted(self.changes, key=lambda pair: (pair[1].raised, -abs(pair[1].effect)))
        for kind, change in order:
            row = change.candidate.row
            members = sorted(change.members)
            if kind == "machine":
                members = np.flatnonzero(self.ceiling & (self.bound == row)).tolist()
            yield ConfirmedChange(
                kind=kind,
                name=self._name(kind, row),
                row=row,
                began=change.candidate.began,
                raised=change.raised,
                ended=change.ended,
                ending=change.ending,
                effect=change.effect,
                noise=change.candidate.noise,
                members=tuple(members),
            )

    def _name(self, kind: Kind, row: int) -> str:
        if kind == "machine":
            return BOUNDS[row]
        if kind == "class":
            return " ".join(self.classes.iloc[row][["operator", "implementation"]].astype(str))
        return row_name(self.history.series.iloc[row])


def _classes(table: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The classes (operator, implementation, count), and of each series its class; -1 for a ceiling."""
    keys = ["operator", "implementation"]
    ours = table.loc[~table["ceiling"].astype(bool), keys].astype(str)
    class_of = np.full(len(table), -1, dtype=np.int64)
    class_of[~table["ceiling"].to_numpy(dtype=bool)] = ours.groupby(keys, sort=True).ngroup().to_numpy()
    return ours.groupby(keys, sort=True).size().rename("count").reset_index(), class_of
