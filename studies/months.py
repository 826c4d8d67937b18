"""What nightly alarms are worth: `python -m studies.months [SEED] [--noise RESULT...]`.

Months of 200 series x 50 nights are simulated, with the noise of a GPU box (tests/bench/nights_made.py: 1 %
from night to night, 5 % of the nights are 3 to 8 % slow), or, with `--noise`, with what those repeated runs
of one commit really did: whole nights of departures from each series' median are drawn again and again, so
that what moves together stays together. From night 35 on, some series take 3 % or 5 % longer.

A false alarm is one raised (it did not stand the night before) on a night from the tenth on while nothing had
changed. A step is caught if an alarm stands for that series on one of its first seven nights.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.judge.history.series import Flags, History
from bench.judge.history.steps import JudgedHistory, judged
from tests.bench.nights_made import Noise, made, others, stepped

SERIES, NIGHTS, STEP = 200, 50, 35
FIRST = 10
"""Night from which on alarms count."""
WITHIN = 7
"""Nights within which a step must be found."""
EFFECTS = (0.03, 0.05)


class Line(NamedTuple):
    """What the rule did."""

    raised: float
    """False alarms raised per 100 series-nights."""
    standing: float
    """Series-nights on which a false alarm stood, per 100."""
    caught: tuple[float, float]
    """Shares of steps of EFFECTS found in time."""
    delay: float
    """Nights from a +5 % step to its alarm, median of those caught."""

    def __str__(self) -> str:
        told = "".join(f"{share:9.1%}" for share in self.caught)
        return f"{self.raised:8.3f} {self.standing:9.3f} {told} {self.delay:7.0f}"


class Tally:
    """Adds months up."""

    def __init__(self) -> None:
        self.nights = self.raised = self.standing = 0
        self.caught: dict[float, list[bool]] = {effect: [] for effect in EFFECTS}
        self.delays: list[int] = []

    def quiet(self, alarm: Flags) -> None:
        """[series, nights] alarms of a month in which nothing changed."""
        before = np.zeros_like(alarm)
        before[:, 1:] = alarm[:, :-1]
        self.nights += alarm[:, FIRST:].size
        self.raised += int((alarm & ~before)[:, FIRST:].sum())
        self.standing += int(alarm[:, FIRST:].sum())

    def step(self, effect: float, alarm: Flags) -> None:
        """[series, nights] alarms of series that stepped by `effect` in night STEP."""
        there = alarm[:, STEP : STEP + WITHIN]
        self.caught[effect] += there.any(axis=1).tolist()
        if effect == EFFECTS[-1]:
            self.delays += np.argmax(there, axis=1)[there.any(axis=1)].tolist()

    def line(self) -> Line:
        """So far."""
        low, high = (float(np.mean(self.caught[effect])) for effect in EFFECTS)
        share = 100 / max(1, self.nights)
        delay = float(np.median(self.delays)) if self.delays else float("nan")
        return Line(self.raised * share, self.standing * share, (low, high), delay)


def months(chance: np.random.Generator, noise: Noise | None, real: History | None) -> History:
    """A quiet month: of synthetic noise, or of real nights drawn again."""
    if real is None:
        return made(chance, SERIES, NIGHTS, noise=noise)
    shape = made(chance, 0, NIGHTS, ceilings=0)
    count = len(real.nights)
    drawn = chance.integers(count, size=NIGHTS)
    centre = np.nanmedian(real.log_s, axis=1, keepdims=True)
    # The median of few nights is partly made of each of them: their departures look too small.
    departed = (real.log_s - centre) * np.sqrt(count / (count - 1))
    return replace(
        real,
        nights=shape.nights,
        log_s=centre + departed[:, drawn],
        half=real.half[:, drawn],
        doubted=real.doubted[:, drawn],
    )


def repeated(history: History) -> History:
    """The series that were measured on two nights at least."""
    rows = np.flatnonzero((~np.isnan(history.log_s)).sum(axis=1) > 1)
    return replace(
        history,
        series=history.series.iloc[rows].reset_index(drop=True),
        log_s=history.log_s[rows],
        half=history.half[rows],
        doubted=history.doubted[rows],
    )


def alarms(found: JudgedHistory) -> Flags:
    """[series, nights] on which of them an alarm of ours stands, its own or its class's."""
    alarm = np.zeros(found.history.log_s.shape, dtype=np.bool_)
    for step in found.steps:
        if step.kind != "machine" and step.change.log > 0:
            rows = [step.row] if step.kind == "series" else list(step.members)
            alarm[rows, step.raised : step.ended] = True
    return alarm


def table(seed: int, repetitions: int, noise: Noise, real: History | None = None) -> Iterator[str]:
    """A line for each number of series that step."""
    chance = np.random.default_rng(seed)
    tallies = {name: Tally() for name in ("1", "20", "all")}
    for _ in range(repetitions):
        quiet = months(chance, noise, real)
        rows = others(quiet)
        whole = alarms(judged(quiet))[rows]
        for tally in tallies.values():
            tally.quiet(whole)
        for effect in EFFECTS:
            for tally, count in zip(tallies.values(), (1, 20, len(rows)), strict=True):
                for _ in range(ONE_OF_MANY if count == 1 else 1):
                    chosen = chance.choice(len(rows), min(count, len(rows)), replace=False)
                    stepping = [rows[which] for which in chosen]
                    tally.step(effect, alarms(judged(stepped(quiet, stepping, STEP, effect)))[stepping])
    yield f"seed {seed}, {repetitions} months of {len(rows)} series x {NIGHTS} nights"
    yield "stepping   raised  standing    +3 %     +5 %   delay"
    for name, tally in tallies.items():
        yield f"{name:8} {tally.line()}"
    yield "raised, standing: false alarms per 100 series-nights; +3 %, +5 %: found in a week; delay: of +5 %"


ONE_OF_MANY = 5
"""Times that another single series steps in each month: one a month would be too few to tell."""


def _main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("seed", nargs="?", type=int, default=0)
    given.add_argument("--noise", nargs="+", type=Path, default=[], help="repeated runs of one commit")
    given.add_argument("--months", type=int, default=12)
    asked = given.parse_args()
    real = None
    if asked.noise:
        from bench.judge.history.load import histories

        real = repeated(max(histories(asked.noise, print), key=lambda one: len(one.nights)))
        if len(real.nights) < 2:
            given.error(f"--noise: {len(real.nights)} run of one device; give two at least, of one commit")
    for odd in (0.05, 0.08) if real is None else (0.05,):
        print("measured noise" if real else f"{odd:.0%} of the nights are odd")
        for line in table(asked.seed, asked.months, Noise(outliers=odd), real):
            print(line, flush=True)


if __name__ == "__main__":
    _main()
