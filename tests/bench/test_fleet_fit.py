"""Which units of a fleet are slow: by made-up times of which everything is known."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bench.fleet import fit as fitting
from bench.fleet import judge
from bench.fleet.fit import LEAST_UNITS, Fit, fit
from bench.fleet.null import Null, fitted, qn
from bench.fleet.observed import CLASSES, Fleet, Unit
from bench.fleet.report import slowest_of

Chance = np.random.Generator
Slow = dict[int, dict[str, float]]
"""Unit -> class, `all` or `compute together` -> time over the others'."""


def made(
    chance: Chance,
    units: int = 24,
    per_node: int = 8,
    slow: Slow | None = None,
    sd: float = 0.01,
    run_sd: float = 0.003,
    together: bool = False,
    kind: str = "h100",
    runs: int = 1,
) -> Fleet:
    """A fleet with three cases of each class. No healthy unit is farther out than 1.7 standard deviations."""
    every = {
        f"{kind}{i}": Unit(f"{kind}{i}", kind, f"{kind}-n{i // per_node}", f"{i % per_node}", "", "", {})
        for i in range(units)
    }
    own = math.sqrt(3) * sd * chance.permutation(np.linspace(-1, 1, units))
    manners = (False, True) if together else (False,)
    rows = []
    for unit, klass, manner in itertools.product(range(units), CLASSES, manners):
        keys = ("all", klass, f"{klass} together") if manner else ("all", klass)
        log_s = own[unit] + sum(math.log((slow or {}).get(unit, {}).get(key, 1.0)) for key in keys) - 7
        for case, at in itertools.product(range(3), range(runs)):
            noise = run_sd * chance.uniform(-1.7, 1.7)
            rows.append((f"{kind}{unit}", f"{klass}{case}", klass, manner, f"2026{at}", log_s + noise))
    times = pd.DataFrame(rows, columns=["unit", "case", "class", "together", "utc", "log_s"])
    times = times.assign(kind=kind, run_id=times["utc"], half=0.002)
    return Fleet(every, times, pd.DataFrame(), [], [])


def named(found: Fit) -> list[fitting.Slow]:
    """Those that are slower than a healthy unit ever is; one of these is named too in a few fits of 1000."""
    large = [slow for slow in found.slow if slow.effect > 0.05]
    assert len(found.slow) <= len(large) + 1
    return large


def names(found: Fit) -> list[str]:
    return [slow.unit or slow.node for slow in named(found)]


def test_nothing_is_named_where_nothing_is_slow(chance: Chance) -> None:
    found = fit(made(chance, together=True))
    assert found.judged and not named(found)
    assert found.effects["slow"].sum() <= 2 and found.nodes["slow"].sum() <= 1
    assert len(found.effects) == 24 * (2 * len(CLASSES) + 1)


@pytest.mark.parametrize("klass", CLASSES)
def test_a_unit_slow_in_one_class_is_named_with_its_class_and_effect(chance: Chance, klass: str) -> None:
    (slow,) = named(fit(made(chance, slow={17: {klass: 1.09}})))
    assert (slow.unit, slow.node, slow.klass, slow.together) == ("h10017", "h100-n2", klass, False)
    assert slow.slow_in == ((klass, False),) and slow.p < 1e-3
    # its own healthy part is within 1.7 %, and the interval is about its effect now, not about the fault
    assert 0.06 < slow.effect < 0.11 and slow.low < slow.effect < slow.high
    assert slow.ratio == math.exp(slow.effect)


def test_slow_in_everything_and_slow_only_together_are_told_apart(chance: Chance) -> None:
    (slow,) = named(fit(made(chance, slow={3: {"all": 1.1}}, together=True)))
    assert (slow.unit, slow.klass, slow.together) == ("h1003", "all", None)
    assert {klass for klass, _ in slow.slow_in} == {*CLASSES, "all"}
    (slow,) = named(fit(made(chance, slow={9: {"compute together": 1.1}}, together=True)))
    assert (slow.klass, slow.together) == ("compute", True) and ("compute", False) not in slow.slow_in


def test_a_slow_node_is_named_as_a_node_and_its_units_relative_to_it(chance: Chance) -> None:
    slow: Slow = {i: {"all": 1.1} for i in range(16, 24)}
    slow[20] = {"all": 1.1, "memory": 1.25}
    found = fit(made(chance, units=96, slow=slow))
    node, unit = named(found)
    assert (node.name, node.unit, node.klass) == ("h100-n2", None, "all")
    assert node.effect == pytest.approx(math.log(1.1), abs=0.02)
    assert (unit.unit, unit.klass) == ("h10020", "memory") and 0.17 < unit.effect < 0.27
    rows = found.effects[(found.effects["unit"] == "h10020") & (found.effects["class"] == "memory")]
    assert (rows["effect"] - rows["relative"]).item() == pytest.approx(math.log(1.1), abs=0.02)


def test_one_slow_unit_does_not_make_its_node_slow(chance: Chance) -> None:
    for per_node, times in ((1, 1.1), (2, 1.3), (4, 1.3), (8, 1.3)):
        found = fit(made(chance, per_node=per_node, slow={5: {"all": times}}))
        assert names(found) == ["h1005"] and found.nodes.empty == (per_node == 1)


def test_kinds_are_judged_by_themselves(chance: Chance) -> None:
    old = made(chance, slow={5: {"compute": 1.1}})
    new = made(chance, units=16, kind="b200", slow={2: {"all": 1.15}})
    new.times["log_s"] -= 1.0
    times = pd.concat([old.times, new.times])
    assert set(names(fit(replace(old, units={**old.units, **new.units}, times=times)))) == {"h1005", "b2002"}


def test_a_fast_unit_is_told_and_no_fault(chance: Chance) -> None:
    found = fit(made(chance, slow={8: {"cache": 0.85}}))
    assert not found.slow
    fast = found.effects[found.effects["fast"].astype(bool) & (found.effects["class"] == "cache")]
    assert fast["unit"].tolist() == ["h1008"]


def test_too_few_units_are_compared_but_not_judged(chance: Chance) -> None:
    found = fit(made(chance, units=LEAST_UNITS - 1, slow={0: {"all": 2.0}}))
    assert not found.judged and not found.slow and not found.spreads and len(found.effects)
    assert any("7 units, too few" in remark for remark in found.remarks)
    assert found.effects["p"].isna().all()
    assert found.effects.loc[found.effects["unit"] == "h1000", "effect"].min() > 0.6
    assert names(fit(made(chance, units=LEAST_UNITS, slow={0: {"all": 2.0}}))) == ["h1000"]


def test_units_with_no_case_in_common_cannot_be_compared(chance: Chance) -> None:
    fleet = made(chance, units=2)
    found = fit(fleet)
    assert found.effects.empty and not found.judged and "nothing can be compared" in found.remarks[0]
    empty = fit(replace(fleet, units={}, times=fleet.times.iloc[:0]))
    assert empty.effects.empty and not empty.remarks and "relative" in empty.effects


def test_a_unit_without_some_cases_is_compared_in_the_others(chance: Chance) -> None:
    fleet = made(chance, slow={4: {"compute": 1.1}})
    lacks = fleet.times["case"].isin(["compute0", "memory0", "memory1", "memory2"])
    found = fit(replace(fleet, times=fleet.times[~lacks | (fleet.times["unit"] != "h1004")]))
    assert names(found) == ["h1004"]
    assert "memory" not in set(found.effects.loc[found.effects["unit"] == "h1004", "class"])


def test_one_odd_case_does_not_make_a_class(chance: Chance) -> None:
    """A time that is far off in one case moves the unit's effect in its class by little."""
    fleet = made(chance)
    odd = (fleet.times["unit"] == "h1006") & (fleet.times["case"] == "compute1")
    before = fit(fleet).effects
    fleet.times.loc[odd, "log_s"] += 0.3
    after = fit(fleet).effects
    at = (before["unit"] == "h1006") & (before["class"] == "compute")
    assert abs((after["effect"] - before["effect"])[at].item()) < 0.05


def test_noise_between_runs_widens_intervals_and_what_all_share_does_not(chance: Chance) -> None:
    width = []
    for noise, drift in ((0.003, 0.0), (0.003, 0.2), (0.03, 0.0)):
        fleet = made(chance, runs=4, run_sd=noise)
        fleet.times["log_s"] += drift * (fleet.times["run_id"] == "20263")
        effects = fit(fleet).effects
        width.append((effects["high"] - effects["low"]).median())
    assert width[1] < 1.5 * width[0] and width[2] > 3 * width[0]


def test_the_newest_run_is_judged(chance: Chance) -> None:
    fleet = made(chance, runs=3)
    for unit, run in (("h1002", "20260"), ("h1003", "20262")):  # one mended, one broken since
        fleet.times.loc[(fleet.times["unit"] == unit) & (fleet.times["run_id"] == run), "log_s"] += 0.15
    assert names(fit(fleet)) == ["h1003"]


def test_published_intervals_that_are_too_wide_hide_nothing_in_many_units(chance: Chance) -> None:
    fleet = made(chance, units=48, slow={30: {"memory": 1.12}})
    fleet.times["half"] = 0.5
    found = fit(fleet)
    assert names(found) == ["h10030"]
    assert all(spread.sd < 0.02 for spread in found.spreads), "what was observed"


# ---- heavy tails

QN_OF_T6 = 1.13
"""Qn of Student's t with six degrees of freedom."""


@pytest.mark.parametrize("seed", [8, 26, 44])
def test_a_unit_far_from_all_others_is_named_whatever_tail_is_fitted(seed: int) -> None:
    """Draws in which a fitted tail can explain the slow units too. Eight deviations: Qn is known to 12 %."""
    chance, sd = np.random.default_rng(seed), 0.0098
    fleet = made(chance, 48, 1, {7: {"all": 1.12}, 11: {"all": 1.08}}, sd=0)
    own = dict(zip(fleet.units, sd * chance.standard_t(6, 48), strict=True))
    fleet.times["log_s"] += fleet.times["unit"].map(own)
    mean = fleet.times.groupby("unit")["log_s"].mean()
    far = set(mean.index[mean > mean.median() + 8 * QN_OF_T6 * sd])
    assert far and far <= {slow.unit for slow in fit(fleet).slow}


@pytest.mark.parametrize("law", [pytest.param("normal", marks=pytest.mark.deep), "t6"])
def test_of_the_named_one_in_twenty_may_be_healthy_also_with_heavy_tails(law: str) -> None:
    """64 units in one class, two of them slow, hundred times; a count differs by its root."""
    chance, healthy, all_named = np.random.default_rng(31), 0, 0
    for _ in range(100):
        effect = 0.012 * chance.standard_normal(64) if law == "normal" else 0.0098 * chance.standard_t(6, 64)
        effect[:2] += np.log1p([0.12, 0.08])
        units, se = list(map(str, range(64))), np.full((64, 1), 1e-3)
        wide = judge.Wide(units, [("compute", False)], effect[:, None], se)
        (verdict,) = judge.named([judge.tested(wide)])
        healthy, all_named = healthy + verdict.slow[2:].sum(), all_named + verdict.slow.sum()
    assert all_named > 190, "of 200 slow ones"
    assert healthy <= 0.05 * all_named + 3 * math.sqrt(0.05 * all_named)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_slow_node_that_nobody_knows_hides_no_unit(seed: int) -> None:
    """A quarter of the units; in 4 of 80 draws some of them do pass for healthy."""
    slow: Slow = {20: {"all": 1.12}} | {unit: {"all": 1.08} for unit in range(8)}
    found = fit(made(np.random.default_rng(seed), 32, 1, slow))
    assert {each.unit for each in found.slow} >= {f"h100{unit}" for unit in slow}


# ---- the null


def null_of(effects: np.ndarray) -> Null:
    (null,) = fitted(effects[:, None], np.array([1e-3]))
    return null


def test_qn_is_a_standard_deviation_that_outliers_do_not_move(chance: Chance) -> None:
    for count in (8, 9, 30, 31, 500, 4000):
        draws = [qn(chance.standard_normal(count)) for _ in range(100 if count < 100 else 5)]
        assert np.mean(draws) == pytest.approx(1, abs=0.15), count
    spoiled = np.concatenate([chance.standard_normal(400), np.full(100, 50.0)])
    assert qn(spoiled) < 2
    assert math.isnan(qn(np.array([1.0])))


def test_a_null_is_not_widened_by_slow_units_and_gives_uniform_p(chance: Chance) -> None:
    null = null_of(np.concatenate([chance.standard_normal(320), 8 + chance.standard_normal(60)]))
    assert null.centre == pytest.approx(0, abs=0.5) and null.sd == pytest.approx(1, abs=0.4)
    p = null.slow_p(chance.standard_normal(20_000))
    assert 0.01 < (p < 0.05).mean() < 0.13
    assert null.slow_p(np.array([0.3]))[0] + null.fast_p(np.array([0.3]))[0] == pytest.approx(1)


@pytest.mark.parametrize("shape", ["t", "skew"])
def test_heavy_tails_and_skew_are_seen_in_many_units(shape: str) -> None:
    chance = np.random.default_rng(1)  # in 5 of 60 draws of t(2) the search for the tails fails

    def draw(count: int) -> np.ndarray:
        return chance.standard_t(2, count) if shape == "t" else chance.lognormal(0, 0.8, count)

    null = null_of(draw(2000))
    assert null.is_heavy
    # a normal distribution with their middle spread gives far less than one in ten thousand
    assert (null.slow_p(draw(40_000)) < 1e-4).mean() < 0.04
    known = null.quantile(np.array([0.1, 0.5, 0.9]))
    assert null.slow_p(known) == pytest.approx([0.9, 0.5, 0.1], abs=0.01)


def test_the_slowest_of_some_is_what_drawing_them_gives(chance: Chance) -> None:
    effects = 0.05 * chance.standard_normal(40)
    effects -= np.median(effects)
    drawn = [np.exp(chance.choice(effects, 6, replace=False)).max() for _ in range(4000)]
    assert slowest_of(effects, 6) == pytest.approx(np.mean(drawn), abs=0.01)
    assert slowest_of(effects, 40) == pytest.approx(np.exp(effects.max()))
