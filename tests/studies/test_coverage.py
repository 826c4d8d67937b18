"""The simulation that judges rules of sampling: its streams and rules by hand, and what it says of ours.

Chances are bounded: each bar on a share lies where a rule that is as good as it must be falls below it
once in a million tests.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from studies import interval_coverage
from studies.__main__ import app
from studies.interval_coverage import CoverageScore, simulate
from studies.simulated_streams import STREAMS
from tests.drawing import run_seed

PROMISED = 0.93
PUBLISHED = ("ours, 1 visit, in a run", "ours, 3 to 8 visits, in a run")
QUIET = STREAMS[0]


REPETITIONS = 30


def at_least(share: float, count: int) -> float:
    """The share of so many that a true share falls below once in a million times."""
    return float(stats.binom.ppf(1e-6, count, share)) / count


@pytest.fixture(scope="module")
def seed() -> int:
    return run_seed()


@pytest.fixture(scope="module")
def scores(seed: int) -> list[CoverageScore]:
    return [score for stream in STREAMS for score in simulate(stream, REPETITIONS, seed)]


# ---- what it says of ours


@pytest.mark.deep
def test_published_intervals_cover_what_many_runs_say(scores: list[CoverageScore], seed: int) -> None:
    """On each stream and on all together, with one visit and with several; no flag excuses a miss."""
    for rule in PUBLISHED:
        found = {s.stream: s.covered or 0.0 for s in scores if s.rule == rule}
        assert len(found) == len(STREAMS)
        low = {name: share for name, share in found.items() if share < at_least(PROMISED, REPETITIONS)}
        assert not low, (seed, rule, low)
        assert np.mean(list(found.values())) >= at_least(PROMISED, REPETITIONS * len(STREAMS)), (seed, found)


@pytest.mark.deep
def test_a_quiet_machine_raises_no_flag(scores: list[CoverageScore]) -> None:
    """A promise that flagging everything would keep is none."""
    for score in scores:
        if score.stream in (QUIET.name, "5 % stragglers, 3 times as long", "5 ms, 5 % of white noise"):
            if "1 visit" not in score.rule and "white" in score.stream:
                continue  # visits of 0.1 s differ by more than the 1 % that several must agree to
            assert score.flagged is not None and score.flagged < 0.2, score


@pytest.mark.deep
def test_short_visits_to_a_loaded_device_replace_one_long_settling(scores: list[CoverageScore]) -> None:
    for tau_s in (1, 3):
        by_rule = {s.rule: s for s in scores if s.stream == f"clock settles by 12 % in {tau_s} s"}
        one, several = by_rule["ours, 1 visit, in a run"], by_rule["ours, 3 to 8 visits, in a run"]
        assert several.error_95 < 0.002 and (several.flagged or 0.0) < 0.2
        assert several.launches < one.launches / 2


# ---- the table


def test_shares_are_counted_by_hand() -> None:
    """Five runs publish 1.1 in the middle: what many runs say. Against a launch of 1 each has its error."""
    told = [
        (interval_coverage.Told(1.0, 10, (0.9, 1.2), ()), 1.0),
        (interval_coverage.Told(1.3, 20, (1.2, 1.4), ("noisy",)), 1.0),
        (interval_coverage.Told(1.1, 30, (0.0, math.inf), ("noisy",)), 1.0),
        (interval_coverage.Told(0.8, 40, (0.7, 0.9), ()), 1.0),
        (interval_coverage.Told(1.2, 50, (1.1, 1.3), ()), 1.0),
    ]
    score = interval_coverage._score("a", "b", told, 1.0)
    assert (score.covered, score.flagged, score.covered_or_flagged) == (0.6, 0.4, 0.8)
    assert score.error == pytest.approx(0.2) and score.launches == 30


def test_the_command_prints_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_coverage, "STREAMS", (QUIET,))
    done = CliRunner().invoke(app, ["coverage", "--repetitions", "1"])
    assert done.exit_code == 0 and "ours, 1 visit, in a run" in done.output
