"""The doctor's groups in their processes: a hang, an abort or an exception in one is its failure alone."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.device.detect import Device, detect
from bench.runner.worker_process import WorkerDied
from bench.selfcheck import report
from bench.selfcheck.finding import Finding, exit_code, failed, passed, warned
from bench.selfcheck.groups import GROUPS, CheckGroup, Examination, GroupOutcome, applicable
from bench.worker.__main__ import answer, make_bench
from bench.worker.fault import Fault

ROOT = Path(__file__).parents[2]
BROKEN = CheckGroup("tests.bench.selfcheck_broken:findings", "a group that breaks", 60)
GOOD, BAD, SO_SO = passed("a", "good"), failed("b", "bad", "mend it"), warned("c", "so so", "see to it")


@pytest.fixture(scope="module")
def cpu() -> Device:
    return detect("cpu")


class Child:
    """Answers these findings, then ends or dies; each answer takes a second of `clock`."""

    def __init__(self, clock: list[float], findings: list[Finding], death: WorkerDied | None = None) -> None:
        self.clock, self.waiting, self.death = clock, iter(findings), death
        self.deadlines: list[float] = []
        self.killed = self.closed = False

    def ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        self.deadlines.append(deadline_s)
        self.clock[0] += 1.0
        if "group" in request:
            return {"end": False}
        finding = next(self.waiting, None)
        if finding is None and self.death is not None:
            raise self.death
        return {"end": True} if finding is None else finding.json()

    def kill(self) -> None:
        self.killed = True

    def close(self) -> None:
        self.closed = True


def examination(cpu: Device, *children: Child) -> Examination:
    waiting = iter(children)
    clock = children[0].clock
    return Examination(cpu, {}, lambda device: next(waiting), lambda: clock[0])


ONE, TWO = CheckGroup("x:one", "", 9, quick=True), CheckGroup("x:two", "", 9)
THREE = [ONE, TWO, CheckGroup("x:three", "", 9, times=True)]


# ---- in real processes


@pytest.mark.parametrize(
    ("act", "sentence", "error"),
    [
        ("hang", "hung and was killed after 60 s", "in findings (tests/bench/selfcheck_broken.py"),
        ("abort", "ended with SIGABRT: what a library prints is no answer, in findings (tests/", "SIGABRT"),
        ("raise", "KeyError: 'the inner cause'.", "RuntimeError: the outer one"),
    ],
)
def test_findings_before_a_break_are_kept(cpu: Device, act: str, sentence: str, error: str) -> None:
    # Of the hanging group's minute all but a moment is over when it is asked for its second finding.
    times = itertools.chain([0.0] * 4, itertools.repeat(59.8 if act == "hang" else 0.0))
    outcome = Examination(cpu, {"act": act}, now=lambda: next(times)).outcome(BROKEN)
    before, broken = outcome.findings
    assert (before.level, before.name, before.sentence) == ("PASS", "before", "A finding on a cpu.")
    assert (broken.level, broken.name) == ("FAIL", "unfinished") and broken.remedy
    assert sentence in broken.sentence and error in broken.error
    if act == "hang":
        with pytest.raises(ProcessLookupError):
            os.kill(before.numbers["pid"], 0)


def test_a_group_that_does_not_break_is_read_to_its_end(cpu: Device) -> None:
    outcome = Examination(cpu, {"act": "nothing"}).outcome(BROKEN)
    assert [(one.level, one.name) for one in outcome.findings] == [("PASS", "before"), ("PASS", "after")]
    assert outcome.findings[1].numbers == {"infinite": None}  # as JSON can hold it
    assert outcome.seconds >= sum(one.seconds for one in outcome.findings) > 0


def test_a_group_that_is_not_there_is_a_failure(cpu: Device) -> None:
    outcome = Examination(cpu, {}).outcome(CheckGroup("bench.selfcheck.nowhere:findings", "", 60))
    (only,) = outcome.findings
    assert only.level == "FAIL" and only.sentence == (
        "ModuleNotFoundError: No module named 'bench.selfcheck.nowhere'."
    )
    assert "Traceback (most recent call last)" in only.error


# ---- with a stand-in


def test_a_deadline_is_the_whole_groups(cpu: Device) -> None:
    clock = [100.0]
    child = Child(clock, [GOOD, GOOD])
    outcome = examination(cpu, child).outcome(CheckGroup("x:y", "", 2.5))
    assert child.deadlines == [2.5, 1.5, 0.5, 0.0] and child.closed
    assert [one.seconds for one in outcome.findings] == [2.0, 1.0] and outcome.seconds == 4.0
    told = Child(clock, [replace(GOOD, seconds=7.0)])
    assert examination(cpu, told).outcome(BROKEN).findings[0].seconds == 7.0


def test_the_next_group_runs_after_one_has_died(cpu: Device) -> None:
    clock = [0.0]
    dead = Child(clock, [GOOD], WorkerDied("crashed", "the worker was killed (SIGKILL), perhaps for memory"))
    found = list(examination(cpu, dead, Child(clock, [GOOD]), Child(clock, [GOOD])).outcomes(THREE))
    levels = {outcome.group.name: [one.level for one in outcome.findings] for outcome in found}
    assert levels == {"one": ["PASS", "FAIL"], "two": ["PASS"], "three": ["PASS"]}
    assert "memory" in found[0].findings[1].remedy and dead.closed


def test_if_no_worker_starts_nothing_else_is_asked(cpu: Device) -> None:
    broken = failed("worker", "No worker starts: no torch.", "mend it")
    found = list(examination(cpu, Child([0.0], [broken])).outcomes(THREE))
    assert [outcome.group.name for outcome in found] == ["one"]
    assert "nothing else was checked" in report.verdict(found)
    assert "nothing else" not in report.verdict([GroupOutcome(BROKEN, [BAD], 1.0)])


def test_an_interruption_kills_what_runs(cpu: Device) -> None:
    running = Child([0.0], [])
    found = examination(cpu, running, Child(running.clock, []))
    groups = found.outcomes([CheckGroup("x:one", "", 9), CheckGroup("x:two", "", 9)])
    next(groups)
    found._running.add(running)
    with pytest.raises(KeyboardInterrupt):
        groups.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    assert running.killed


def test_groups_apply_to_their_devices_and_quick_is_a_part() -> None:
    names = {kind: [group.name for group in applicable(kind, False)] for kind in ("cpu", "cuda")}  # type: ignore[arg-type]
    assert names["cuda"] == [group.name for group in GROUPS]
    assert set(names["cuda"]) - set(names["cpu"]) == {"tuner", "capture", "telemetry"}
    assert [group.name for group in applicable("cpu", True)] == ["driver", "packages"]


# ---- what is shown and written


@pytest.mark.parametrize(
    ("found", "code", "word"),
    [
        ([], 0, "healthy"),
        ([GOOD], 0, "healthy"),
        ([GOOD, SO_SO], 1, "degraded"),
        ([BAD, SO_SO], 2, "unusable"),
    ],
)
def test_the_worst_line_is_the_exit_code(found: list[Finding], code: int, word: str) -> None:
    assert exit_code(found) == code
    assert f"{word} (exit code {code})" in report.verdict([GroupOutcome(BROKEN, found, 1.0)])


def shown(outcome: GroupOutcome, **console: Any) -> str:
    text = StringIO()
    report.show(Console(file=text, width=80, **console), outcome)
    return text.getvalue()


def test_every_line_has_its_level_seconds_and_remedy_within_80_columns() -> None:
    long = failed("illegal address", "A [bold]long[/bold] sentence. " * 9, "Do something about it. " * 9)
    text = shown(GroupOutcome(BROKEN, [long, GOOD], 12.34))
    lines = text.splitlines()
    assert lines[1] == "a group that breaks, 12.3 s" and max(map(len, lines)) <= 80
    assert lines[2].startswith("FAIL  0.0 s illegal address    A [bold]long[/bold] sentence.")
    assert " ".join(text.split()).count("Remedy: Do something about it.") == 1
    assert "\x1b" not in text


def test_colours_are_left_out_where_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = GroupOutcome(BROKEN, [BAD], 1.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31m" in shown(outcome, force_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in shown(outcome, force_terminal=True)


def test_a_wide_terminal_is_not_filled(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    class Seen:
        def __init__(self, device: Device, parent: Mapping[str, Any]) -> None:
            assert parent["unusable_gpu"] == "" and parent["python"]

        def outcomes(self, groups: list[CheckGroup]) -> Iterator[GroupOutcome]:
            assert [group.name for group in groups] == ["driver", "packages"]
            yield GroupOutcome(BROKEN, [warned("load", "A long sentence. " * 20, "Wait.")], 1.0)

    monkeypatch.setattr(report, "Examination", Seen)
    text = StringIO()
    kept: list[int] = []
    console = Console(file=text, width=300)
    code = report.run(cpu, "", True, console, lambda outcomes: kept.append(len(outcomes)))
    assert (code, kept) == (1, [1]) and "a quick look" in text.getvalue()
    assert max(map(len, text.getvalue().splitlines())) <= 100
    assert "degraded (exit code 1): 0 PASS, 1 WARN, 0 FAIL" in text.getvalue()


def test_the_file_holds_versions_numbers_and_tracebacks(cpu: Device) -> None:
    worker = passed("worker", "started", versions={"torch": "2.13.0"}, starting_s=2.5)
    bad = failed("operator", "KeyError.", "mend it", "Traceback ...", numbers_too=[1, 2])
    read = json.loads(report.report(cpu, False, [GroupOutcome(BROKEN, [worker, bad], 3.0)], 4.0))
    assert (read["verdict"], read["exit_code"], read["seconds"]) == ("unusable", 2, 4.0)
    assert read["versions"]["torch"] == "2.13.0" and read["device"]["name"] == cpu.name
    ((first, second),) = [group["findings"] for group in read["groups"]]
    assert second["error"] == "Traceback ..." and first["numbers"]["starting_s"] == 2.5


# ---- the command


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "doctor", *words]
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_a_quick_look_says_how_it_stands(tmp_path: Path) -> None:
    done = doctor("--quick", "--bench-device", "cpu", "--json", str(tmp_path / "new" / "doctor.json"))
    read = json.loads((tmp_path / "new" / "doctor.json").read_text())
    assert done.returncode == read["exit_code"] in (0, 1), done.stdout + done.stderr
    assert f"{read['verdict']} (exit code {done.returncode})" in done.stdout and not done.stderr
    found = {one["name"]: one["level"] for group in read["groups"] for one in group["findings"]}
    assert {"packages", "worker", "same packages"} < set(found)
    assert not set(found.values()) - {"PASS", "WARN"}  # others may keep this machine busy
    assert read["versions"]["torch"] and read["quick"]
    assert all(f" {name} " in done.stdout for name in found)
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--bench-device", "tpu"], "error: --bench-device tpu: give auto, cpu, cuda, cuda:N"),
        (["--json", "/proc/nowhere/doctor.json", "--quick"], "error: /proc/nowhere/doctor.json: cannot be"),
    ],
)
def test_wrong_usage_is_a_sentence_and_nothing_is_looked_at(words: list[str], says: str) -> None:
    done = doctor(*words)
    assert done.returncode == 2 and not done.stdout
    assert says in done.stderr and len(done.stderr.splitlines()) == 1


def test_make_bench_begins_with_a_quick_look() -> None:
    done = subprocess.run(["make", "-n", "bench"], cwd=ROOT, capture_output=True, text=True, check=True)
    quick, measured = (done.stdout.index(words) for words in ("bench doctor --quick", "pytest bench/ --b"))
    assert quick < measured


def test_a_worker_knows_the_doctors_operator() -> None:
    bench = make_bench("cpu", 1 << 20, 1)
    parameters = Fault(dtype="float32", length=1000).parameters()
    request = {"do": "check", "quick": True, "operator": "fault", "parameters": parameters}
    assert answer(bench, request | {"implementation": "good"})["status"] == "ok"
    declared = {one.name for one in Fault.implementations}
    assert {"illegal", "hang", "kill", "uncapturable"} < declared
    assert answer(bench, request | {"implementation": "nothing"})["status"] == "error"
