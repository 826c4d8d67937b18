"""The warning that a device is busy: readings of a made-up /proc, and a run's first lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.cli import run_lines
from bench.cli.findings import fit_sentence
from bench.device.detect import Device
from bench.device.health import Unfit
from bench.device.other_processes import OtherProcesses
from bench.judge.read_runs import runs
from bench.runner.run import Run
from bench.store.parquet import write
from plots.__main__ import app as plots
from tests.bench import several
from tests.bench.rows import row
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


def test_what_others_take_is_said(machine: Machine) -> None:
    machine.process(OTHER, "a (b) c", 1, 50)
    others = machine.others()
    machine.later(4, busy_s=4 * 1.5)
    machine.process(ME, "python", SHELL, 6)
    machine.process(OTHER, "a (b) c", 1, 53)
    assert told(machine, others) == "other processes take 1.2 of 2 processors"


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
    run = begun(folder, monkeypatch, small(folder, [1]))
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


# ---- waiting for quiet, and what was measured without it


@pytest.fixture
def busy_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Run, list[str], list[str]]]:
    """A run of 30 s on a device that is as busy as the list says, look by look, and what was said."""
    folder = several.stand_in(tmp_path, monkeypatch)
    run = begun(folder, monkeypatch, small(folder, [1]), budget="30")
    looks: list[str] = []
    monkeypatch.setattr(run_lines, "busy_line", lambda *_: looks.pop(0))
    monkeypatch.setenv(run_lines.WAIT, "60")
    yield run, looks, []
    run.finish()


def test_a_run_waits_for_a_busy_machine_and_its_budget_begins_afterwards(
    busy_run: tuple[Run, list[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, looks, said = busy_run
    slept: list[float] = []
    begun_again: list[bool] = []
    monkeypatch.setattr(run, "begin", lambda: begun_again.append(True))
    looks += ["busy", "busy", ""]
    run_lines.wait_until_quiet(run, said.append, slept.append)
    assert said == ["busy; waiting up to 10 s for it to be quiet"]
    assert sum(slept) == 10.0 and begun_again == [True], "a third of its budget at most"
    looks += [""]
    run_lines.wait_until_quiet(run, said.append, slept.append)
    assert (len(said), len(slept), begun_again) == (1, 2, [True]), "a quiet machine is measured at once"


def test_it_gives_up_waiting(busy_run: tuple[Run, list[str], list[str]]) -> None:
    run, looks, said = busy_run
    slept: list[float] = []
    looks += ["busy"] * 3
    run_lines.wait_until_quiet(run, said.append, slept.append)
    assert sum(slept) == 10.0 and not looks


def test_times_off_the_processor_are_no_numbers_and_the_screen_and_the_page_begin_with_it(
    tmp_path: Path,
) -> None:
    """Two cases of 8 ms each, which is the scheduler's slice, by other programs on all processors."""
    facts = {"device_kind": "cpu", "median_s": 7.98e-3, "low_s": 7.6e-3, "high_s": 8.3e-3, "steal": 0.0}
    facts |= {"role": "measurement", "pressure": 0.9}
    lengths = [json.dumps({"length": length, "rows": 256}) for length in (1024, 4096)]
    rows = [row(**facts, operator="softmax", parameters=text, on_processor=0.5) for text in lengths]
    rows.append(
        row(**facts, operator="softmax", parameters=lengths[0], on_processor=0.99, implementation="x")
    )
    (run,) = runs(rows)
    assert [each.is_timed for each in run.rows] == [False, False, True]
    text = fit_sentence(run)
    assert text.startswith(
        "Not fit for use: other programs took 90 % of the processors' time in 3 of 3 cases."
    )
    write(tmp_path / "run.parquet", rows)
    output = CliRunner().invoke(app, ["table", str(tmp_path / "run.parquet")]).output
    assert output.count("7.98 ms") == 1
    written = CliRunner().invoke(plots, ["report", str(tmp_path / "run.parquet"), "-o", str(tmp_path)])
    assert written.exit_code == 0, written.output
    page = next(tmp_path.glob("*.html")).read_text()
    assert '<p class="lead">Not fit for use: other programs took 90 %' in page
