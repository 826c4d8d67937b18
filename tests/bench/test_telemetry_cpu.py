"""What a machine says of itself over a window: against made-up kernels, and for real."""

import os
import random
import resource
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.device.control_groups import control_groups
from bench.store.schema import FIELDS
from bench.worker.telemetry_cpu import CpuTelemetry, throttled_s
from bench.worker.telemetry_cuda import CudaTelemetry
from tests.bench import nvml_fake
from tests.bench.nvml_fake import FakeNvml

TICK_HZ = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def chance(seed: int) -> random.Random:
    return random.Random(seed)


# --- a made-up machine ------------------------------------------------------------------------------


@dataclass
class Times:
    """What CpuTelemetry takes of the module `time`; a test moves it."""

    wall_s: float = 50.0
    thread_s: float = 7.0

    def perf_counter(self) -> float:
        return self.wall_s

    def thread_time(self) -> float:
        return self.thread_s

    def sleep(self, seconds: float) -> None:
        self.wall_s += seconds


class Machine:
    """Files of proc and sys below a folder, as a kernel writes them, and the clocks of a process on it."""

    def __init__(self, root: Path) -> None:
        self.root, self.times = root, Times()
        self.switches = 100
        self.sentinel_s = 1e-4
        self.machine_us = self.group_us = 10**9
        self.steal_ticks = {0: 500, 1: 900, 2: 10**6}
        self.throttled: dict[str, tuple[str, int]] = {}
        """Folder of a control group -> (the counter's name, its value)."""
        self.group: str | None = None
        """The folder that has a pressure file of its own."""
        self.write("proc/self/cgroup", "0::/\n")
        self.write("proc/self/mountinfo", "")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def settle(self) -> None:
        """Write every counter as it stands."""
        line = "{0} avg10=1.00 avg60=2.00 avg300=3.00 total={1}\n"
        self.write("proc/pressure/cpu", line.format("some", self.machine_us) + line.format("full", 77))
        rows = [f"cpu{n} 9 8 7 6 5 4 3 {ticks} 2 1" for n, ticks in self.steal_ticks.items()]
        self.write("proc/stat", "\n".join(["cpu  9 8 7 6 5 4 3 123456 2 1", *rows, "intr 5", ""]))
        if self.group is not None:
            self.write(f"{self.group}/cpu.pressure", line.format("some", self.group_us))
        for folder, (name, value) in self.throttled.items():
            self.write(f"{folder}/cpu.stat", f"usage_usec 5\nnr_throttled 3\n{name} {value}\nnr_bursts 0\n")

    def run(self, wall_s: float, thread_s: float | None = None) -> None:
        self.times.wall_s += wall_s
        self.times.thread_s += wall_s if thread_s is None else thread_s

    def launch(self) -> None:
        """The sentinel."""
        self.times.wall_s += self.sentinel_s

    def telemetry(self) -> CpuTelemetry:
        self.settle()
        return CpuTelemetry(self.launch, self.root, self.times)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(
        resource, "getrusage", lambda who: SimpleNamespace(ru_nivcsw=made.switches * (1 + 5 * who))
    )
    return made


def test_every_column_of_a_window_by_hand(machine: Machine, chance: random.Random) -> None:
    machine.throttled["sys/fs/cgroup"] = ("throttled_usec", 4_000_000)
    machine.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n")
    machine.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    telemetry = machine.telemetry()
    machine.sentinel_s = before_s = chance.uniform(1e-4, 2e-4)
    wall_s, thread_s = chance.uniform(0.1, 2.0), chance.uniform(0.05, 0.1)
    waited_us, held_us, stolen, switched = (chance.randrange(1, 50_000) for _ in range(4))
    telemetry.start()
    machine.run(wall_s, thread_s)
    machine.machine_us += waited_us
    machine.throttled["sys/fs/cgroup"] = ("throttled_usec", 4_000_000 + held_us)
    machine.steal_ticks = {0: 500 + stolen, 1: 900 + 3 * stolen, 2: 2 * 10**6}  # the last is not ours to use
    machine.switches += switched
    machine.settle()
    machine.sentinel_s = after_s = before_s * chance.choice([0.9, 1.0, 1.25])
    facts = telemetry.stop()
    assert facts == {
        "pressure": pytest.approx(waited_us * 1e-6 / wall_s),
        "throttled": pytest.approx(held_us * 1e-6 / wall_s),
        "steal": pytest.approx(2 * stolen / TICK_HZ / wall_s),
        "on_processor": pytest.approx(thread_s / wall_s),
        "involuntary_switches": switched,
        "governor": "performance",
        "sentinel_before_s": pytest.approx(before_s),
        "sentinel_after_s": pytest.approx(after_s),
        "sentinel_moved": pytest.approx(max(before_s, after_s) / min(before_s, after_s) - 1),
    }
    assert isinstance(facts["involuntary_switches"], int)


def test_every_key_is_a_column(machine: Machine) -> None:
    telemetry = machine.telemetry()
    telemetry.start()
    gpu, clock = FakeNvml(), nvml_fake.Clock()
    gpu.counters(74, 75, 76, 269, 270, 271)
    cuda = CudaTelemetry(gpu.uuid, gpu, clock)
    cuda.start()
    clock.now_s += 2
    gpu.run({}, energy_mj=1)
    said = telemetry.stop() | cuda.stop()
    assert not said.keys() - FIELDS.keys()
    # Everything that these blocks of the schema hold is told by one of the two, given a chance.
    first, last = list(FIELDS).index("sm_clock_before_hz"), list(FIELDS).index("sentinel_moved")
    assert set(list(FIELDS)[first : last + 1]) - said.keys() == {"throttled", "concurrent_gpus"}


def test_the_larger_pressure_counts(machine: Machine) -> None:
    machine.group = "sys/fs/cgroup/mine"
    machine.write("proc/self/cgroup", "0::/mine\n")
    machine.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    for machine_us, group_us, wanted in ((5_000, 200_000, 0.2), (300_000, 1_000, 0.3)):
        telemetry = machine.telemetry()
        telemetry.start()
        machine.run(1.0)
        machine.machine_us += machine_us
        machine.group_us += group_us
        machine.settle()
        assert telemetry.stop()["pressure"] == pytest.approx(wanted)
    (machine.root / "proc/pressure/cpu").unlink()  # hidden from this container
    telemetry.start()
    machine.run(1.0)
    machine.group_us += 40_000
    machine.write("sys/fs/cgroup/mine/cpu.pressure", f"some avg10=0.00 total={machine.group_us}\n")
    assert telemetry.stop()["pressure"] == pytest.approx(0.04)


def test_a_quota_of_an_ancestor_counts_and_the_share_ends_at_one(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/pod/container\n")
    machine.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    for folder in ("sys/fs/cgroup/pod/container", "sys/fs/cgroup/pod"):
        machine.throttled[folder] = ("throttled_usec", 0)
    for own_us, above_us, wanted in ((100_000, 0, 0.1), (0, 250_000, 0.25), (0, 7_000_000, 1.0)):
        telemetry = machine.telemetry()
        telemetry.start()
        machine.run(1.0)
        for folder, more in (("sys/fs/cgroup/pod/container", own_us), ("sys/fs/cgroup/pod", above_us)):
            name, value = machine.throttled[folder]
            machine.throttled[folder] = (name, value + more)
        machine.settle()
        assert telemetry.stop()["throttled"] == pytest.approx(wanted)


def test_a_counter_that_steps_back_or_vanishes_is_null(machine: Machine) -> None:
    machine.steal_ticks = {0: 10_000, 1: 10_000}
    telemetry = machine.telemetry()
    telemetry.start()
    machine.run(1.0)
    machine.steal_ticks = {0: 9_000, 1: 9_500}
    machine.settle()
    (machine.root / "proc/pressure/cpu").unlink()
    facts = telemetry.stop()
    assert "steal" not in facts and "pressure" not in facts and facts["on_processor"] == pytest.approx(1.0)
    telemetry.start()
    machine.run(1.0)
    machine.settle()  # pressure is back, but it was not there at the start
    assert "pressure" not in telemetry.stop()


def test_a_machine_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> set[int]:
        raise AttributeError

    monkeypatch.setattr(os, "sched_getaffinity", refuse)
    times = Times()
    telemetry = CpuTelemetry(lambda: None, tmp_path, times)
    telemetry.start()
    times.wall_s += 1
    facts = telemetry.stop()
    # A sentinel that took no time has no speed to compare.
    assert facts.keys() == {
        *("on_processor", "involuntary_switches", "governor"),
        *("sentinel_before_s", "sentinel_after_s"),
    }
    assert facts["governor"] == "" and facts["on_processor"] == 0.0


def test_units_of_throttling(tmp_path: Path) -> None:
    for text, wanted in (
        ("nr_periods 5\nthrottled_usec 1500000\n", 1.5),
        ("nr_periods 5\nthrottled_time 1500000\n", 0.0015),
        ("nr_periods 5\nthrottled_usec all\n", None),
        ("usage_usec 5\n", None),
    ):
        (tmp_path / "cpu.stat").write_text(text)
        assert throttled_s(tmp_path) == (None if wanted is None else pytest.approx(wanted))


V2 = "31 23 0:28 {shown} {at} rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
V1 = "32 31 0:29 {shown} {at} rw,relatime - cgroup cgroup rw,{which}\n"


@pytest.mark.parametrize(
    ("mounts", "own", "wanted"),
    [
        # In one without: the path is the host's, the mount shows the container's part.
        (V2.format(shown="/docker/1f", at="/sys/fs/cgroup"), "0::/docker/1f/x\n", ["x", "."]),
        # Both: v2's come first.
        (
            V1.format(shown="/", at="/sys/fs/cgroup/cpu", which="cpu")
            + V2.format(shown="/", at="/sys/fs/cgroup/unified"),
            "1:cpu:/job\n0::/scope\n",
            ["unified/scope", "unified", "cpu/job", "cpu"],
        ),
        ("nonsense\n\n31 - cgroup2\n", "0::/\n", []),
    ],
)
def test_control_groups(tmp_path: Path, mounts: str, own: str, wanted: list[str]) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda rw\n" + mounts)
    (tmp_path / "proc/self/cgroup").write_text(own)
    base = tmp_path / "sys/fs/cgroup"
    assert list(control_groups("cpu", tmp_path)) == [base / path for path in wanted]


def test_this_machine(chance: random.Random) -> None:
    """Nothing here asserts how quick or how quiet it is."""
    launched = threading.Event()
    telemetry = CpuTelemetry(launched.set)
    telemetry.start()
    sum(chance.random() for _ in range(200_000))
    facts = telemetry.stop()
    assert launched.is_set() and not facts.keys() - FIELDS.keys()
    for name in ("pressure", "throttled", "steal"):
        assert 0.0 <= facts.get(name, 0.0) <= 1.0, name
    assert 0.0 < facts["on_processor"] <= 1.05
    assert facts["involuntary_switches"] >= 0 and facts["sentinel_moved"] >= 0
    assert 0 < min(facts["sentinel_before_s"], facts["sentinel_after_s"]) < 1
    assert isinstance(facts["governor"], str)
