"""Rows of one kind watched night by night: what they usually take, what stands out, what is open.

The machine's two speeds, the classes and the series are watched alike; who subtracts what from whom is
the matter of `detector.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from scipy import special, stats

from bench.judge.history.rolling import LEAST, NEVER, USUAL, Nights, Weekdays, Window, append, row_median
from bench.judge.history.run_probability import LOOK_BACK, Chance
from bench.judge.history.series import Flags, Floats

Ending = Literal["recovered", "accepted", "segment", "gone"]

BAND = 2.5
"""Half of the band in standard deviations of a night: the published starting point."""
LEAST_SIGMA = 1e-6
"""Relative: even a row that never moved may move by that. It is far below every floor."""
HOLDS = 7
"""Nights after the alarm that a change is open; then it is the new normal."""
GONE = 30
"""Nights without a usable time after which nobody waits for a row: its case is not measured any longer."""
RATE = 0.1
"""Share of the changes raised in one night that may be chance (Benjamini and Hochberg's q).

Consecutive nights share one median and one spread, so p-values are a few times too small: with
nothing changed 0.1 are raised in a night of 200 series, 0.7 in one of 3,000, faster ones included."""
ALONE = 0.002
"""And no single one is raised that chance would explain more often than this."""
OWN = 0.005
"""And not of a row that is often there by itself, as one with two speeds is: the share of its nights so far
that were nearer to the new level, to the power of the nights that are now, is no more than this."""
HALF_TO_SIGMA = 1 / 4.3
"""A night's interval is Student's t over its three visits: 4.3 standard errors on either side."""


@dataclass(frozen=True)
class Track:
    """What rows were judged by; all arrays [rows, nights], NaN where not judged."""

    log: Floats
    """The value judged, ln."""
    centre: Floats
    """Rolling median of the nights before that night, ln."""
    low: Floats
    """Below it a night counts as faster ..."""
    high: Floats
    """... above it as slower."""


class Candidate(NamedTuple):
    """A change that is statistically significant tonight."""

    row: int
    began: int
    """First night of the run."""
    effect: float
    """ln(level / level before)."""
    noise: float
    """Half of the band, ln."""


@dataclass
class Open:
    """A change while it is looked at."""

    candidate: Candidate
    raised: int
    departures: list[float]
    """Departures on the usable nights since it began, ln."""
    nights: list[int]
    """The nights of `departures`."""
    members: set[int] = field(default_factory=set)
    """Rows of another watch that moved with it."""
    ended: int | None = None
    ending: Ending | None = None

    @property
    def effect(self) -> float:
        """ln(level since / level before): of all its nights; if it went back, of those that raised it."""
        return self.candidate.effect if self.ending == "recovered" else float(np.median(self.departures))

    @property
    def back(self) -> bool:
        """Whether the last two nights were in the old band, and nearer to the old level than to the new."""
        bar = min(self.candidate.noise, abs(self.candidate.effect) / 2)
        return self.held >= 2 and max(abs(departed) for departed in self.departures[-2:]) < bar

    @property
    def holds(self) -> bool:
        """Whether its nights since the alarm are, on the whole, nearer to the new level."""
        since = [by for by, night in zip(self.departures, self.nights, strict=True) if night > self.raised]
        return float(np.median(since)) / self.candidate.effect > 0.5

    @property
    def held(self) -> int:
        """Usable nights after the alarm."""
        return sum(night > self.raised for night in self.nights)


class Watch:
    """Some rows, and the changes open among them."""

    def __init__(self, rows: int, days: Sequence[int], floor: float, odd: float) -> None:
        """`days` are the weekdays of the nights to come."""
        self.window = Window(rows)
        self.track = Track(*(np.full((rows, len(days)), np.nan) for _ in range(4)))
        self._days = days
        self._weekdays = Weekdays(rows)
        self.departed: Floats = np.full(rows, np.nan)
        """Tonight's value less the median and what the weekday does, ln; known from YOUNG nights on."""
        self.departed_by_day: Floats = np.full(rows, np.nan)
        """The same with what the weekday does."""
        self.sigma: Floats = np.full(rows, np.nan)
        """Standard deviation of a night, ln."""
        self.band: Floats = np.full(rows, np.nan)
        """Half of tonight's band, ln; NaN where not judged."""
        self.open: dict[int, Open] = {}
        """Row -> the change that is open."""
        self.hidden: dict[int, Open] = {}
        """Row -> the change of a class that it is part of."""
        self.floor = floor
        self._odd = odd
        self._chance = Chance(odd)
        self._scores: Floats = np.full((rows, LOOK_BACK), np.nan)
        self._departures: Floats = np.full((rows, LOOK_BACK), np.nan)
        self._nights: Nights = np.full((rows, LOOK_BACK), -1, dtype=np.int64)
        self._beyond: Floats = np.zeros(rows)
        """+1 slower, -1 faster than the band on the last usable night; 0 within."""

    def restart(self, night: int) -> None:
        """A new segment: what was before says nothing of what comes."""
        for change in self.open.values():
            change.ended, change.ending = night, "segment"
        self.open, self.hidden = {}, {}
        self.window.restart(night)
        self._weekdays = Weekdays(len(self._scores))
        self._chance = Chance(self._odd)
        self._blank(range(len(self._scores)))

    def look(self, night: int, values: Floats, half: Floats) -> None:
        """Compare this night's values (ln, NaN where unusable) with the nights before.

        `half` is half of the 95 % interval of each value: no band is narrower than what the night itself
        did not know.
        """
        self._give_up()
        usual = self.window.usual()
        day = self._days[night]
        self.departed_by_day = values - usual.centre
        values = values - self._weekdays.expected[:, day]
        self._weekdays.push(night, day, self.departed_by_day)
        self.sigma = np.fmax(usual.sigma, half * HALF_TO_SIGMA)
        unsure = np.sqrt(1 + np.pi / 2 / np.maximum(usual.nights, 1))  # the median is a guess, too
        enough = usual.nights >= LEAST
        self.departed = values - usual.centre
        judged = enough & ~np.isnan(values)
        self.band = np.where(judged, np.maximum(self.floor, BAND * unsure * self.sigma), np.nan)
        reach = np.where(enough, np.maximum(self.floor, BAND * unsure * usual.sigma), np.nan)
        reach = np.fmax(reach, self.band)
        self.track.log[:, night] = values
        self.track.centre[:, night] = np.where(enough, usual.centre, np.nan)
        self.track.low[:, night], self.track.high[:, night] = usual.centre - reach, usual.centre + reach
        self._remember(night, judged, usual.nights, unsure * self.sigma)
        self.window.push(values, night)
        for row, change in self.open.items():
            if judged[row]:
                change.departures.append(float(self.departed[row]))
                change.nights.append(night)

    def candidates(self, watched: Flags, rate: float = RATE) -> list[Candidate]:
        """The significant changes of tonight, of the rows that are judged tonight and `watched`.

        At `rate` 1 each row is judged as if it were the only one.
        """
        rows = np.flatnonzero(watched & ~np.isnan(self.band))
        rows = rows[~np.isin(rows, [*self.open, *self.hidden])]
        moved = np.abs(self.departed[rows]) > self.floor / 2
        near = rows[moved]
        if not len(near):
            return []
        run = self._chance.run(self._scores[near], self.departed[near] > 0, self._far(near))
        p = np.ones(len(rows))
        p[moved] = run.p
        chosen = (stats.false_discovery_control(p)[moved] <= rate) & (run.p <= ALONE)
        likely = map(self._candidate, near[chosen].tolist(), run.length[chosen].tolist())
        return sorted(filter(None, likely), key=lambda candidate: -abs(candidate.effect))

    def _far(self, rows: Nights) -> Flags:
        """[rows, LOOK_BACK] whether the median of the last 1, 2, ... departures is beyond the floor."""
        last = self._departures[rows][:, ::-1]
        medians = [np.median(last[:, :nights], axis=1) for nights in range(1, LOOK_BACK + 1)]
        return np.asarray(np.abs(np.stack(medians, axis=1)) > self.floor)

    def raise_(self, night: int, candidate: Candidate) -> Open:
        """Open the change: its nights no longer count as usual."""
        row = candidate.row
        known = (self._nights[row] >= candidate.began) & ~np.isnan(self._departures[row])
        departures, nights = self._departures[row][known].tolist(), self._nights[row][known].tolist()
        change = self.open[row] = Open(candidate, night, departures, nights)
        self.window.until[row] = candidate.began
        return change

    def hide(self, rows: Collection[int], change: Open) -> None:
        """These rows moved with a class: they raise nothing, and their nights no longer count as usual."""
        for row in rows:
            self.hidden[row] = change
            self.window.until[row] = min(self.window.until[row], change.candidate.began)

    def recent(self, rows: Sequence[int], since: int) -> Floats:
        """Median departure of each row over its nights since then, ln; NaN where there are none."""
        chosen = np.asarray(rows, dtype=np.int64)
        there = (self._nights[chosen] >= since) & ~np.isnan(self._departures[chosen])
        return row_median(np.where(there, self._departures[chosen], np.nan))

    def end(self, night: int) -> list[Open]:
        """Changes that end tonight; their rows are watched again from the next night on."""
        ended: list[Open] = []
        for row, change in list(self.open.items()):
            if np.isnan(self.band[row]):
                change.ending = "gone" if night - change.nights[-1] >= GONE else None
            elif change.back or (change.held >= HOLDS and not change.holds):
                change.ending = "recovered"
            elif change.held >= HOLDS:
                change.ending = "accepted"
            if change.ending is not None:
                change.ended = night
                ended.append(self.open.pop(row))
        return ended

    def release(self, rows: Collection[int], change: Open, new_normal: bool) -> None:
        """The nights of a change that has ended: from now on the only ones that count, or never again."""
        chosen = sorted(rows)
        if new_normal:
            self.window.since[chosen] = change.candidate.began
        else:
            self.window.forget(chosen, change.candidate.began)
        self.window.until[chosen] = NEVER
        self._blank(chosen)
        for row in chosen:
            self.hidden.pop(row, None)

    def _give_up(self) -> None:
        """Rows that stand out for longer than anybody looks back, and were not raised: that is normal now."""
        held = (self.window.until < NEVER) & (self._nights[:, 0] >= self.window.until)
        held[[*self.open, *self.hidden]] = False
        self.window.let_go(np.flatnonzero(held))

    def _blank(self, rows: Collection[int]) -> None:
        chosen = list(rows)
        self._scores[chosen] = self._departures[chosen] = np.nan
        self._nights[chosen] = -1
        self._beyond[chosen] = 0

    def _remember(self, night: int, judged: Flags, count: Nights, sigma: Floats) -> None:
        """Tonight's scores: standard deviations of a bell curve as unlikely as Student's t has it."""
        quiet = np.ones(len(judged), dtype=np.bool_)
        quiet[[*self.open, *self.hidden]] = False
        self._chance.count(self._scores[judged & quiet, 0])
        known = self.departed[judged] / np.maximum(sigma[judged], LEAST_SIGMA)
        freedom = (count[judged] + USUAL) / 2
        score = -special.ndtri(special.stdtr(freedom, -np.abs(known))) * np.sign(known)
        append(self._scores, judged, score)
        append(self._departures, judged, self.departed[judged])
        append(self._nights, judged, night)
        side = np.where(np.abs(self.departed) > self.band, np.sign(self.departed), 0.0)
        begins = judged & quiet & (side != 0) & (side != self._beyond)
        over = judged & quiet & (side == 0)
        self.window.until[begins] = night
        self.window.until[over] = NEVER
        self._beyond[judged] = side[judged]

    def _candidate(self, row: int, length: int) -> Candidate | None:
        departures, nights = self._departures[row, -length:], self._nights[row, -length:]
        effect = float(np.median(departures))
        with_it = departures * np.sign(effect) > abs(effect) / 2
        began = int(nights[with_it][0])
        until, self.window.until[row] = self.window.until[row], min(began, self.window.until[row])
        before = self.window.beyond(row, effect / 2)
        self.window.until[row] = until
        if not before ** int(with_it.sum()) <= OWN:
            return None
        return Candidate(row, began, effect, float(self.band[row]))
