"""What speaks against measuring a device now: GPUs by a made-up NVML, CPUs as folders."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from bench.device.health import fitness
from bench.device.nvml import CLOCK_EVENTS
from bench.device.other_processes import OtherProcesses
from tests.bench.nvml_fake import FakeNvml
from tests.bench.test_doctor import device


def found(**readings: Any) -> dict[str, tuple[str, bool]]:
    """What speaks against a GPU with these readings; by default an idle one in good order."""
    gpu = FakeNvml(**({"pids": []} | readings))
    told = fitness(device("cuda"), gpu)
    assert [one.refuses for one in told] == sorted((one.refuses for one in told), reverse=True)
    assert all(str(one) == one.sentence and "\n" not in one.sentence for one in told)
    return {one.kind: (one.sentence, one.refuses) for one in told}


def test_an_idle_gpu_in_good_order_is_fit() -> None:
    assert found() == {}


@pytest.mark.parametrize(
    "readings",
    [
        {"initialised": False},
        {"lost": True},
        {"uuid": "GPU-another"},
        dict.fromkeys(
            "pids mig persistence limit_mw default_limit_mw margin slowdown temperature bits".split()
        ),
    ],
)
def test_what_is_not_told_is_no_fault(readings: dict[str, Any]) -> None:
    assert found(**readings) == {}


@pytest.mark.parametrize(
    ("pids", "says"),
    [
        ([4711, 12, 4711], "in use by other processes (4711, 12)"),
        ([0, 7], "in use by other processes (7, one whose id is hidden)"),
    ],
)
def test_whoever_has_a_context_refuses(pids: list[int], says: str) -> None:
    assert found(pids=pids) == {"foreign processes": (says, True)}


def test_a_divided_gpu_is_refused_and_so_is_a_part_of_one() -> None:
    assert found(mig=[1, 1])["mig"][1]
    assert "mig" not in found(mig=[0, 1]), "what it will be after the next restart is no matter"
    part = FakeNvml(uuid="GPU-whole", mig_uuid="MIG-5ba8", pids=[])
    assert [(one.kind, one.refuses) for one in fitness(device("cuda"), part)] == [("mig", True)]


def test_what_only_makes_other_numbers_is_said() -> None:
    limit = random.randrange(200, 699)
    says = f"its power limit is {limit} W, its default 700 W"
    assert found(limit_mw=1000 * limit) == {"power limit": (says, False)}
    assert found(limit_mw=699_001) == found(limit_mw=700_999) == {}
    assert found(limit_mw=699_000)["power limit"]
    assert list(found(persistence=0)) == ["persistence"] and not found(persistence=0)["persistence"][1]


def test_heat_is_told_by_the_margin_or_else_by_the_threshold() -> None:
    assert found(margin=9) == {"temperature": ("idle and 9 °C from slowing down for heat", False)}
    assert found(margin=10) == {} == found(margin=10, temperature=200)
    assert found(margin=None, slowdown=92, temperature=82) == {}
    assert "9 °C" in found(margin=None, slowdown=92, temperature=83)["temperature"][0]
    assert "-2 °C from slowing down for heat" in found(margin=-2, temperature=None)["temperature"][0]


def test_a_clock_that_hardware_or_heat_holds_back_while_idle_is_said() -> None:
    for bit, name in CLOCK_EVENTS.items():
        harmful = name.startswith("hardware") or "thermal" in name
        assert ("clocks" in found(bits=bit)) == harmful, name
    assert found(bits=1) == {}  # idle
    both = found(bits=0x1 | 0x8 | 0x20)["clocks"]
    assert both == ("idle, and its clock is held back: hardware slowdown, software thermal slowdown", False)


def test_everything_at_once_begins_with_what_refuses() -> None:
    all_of_it = found(pids=[1], mig=[1, 0], limit_mw=1, persistence=0, margin=0, bits=8)
    assert [refuses for _, refuses in all_of_it.values()] == [True, True, False, False, False, False]


# ---- a CPU


def machine(root: Path, taken: str = "", **files: str) -> list[tuple[str, str]]:
    """What is said of a CPU of which others take this, with these files below /."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    others = OtherProcesses(root)
    others.busy = lambda: taken  # type: ignore[method-assign]
    told = fitness(device("cpu"), FakeNvml(pids=[1]), root, others)
    assert not any(one.refuses for one in told)
    return [(one.kind, one.sentence) for one in told]


def test_a_machine_that_tells_nothing_is_fit(tmp_path: Path) -> None:
    assert machine(tmp_path) == []


def test_what_others_take_now_is_said_and_no_load_average(tmp_path: Path) -> None:
    load = {"proc__loadavg": "9.0 9.0 9.0 1/200 4711", "proc__pressure__cpu": "some avg10=99.0 total=1\n"}
    assert machine(tmp_path, **load) == []
    assert machine(tmp_path, "others take 1.0 of 2", **load) == [("load", "busy (others take 1.0 of 2)")]
    assert fitness(device("cpu"), FakeNvml(pids=[1]), tmp_path) == [], "it reads its own counters twice"


def test_a_quota_below_the_processors_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 3})
    group = {"proc__self__cgroup": "0::/\n", "sys__fs__cgroup__cpu.max": "300000 100000\n"}
    assert machine(tmp_path, **group) == []
    assert machine(tmp_path, **{"sys__fs__cgroup__cpu.max": "max 100000\n"}) == []
    (said,) = machine(tmp_path, **{"sys__fs__cgroup__cpu.max": "250000 100000\n"})
    assert said == ("quota", "under a quota: the time of 2.5 of 3 processors")
