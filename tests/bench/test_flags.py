"""Each flag at both sides of its bar."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from bench.judge.flags import FLAGS, SUSPECT, disturbances, explained, flags
from bench.model.ceilings import Ceiling, Ceilings
from bench.store.schema import ARROW, Measurement
from tests.bench.rows import row as any_row
from tests.bench.rows import stored
from tests.drawing import run_seed

CEILINGS = Ceilings(
    device="d",
    run_id="r",
    launch_s=1e-6,
    peak_flop_per_s={("matrix", "float32"): Ceiling(1e12, 1e12, 1e12, "")},
    bandwidth_byte_per_s={0.5: Ceiling(1e11, 1e11, 1e11, "")},
)
# At these counts the roof without the launch floor is 1e9 / 1e12 s = 1 ms.
ROOF_S = 1e-3
SEED = run_seed()


def row(**facts: Any) -> Measurement:
    base: dict[str, Any] = {
        "sweep": "gemm/x",
        "device_kind": "cuda",
        "arithmetic": "matrix",
        "dtype": "float32",
    }
    base |= {"cache": "cold", "parameters": "{}", "flop": 10**9, "byte": 12 * 10**6, "byte_moved": 12 * 10**6}
    base |= {"byte_written": 4 * 10**6, "median_s": 2e-3, "low_s": 2e-3, "high_s": 2e-3, "samples_s": None}
    return any_row(**(base | {"stop": "converged", "settled": True} | facts))


def visit(change: float, count: int = 30) -> list[float]:
    """Samples in thirds: the last's median is the first's times `1 + change`, half a percent of scatter."""
    scatter = [1e-3 * i / count for i in range(count // 3)]
    middle = [1.0 + change / 2 for _ in range(count - 2 * (count // 3))]
    first, last = [1.0 + x for x in scatter], [(1.0 + change) * (1.0 + x) for x in scatter]
    return [2e-3 * x for x in (*first, *middle, *last)]


WORK = {"flop": 0, "byte": 0, "byte_moved": 0}
CPU = {"device_kind": "cpu"}
BARS = {
    "noisy": ({"low_s": 1.9602e-3, "high_s": 2.04e-3}, {"low_s": 1.9598e-3, "high_s": 2.0402e-3}),
    "unconverged": ({"stop": "converged"}, {"stop": "budget"}),
    "unsettled": ({"settled": True}, {"settled": False}),
    "drifting": ({"samples_s": visit(0.0199)}, {"samples_s": visit(0.0201)}),
    "above_roof": ({"median_s": ROOF_S / 1.049}, {"median_s": ROOF_S / 1.051}),
    "launch_bound": ({"median_s": 1.11e-6, **WORK}, {"median_s": 1.09e-6, **WORK}),
    "overhead": (
        {"source": "somebody", "clock_start_s": 0.0002},
        {"source": "somebody", "clock_start_s": 0.000201},
    ),
    "contended": ({"pressure": 0.05}, {"pressure": 0.051}),
    "stolen": ({"steal": 0.02}, {"steal": 0.021}),
    "shared": ({"foreign_processes": 0}, {"foreign_processes": 1}),
    "throttled": ({"held_thermal": 0.0}, {"held_thermal": 1e-9}),
    "power_capped": ({"held_power": 0.05}, {"held_power": 0.051}),
    "wrong": ({"status": "ok"}, {"status": "wrong"}),
    "escaped": ({"status": "ok"}, {"status": "escaped"}),
}
"""The facts at which each flag is just not raised, and just raised."""
MORE_BARS = [
    ("drifting", {"samples_s": visit(-0.0195)}, {"samples_s": visit(-0.0205)}),
    (
        "launch_bound",
        {"clock": "stream", "enqueue_s": 2e-3},
        {"clock": "stream", "enqueue_s": 2.0001e-3},
    ),
    ("contended", {"on_processor": 0.95}, {"on_processor": 0.949}),
    ("shared", {"mig": "off"}, {"mig": "on"}),
    ("throttled", {"held_hardware": 0.0}, {"held_hardware": 1e-9}),
    ("throttled", {"held_sync": 0.05}, {"held_sync": 0.051}),
    ("throttled", {"throttled": 0.05}, {"throttled": 0.051}),
    (
        "throttled",
        {"regime": "boost", "held_power": 0.05},
        {"regime": "boost", "held_power": 0.051},
    ),
    # Rows from before there were counters, and before there was the largest of several visits.
    (
        "throttled",
        {"limit_reasons": "sync boost"},
        {"limit_reasons": "software power cap, hardware slowdown"},
    ),
    ("power_capped", {"limit_reasons": ""}, {"limit_reasons": "software power cap"}),
    # Where the noise that is usual is wide, an interval may be twice as wide as that.
    (
        "noisy",
        CPU | {"low_s": 1.8022e-3, "high_s": 2.1978e-3},
        CPU | {"low_s": 1.8018e-3, "high_s": 2.1982e-3},
    ),
]
ALL_BARS = [*((name, *sides) for name, sides in BARS.items()), *MORE_BARS]


def interval(facts: dict[str, Any]) -> dict[str, Any]:
    """A tight interval round the median, so that only the flag in question can be raised."""
    median_s = facts.get("median_s", 2e-3)
    return {"low_s": median_s, "high_s": median_s} | facts


def test_every_flag_has_its_bar_here() -> None:
    assert [flag.name for flag in FLAGS] == list(BARS)
    assert all(flag.means for flag in FLAGS)


@pytest.mark.parametrize(("name", "below", "beyond"), ALL_BARS)
def test_both_sides_of_the_bar(name: str, below: dict[str, Any], beyond: dict[str, Any]) -> None:
    assert flags(row(**interval(below)), CEILINGS) == []
    assert flags(row(**interval(beyond)), CEILINGS) == [name]


@pytest.mark.parametrize(("name", "below", "beyond"), ALL_BARS)
def test_a_row_of_a_file_raises_the_same_flags(
    name: str, below: dict[str, Any], beyond: dict[str, Any]
) -> None:
    both = [row(**interval(facts)) for facts in (below, beyond)]
    skipped = row(status="skipped", median_s=None, low_s=None, high_s=None, stop=None, settled=None)
    rows = stored([*both, skipped])
    assert [flags(one, CEILINGS) for one in rows] == [[], [name], []]
    assert [disturbances(one) for one in rows] == [disturbances(one) for one in (*both, skipped)]


def test_a_value_that_is_no_number_is_missing() -> None:
    empty = {
        column.name: math.nan for column in ARROW if pa.types.is_floating(column.type) and column.nullable
    }
    (one,) = stored([row(**(empty | {"median_s": 2e-3, "low_s": 2e-3, "high_s": 2e-3}))])
    assert one.pressure is None and one.temperature_c is None and one.median_s == 2e-3
    assert flags(one, CEILINGS) == [] and disturbances(one) == []


# --- what a flag is for -----------------------------------------------------------------------------


def test_which_cast_doubt_and_which_blame_the_machine() -> None:
    harmless = {"unconverged", "drifting", "launch_bound", "power_capped"}
    assert {f.name for f in FLAGS} - SUSPECT == harmless
    assert {f.name for f in FLAGS if f.disturbed} == {"contended", "stolen", "shared", "throttled"}
    assert all(f.suspect for f in FLAGS if f.disturbed)


@pytest.mark.parametrize(("name", "below", "beyond"), ALL_BARS)
def test_a_visit_is_disturbed_by_the_machine_alone(
    name: str, below: dict[str, Any], beyond: dict[str, Any]
) -> None:
    blamed = name in ("contended", "stolen", "shared", "throttled")
    assert disturbances(row(**interval(below))) == []
    assert disturbances(row(**interval(beyond))) == ([name] if blamed else [])


def test_disturbances_come_in_the_order_of_the_table_and_of_timed_visits_only() -> None:
    bad = {"pressure": 0.5, "steal": 0.5, "foreign_processes": 2, "held_thermal": 0.1, "stop": "budget"}
    assert disturbances(row(**bad)) == ["contended", "stolen", "shared", "throttled"]
    assert disturbances(row(**bad, status="wrong")) == []


@pytest.mark.parametrize(
    ("facts", "longer"),
    [
        ({"pressure": 0.2}, 1 / 0.8),
        ({"on_processor": 0.75, "pressure": 0.06}, 1 / 0.75),
        ({"steal": 0.5, "pressure": 0.2}, 1 / 0.5),
        ({"pressure": 1.0}, 1 / (1 - 0.9)),  # of any longer there would be no samples
        ({"foreign_processes": 2}, 3.0),
        ({"held_thermal": 0.2}, 1 / (1 - 0.5 * 0.2)),
        ({"held_hardware": 0.1, "held_power": 0.4}, 1 / (1 - 0.5 * 0.4)),
        ({"limit_reasons": "hardware slowdown"}, 1 / (1 - 0.5)),
    ],
    ids=str,
)
def test_a_flag_explains_as_much_as_its_cause_was_measured(facts: dict[str, Any], longer: float) -> None:
    one = row(**facts)
    raised = flags(one, CEILINGS)
    assert explained(one, raised) == pytest.approx(math.log(longer))
    assert explained(one, []) == 0.0, "a cause below its bar widens nothing"


def test_what_only_describes_the_samples_explains_nothing() -> None:
    """The interval says it already, or nobody can say by how much."""
    bad = row(low_s=1e-3, high_s=3e-3, stop="budget", settled=False, samples_s=visit(0.5), median_s=1e-4)
    raised = flags(bad, CEILINGS)
    assert raised == ["noisy", "unconverged", "unsettled", "drifting", "above_roof"]
    assert explained(bad, raised) == 0.0


# --- heat and power ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason", ["hardware thermal slowdown", "software thermal slowdown", "hardware power brake"]
)
def test_heat_and_hardware_throttle(reason: str) -> None:
    assert flags(row(limit_reasons=reason), CEILINGS) == ["throttled"]
    # What is seen at the end counts though the counter has not moved yet.
    assert flags(row(limit_reasons=reason, held_thermal=0.0, held_hardware=0.0), CEILINGS) == ["throttled"]


def test_a_power_cap_beside_a_throttle_is_no_plain_power_cap() -> None:
    both = "software power cap, hardware thermal slowdown"
    assert flags(row(limit_reasons=both), CEILINGS) == ["throttled"]
    assert flags(row(held_power=0.9, held_hardware=0.01), CEILINGS) == ["throttled"]


def test_the_counter_of_power_overrules_the_last_look() -> None:
    capped = {"limit_reasons": "software power cap"}
    assert flags(row(held_power=0.01, **capped), CEILINGS) == []
    assert flags(row(held_power=0.01, regime="boost", **capped), CEILINGS) == []
    assert flags(row(held_power=0.5, limit_reasons=""), CEILINGS) == ["power_capped"]


def test_a_burst_at_the_power_limit_is_no_burst() -> None:
    assert flags(row(held_power=0.5, regime="sustained"), CEILINGS) == ["power_capped"]
    assert flags(row(held_power=0.5, regime="boost"), CEILINGS) == ["throttled"]
    assert flags(row(limit_reasons="software power cap", regime="boost"), CEILINGS) == ["throttled"]


# --- drift ------------------------------------------------------------------------------------------


def test_drift_is_looked_for_inside_each_visit() -> None:
    """Two visits at two speeds do not drift; one that drifts does, wherever it stands."""
    low, high = visit(0.0), [1.5 * s for s in visit(0.0)]
    assert flags(row(samples_s=low + high, visit_samples=[30, 30]), CEILINGS) == []
    assert flags(row(samples_s=low + high), CEILINGS) == ["drifting"], "rows from before visits: one visit"
    moved = visit(0.05)
    for order in ([low, high, moved], [low, moved, high], [moved, low, high]):
        samples_s = [s for one in order for s in one]
        assert flags(row(samples_s=samples_s, visit_samples=[30, 30, 30]), CEILINGS) == ["drifting"]
    # Counts that are not those of the samples tell nothing.
    assert flags(row(samples_s=low + high, visit_samples=[30, 29]), CEILINGS) == ["drifting"]


def test_visits_of_different_lengths() -> None:
    short, long = visit(0.0, 12), [1.3 * s for s in visit(0.0, 60)]
    assert flags(row(samples_s=short + long, visit_samples=[12, 60]), CEILINGS) == []
    assert flags(row(samples_s=long + short, visit_samples=[60, 12]), CEILINGS) == []
    assert flags(row(samples_s=long + short, visit_samples=[36, 36]), CEILINGS) == ["drifting"]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 9])
def test_too_few_samples_are_no_drift(count: int) -> None:
    """Of three on either side no order is rarer than one in ten."""
    assert flags(row(samples_s=[2e-3 * (1 + 0.1 * i) for i in range(count)]), CEILINGS) == []
    # Twelve, the fewest that a case is timed with, do show one.
    assert flags(row(samples_s=[2e-3 * (1 + 0.1 * i) for i in range(12)]), CEILINGS) == ["drifting"]


def test_noise_is_no_drift() -> None:
    """Twelve samples of 5 % noise: a third's median is off by over 2 % more often than not."""
    chance = np.random.default_rng(SEED)
    streams = chance.normal(2e-3, 1e-4, (2000, 12))
    thirds = [np.median(streams[:, part], axis=1) for part in (slice(0, 4), slice(-4, None))]
    apart = np.abs(thirds[0] - thirds[1]) > 0.02 * np.minimum(*thirds)
    drifting = [flags(row(samples_s=list(one)), None) == ["drifting"] for one in streams]
    # Of pure noise the test lets through 2 in 70 with four on either side: 57 of 2000; 120 is 8 sigma away.
    assert apart.mean() > 0.4 and sum(drifting) < 120
    assert all(a for a, d in zip(apart, drifting, strict=True) if d), "never within the bar"


def test_chance_is_what_scipys_test_says() -> None:
    chance = np.random.default_rng(SEED)
    found = []
    for count in (12, 15, 24, 36, 90):
        for slope in (0.0, 0.05, -0.1):
            for samples_s in chance.normal(2e-3, 1e-4, (40, count)) * np.linspace(1.0, 1.0 + slope, count):
                first, last = samples_s[: count // 3], samples_s[-(count // 3) :]
                low, high = sorted((np.median(first), np.median(last)))
                p = stats.mannwhitneyu(first, last, method="asymptotic").pvalue
                found.append(bool(high > 1.02 * low and p < 0.05))
                assert (flags(row(samples_s=list(samples_s)), None) == ["drifting"]) == found[-1]
    assert 50 < sum(found) < 550, "both answers are among them"


def test_a_drift_is_seen_through_noise() -> None:
    chance = np.random.default_rng(SEED)
    for _ in range(20):
        samples_s = chance.normal(2e-3, 2e-5, 300) * np.linspace(1.0, 1.0 + chance.choice([-0.08, 0.08]), 300)
        assert flags(row(samples_s=list(samples_s)), None) == ["drifting"]


# --- the rest ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", ["graph", "host"])
def test_queueing_slowly_matters_to_the_stream_clock_alone(clock: str) -> None:
    assert flags(row(clock=clock, enqueue_s=1.0), CEILINGS) == []
    assert flags(row(clock="stream", enqueue_s=1.0), CEILINGS) == ["launch_bound"]
    assert flags(row(clock="stream", enqueue_s=1.0), None) == ["launch_bound"], "it needs no ceilings"


def test_a_warm_cache_may_beat_the_memory_roof() -> None:
    fast = {"median_s": ROOF_S / 2, "low_s": ROOF_S / 2, "high_s": ROOF_S / 2}
    assert flags(row(**fast), CEILINGS) == ["above_roof"]
    assert flags(row(**fast, cache="warm"), CEILINGS) == []


def test_without_ceilings_the_flags_that_need_them_are_left_out() -> None:
    fast = {"median_s": 1e-9, "low_s": 1e-9, "high_s": 1e-9}
    assert flags(row(**fast), CEILINGS) == ["above_roof", "launch_bound"]
    assert flags(row(**fast), None) == flags(row(**fast), Ceilings()) == []


def test_several_flags_come_in_the_order_of_the_table() -> None:
    bad = row(low_s=1e-3, high_s=3e-3, stop="budget", settled=False, pressure=0.5, steal=0.5)
    assert flags(bad, CEILINGS) == ["noisy", "unconverged", "unsettled", "contended", "stolen"]


@pytest.mark.parametrize("status", ["skipped", "timeout", "unsupported", "crashed", "error", "out_of_memory"])
def test_a_row_without_a_time_is_not_flagged(status: str) -> None:
    assert flags(row(status=status, median_s=None, pressure=0.9, stop="budget"), CEILINGS) == []
    assert flags(row(status=status, pressure=0.9), CEILINGS) == [], "whatever a file may hold"
    assert flags(row(median_s=None, pressure=0.9), CEILINGS) == []


@pytest.mark.parametrize("status", ["wrong", "escaped"])
def test_of_a_result_that_was_no_good_only_that_is_said(status: str) -> None:
    for median_s in (None, float("nan"), 2e-3):
        assert flags(row(status=status, median_s=median_s, pressure=0.9), CEILINGS) == [status]


def test_several_visits_tell_a_cpu_s_row_better_than_the_windows_before_each() -> None:
    facts: dict[str, Any] = {"settled": False, "device_kind": "cpu"}
    raised = {n: "unsettled" in flags(row(**(facts | {"visits": n})), CEILINGS) for n in (1, 2, 3, 5)}
    assert raised == {1: True, 2: True, 3: False, 5: False}
    assert "unsettled" in flags(row(**(facts | {"visits": 5, "device_kind": "cuda"})), CEILINGS)
