"""Each flag at both sides of its bar."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.judge.flags import FLAGS, flags
from bench.model.ceilings import Ceiling, Ceilings
from bench.spec import parameters_text
from bench.store import Measurement

CEILINGS = Ceilings(
    device="d",
    run_id="r",
    cache="cold",
    launch_s=1e-6,
    peak_flop_per_s={("matrix", "float32"): Ceiling(1e12, 1e12, 1e12, "")},
    bandwidth_byte_per_s={0.5: Ceiling(1e11, 1e11, 1e11, "")},
)
# At these counts the roof without the launch floor is 1e9 / 1e12 s = 1 ms.
ROOF_S = 1e-3


def row(**facts: Any) -> Measurement:
    base: dict[str, Any] = {f.name: "" for f in dataclasses.fields(Measurement) if f.type == "str"}
    base |= {f.name: 0 for f in dataclasses.fields(Measurement) if f.type == "int"}
    base |= {"sweep": "gemm/x", "arithmetic": "matrix", "dtype": "float32", "cache": "cold", "status": "ok"}
    base |= {"parameters": parameters_text({}), "flop": 10**9, "byte": 12 * 10**6, "byte_moved": 12 * 10**6}
    base |= {"byte_written": 4 * 10**6, "median_s": 2e-3, "low_s": 2e-3, "high_s": 2e-3}
    base |= {"stop": "converged", "settled": True}
    return Measurement(**(base | facts))


BARS = {
    "noisy": ({"low_s": 1.9602e-3, "high_s": 2.04e-3}, {"low_s": 1.9598e-3, "high_s": 2.0402e-3}),
    "unconverged": ({"stop": "converged"}, {"stop": "budget"}),
    "unsettled": ({"settled": True}, {"settled": False}),
    "above_roof": ({"median_s": ROOF_S / 1.049}, {"median_s": ROOF_S / 1.051}),
    "launch_bound": (
        {"median_s": 1.11e-6, "flop": 0, "byte": 0, "byte_moved": 0},
        {"median_s": 1.09e-6, "flop": 0, "byte": 0, "byte_moved": 0},
    ),
    "contended": ({"pressure": 0.05}, {"pressure": 0.051}),
    "stolen": ({"steal": 0.02}, {"steal": 0.021}),
    "clock_moved": (
        {"sentinel_before_s": 1.049e-4, "sentinel_after_s": 1e-4},
        {"sentinel_before_s": 1e-4, "sentinel_after_s": 1.051e-4},
    ),
    "throttled": (
        {"limit_reasons": "sync boost"},
        {"limit_reasons": "software power cap, hardware slowdown"},
    ),
    "power_capped": ({"limit_reasons": ""}, {"limit_reasons": "software power cap"}),
}


def interval(facts: dict[str, Any]) -> dict[str, Any]:
    """A tight interval round the median, so that only the flag in question can be raised."""
    median_s = facts.get("median_s", 2e-3)
    return {"low_s": median_s, "high_s": median_s} | facts


def test_every_flag_has_its_bar_here() -> None:
    assert [flag.name for flag in FLAGS] == list(BARS)
    assert all(flag.means for flag in FLAGS)


@pytest.mark.parametrize("name", list(BARS))
def test_both_sides_of_the_bar(name: str) -> None:
    below, beyond = BARS[name]
    assert flags(row(**interval(below)), CEILINGS) == []
    assert flags(row(**interval(beyond)), CEILINGS) == [name]


@pytest.mark.parametrize("name", list(BARS))
def test_a_row_of_a_frame_raises_the_same_flags(name: str) -> None:
    both = [row(**interval(facts)) for facts in BARS[name]]
    # `skipped` makes pandas fill the optional columns with NaN, None and numpy's booleans.
    skipped = row(status="skipped", median_s=None, low_s=None, high_s=None, stop=None, settled=None)
    frame = pd.DataFrame([dataclasses.asdict(one) for one in [*both, skipped]])
    raised = [flags(one, CEILINGS) for one in frame.itertuples(index=False)]  # type: ignore[arg-type]
    assert raised == [[], [name], []]


@pytest.mark.parametrize(
    "reason", ["hardware thermal slowdown", "software thermal slowdown", "hardware power brake"]
)
def test_heat_and_hardware_throttle(reason: str) -> None:
    assert flags(row(limit_reasons=reason), CEILINGS) == ["throttled"]


def test_a_power_cap_beside_a_throttle_is_no_plain_power_cap() -> None:
    both = "software power cap, hardware thermal slowdown"
    assert flags(row(limit_reasons=both), CEILINGS) == ["throttled"]


def test_a_warm_cache_may_beat_the_memory_roof() -> None:
    fast = {"median_s": ROOF_S / 2, "low_s": ROOF_S / 2, "high_s": ROOF_S / 2}
    assert flags(row(**fast), CEILINGS) == ["above_roof"]
    assert flags(row(**fast, cache="warm"), CEILINGS) == []


def test_without_ceilings_the_flags_that_need_them_are_left_out() -> None:
    fast = {"median_s": 1e-9, "low_s": 1e-9, "high_s": 1e-9}
    assert flags(row(**fast), CEILINGS) == ["above_roof", "launch_bound"]
    assert flags(row(**fast), None) == flags(row(**fast), Ceilings()) == []


def test_several_flags_come_in_the_order_of_the_table() -> None:
    bad = row(low_s=1e-3, high_s=3e-3, stop="budget", settled=np.False_, pressure=0.5, steal=0.5)
    assert flags(bad, CEILINGS) == ["noisy", "unconverged", "unsettled", "contended", "stolen"]


@pytest.mark.parametrize("status", ["skipped", "wrong", "timeout", "unsupported"])
def test_a_row_without_a_time_is_not_flagged(status: str) -> None:
    assert flags(row(status=status, median_s=None, pressure=0.9, stop="budget"), CEILINGS) == []
