"""Nights and claims: which verdicts changed, how loudly it is said, and what it costs after a year."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.nightly import flips
from bench.nightly.night import Tonight
from tests.bench.test_gathering import run_id
from tests.bench.test_nightly import NIGHTS, Machine, device, page

PAIRED = {"of": {"m": ">=6"}, "to": {"m": "<6"}, "pair": "x2 m"}
CLAIM = {
    "id": "MM-01",
    "rules": [3],
    "says": "six is more than three",
    "ratio": PAIRED,
    "expect": "above 1.1",
}
SLOW = {6: 1.3, 8: 1.3, 10: 1.3}
"""Case -> its time over that of half the size: supports the claim; none of them contradicts it."""
MIXED = {6: 1.0, 8: 1.3, 10: 1.1}


@pytest.fixture
def machine(tmp_path: Path, chance: np.random.Generator) -> Machine:
    """Whose twelve cases all take the same time, and whose sweep has a claim."""
    made = Machine(tmp_path / "results", chance)
    made.level_s = np.full_like(made.level_s, 1e-3)
    made.sweeps = {"gemm/all": {"title": "x", "claims": [CLAIM]}}
    return made


def after(machine: Machine, *effects: dict[int, float]) -> Tonight:
    """Quiet nights enough, then one of each of these effects; the last of them."""
    machine.effect = effects[0]
    night = machine.nights(NIGHTS)
    for machine.effect in effects[1:]:
        night = machine.run()
    return night


def changes(night: Tonight) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = device(night)["flips"]
    return listed


def test_a_flip_stands_at_the_top_and_is_no_regression(machine: Machine) -> None:
    night = after(machine, SLOW, {})
    (flip,) = [line for line in page(night).splitlines()[:6] if line.startswith("* FLIPPED: ")]
    interval = r"[01]\.\d+ \[[01]\.\d+, [01]\.\d+\]"
    assert re.search(
        f"MM-01 of gemm/all was SUPPORTED on 3 nights, last {interval}; tonight CONTRADICTED, {interval}, "
        r"n = 3; expected above 1\.1\. six is more than three\.",
        flip,
    )
    assert night.exit_code == 0
    (change,) = changes(night)
    assert (change["claim"], change["verdict"]) == ("MM-01", "CONTRADICTED")
    assert change["low"] < change["value"] < change["high"] < 1.1
    assert [each["run_id"] for each in change["before"]] == [run_id(at) for at in range(NIGHTS - 3, NIGHTS)]
    assert all(each["verdict"] == "SUPPORTED" and each["low"] > 1.1 for each in change["before"])
    assert not changes(machine.run()), "nothing is told twice"


def test_to_and_from_undecided_is_no_flip(machine: Machine) -> None:
    night = after(machine, SLOW, MIXED)
    assert "FLIPPED" not in page(night) and not changes(night)


def test_a_flip_with_undecided_nights_between_is_a_flip(machine: Machine) -> None:
    night = after(machine, SLOW, MIXED, {})
    assert "was SUPPORTED on 2 nights, UNDECIDED on 1 night, last 1." in page(night)


def test_nights_of_before_are_judged_by_the_claims_of_tonight(machine: Machine) -> None:
    """A corrected bar is no change of what was measured."""
    after(machine, SLOW)
    machine.sweeps = {"gemm/all": {"title": "x", "claims": [CLAIM | {"expect": "below 1.1"}]}}
    assert not changes(machine.run())


def test_another_protocol_is_passed_over(machine: Machine) -> None:
    machine.facts = {"protocol": "another"}
    after(machine, {})
    machine.facts, machine.effect = {}, SLOW
    assert not changes(machine.run())
    machine.facts, machine.effect = {"protocol": "another"}, {}
    machine.run()
    machine.facts = {}
    (change,) = changes(machine.run())
    assert [each["run_id"] for each in change["before"]] == [run_id(NIGHTS)]


def test_only_the_last_nights_are_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = flips.read_rows
    monkeypatch.setattr(flips, "read_rows", lambda path, run: read.append(path.stem) or real(path, run))
    assert not changes(after(machine, SLOW)), "nights agree"
    assert read == [run_id(at) for at in range(NIGHTS - 4, NIGHTS)]


def test_nights_without_claims_read_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.sweeps = {"gemm/all": {"title": "x", "claims": [{"id": "MM-01", "says": "x"}]}}
    monkeypatch.setattr(flips, "read_rows", None)
    assert not changes(after(machine, SLOW, {}))
