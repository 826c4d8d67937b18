"""The warning that a device is busy: readings of a made-up /proc, and a run's first lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.cli import run_lines
from bench.device.detect import Device
from bench.device.health import Unfit
from bench.device.other_processes import OtherProcesses
from tests.bench import several
from tests.bench.several import begun, small

ME, SHELL, OTHER = os.getpid(), 10, 4711


class Machine:
    """Two processors, whose counters a test moves; all seconds are whole hundredths."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.now_s = root, 1000.0
        self.busy_s, self.stolen_s, self.elsewhere_s = 900.0, 0.0, 0.0
        self.processes: dict[int, tuple[str, int, float, float]] = {}
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        self.process(SHELL, "bash", 1, 0)
        self.process(ME, "python", SHELL, 5)

    def process(self, pid: int, name: str, parent: int, own_s: float, ended_s: float = 0) -> None:
        self.processes[pid] = name, parent, own_s, ended_s

    def others(self) -> OtherProcesses:
        self.write()
        return OtherProcesses(self.root, clock=lambda: self.now_s)

    def write(self) -> None:
        proc = self.root / "proc"
        for folder in proc.glob("[0-9]*"):
            (folder / "stat").unlink(missing_ok=True)
        half = round(50 * self.busy_s)
        rows = [f"cpu{n} {half} 0 0 99999 7 0 0 {round(50 * self.stolen_s)} 0 0" for n in (0, 1)]
        rows.append(f"cpu2 {round(100 * self.elsewhere_s)} 0 0 0 0 0 0 0 0 0")
        proc.mkdir(exist_ok=True)
        (proc / "stat").write_text("\n".join(["cpu  1 2 3", *rows, "intr 1"]))
        for pid, (name, parent, own_s, ended_s) in self.processes.items():
            (proc / str(pid)).mkdir(exist_ok=True)
            times = f"{round(60 * own_s)} {round(40 * own_s)} {round(100 * ended_s)} 0"
            (proc / str(pid) / "stat").write_text(f"{pid} ({name}) R {parent} 1 1 0 -1 0 0 0 0 0 {times} 20")

    def later(self, seconds: float, busy_s: float) -> None:
        self.now_s += seconds
        self.busy_s += busy_s


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def told(machine: Machine, others: OtherProcesses) -> str:
    machine.write()
    return others.busy()


def test_what_others_take_is_said_with_the_process_that_takes_most(machine: Machine) -> None:
    machine.process(OTHER, "a (b) c", 1, 50)
    others = machine.others()
    machine.later(4, busy_s=4 * 1.5)
    machine.process(ME, "python", SHELL, 6)
    machine.process(OTHER, "a (b) c", 1, 53)
    busy = "other processes take 1.2 of 2 processors"
    assert told(machine, others) == f"{busy}, most of it a (b) c, process {OTHER}"
    machine.process(OTHER, "a (b) c", 1, 51)
    assert told(machine, others) == busy, "it took a fifth"
    del machine.processes[OTHER]
    assert told(machine, others) == busy, "who it was is not seen from in here"


def test_its_own_processes_are_not_others(machine: Machine) -> None:
    """Its worker, what the worker starts, and what has ended: however much they compute."""
    machine.process(101, "python", ME, 30)
    others = machine.others()
    machine.later(4, busy_s=8)
    del machine.processes[101]
    machine.process(ME, "python", SHELL, 5.5, ended_s=31)  # 101's last second, and the 30 before it
    machine.process(102, "python", ME, 3.5)
    machine.process(103, "ptxas", 102, 1, ended_s=1)
    assert told(machine, others) == ""
    machine.process(103, "ptxas", 1, 1, ended_s=1)  # another's
    assert "other processes take 0.8 of 2" in told(machine, others)


def test_what_cannot_be_known_is_no_alarm(machine: Machine) -> None:
    others = machine.others()
    machine.later(0.4, busy_s=0.8)
    assert told(machine, others) == "", "too short to tell"
    (machine.root / "proc" / "stat").unlink()
    machine.now_s += 4
    assert others.busy() == ""
    nothing = OtherProcesses(machine.root / "nowhere", clock=lambda: machine.now_s)
    machine.now_s += 4
    assert nothing.busy() == ""


# ---- the lines of a run


def test_a_run_warns_before_it_measures_and_asks_a_gpu_before_its_own_worker_is_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = several.stand_in(tmp_path, monkeypatch)
    (run,) = begun(folder, monkeypatch, small(folder, [1]))
    log: list[str] = []

    def unfit(_: Device, others: OtherProcesses) -> list[Unfit]:
        log.append("asked")
        assert others is run.others
        hot = Unfit("temperature", "idle and 4 °C from slowing down for heat")
        limit = Unfit("power limit", "its power limit is 300 W, its default 700 W")
        return [Unfit("foreign processes", "in use by 1 other process (4711)", refuses=True), limit, hot]

    monkeypatch.setattr(run_lines, "fitness", unfit)
    libraries = run.libraries
    monkeypatch.setattr(run, "libraries", lambda: log.append("worker starts") or libraries())
    opening = run_lines.opening_lines(run)
    run.finish()
    assert [line for line in opening if line.startswith("warning: ")] == [
        "warning: cuda:0 (Made up) is in use by 1 other process (4711), and idle and 4 °C from slowing down "
        f"for heat; {run_lines.WHILE_BUSY}"
    ]
    assert log == ["asked", "worker starts"]
