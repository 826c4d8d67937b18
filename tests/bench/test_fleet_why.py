"""Why a unit is slow, by what its rows say of clock, heat, power, settings, and where slow units gather."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.fleet.fit import fit
from bench.fleet.observed import read
from bench.fleet.why import Why, explained, gathered
from bench.store.parquet import write
from tests.bench.fleet_made import STATE, cpu, gpus, written

Chance = np.random.Generator
LOWER = {"sm_clock_hz": STATE["sm_clock_hz"] / 1.12}


def why(folder: Path, chance: Chance, together: bool = False, **state: Any) -> Why:
    """Of a fleet whose GPU 13 computes in 1.12 times the time."""
    units = gpus(4, 4)
    units[13] = replace(units[13], slow={"compute together" if together else "compute": 1.12}, state=state)
    fleet = read([written(folder, units, chance, together=together, unit_sd=0.004)])
    found = fit(fleet)
    (only,) = (each for each in explained(fleet, found) if each.slow.name == "node003 0000:1b:00.0")
    assert only.slow.klass == "compute"
    return only


@pytest.mark.parametrize(
    ("state", "cause", "says"),
    [
        (LOWER, "chip", "draws 100 % of the others' power at 60 °C"),
        (LOWER | {"temperature_c": 84.0}, "cooling", "84 °C, the others 60 °C"),
        (LOWER | {"held_thermal": 0.4}, "cooling", "heat held its clock 40 % of the time more"),
        (LOWER | {"power_limit_w": 600.0}, "power", "power limit 600 W, the others' 700 W"),
        (LOWER | {"held_hardware": 0.3}, "power", "power brake held its clock 30 %"),
        (LOWER | {"power_w": 400.0}, "clock", "no row says what holds its clock"),
        ({"memory_clock_hz": 2.0e9}, "memory clock", "memory clock 23.1 % lower"),
        ({"foreign_processes": 2}, "shared", "other programs on the GPU: 2"),
        (
            {"ecc": "off", "driver": "560.2"},
            "settings",
            "driver 560.2, the others 570.1, ecc off, the others on",
        ),
        ({}, "not the clock", "nothing recorded differs"),
        ({"sm_clock_hz": None, "memory_clock_hz": None}, "unknown", "tell no clock"),
    ],
)
def test_the_cause_follows_from_the_rows(
    tmp_path: Path, chance: Chance, state: dict[str, Any], cause: str, says: str
) -> None:
    only = why(tmp_path, chance, **state)
    assert (only.cause, says in only.sentence) == (cause, True), only
    lower = LOWER.items() <= state.items()
    assert ("SM clock 10.7 % lower" in only.sentence) == lower
    if lower:
        assert only.clock_share == pytest.approx(1, abs=0.15)


def test_slow_only_together_is_said(tmp_path: Path, chance: Chance) -> None:
    only = why(tmp_path, chance, together=True, temperature_c=85.0, **LOWER)
    assert only.cause == "cooling" and "only with all GPUs of the node at work" in only.sentence


def test_a_slow_node_is_explained_by_all_its_units(tmp_path: Path, chance: Chance) -> None:
    units = gpus(8, 4)
    for gpu in units[4:8]:
        gpu.slow, gpu.state = {"all": 1.15}, {"temperature_c": 86.0, "held_thermal": 0.5, **LOWER}
    fleet = read([written(tmp_path, units, chance, unit_sd=0.004)])
    only = explained(fleet, fit(fleet))[0]
    assert (only.slow.name, only.cause) == ("node001", "cooling") and "86 °C" in only.sentence


def test_of_a_cpu_waiting_is_known_and_no_clock(tmp_path: Path, chance: Chance) -> None:
    for node in range(10):
        rows = cpu(None, f"host{node}", chance)
        if node == 4:
            rows = [replace(each, median_s=1.3 * (each.median_s or 0), steal=0.25) for each in rows]
        write(tmp_path / f"{node}.parquet", [replace(each, steal=each.steal or 0.0) for each in rows])
    fleet = read([tmp_path])
    only = explained(fleet, fit(fleet))[0]  # the slowest
    assert (only.slow.name, only.cause, only.clock_share) == ("host4", "shared", None)
    assert "taken by the hypervisor 25 % of the time more" in only.sentence


@pytest.mark.parametrize(
    ("nodes", "each", "slow", "says"),
    [
        (12, 4, [1, 9, 21, 37, 45], ["slot 0000:1b:00.0: 5 of its 12 units are slow, 5 of all 48"]),
        (40, 1, [10, 11, 12, 13, 14], ["rack r2: 5 of its 5 units are slow, 5 of all 40"]),
        (12, 4, [0, 14, 27], []),
    ],
)
def test_where_slow_units_gather(
    tmp_path: Path, chance: Chance, nodes: int, each: int, slow: list[int], says: list[str]
) -> None:
    units = gpus(nodes, each)
    for at, gpu in enumerate(units):
        gpu.tags = {"rack": f"r{int(gpu.node[4:]) // 5}"}
        gpu.slow = {"all": 1.2} if at in slow else {}
    fleet = read([written(tmp_path, units, chance, unit_sd=0.004)])
    assert gathered(fleet, fit(fleet)) == says
