"""What a machine says of itself over a window: against made-up kernels, and for real."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.device.control_groups import control_groups
from bench.store.schema import FIELDS
from bench.worker.telemetry_cpu import CpuTelemetry, throttled_s
from bench.worker.telemetry_cuda import CudaTelemetry
from tests.bench import nvml_fake
from tests.bench.nvml_fake import FakeNvml

TICK_HZ = os.sysconf("SC_CLK_TCK")
PRESSURE = "some avg10=1.00 avg60=2.00 avg300=3.00 total={}\nfull avg10=0.00 avg300=0.00 total=77\n"
STAT = "usage_usec 5\nnr_throttled 3\nthrottled_usec {}\nnr_bursts 0\n"
MACHINE, GROUP = "proc/pressure/cpu", "sys/fs/cgroup/pod/container/cpu.pressure"
OWN, ABOVE = "sys/fs/cgroup/pod/container/cpu.stat", "sys/fs/cgroup/pod/cpu.stat"


@pytest.fixture
def chance(seed: int) -> random.Random:
    return random.Random(seed)


# --- a made-up machine ------------------------------------------------------------------------------


class Machine:
    """Files of proc and sys below a folder, as a kernel writes them, and the clocks of a process on it."""

    def __init__(self, root: Path) -> None:
        self.root, self.wall_s, self.thread_s = root, 50.0, 7.0
        self.counters_us = {MACHINE: 10**9}
        """By file."""
        self.steal_ticks = {0: 500, 1: 900, 2: 10**6}
        self.write("proc/self/cgroup", "0::/pod/container\n")

    def perf_counter(self) -> float:
        return self.wall_s

    def thread_time(self) -> float:
        return self.thread_s

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def settle(self) -> None:
        """Write every counter as it stands."""
        rows = [f"cpu{n} 9 8 7 6 5 4 3 {ticks} 2 1" for n, ticks in self.steal_ticks.items()]
        self.write("proc/stat", "\n".join(["cpu  9 8 7 6 5 4 3 123456 2 1", *rows, "intr 5", ""]))
        for path, us in self.counters_us.items():
            self.write(path, (STAT if path.endswith("stat") else PRESSURE).format(us))

    def window(self, change: Callable[[], Any], wall_s: float = 1.0, thread_s: float = 1.0) -> dict[str, Any]:
        """What telemetry tells of a window in which this changes."""
        self.settle()
        telemetry = CpuTelemetry(self.root, self)
        telemetry.start()
        self.wall_s += wall_s
        self.thread_s += thread_s
        change()
        self.settle()
        return telemetry.stop()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return Machine(tmp_path)


def test_every_column_of_a_window_by_hand(machine: Machine, chance: random.Random) -> None:
    machine.counters_us[OWN] = 4_000_000
    machine.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    wall_s, thread_s = chance.uniform(0.1, 2.0), chance.uniform(0.05, 0.1)
    waited_us, held_us, stolen = (chance.randrange(1, 50_000) for _ in range(3))

    def change() -> None:
        machine.counters_us[MACHINE] += waited_us
        machine.counters_us[OWN] += held_us
        machine.steal_ticks = {0: 500 + stolen, 1: 900 + 3 * stolen, 2: 2 * 10**6}  # the last is not ours

    assert machine.window(change, wall_s, thread_s) == {
        "pressure": pytest.approx(waited_us * 1e-6 / wall_s),
        "throttled": pytest.approx(held_us * 1e-6 / wall_s),
        "steal": pytest.approx(min(1.0, 2 * stolen / TICK_HZ / wall_s)),
        "on_processor": pytest.approx(thread_s / wall_s),
        "governor": "performance",
    }


def test_every_key_is_a_column(machine: Machine) -> None:
    gpu, clock = FakeNvml(), nvml_fake.Clock()
    gpu.counters(74, 75, 76, 269, 270, 271)
    cuda = CudaTelemetry(gpu.uuid, gpu, clock)
    cuda.start()
    clock.now_s += 2
    gpu.run({}, energy_mj=1)
    said = machine.window(lambda: None) | cuda.stop()
    assert not said.keys() - FIELDS.keys()
    # Everything that these blocks of the schema hold is told by one of the two, given a chance.
    first, last = list(FIELDS).index("sm_clock_before_hz"), list(FIELDS).index("governor")
    untold = set(list(FIELDS)[first : last + 1]) - said.keys()
    assert untold == {"throttled", "concurrent_gpus", "involuntary_switches"}


@pytest.mark.parametrize(
    ("column", "spent_us", "wanted"),
    [
        ("pressure", {MACHINE: 5_000, GROUP: 200_000}, 0.2),
        ("pressure", {MACHINE: 300_000, GROUP: 1_000}, 0.3),
        ("pressure", {GROUP: 40_000}, 0.04),  # the machine's is hidden from this container
        ("throttled", {OWN: 100_000, ABOVE: 0}, 0.1),
        ("throttled", {OWN: 0, ABOVE: 250_000}, 0.25),
        ("throttled", {OWN: 0, ABOVE: 7_000_000}, 1.0),
    ],
)
def test_the_largest_counts_and_no_share_is_above_one(
    machine: Machine, column: str, spent_us: dict[str, int], wanted: float
) -> None:
    machine.counters_us = dict.fromkeys(spent_us, 10**9)
    later_us = {path: 10**9 + us for path, us in spent_us.items()}
    assert machine.window(lambda: machine.counters_us.update(later_us))[column] == pytest.approx(wanted)


def test_a_counter_that_steps_back_or_vanishes_is_null(machine: Machine) -> None:
    def change() -> None:
        machine.steal_ticks = {0: 400, 1: 900}
        (machine.root / MACHINE).unlink()
        machine.counters_us.clear()

    facts = machine.window(change)
    assert "steal" not in facts and "pressure" not in facts and facts["on_processor"] == pytest.approx(1.0)
    # It is back, but it was not there at the start.
    assert "pressure" not in machine.window(lambda: machine.counters_us.update({MACHINE: 10**9}))


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    telemetry = CpuTelemetry(tmp_path, Machine(tmp_path / "another"))
    telemetry.start()
    assert telemetry.stop() == {"governor": "", "on_processor": 0.0}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("throttled_usec 1500000\n", 1.5), ("throttled_time 1500000\n", 0.0015), ("throttled_usec all\n", None)],
)
def test_units_of_throttling(text: str, wanted: float | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text(f"nr_periods 5\n{text}")
    assert throttled_s(tmp_path) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("own", "there", "wanted"),
    [
        # In a container without a namespace the path is the host's, and its own is shown at the top.
        ("0::/docker/1f/x\n", ".", "."),
        ("0::/../x\n", ".", "."),
        # Both: v2's come first.
        ("1:cpuacct,cpu:/job\n0::/scope\n", "unified/scope cpu/job", "unified/scope unified . cpu/job cpu"),
        ("nonsense\n\n", ".", ""),
    ],
)
def test_control_groups(tmp_path: Path, own: str, there: str, wanted: str) -> None:
    base = tmp_path / "sys/fs/cgroup"
    for folder in (tmp_path / "proc/self", *(base / path for path in there.split())):
        folder.mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(own)
    assert list(control_groups("cpu", tmp_path)) == [base / path for path in wanted.split()]


def test_this_machine(chance: random.Random) -> None:
    """Nothing here asserts how quick or how quiet it is."""
    telemetry = CpuTelemetry()
    telemetry.start()
    sum(chance.random() for _ in range(200_000))
    facts = telemetry.stop()
    assert facts.keys() <= FIELDS.keys() and isinstance(facts.pop("governor"), str)
    assert facts["on_processor"] > 0 and all(0.0 <= share <= 1.0 for share in facts.values())
