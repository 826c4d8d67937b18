"""Visits joined into rows."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest

from bench.judge.noise import USUAL
from bench.judge.work_class import WorkClass
from bench.runner.merge_visits import join, joined
from bench.sampling.protocol import protocol
from bench.sampling.publish import VisitSamples, publish
from bench.store.schema import Measurement
from tests.bench.rows import row as made_row

WORK: dict[str, Any] = {"flop": 10**9, "byte": 10**6, "arithmetic": "matrix", "cache": "cold"}
CPU3, CPU1, CUDA3 = protocol("cpu", 3), protocol("cpu", 1), protocol("cuda", 3)


def visit(number: int = 0, level_s: float = 1e-3, samples: int = 60, **facts: Any) -> Measurement:
    """The row of one visit: samples within 0.2 % of a level."""
    taken = [level_s * random.uniform(0.998, 1.002) for _ in range(samples)]
    values: dict[str, Any] = {"visit": number, "samples_s": taken, "median_s": statistics.median(taken)}
    values |= {"clock": "host", "protocol": CPU3.hash, "device_kind": "cpu", "sweep": "gemm/x", "reason": ""}
    values |= {"settled": True, "settle_s": 0.1, "stop": "converged", "step_s": 1e-9, "measure_s": 0.5}
    values |= {"visit_at_s": [10.0 * number], "pressure": 0.0, "steal": 0.0, "on_processor": 1.0}
    return made_row(**(values | facts))


def test_a_row_publishes_what_the_protocol_makes_of_its_visits() -> None:
    made = [visit(i) for i in range(3)]
    row = join(made)
    looks = [VisitSamples(tuple(v.samples_s or ()), True, 0.1, "converged", 1e-9) for v in made]
    expected = publish(looks, CPU3)
    assert (row.median_s, row.low_s, row.high_s) == (expected.median_s, expected.low_s, expected.high_s)
    assert row.stop == "converged" and row.visits == 3 and row.visit == 0
    assert row.samples_s == [sample for v in made for sample in v.samples_s or []]
    assert row.visit_samples == [60, 60, 60] and row.visit_at_s == [0.0, 10.0, 20.0]
    assert row.set_aside is None and row.set_aside_s is None
    assert row.measure_s == pytest.approx(1.5) and row.settle_s == pytest.approx(0.3)


def test_each_column_is_joined_as_it_says() -> None:
    facts = [
        {"pressure": 0.01, "on_processor": 0.99, "sentinel_before_s": 1.0, "sentinel_after_s": 1.0},
        {"pressure": 0.03, "on_processor": 0.97, "sentinel_before_s": 3.0, "sentinel_after_s": 3.0},
        {"pressure": None, "on_processor": 0.98, "sentinel_before_s": None, "sentinel_after_s": None},
    ]
    more = [{"utc": str(i), "limit_reasons": "power" if i else "", "settled": i != 1} for i in range(3)]
    row = join([visit(i, **a, **b) for i, (a, b) in enumerate(zip(facts, more, strict=True))])
    assert (row.pressure, row.on_processor, row.sentinel_before_s) == (0.03, 0.97, 2.0)
    assert (row.utc, row.limit_reasons, row.settled) == ("2", "power", True)
    assert row.steal == 0.0 and row.energy_j is None


WORST = ("held_power", "held_thermal", "held_hardware", "held_sync", "temperature_c", "throttled", "pressure")


@pytest.mark.parametrize("name", [*WORST, "steal", "foreign_processes", "relative_error", "sentinel_moved"])
def test_of_several_visits_the_worst_is_told(name: str) -> None:
    """Where all visits are disturbed all are published, so that no value is lost with its visit."""
    row = join([visit(i, **{"steal": 0.5} | {name: value}) for i, value in enumerate((1, 3, 2))])
    assert getattr(row, name) == 3


def test_part_of_an_energy_is_not_given_for_the_whole() -> None:
    assert join([visit(i, energy_j=2.0) for i in range(3)]).energy_j == 6.0
    assert join([visit(0, energy_j=None), visit(1, energy_j=2.0)]).energy_j is None


def test_a_disturbed_visit_is_set_aside_and_named() -> None:
    made = [visit(0), visit(1, 3e-3, pressure=0.9), visit(2), visit(3)]
    row = join(made)
    assert row.visits == 3 and row.set_aside == ["contended"] and row.set_aside_s == [made[1].median_s]
    assert row.median_s == pytest.approx(1e-3, rel=0.002) and row.pressure == 0.0
    assert row.measure_s == pytest.approx(2.0)  # its time was spent all the same


def test_all_sound_visits_are_published() -> None:
    made = [visit(i, level_s) for i, level_s in enumerate([0.9e-3, 0.95e-3, 1e-3, 1e-3, 1e-3])]
    row = join(made)
    assert row.visits == 5 and row.set_aside is None
    assert row.median_s == pytest.approx(1e-3, rel=0.002)


def test_a_gpu_s_visits_from_before_it_had_settled_are_set_aside_where_three_others_are_left() -> None:
    """Its clock still fell; on a CPU a visit is as good as another."""
    gpu: dict[str, Any] = {"device_kind": "cuda", "protocol": CUDA3.hash, "clock": "graph"}
    levels = [0.9e-3, 0.95e-3, 1e-3, 1e-3, 1e-3]
    made = [visit(i, level_s, settled=i > 0, **gpu) for i, level_s in enumerate(levels)]
    assert (join(made).visits, join(made).set_aside) == (3, ["unsettled", "earlier"])
    assert join(made[:3]).visits == 3 and join(made[:3]).set_aside is None
    assert join([visit(i, level_s, settled=i > 0) for i, level_s in enumerate(levels)]).visits == 5


def test_times_of_two_clocks_are_not_mixed() -> None:
    row = join([visit(0, clock="graph"), visit(1, 2e-3, clock="stream"), visit(2, 2e-3, clock="stream")])
    assert row.clock == "stream" and row.visits == 2
    assert row.set_aside == ["timed by the graph clock"]
    assert row.stop != "converged"  # of three visits asked for, two are there


@pytest.mark.parametrize("status", ["wrong", "escaped", "error"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_result_that_one_visit_found_wrong_has_no_time(status: str, place: int) -> None:
    made = [visit(i) for i in range(3)]
    nothing: dict[str, Any] = {"samples_s": None, "median_s": None}
    made[place] = visit(place, status=status, reason="look", **nothing)
    row = join(made)
    assert (row.status, row.reason, row.median_s, row.samples_s) == (status, "look", None, None)


def test_a_visit_that_was_killed_leaves_the_others_their_time() -> None:
    dead: dict[str, Any] = {"samples_s": None, "median_s": None, "status": "crashed", "reason": "SIGKILL"}
    row = join([visit(0), visit(1, **dead)])
    assert row.status == "ok" and row.reason == "" and row.visits == 1
    assert row.set_aside == ["crashed: SIGKILL"] and math.isnan((row.set_aside_s or [0.0])[0])
    assert row.stop == "budget"
    alone = join([visit(0, **dead)])
    assert (alone.status, alone.reason, alone.median_s) == ("crashed", "SIGKILL", None)


def test_rows_of_a_protocol_that_is_not_known_are_taken_at_their_word() -> None:
    made = [visit(i, protocol="of another version", low_s=1.0, high_s=2.0) for i in range(2)]
    row = join(made)
    assert row.median_s == made[1].median_s and (row.low_s, row.high_s) == (1.0, 2.0)
    assert row.set_aside == ["earlier"]


def test_cases_come_in_the_order_of_their_first_visits() -> None:
    names = ["b", "a", "c"]
    made = [visit(i, parameters=name) for i in range(3) for name in names]
    assert [row.parameters for row in joined(made)] == names
    assert [row.threads_asked for row in joined([visit(), visit(threads_asked="one")])] == [None, "one"]


def half(row: Measurement) -> float:
    """How far above its median the row's interval reaches, ln."""
    assert row.high_s is not None and row.median_s is not None
    return math.log(row.high_s / row.median_s)


def ceilings(step: float, count: int = 4, visits: int = 2, **facts: Any) -> list[Measurement]:
    """Visits in turn to ceilings that were so much slower every second time, ln."""
    roof: dict[str, Any] = {"sweep": "ceilings/gemm", "role": "roof", **facts}
    return [
        visit(n, 1e-3 * math.exp(step * (n % 2)), parameters=str(i), **roof)
        for n in range(visits)
        for i in range(count)
    ]


ONCE: dict[str, Any] = {"device_kind": "cuda", "protocol": protocol("cuda", 1).hash, **WORK}


def test_a_single_visit_knows_as_much_as_the_run_s_repeated_cases() -> None:
    """Its ceilings, matrix products like the case, were 8 % slower the second time they were visited."""
    restless, calm = (joined([*ceilings(step, **ONCE), visit(**ONCE)])[-1] for step in (0.08, 0.0))
    assert half(restless) > 0.08 and restless.run_by == "visits"
    usual = USUAL["cuda"][WorkClass.COMPUTE]  # that the visits agree says nothing of other runs
    assert usual.runs <= half(calm) < math.hypot(0.5 * usual.visits, usual.runs)


def test_disturbed_visits_do_not_tell_how_far_repeated_cases_move() -> None:
    calm = [*ceilings(0.02, **ONCE), visit(**ONCE)]
    disturbed = ceilings(0.7, sweep="ceilings/y", **(ONCE | {"pressure": 0.5}))
    wild = ceilings(0.7, sweep="ceilings/y", **ONCE)
    alone, beside, among = (half(joined(made)[-1]) for made in (calm, [*disturbed, *calm], [*wild, *calm]))
    assert beside == pytest.approx(alone, rel=0.1) and among > 3 * alone


def test_ceilings_are_not_called_unconverged_for_having_two_visits() -> None:
    assert join([visit(i, sweep="ceilings/gemm", role="roof") for i in range(2)]).stop == "converged"
    assert join([visit(i) for i in range(2)]).stop == "budget"


def test_a_ceiling_s_interval_spans_its_visits() -> None:
    made = [
        visit(i, level_s, sweep="ceilings/gemm", role="roof") for i, level_s in enumerate((1e-3, 1.04e-3))
    ]
    alone = [join([one]) for one in made]
    row = join(made)
    assert (row.low_s, row.high_s) == (alone[0].low_s, alone[1].high_s) and row.stop == "visits"
    assert 0.99e-3 < (row.low_s or 0) and (row.high_s or 1) < 1.05e-3
    assert row.visits == 2


def test_a_gpu_s_visits_are_joined_by_a_gpu_s_protocol() -> None:
    """Visits 2 % apart: agreeing by a CPU's measure, not by a GPU's."""
    levels = (1e-3, 1.02e-3, 1.01e-3)
    assert join([visit(i, s) for i, s in enumerate(levels)]).stop in ("converged", "visits")
    made = [visit(i, s, protocol=CUDA3.hash, clock="graph") for i, s in enumerate(levels)]
    assert join(made).stop == "visits"
