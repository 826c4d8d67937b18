"""What a weekly pattern costs the nightly alarms: `python -m studies.weeks [SEED [YEARS]]`.

A year of 200 series is simulated with the noise of a GPU box (tests/bench/nights_made.py), and all series but
the ceilings take up to 3 % longer on certain weekdays. After the twelfth week 30 single series step by +4 %,
on nights of their own. A step is found if an alarm of that series is raised within seven nights; a false
alarm is one of something slower that no step of the last two weeks explains.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

import numpy as np

from bench.judge.history.detector import judged
from bench.judge.history.series import History
from tests.bench.nights_made import made, others, stepped

SERIES, NIGHTS, FIRST, STEPS = 200, 365, 84, 30
BY, EFFECT, WITHIN = 0.03, 0.04, 7
PATTERNS = {
    "none": (0.0,) * 7,
    "Saturday and Sunday": (0, 0, 0, 0, 0, 1, 1),
    "Sunday": (0, 0, 0, 0, 0, 0, 1),
    "Monday to Friday": (1, 1, 1, 1, 1, 0, 0),
    "a cosine": tuple((1 + np.cos(2 * np.pi * np.arange(7) / 7)) / 2),
}
"""Share of the slowdown on each weekday, Monday first."""


class Year(NamedTuple):
    """What one year's alarms did."""

    delays: list[int]
    """Nights from a step to its alarm, of those found."""
    false: int


def weekly(history: History, pattern: str) -> History:
    """The history with all series but the ceilings slower on the pattern's weekdays."""
    days = [datetime.fromisoformat(night.utc).weekday() for night in history.nights]
    log_s = history.log_s.copy()
    log_s[others(history)] += np.log1p(BY) * np.array(PATTERNS[pattern])[days]
    return replace(history, log_s=log_s)


def year(seed: int, pattern: str) -> Year:
    """One year with its steps."""
    chance = np.random.default_rng(seed)
    history = weekly(made(chance, SERIES, NIGHTS), pattern)
    rows = chance.choice(others(history), STEPS, replace=False).tolist()
    steps = dict(zip(rows, chance.integers(FIRST, NIGHTS - 8, STEPS).tolist(), strict=True))
    for row, night in steps.items():
        history = stepped(history, [row], night, EFFECT)
    alarms = [step for step in judged(history).steps if step.effect > 0 and step.raised >= FIRST]
    since = [
        step.raised - steps[step.row] if step.kind == "series" and step.row in steps else -1
        for step in alarms
    ]
    first = {
        step.row: nights
        for step, nights in reversed(list(zip(alarms, since, strict=True)))
        if 0 <= nights < WITHIN
    }
    return Year(list(first.values()), sum(not 0 <= nights < 2 * WITHIN for nights in since))


def main(seed: int = 100, years: int = 5) -> None:
    """A line for each pattern."""
    for pattern in PATTERNS:
        results = [year(seed + number, pattern) for number in range(years)]
        delays = [delay for result in results for delay in result.delays]
        false = sum(result.false for result in results) / years
        print(
            f"{pattern:20} found {len(delays)} of {years * STEPS}, {false:.1f} false alarms a year, "
            f"{np.mean(delays):.1f} nights to the alarm",
            flush=True,
        )


if __name__ == "__main__":
    main(*(int(given) for given in sys.argv[1:3]))
