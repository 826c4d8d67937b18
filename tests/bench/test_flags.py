"""Each flag at both sides of its bar."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from bench.judge.flags import FLAGS, SUSPECT, disturbances, explained, flags
from bench.judge.noise import USUAL
from bench.judge.work_class import WorkClass
from bench.model.ceiling import Ceiling
from bench.model.ceilings import Ceilings
from bench.store.schema import ARROW, Measurement
from tests.bench.rows import row as any_row
from tests.bench.rows import stored

CEILINGS = Ceilings(
    device="d",
    run_id="r",
    launch_s=1e-6,
    peak_flop_per_s={("matrix", "float32"): Ceiling(1e12, 1e12, 1e12, "")},
    bandwidth_byte_per_s={0.5: Ceiling(1e11, 1e11, 1e11, "")},
)
# At these counts the roof without the launch floor is 1e9 / 1e12 s = 1 ms.
ROOF_S = 1e-3


def row(**facts: Any) -> Measurement:
    """A GEMM on a GPU in 2 ms that raises no flag, but for these columns."""
    base: dict[str, Any] = {
        **{"sweep": "gemm/x", "device_kind": "cuda", "arithmetic": "matrix", "dtype": "float32"},
        **{"cache": "cold", "parameters": "{}", "flop": 10**9, "byte": 12 * 10**6, "byte_moved": 12 * 10**6},
        **{"byte_written": 4 * 10**6, "median_s": 2e-3, "low_s": 2e-3, "high_s": 2e-3, "samples_s": None},
        **{"stop": "converged", "settled": True},
    }
    return any_row(**(base | facts))


def visit(change: float, count: int = 30) -> list[float]:
    """Samples in thirds: the last's median is the first's times `1 + change`, half a percent of scatter."""
    scatter = [1e-3 * i / count for i in range(count // 3)]
    middle = [1.0 + change / 2 for _ in range(count - 2 * (count // 3))]
    first, last = [1.0 + x for x in scatter], [(1.0 + change) * (1.0 + x) for x in scatter]
    return [2e-3 * x for x in (*first, *middle, *last)]


WORK = {"flop": 0, "byte": 0, "byte_moved": 0}
CPU = {"device_kind": "cpu"}
PUBLISHED_BAR = tuple(share * math.hypot(0.02, *USUAL["cuda"][WorkClass.COMPUTE]) for share in (0.999, 1.001))
USUAL_BAR = tuple(share * 2 * math.hypot(*USUAL["cpu"][WorkClass.COMPUTE]) for share in (0.999, 1.001))
KNOWN = {"noise_visits": 1e-3, "noise_runs": 1e-3, "noise_by": "history"}
"""Columns of a row of a device whose own noise is known, and small."""
BARS: dict[str, tuple[dict[str, Any], ...]] = {
    "noisy": tuple(KNOWN | {"low_s": 2e-3 - half, "high_s": 2e-3 + half} for half in (3.99e-5, 4.01e-5)),
    "unconverged": ({"stop": "converged"}, {"stop": "budget"}),
    "unsettled": ({"settled": True}, {"settled": False}),
    "drifting": ({"samples_s": visit(0.0199)}, {"samples_s": visit(0.0201)}),
    "above_roof": ({"median_s": ROOF_S / 1.049}, {"median_s": ROOF_S / 1.051}),
    "launch_bound": ({"median_s": 1.11e-6, **WORK}, {"median_s": 1.09e-6, **WORK}),
    "overhead": tuple({"source": "somebody", "clock_start_s": s} for s in (0.0002, 0.000201)),
    "contended": ({"pressure": 0.05}, {"pressure": 0.051}),
    "stolen": ({"steal": 0.02}, {"steal": 0.021}),
    "shared": ({"foreign_processes": 0}, {"foreign_processes": 1}),
    "throttled": ({"held_thermal": 0.05}, {"held_thermal": 0.051}),
    "power_capped": ({"held_power": 0.05}, {"held_power": 0.051}),
    "wrong": ({"status": "ok"}, {"status": "wrong"}),
    "escaped": ({"status": "ok"}, {"status": "escaped"}),
}
"""The facts at which each flag is just not raised, and just raised."""
MORE_BARS: list[tuple[Any, ...]] = [
    ("drifting", {"samples_s": visit(-0.0195)}, {"samples_s": visit(-0.0205)}),
    ("launch_bound", *({"clock": "stream", "enqueue_s": s} for s in (2e-3, 2.0001e-3))),
    ("contended", {"on_processor": 0.95}, {"on_processor": 0.949}),
    ("shared", {"mig": "off"}, {"mig": "on"}),
    ("throttled", {"held_hardware": 0.05}, {"held_hardware": 0.051}),
    ("throttled", {"held_sync": 0.05}, {"held_sync": 0.051}),
    ("throttled", {"throttled": 0.05}, {"throttled": 0.051}),
    ("throttled", *({"regime": "boost", "held_power": share} for share in (0.05, 0.051))),
    # Rows from before there were counters, and before there was the largest of several visits.
    ("throttled", *({"limit_reasons": w} for w in ("sync boost", "software power cap, hardware slowdown"))),
    ("power_capped", {"limit_reasons": ""}, {"limit_reasons": "software power cap"}),
    # Where the noise that is usual is wide, an interval may be twice as wide as that.
    ("noisy", *(CPU | {"low_s": 2e-3 * (1 - half), "high_s": 2e-3 * (1 + half)} for half in USUAL_BAR)),
    # What is published of other GPUs is wide, and excuses but 2 % of scatter beside it.
    ("noisy", *({"low_s": 2e-3 * (1 - half), "high_s": 2e-3 * (1 + half)} for half in PUBLISHED_BAR)),
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
    """Of rows as they are made, and as a file gives them back; a visit is disturbed by the machine alone."""
    made = [row(**interval(facts)) for facts in (below, beyond)]
    blamed = name in ("contended", "stolen", "shared", "throttled")
    for rows in (made, stored(made)):
        assert [flags(one, CEILINGS) for one in rows] == [[], [name]]
        assert [disturbances(one) for one in rows] == [[], [name] if blamed else []]


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


# --- what raises which ------------------------------------------------------------------------------

CAPPED = {"limit_reasons": "software power cap"}
HEAT = [
    {"limit_reasons": reason}
    for reason in ("hardware thermal slowdown", "software thermal slowdown", "hardware power brake")
]
STEADY, FASTER, MOVED = visit(0.0), [1.5 * sample_s for sample_s in visit(0.0)], visit(0.05)


def rising(count: int) -> dict[str, Any]:
    return {"samples_s": [2e-3 * (1 + 0.1 * i) for i in range(count)]}


def visits(*samples_s: list[float], counts: list[int] | None = None) -> dict[str, Any]:
    """Samples of visits of these lengths, or of these counts."""
    lengths = counts or [len(of_visit) for of_visit in samples_s]
    return {"samples_s": [*itertools.chain(*samples_s)], "visit_samples": lengths}


def quick(median_s: float) -> dict[str, Any]:
    return {"median_s": median_s, "low_s": median_s, "high_s": median_s}


RAISED: list[tuple[dict[str, Any], str]] = [
    # Heat and hardware throttle. What is seen at the end counts though the counter has not moved yet.
    *((facts, "throttled") for facts in HEAT),
    *((facts | {"held_thermal": 0.0, "held_hardware": 0.0}, "throttled") for facts in HEAT),
    # A power cap beside a throttle is no plain power cap.
    ({"limit_reasons": "software power cap, hardware thermal slowdown"}, "throttled"),
    ({"held_power": 0.9, "held_hardware": 0.06}, "throttled"),
    # The counter of power overrules the last look.
    (CAPPED | {"held_power": 0.01}, ""),
    (CAPPED | {"held_power": 0.01, "regime": "boost"}, ""),
    ({"held_power": 0.5, "limit_reasons": ""}, "power_capped"),
    # A burst at the power limit is no burst.
    ({"held_power": 0.5, "regime": "sustained"}, "power_capped"),
    ({"held_power": 0.5, "regime": "boost"}, "throttled"),
    (CAPPED | {"regime": "boost"}, "throttled"),
    # Two visits at two speeds do not drift; one that drifts does, wherever it stands.
    (visits(STEADY, FASTER), ""),
    (visits(STEADY, FASTER) | {"visit_samples": None}, "drifting"),  # before there were visits: one visit
    (visits(STEADY, FASTER, MOVED), "drifting"),
    # Counts that are not those of the samples tell nothing.
    (visits(STEADY, FASTER, counts=[30, 29]), "drifting"),
    # Of three on either side no order is rarer than one in ten. Twelve, the fewest that a case is timed with,
    # do show a drift.
    *((rising(count), "") for count in (0, 2, 9)),
    (rising(12), "drifting"),
    # Queueing slowly matters to the stream clock alone.
    *(({"clock": clock, "enqueue_s": 1.0}, "") for clock in ("graph", "host")),
    ({"clock": "stream", "enqueue_s": 1.0}, "launch_bound"),
    # A warm cache may beat the memory roof, and not the arithmetic peak.
    (quick(ROOF_S / 2), "above_roof"),
    (quick(ROOF_S / 2) | {"cache": "warm"}, "above_roof"),
    (quick(ROOF_S / 20) | {"cache": "warm", "flop": 10**6}, ""),
    # Several come in the order of the table.
    (quick(1e-9), "above_roof launch_bound"),
    (
        {"low_s": 1e-3, "high_s": 3e-3, "stop": "budget", "settled": False, "pressure": 0.5, "steal": 0.5},
        "noisy unconverged unsettled contended stolen",
    ),
    # A row without a time is not flagged, whatever a file may hold.
    *(
        ({"status": status, "pressure": 0.9} | facts, "")
        for status in ("skipped", "timeout", "unsupported", "crashed", "error", "out_of_memory")
        for facts in ({}, {"median_s": None, "stop": "budget"})
    ),
    ({"median_s": None, "pressure": 0.9}, ""),
    # Of a result that was no good only that is said.
    *(
        ({"status": status, "median_s": median_s, "pressure": 0.9}, status)
        for status in ("wrong", "escaped")
        for median_s in (None, math.nan, 2e-3)
    ),
    # Several visits tell a CPU's row better than the windows before each.
    *((CPU | {"settled": False, "visits": count}, "unsettled") for count in (1, 2)),
    *((CPU | {"settled": False, "visits": count}, "") for count in (3, 5)),
    ({"settled": False, "visits": 5}, "unsettled"),
]


@pytest.mark.parametrize(("facts", "raised"), RAISED)
def test_the_flags_that_a_row_raises(facts: dict[str, Any], raised: str) -> None:
    assert flags(row(**facts), CEILINGS) == raised.split()


def test_without_ceilings_the_flags_that_need_them_are_left_out() -> None:
    fast = row(**quick(1e-9))
    assert flags(fast, None) == flags(fast, Ceilings()) == []
    assert flags(row(clock="stream", enqueue_s=1.0), None) == ["launch_bound"], "it needs no ceilings"


# --- drift and chance -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "raised"),
    [
        # 12 MB are copied at 1 TB/s in 12 us; from a cache half as many again may move.
        ({"median_s": 8.1e-6, "flop": 0}, False),
        ({"median_s": 7.5e-6, "flop": 0}, True),
        (
            {"median_s": 7.5e-6, "flop": 0, "byte": 12, "byte_moved": 12 * 10**6},
            False,
        ),  # a smaller, faster cache
    ],
)
def test_a_warm_row_is_bound_by_what_the_cache_copies(facts: dict[str, Any], raised: bool) -> None:
    ceilings = replace(CEILINGS, cached={10**6: Ceiling(1e12, 1e12, 1e12, "")})
    assert ("above_roof" in flags(row(cache="warm", **facts), ceilings)) == raised


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_a_run_without_ceilings_is_bound_by_the_datasheet(cache: str) -> None:
    """Of an H100 989 TFLOP/s in float16."""
    work = {"flop": 10**12, "dtype": "float16", "device_name": "NVIDIA H100 80GB HBM3", "cache": cache}
    raised = ["above_roof" in flags(row(**work, median_s=seconds), None) for seconds in (0.97e-3, 0.95e-3)]
    assert raised == [False, True]
