"""The first minutes: lists that fit a GPU's minutes, commands that stop no other, few files left."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import kernels
from bench import __main__ as command_line
from bench.cli.list_cases import of_datasheet
from bench.cli.predict import datasheet_named
from bench.device.detect import detect
from bench.environment.dependencies import ROOT, child_environment
from bench.errors import UserError
from bench.pytest_plugin import OPTIONS
from bench.runner.forecast import Prices
from bench.sampling.protocol import protocol
from bench.selfcheck import blocks
from bench.selfcheck import session as running
from bench.selfcheck.blocks import BLOCKS, Command, CommandBlock
from bench.selfcheck.session import Runner, key_line, outcome_lines, pack, shares
from bench.spec import DeviceKind
from bench.store.parquet import read_frame
from bench.sweep import load as sweep
from bench.sweep.load import Case

# ---- the lists


def test_blocks_fit_calls_of_ten_minutes_and_all_but_the_last_half_an_hour() -> None:
    found = blocks.calls()
    assert [block for call in found for block in call] == list(BLOCKS)
    assert all(sum(block.limit_s for block in call) <= blocks.LONGEST_CALL_S <= 570 for call in found)
    *half_an_hour, last = found
    assert [block.name for block in last] == ["quantization"]
    starts_s = 60 * len(half_an_hour)  # a machine is started for each call
    assert sum(block.limit_s for call in half_an_hour for block in call) + starts_s <= 30 * 60


def test_the_model_is_scored_in_the_call_that_has_measured_something() -> None:
    (call,) = [call for call in blocks.calls() if "model" in [block.name for block in call]]
    assert "tour" in [block.name for block in call]


@pytest.mark.parametrize(("kind", "capability"), [("cpu", None), ("cuda", (9, 0))])
def test_every_sweep_of_the_lists_has_cases_there(kind: DeviceKind, capability: Any) -> None:
    commands = [command for block in BLOCKS for command in block.commands]
    measuring = [command for command in commands if "--bench-sweep" in command.words]
    assert len(measuring) == 7
    for command in measuring:
        if command.gpu_only and kind == "cpu":
            continue
        for name in (after for word, after in pairwise(command.words) if word == "--bench-sweep"):
            cases = [c for path in sweep.select(name) for c in sweep.load(path, kernels.problem, 132).cases]
            assert any(not case.missing(kind, capability) for case in cases), name


def test_shapes_that_nobody_chose_are_aligned_and_run_by_both_sides() -> None:
    cases = sweep.load(blocks.RANDOM_ALIGNED, kernels.problem, 132).cases
    sizes = {(p["m"], p["n"], p["k"]) for p in (case.problem.parameters() for case in cases)}
    assert len(sizes) == 24 and all(m % 8 == n % 8 == k % 64 == 0 for m, n, k in sizes)
    here = [case.implementation for case in cases if not case.missing("cuda", (9, 0))]
    assert here.count("cublas") == here.count("triton") == len(sizes) * 4


def test_commands_exist_and_take_their_options() -> None:
    import plots.__main__
    import studies.__main__

    known: dict[str, Any] = {
        "bench": typer.main.get_command(command_line.app),
        "plots": typer.main.get_command(plots.__main__.app),
        "studies": typer.main.get_command(studies.__main__.app),
    }
    options = {f"--bench-{name}" for name in OPTIONS}
    for command in (command for block in BLOCKS for command in block.commands):
        package, name, *rest = command.words
        given = {word for word in rest if word.startswith("--")}
        if package in known:
            found = known[package].commands.get(name)
            assert found is not None, f"{package} has no command {name}"
            assert given <= {word for option in found.params for word in option.opts}, command
        elif package == "pytest":
            assert {word for word in given if word.startswith("--bench-")} <= options
        else:
            assert (ROOT / f"{package.replace('.', '/')}.py").exists()


def of_library(case: Case) -> bool:
    return not case.implementation.startswith(("triton", "inductor"))


def not_inductor(case: Case) -> bool:
    return not case.implementation.startswith("inductor")


@pytest.mark.parametrize("gpu", ["h100_sxm5", "h200"])
@pytest.mark.parametrize(
    ("block", "names", "asked", "sides"),
    [
        ("tour", blocks.TOUR, of_library, {False}),
        ("gemm-duel", blocks.DUEL, not_inductor, {False, True}),
        ("memory-duel", blocks.MEMORY_LIMITED, not_inductor, {False, True}),
        ("quantization", blocks.QUANTIZATION, lambda case: True, {True}),
    ],
)
def test_a_block_has_time_for_every_case_of_both_sides(
    gpu: str, block: str, names: tuple[str, ...], asked: Callable[[Case], bool], sides: set[bool]
) -> None:
    """A duel of which one side is left out, and a curve of two points, answer nothing."""
    device = of_datasheet(datasheet_named(gpu))
    paths = dict.fromkeys(path for name in ("ceilings", *names) for path in sweep.select(name))
    loaded = sweep.load_all(list(paths), kernels.problem, device.sm_count)
    every = [case for each in loaded for case in each.cases]
    cases = [c for c in every if not c.missing("cuda", device.capability) and c.threads == "all"]
    ceilings = [case for case in cases if case.role != "measurement"]
    halves = [case for case in cases if case.role == "measurement" and case.problem.dtype == "float16"]
    others = [case for case in halves if asked(case)]
    (command, *_) = next(one for one in BLOCKS if one.name == block).commands
    prices = Prices(device, protocol("cuda"), command.budget_s(command.limit_s))
    prices.limit_ceilings(cases)
    found = prices.forecast([*ceilings, *others])
    assert found.planned.cases == found.possible.cases == len(others) > 0
    assert {case.implementation.startswith("triton") for case in others} == sides


def test_unknown_blocks_are_refused_by_a_sentence_that_names_them() -> None:
    assert [block.name for block in blocks.chosen(["model", "clock"])] == ["clock", "model"]
    assert blocks.chosen(["all"]) == list(BLOCKS)
    with pytest.raises(UserError, match=r"no block 'duel' .did you mean gemm-duel or memory-duel"):
        blocks.chosen(["doctor", "duel"])


def test_words_are_filled_in() -> None:
    command = Command("x", ("a", "{rows}", "{folder}/f.json", "{budget}", "-k", "ceilings"), 100)
    rows = [Path("/r/1"), Path("/r/2")]
    words = blocks.filled(command, 100, {"folder": Path("/f"), "rows": rows})
    assert words == ["a", "/r/1", "/r/2", "/f/f.json", "75", "-k", "ceilings"]
    assert command.budget_s(10) == 4, "of a short limit two fifths are measuring"


def test_minutes_shorten_every_limit_alike_and_lengthen_none() -> None:
    there = [CommandBlock("a", "?", (Command("a", (), 60), Command("b", (), 180)))]
    assert shares(there, None) == shares(there, 10) == 1.0
    assert shares(there, 1) == 0.25


# ---- running

PROGRAMS = {
    "good": "print('noise'); print('answer: 42'); print('bye')",
    "bad": "import sys; print('what went wrong'); sys.exit(3)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "leaving": (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "open('PIDS', 'w').write(str(child.pid))\n"
    ),
    "stubborn": (
        "import os, signal, subprocess, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "open('PIDS', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "open('READY', 'w').close()\n"
        "signal.pause()\n"
    ),
    "measuring": (
        "import signal, sys, pathlib\n"
        "from tests.bench.rows import rows\n"
        "from bench.store.journal import Journal\n"
        "folder = pathlib.Path(sys.argv[1]) / 'device'\n"
        "folder.mkdir()\n"
        "journal = Journal.named(folder, '20260101T000000Z-x')\n"
        "journal.append(*rows(3, run_id='r', device='device'))\n"
        "open('READY', 'w').close()\n"
        "signal.pause()\n"
    ),
}
"""Programs in place of commands: good ones, bad ones, and those that hang. READY and PIDS become paths: of a
pipe that is opened when the program hangs, and of a file for process numbers."""


class Overrunning(subprocess.Popen[bytes]):
    """A process whose limit is over when it says, through the pipe `ready`, that it hangs."""

    ready = Path()

    def wait(self, timeout: float | None = None) -> int:
        if timeout == 60:
            self.ready.open().close()
            raise subprocess.TimeoutExpired(self.args, timeout)
        return super().wait(timeout)


@pytest.fixture
def overrunning(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands with a limit of 60 s overrun it."""
    Overrunning.ready = runner.folder.parent / "ready"
    os.mkfifo(Overrunning.ready)
    monkeypatch.setattr(running.subprocess, "Popen", Overrunning)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Runs the programs above as `python -m NAME`; a stopped one has a tenth of a second to end."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        text = text.replace("PIDS", str(tmp_path / "pids")).replace("READY", str(tmp_path / "ready"))
        (programs / f"{name}.py").write_text(text)
    monkeypatch.setattr(running, "ENDING_S", 0.1)
    monkeypatch.setattr(running, "TUNED", tmp_path / "no tuned choices")
    folder = tmp_path / "out"
    (folder / running.LOGS).mkdir(parents=True)
    environment = child_environment()
    environment["PYTHONPATH"] += os.pathsep + str(programs)
    return Runner(folder, environment, 1.0, lambda line: None)


def block(*names: str, limit_s: float = 60, **more: Any) -> CommandBlock:
    commands = (Command(name, (name, "{folder}"), limit_s, **more) for name in names)
    return CommandBlock("b", "?", tuple(commands))


def test_a_command_that_fails_stops_none_after_it(runner: Runner) -> None:
    runner.run([block("bad", "killed", "good", key="answer")], is_cpu=False)
    assert [(one.command, one.outcome, one.key) for one in runner.outcomes] == [
        ("bad", "failed (exit code 3)", "what went wrong"),
        ("killed", "failed (killed by signal 9)", ""),
        ("good", "done", "answer: 42"),
    ]
    assert [one.is_fine for one in runner.outcomes] == [False, False, True]
    runner.run([block("bad", answers=(0, 3))], is_cpu=False)
    assert runner.outcomes[-1].outcome == "done (exit code 3)" and runner.outcomes[-1].is_fine
    log = (runner.folder / running.LOGS / "b-good.log").read_text()
    assert log.startswith(f"python -m good {runner.folder}\nlimit 60 s\n") and "noise" in log


@pytest.mark.usefixtures("overrunning")
def test_a_command_that_overruns_is_stopped_with_all_it_has_started(runner: Runner) -> None:
    runner.run([block("stubborn"), block("good", limit_s=61)], is_cpu=False)
    stopped, after = runner.outcomes
    assert stopped.outcome == "stopped after 60 s" and not stopped.is_fine
    assert after.outcome == "done"
    assert all_gone(runner)


def test_a_command_that_ends_leaves_nothing_running(runner: Runner) -> None:
    runner.run([block("leaving")], is_cpu=False)
    assert runner.outcomes[0].outcome == "done" and all_gone(runner)


def all_gone(runner: Runner) -> bool:
    """Whether the processes that a program has named end: they were killed, which takes its moment."""
    for pid in (runner.folder.parent / "pids").read_text().split():
        try:
            descriptor = os.pidfd_open(int(pid))
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([descriptor], [], [], 10.0)
        os.close(descriptor)
        if not ended:
            os.kill(int(pid), signal.SIGKILL)
            return False
    return True


@pytest.mark.usefixtures("overrunning")
def test_what_a_stopped_run_had_measured_is_a_result_file(runner: Runner) -> None:
    reading = Command("reading", ("good", "{rows}"), 61)
    runner.run([CommandBlock("b", "?", (*block("measuring").commands, reading))], is_cpu=False)
    measured, read = runner.outcomes
    assert measured.outcome == "stopped after 60 s" and read.outcome == "done"
    (path,) = runner.rows()
    assert len(read_frame([path])) == 3 and not list(runner.folder.glob("*/*.journal"))


def test_what_reads_results_reads_those_of_its_block(runner: Runner) -> None:
    reading = Command("reads", ("good", "{rows}"), 60), Command("every", ("good", "{all}"), 60)
    of_block = "not run: this block has left no result file"
    for last in ("not run: there is no result file in this folder", "done"):
        runner.run([CommandBlock("b", "?", reading)], is_cpu=False)
        assert [one.outcome for one in runner.outcomes[-2:]] == [of_block, last]
        (runner.folder / "device").mkdir(exist_ok=True)
        (runner.folder / "device" / "earlier.parquet").touch()
    comparing = Command("comparing", ("bench", "compare", "{all}"), 60)
    assert running._unmet(comparing, [Path("one")], [Path("one")]).endswith("and there are 1")


def test_on_a_cpu_what_needs_a_gpu_is_said_and_no_failure(runner: Runner) -> None:
    said: list[str] = []
    runner._say = said.append
    both = block("good", gpu_only=True).commands + block("bad", answers=(0, 3)).commands
    runner.run([CommandBlock("b", "?", both, gpu="our side")], is_cpu=True)
    assert [one.outcome for one in runner.outcomes] == ["not run: needs a GPU", "done (exit code 3)"]
    assert all(one.is_fine for one in runner.outcomes) and "   needs a GPU: our side" in said
    runner.run([CommandBlock("b", "?", both, gpu="our side")], is_cpu=False)
    assert runner.outcomes[2].outcome == "done" and said.count("   needs a GPU: our side") == 1


def test_ctrl_c_ends_all_commands(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object) -> tuple[int, bool]:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_process", interrupted)
    runner.run([block("good", "bad")], is_cpu=False)
    assert [one.outcome for one in runner.outcomes] == ["stopped by Ctrl-C", "not run: interrupted"]


def test_key_lines() -> None:
    text = "\x1b[1m== 3 failed, 2 passed in 1 s ==\x1b[0m\n\n│ a box │\n"
    assert key_line(text, r"passed|failed") == "3 failed, 2 passed in 1 s"
    assert key_line(text, "nowhere") == "a box" and key_line("", "x") == ""
    assert len(key_line("x" * 500, "x")) < 110


# ---- what is left


def test_a_table_and_few_files_are_left_and_nothing_is_written_over(runner: Runner) -> None:
    runner.run([block("good", "bad", key=r"\[")], is_cpu=False)
    lines = list(outcome_lines(runner.outcomes))
    assert len([line for line in lines if line.split()[:1] == ["b"]]) == 2
    assert any("failed (exit code 3)" in line for line in lines)
    (runner.folder / "device").mkdir()
    (runner.folder / "device" / "run.parquet").touch()
    (runner.folder / "doctor.json").write_text("{}")
    facts = {"torch": "2", "nvidia-smi -q": "many\nlines"}
    left = pack(runner.folder, runner.outcomes, facts)
    names = [str(path.relative_to(runner.folder)) for path in left]
    assert names == ["device/run.parquet", "logs.tar.gz", "summary.json"]
    with tarfile.open(runner.folder / "logs.tar.gz") as archive:
        inside = set(archive.getnames())
        assert inside == {"doctor.json", "logs/b-good.log", "logs/b-bad.log", "logs/environment.json"}
        environment = archive.extractfile("logs/environment.json")
        assert environment is not None and json.load(environment) == facts
    summary = json.loads((runner.folder / "summary.json").read_text())
    assert summary["environment"] == {"torch": "2"}, "what is long stands in the archive"
    assert [one["command"] for one in summary["commands"]] == ["good", "bad"]
    (runner.folder / running.LOGS).mkdir()
    running.TUNED.mkdir()
    (running.TUNED / "choice.json").write_text("{}")
    again = pack(runner.folder, runner.outcomes, facts)
    with tarfile.open(runner.folder / "logs-2.tar.gz") as archive:
        assert "tuned/choice.json" in archive.getnames()
    assert set(left) < set(again)
    assert {path.name for path in again} - {path.name for path in left} == {"logs-2.tar.gz", "summary-2.json"}


def test_a_call_leaves_at_most_eight_files() -> None:
    for call in blocks.calls():
        measuring = [one for block in call for one in block.commands if "--benchmark" in one.words]
        assert len(measuring) + len(("summary", "archive")) <= 8


# ---- the command


def first_minutes(*words: str) -> Any:
    """The command in this process: `exit_code`, `output` (standard output and error)."""
    return CliRunner().invoke(command_line.app, ["first-minutes", *words])


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.selfcheck.command.detect", lambda: detect("cpu"))


def test_without_a_block_the_plan_is_shown_and_nothing_is_run(tmp_path: Path) -> None:
    done = first_minutes("--out", str(tmp_path / "out"))
    assert done.exit_code == 0 and not (tmp_path / "out").exists()
    assert done.output.count("python -m bench first-minutes ") == 4
    for one in BLOCKS:
        assert one.question in done.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model", "--minutes", "0"], "--minutes 0: give a number of minutes, more than 0"),
        (["model", "--out", "/proc/nowhere"], "--out /proc/nowhere: "),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], says: str) -> None:
    done = first_minutes(*words)
    assert done.exit_code == 2 and f"error: {says}" in done.output


def test_a_block_runs_from_the_command_to_its_files(tmp_path: Path) -> None:
    """The model's, on a committed run."""
    out = tmp_path / "out"
    (reference,) = (ROOT / "results" / "reference").glob("*/20261121T130717Z-*.parquet")
    (out / "device").mkdir(parents=True)
    shutil.copy(reference, out / "device")
    done = first_minutes("model", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert re.search(r"model +score +\d+ +done +Scored: ", done.output)
    summary = json.loads((out / "summary.json").read_text())
    facts = summary["environment"]
    assert facts["packages"]["pydantic"] and facts["device"]["kind"] == "cpu"
    with tarfile.open(out / "logs.tar.gz") as archive:
        assert {"scores.json", "logs/model-score.log"} <= set(archive.getnames())


def test_the_device_is_described_without_its_datasheet() -> None:
    facts = running.environment(detect("cpu"))
    json.dumps(facts)
    assert facts["device"]["sm_count"] >= 1 and "datasheet" not in facts["device"]
    assert facts["packages"]["torch"] and not any(name.startswith("HOME") for name in facts["variables"])
