"""The simulation that judges rules of sampling: its streams and rules by hand, and what it says of ours.

Chances are bounded: each bar on a share lies where a rule that is as good as it must be falls below it
once in a million tests.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from bench.sampling.publish import VisitSamples
from studies import interval_coverage
from studies.__main__ import app
from studies.interval_coverage import (
    CoverageScore,
    SimulatedRun,
    coverage_lines,
    simulate,
)
from studies.simulated_streams import STREAMS
from tests.drawing import run_seed

PROMISED = 0.93
PUBLISHED = ("ours, 1 visit, in a run", "ours, 3 to 8 visits, in a run")
BY_NAME = {stream.name: stream for stream in STREAMS}
LONG_STATES = BY_NAME["two states 5 % apart, 5 s each"]
QUIET = BY_NAME["steady, 0.3 % jitter"]


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
def test_visits_alone_cannot_know_what_lasts(scores: list[CoverageScore]) -> None:
    """One visit to a drifting machine: hardly ever right, and nothing says so: it is never judged alone."""
    alone = {s.stream: s.covered_or_flagged or 0.0 for s in scores if s.rule == "ours, 1 visit, alone"}
    assert alone["slow drift, 2 % up and down"] < at_least(PROMISED, REPETITIONS)


@pytest.mark.deep
def test_short_visits_to_a_loaded_device_replace_one_long_settling(scores: list[CoverageScore]) -> None:
    for tau_s in (1, 3):
        by_rule = {s.rule: s for s in scores if s.stream == f"clock settles by 12 % in {tau_s} s"}
        one, several = by_rule["ours, 1 visit, in a run"], by_rule["ours, 3 to 8 visits, in a run"]
        assert several.error_95 < 0.002 and (several.flagged or 0.0) < 0.2
        assert several.launches < one.launches / 2


# ---- streams


def test_what_a_row_says_alone_and_in_its_run() -> None:
    """A processor that is slow for now: only the run knows its usual speed."""
    run = SimulatedRun(BY_NAME["CPU, two speeds 9 % apart, 5 s each"], np.random.default_rng(4))
    run.machine = run.case = lambda at_s: np.where(at_s < 100.0, 1.0, 1.09)
    settings = interval_coverage.protocol("cpu")
    found = [(*run.visit(120.0, settings), 120.0)]
    alone = interval_coverage._told(found, settings, run, None)
    in_run = interval_coverage._told(found, settings, run, run.ceilings())
    assert alone.value_s == in_run.value_s == pytest.approx(1.09e-3, rel=0.01)
    assert alone.interval_s is not None and in_run.interval_s is not None
    assert alone.interval_s[0] > 1.05e-3 and in_run.interval_s[0] < 1e-3
    assert alone.launches == found[0][1]


def test_flags_are_those_of_the_visits_that_are_published() -> None:
    run = SimulatedRun(QUIET, np.random.default_rng(5))
    settings = interval_coverage.protocol("cuda", visits=3)
    good = VisitSamples(tuple(1e-5 * (1 + 1e-3 * (i % 7)) for i in range(60)), True, 0.0, "converged", 0.0)

    def told(*visits: VisitSamples) -> tuple[str, ...] | None:
        return interval_coverage._told([(visit, 60, 0.0) for visit in visits], settings, run, None).flags

    assert told(good, good, good) == ()
    assert told(good, good) == ("unconverged",)
    assert told(good, good, good, replace(good, settled=False)) == (), "it is left out"
    ramp = replace(good, samples_s=tuple(1e-5 * (1 + 1e-3 * i) for i in range(60)))
    assert "drifting" in (told(ramp, ramp, ramp) or ())


# ---- the table


def test_a_seed_gives_the_same_table_again_and_another_gives_another() -> None:
    stream = replace(LONG_STATES, name="two states")
    tables = [list(coverage_lines(simulate(stream, 3, seed), 3, seed)) for seed in (5, 5, 6)]
    assert tables[0] == tables[1] != tables[2]
    of_many = simulate(BY_NAME["slow drift, 2 % up and down"], 4, 5)
    assert all(score.error < score.error_95 for score in of_many)  # no run is another's double
    assert tables[0][0].startswith("3 repetitions of each, seed 5")
    assert len(tables[0]) == 3 + 4 and all(len(line) <= 110 for line in tables[0])


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
    silent = interval_coverage._score("a", "b", [(interval_coverage.Told(1.0, 10), 1.0)], 1.0)
    assert (silent.covered, silent.flagged, silent.covered_or_flagged) == (None, None, None)


def test_the_command_prints_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_coverage, "STREAMS", (QUIET,))
    done = CliRunner().invoke(app, ["coverage", "--repetitions", "1"])
    assert done.exit_code == 0 and "ours, 1 visit, in a run" in done.output
