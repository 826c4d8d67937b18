"""One night: what is run, what is made of what it left, and what the exit code says. Nothing is measured."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.cli import whole_run
from bench.device.detect import detect
from bench.device.health import Unfit
from bench.errors import UserError
from bench.format import count_text
from bench.nightly.night import Tonight, night
from bench.nightly.report import nightly_lines
from bench.runner import options as run_options
from bench.runner.cases import ChosenCases
from bench.runner.options import Options
from bench.runner.run import RunResult
from bench.store.parquet import NO_SWEEPS, Sweeps, read_rows, write
from bench.store.schema import Measurement
from tests.bench import several
from tests.bench.test_gathering import case, run_id

CASES = 12
NIGHTS = 14

Made = list[Measurement]


class Machine:
    """A device whose run leaves what it is told to."""

    def __init__(self, folder: Path, chance: np.random.Generator) -> None:
        self.results, self.chance, self.night = folder, chance, 0
        self.device = replace(detect("cpu"), kind="cuda", index=0, name="H100", slug="h100", uuid="GPU-aa")
        self.level_s = np.exp(chance.uniform(-9, -5, CASES))
        self.options: list[Options] = []
        self.leaves: Callable[[Machine], RunResult] = Machine.finished
        self.effect: dict[int, float] = {}
        self.broken: dict[int, str] = {}
        self.facts: dict[str, Any] = {}
        self.sweeps: Sweeps = NO_SWEEPS

    def rows(self) -> Made:
        """One night's: the first two cases are ceilings, the others gemm and softmax in turns."""
        made = []
        for number, level_s in enumerate(self.level_s):
            noise = float(np.exp(0.004 * self.chance.standard_normal()))
            took_s: float | None = float(level_s * noise * self.effect.get(number, 1.0))
            told: dict[str, Any] = {"device_id": self.device.id, "run_id": run_id(self.night), "visits": 2}
            told |= {"samples_s": [1.0], "utc": datetime.now(UTC).isoformat()}
            told |= {"commit": f"c{self.night}", "operator": ("gemm", "softmax")[number % 2]}
            if number < 2:
                sweep = ("ceilings/gemm", "ceilings/stream")[number]
                told |= {"sweep": sweep, "role": "roof", "implementation": "cublas"}
            if status := self.broken.get(number):
                took_s = None
                told |= {"status": status, "reason": "it broke", "samples_s": None}
            made.append(case(number, took_s, **(told | self.facts)))
        return made

    def write(self) -> Path:
        return write(self.results / "h100" / f"{run_id(self.night)}.parquet", self.rows(), self.sweeps)

    def finished(self) -> RunResult:
        path = self.write()
        return RunResult(self.device, read_rows(path), path)

    def measure(self, options: Options) -> RunResult:
        self.options.append(options)
        return self.leaves(self)

    def run(self, unfit: Sequence[Unfit] = (), baseline: Path | None = None) -> Tonight:
        options = Options(device="cuda:0", results=self.results)
        with patch("bench.nightly.night.fitness", lambda device: list(unfit)):
            found = night(self.device, baseline, options, self.measure)
        self.night += 1
        return found

    def nights(self, count: int) -> Tonight:
        for _ in range(count - 1):
            self.write()
            self.night += 1
        return self.run()


@pytest.fixture
def machine(tmp_path: Path, chance: np.random.Generator) -> Machine:
    return Machine(tmp_path / "results", chance)


def page(one: Tonight) -> str:
    """The page as people read it."""
    return "\n".join(nightly_lines(one))


def test_the_first_nights_have_nothing_to_be_compared_with(machine: Machine) -> None:
    for number, more in ((1, 1), (2, 1), (6, 4)):
        found = machine.nights(more)
        verdict, _, short, *_ = page(found).splitlines()
        assert found.exit_code == 0 and verdict.startswith("# LEARNING: ")
        assert short.startswith(f"nothing was compared: this is night {number}, ")
        assert short.endswith(f" and is {count_text(7 - number, 'night')} away.")
    found = machine.run()
    assert found.exit_code == 0 and found.compared == CASES - 2
    assert page(found).startswith("# CLEAN: ") and "nothing changed: 10 cases" in page(found)


def test_a_trial_of_a_few_cases_is_no_night(machine: Machine) -> None:
    """As six evenings of `run` are, of another driver: the nights before and after are one row of nights."""
    machine.nights(6)
    for _ in range(6):
        few = [replace(one, driver="1.0") for one in machine.rows()[:4]]
        write(machine.results / "h100" / f"{run_id(machine.night)}.parquet", few, machine.sweeps)
        machine.night += 1
    found = machine.run()
    assert found.exit_code == 0 and found.compared == CASES - 2
    told = "left out: 6 runs that timed less than half as much as tonight: no nights"
    assert told in page(found) and "7 nights, 7 of them comparable" in page(found)


def test_a_case_that_got_slower_is_told_from_its_second_night_on(machine: Machine) -> None:
    """Or, of a history as short as this one, from the third or fourth."""
    assert machine.nights(NIGHTS).exit_code == 0
    machine.effect[5] = 1.2
    assert machine.run().exit_code == 0
    found = next(one for one in (machine.run() for _ in range(3)) if one.exit_code)
    (step,) = found.steps(slower=True)
    assert found.exit_code == 1 and step.kind == "series"
    told = page(found)
    assert told.startswith("# REGRESSION: ") and "| SLOWER (new) | gemm/all-triton-softmax-float16-" in told
    assert f"({run_id(NIGHTS)})" in told and "commit c13 -> c14" in told
    assert "1 slower (1 of them new tonight), 0 faster; 10 cases compared." in told
    assert 1.1 < step.change.ratio < 1.3
    again = machine.run()
    assert again.exit_code == 1 and "| SLOWER | gemm/all-triton-softmax-" in page(again)
    assert "1 slower (0 of them new tonight)" in page(again)
    machine.broken[5] = "skipped"
    found = machine.run()
    assert found.exit_code == 0, "it was not measured tonight"
    assert len(found.steps(slower=True)) == 1 and "| SLOWER | gemm/all-triton-softmax-" in page(found)


def test_a_case_that_got_faster_is_told_and_is_clean(machine: Machine) -> None:
    machine.nights(NIGHTS)
    machine.effect[5] = 0.8
    # Of a quiet case the first night may tell already.
    pages = [page(machine.run()) for _ in range(4)]
    assert all(one.startswith("# CLEAN: ") for one in pages)
    assert any("| FASTER (new) | gemm/all-triton-softmax-" in one for one in pages)


@pytest.mark.parametrize(("effect", "code"), [(1.2, 2), (0.8, 0)])
def test_a_machine_that_changed_is_one_event_and_a_fault_only_where_it_is_slower(
    machine: Machine, effect: float, code: int
) -> None:
    machine.nights(NIGHTS)
    machine.effect = dict.fromkeys(range(CASES), effect)
    machine.run()
    found = machine.run()
    assert found.exit_code == code and not found.steps()
    assert ("the machine itself is slower" in page(found)) == (code == 2)
    assert bool(found.steps(slower=False, kinds=("machine",))) == (code == 0)


@pytest.mark.parametrize(
    ("status", "worked", "is_regression"),
    [
        *((status, 3, True) for status in ("wrong", "crashed", "out_of_memory")),
        *((status, 7, False) for status in ("skipped", "unsupported")),  # not tried
        ("wrong", 0, False),  # it never worked
    ],
)
def test_a_case_that_no_longer_works_is_a_regression_at_once(
    machine: Machine, status: str, worked: int, is_regression: bool
) -> None:
    if worked:
        machine.nights(worked)
    machine.broken[4] = status
    found = machine.nights(2 if worked else 7)
    assert found.exit_code == is_regression and (f"| {status} |" in page(found)) == is_regression
    if is_regression:
        assert [one.since for one in found.failing] == [run_id(3)]
        assert f"| {status} | {run_id(3)} | it broke |" in page(found)


def test_a_changed_driver_begins_anew(machine: Machine) -> None:
    machine.nights(NIGHTS)
    machine.facts = {"driver": "560"}
    machine.effect = {number: 1.5 for number in range(3, CASES, 2)}
    found = machine.run()
    told = page(found)
    assert found.exit_code == 0 and "this is night 1 since driver 550 -> 560" in told


def test_the_same_work_in_a_sweep_of_another_name_is_told(machine: Machine) -> None:
    machine.nights(NIGHTS)
    machine.facts = {"sweep": "gemm/renamed"}
    told = page(machine.run())
    assert f"{CASES - 2} cases of gemm/renamed had earlier nights as gemm/all" in told


@pytest.mark.parametrize(
    ("error", "expected", "says"),
    [
        (UserError("h100 is being measured by process 7"), 2, "h100 is being measured by process 7"),
        (KeyboardInterrupt(), 3, "interrupted"),
        (IndexError("index 3 is out of bounds"), 3, "IndexError: index 3 is out of bounds"),
    ],
)
def test_a_run_that_does_not_begin_or_breaks(
    machine: Machine, error: BaseException, expected: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake of ours must not look like a regression, and its traceback is shown."""
    machine.leaves = Mock(side_effect=error)
    found = machine.run()
    assert found.exit_code == expected and says in page(found)
    assert ("Traceback" in capsys.readouterr().err) == isinstance(error, IndexError)


@pytest.mark.parametrize("reason", ["was interrupted", "results: No space left on device", ""])
def test_a_run_without_a_result_file_says_why_and_where_its_rows_are(machine: Machine, reason: str) -> None:
    journal = machine.results / "h100" / "x.journal"
    machine.leaves = lambda one: RunResult(one.device, one.rows(), None, journal if reason else None, reason)
    found = machine.run()
    assert found.exit_code == 3 and (reason or "no case was measured") in page(found)
    assert not found.rows, "what no file holds is not judged"
    assert (f"is safe in {journal}: --bench-resume" in page(found)) == bool(reason)


def test_a_run_ended_by_sigterm_is_one_that_was_interrupted(machine: Machine) -> None:
    """So a CI runner ends a job whose time is up."""

    def leaves(machine: Machine) -> RunResult:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        return RunResult(machine.device, [], None, None, "was interrupted")

    usual = signal.getsignal(signal.SIGTERM)
    machine.leaves = leaves
    assert machine.run().exit_code == 3
    assert signal.getsignal(signal.SIGTERM) is usual


def test_a_device_that_is_not_fit_is_not_measured(machine: Machine) -> None:
    found = machine.run([Unfit("foreign processes", "process 7 has a context", True)])
    assert found.exit_code == 2 and not machine.options
    assert "* refused: " in page(found) and "process 7 has a context" in page(found)
    found = machine.run([Unfit("persistence", "persistence mode is off", False)])
    assert machine.options and "* beware: " in page(found)


def test_nights_of_before_may_lie_in_another_folder(machine: Machine, tmp_path: Path) -> None:
    machine.nights(NIGHTS)
    for name in ("flat", "tree/h100"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (machine.results / "h100").rename(tmp_path / name)
        found = machine.run(baseline=tmp_path / name.partition("/")[0])
        assert found.exit_code == 0 and found.compared == CASES - 2
        (machine.results / "h100" / f"{run_id(machine.night - 1)}.parquet").unlink()
        (machine.results / "h100").rmdir()
        (tmp_path / name).rename(machine.results / "h100")


def test_a_damaged_night_and_another_gpu_of_the_kind_are_no_hindrance(machine: Machine) -> None:
    machine.nights(NIGHTS)
    path = machine.results / "h100" / f"{run_id(2)}.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    write(machine.results / "h100" / f"{run_id(40)}.parquet", [case(0, device_id="other", run_id=run_id(40))])
    found = machine.run()
    assert found.exit_code == 0 and f"* left out: {path}: " in page(found)


@pytest.fixture
def commanded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine as the one that the command finds and measures."""
    monkeypatch.setattr("bench.nightly.command.detect", lambda wanted: machine.device)
    monkeypatch.setattr("bench.nightly.night.fitness", lambda device: [])
    monkeypatch.setattr("bench.cli.whole_run.measure", lambda options, **_: machine.measure(options))
    return machine


def test_the_command_writes_its_page_and_ends_with_the_code(commanded: Machine, tmp_path: Path) -> None:
    machine = commanded
    summary = tmp_path / "new" / "night.md"
    given = ["--bench-results", str(machine.results), "--bench-budget", "9", "--bench-sweep", "gemm"]
    given += ["--summary", str(summary), "--bench-resume"]
    done = CliRunner().invoke(app, ["nightly", *given])
    assert done.exit_code == 0, done.output
    assert summary.read_text() in done.output
    (asked,) = machine.options
    assert (asked.results, asked.budget) == (machine.results, "9")
    assert (list(asked.sweeps), asked.resume) == (["gemm"], True)


def test_a_night_measures_judges_and_ends_with_the_rows_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real run in this process, of which a worker process without torch is all that is made up."""
    folder = several.stand_in(tmp_path, monkeypatch)
    monkeypatch.setattr("bench.nightly.night.fitness", lambda device: [])
    monkeypatch.setattr(run_options, "detect", lambda wanted: several.gpu(0))
    monkeypatch.setattr(run_options, "chosen_cases", lambda *_: ChosenCases(several.small(folder, [1, 2, 3])))
    options = Options(results=folder / "results", budget="inf")

    def tonight(options: Options) -> Tonight:
        return night(several.gpu(0), None, options, whole_run.measure)

    found = tonight(options)
    assert found.path and found.exit_code == 0 and [row.status for row in found.rows] == ["ok"] * 3
    assert read_rows(found.path) == found.rows
    said = capsys.readouterr().out
    assert "[9/9]" in said and "3 of 3 cases have a time" in said and str(found.path) in said
    # ... and after Ctrl-C in the second visit, gone on with
    os.mkfifo(folder / "here-GPU-0-2")
    (folder / "hang-GPU-0-2").touch()
    # A signal of its own wakes the main thread where it waits for the worker; interrupt_main would not.
    main = threading.main_thread().ident or 0
    wake = partial(signal.pthread_kill, main, signal.SIGINT)
    ends = threading.Thread(target=lambda: (folder / "here-GPU-0-2").read_bytes() or wake())
    ends.start()
    cut_short = tonight(options)
    ends.join()
    assert cut_short.exit_code == 3 and "was interrupted; what it measured is safe in " in cut_short.broken
    (folder / "hang-GPU-0-2").unlink()
    again = tonight(replace(options, resume=True))
    assert again.path and again.path.stem in cut_short.broken and len(again.rows) == 3
