"""What the scripts of nightly.yml and gate.yml do, shown by running them.

The data branch is one of a repository beside them; python is a stand-in that writes down what it is asked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_workflows import GATE, NIGHTLY, jobs, scripts


class Runner:
    """A folder in which the steps of a workflow run as they would on a runner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temp = folder / "temp"
        self.output, self.summary = folder / "output", folder / "summary"
        self.temp.mkdir(parents=True)
        self.scripts = scripts(NIGHTLY.read_text()) | scripts(GATE.read_text())

    def run(self, job: str, step: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A step's script by the shell that the workflow names."""
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_SERVER_URL": f"file://{self.folder}",
            "GITHUB_REPOSITORY": "remote",
            "GITHUB_RUN_ID": "7",
            "GITHUB_RUN_ATTEMPT": "1",
            "TOKEN": "none",
            "BRANCH": "results",
            "RESULTS": "results/nightly",
            "HISTORY": ".history",
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", self.scripts[job, step]],
            cwd=self.folder,
            env=variables | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def done(self, job: str, step: str, **environment: str) -> str:
        """What a step prints that succeeds."""
        done = self.run(job, step, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def file(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path / "runner")


@pytest.fixture
def remote(runner: Runner) -> Path:
    """The repository that has the data branch, empty so far."""
    path = runner.folder / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    return path


def kept(remote: Path) -> dict[str, str]:
    """Files of the data branch -> what they hold."""
    names = git(remote, "ls-tree", "-r", "--name-only", "results").splitlines()
    return {name: git(remote, "show", f"results:{name}") for name in names}


def git(repository: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_first_night_has_no_history_and_a_fault_is_no_first_night(runner: Runner, remote: Path) -> None:
    step = ("history", "From the data branch")
    assert "there is no branch results yet" in runner.done(*step)
    assert list((runner.folder / "history").iterdir()) == []
    shutil.rmtree(runner.folder / "history")
    assert runner.run(*step, GITHUB_REPOSITORY="elsewhere").returncode not in (0, 1)


def test_nights_are_kept_side_by_side_and_come_back_as_history(runner: Runner, remote: Path) -> None:
    publish = ("publish", "To the data branch")
    runner.file("nights/night-h200/nvidia-h200/1.parquet", "first")
    runner.done(*publish)
    assert kept(remote) == {"nvidia-h200/1.parquet": "first"}

    shutil.rmtree(runner.folder / "data")
    shutil.rmtree(runner.folder / "nights")
    runner.file("nights/night-h200/nvidia-h200/1.parquet", "first")  # the runner still had it
    runner.file("nights/night-h200/nvidia-h200/2.parquet", "second")
    runner.file("nights/night-b-200/nvidia-b200/2.parquet", "other")
    runner.file("nights/night-twin/nvidia-h200/2.parquet", "the same second on another box")
    runner.done(*publish)
    both = kept(remote)
    assert sorted(both.values()) == ["first", "other", "second", "the same second on another box"]
    assert both["nvidia-h200/1.parquet"] == "first" and both["nvidia-b200/2.parquet"] == "other"
    assert {name for name in both if "h200/2" in name} in (
        {"nvidia-h200/2.parquet", "nvidia-h200/2-twin.parquet"},
        {"nvidia-h200/2.parquet", "nvidia-h200/2-h200.parquet"},
    )
    commits = git(remote, "rev-list", "--count", "results")

    shutil.rmtree(runner.folder / "data")
    assert "nothing new" in runner.done(*publish)
    assert git(remote, "rev-list", "--count", "results") == commits and int(commits) == 2

    runner.done("history", "From the data branch")
    history = runner.folder / "history"
    found = {str(p.relative_to(history)): p.read_text() for p in history.rglob("*") if p.is_file()}
    assert found == both


def python(runner: Runner, code: int, says: str = "") -> Path:
    """A stand-in for the environment's python that writes down its words, says so and exits so."""
    said = runner.folder / "words.json"
    stand_in = runner.file(
        ".venv/bin/python",
        f"#!{sys.executable}\nimport json, sys\n"
        f"json.dump(sys.argv[1:], open({str(said)!r}, 'w'))\nsys.stdout.write({says!r})\nsys.exit({code})\n",
    )
    stand_in.chmod(0o755)
    return said


MEASURED = {"DEVICE": "cuda", "BUDGET": "60", "VISITS": "3", "SWEEPS": ""}


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (0, ""),
        (1, "::error title=Regression::"),
        (2, "::warning title=Not judged::"),
        (3, "::error title=Brok"),
    ],
)
def test_the_exit_code_of_the_night_is_the_step_s(runner: Runner, code: int, says: str) -> None:
    words = python(runner, code)
    runner.file(".history/origin.txt", "results")
    done = runner.run("measure", "Measure and judge", **MEASURED)
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith(says) and bool(done.stdout) == bool(says)
    temp = str(runner.temp)
    assert json.loads(words.read_text()) == [
        *("-m", "bench", "nightly", "--bench-results", "results/nightly", "--bench-device", "cuda"),
        *("--bench-budget", "60"),
        *("--summary", f"{temp}/night.md"),
    ]


def test_a_night_knows_its_history_its_sweeps_and_that_it_is_tried_again(runner: Runner) -> None:
    words = python(runner, 0)
    runner.file(".history/nvidia-h200/1.parquet", "")
    asked = MEASURED | {"SWEEPS": " gemm/square  x;touch${IFS}bad `touch bad`", "GITHUB_RUN_ATTEMPT": "2"}
    runner.done("measure", "Measure and judge", **asked)
    last = json.loads(words.read_text())[-11:]
    sweeps = ["gemm/square", "x;touch${IFS}bad", "`touch", "bad`"]
    assert last == [
        *(word for sweep in sweeps for word in ("--bench-sweep", sweep)),
        *("--baseline", ".history", "--bench-resume"),
    ]
    assert not (runner.folder / "bad").exists()


def test_clocks_are_locked_and_let_go(runner: Runner) -> None:
    log = runner.folder / "log"
    tools = runner.folder / "tools"
    for name, text in {
        "sudo": '#!/bin/bash\n[ "$1" = -n ] && shift\nexec "$@"\n',
        "nvidia-smi": f'#!/bin/bash\necho "$*" >> {log}\n'
        'case "$*" in *query*) printf "0, Disabled\\n1, Enabled\\n" ;; esac\n',
    }.items():
        runner.file(f"tools/{name}", text).chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    runner.done("measure", "Tune the runner", CLOCK_MHZ="1200", **path)
    runner.done("measure", "Restore the runner", **path)
    query, *did = log.read_text().splitlines()
    assert "persistence_mode" in query
    assert did == [
        *("--persistence-mode=1", "--lock-gpu-clocks=1200,1200"),
        *("--reset-gpu-clocks", "--id=0 --persistence-mode=0"),
    ]
    log.unlink()
    runner.done("measure", "Tune the runner", CLOCK_MHZ="", **path)
    assert "lock" not in log.read_text()
    steps = {step.get("name"): step for step in jobs(NIGHTLY.read_text())["measure"]["steps"]}
    assert steps["Tune the runner"]["if"] == "vars.ROOFBENCH_TUNE == 'true'"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, ["--changed"]),
        ({"SWEEPS": " gemm/square  x;touch${IFS}bad"}, ["gemm/square", "x;touch${IFS}bad"]),
    ],
)
@pytest.mark.parametrize(
    ("code", "made", "says"),
    [
        (0, 0, ""),
        (1, 1, "::error title=Slower::"),
        (2, 2, "::error title=Not compared::"),
        (3, 0, "::warning title=Undecided::"),
    ],
)
def test_the_gate_stops_what_is_slower_and_nothing_undecided(
    asked: dict[str, str], words: list[str], code: int, made: int, says: str, runner: Runner
) -> None:
    lines = "SAME +0.1 % a\nSLOWER +5.1 % b\n2 cases: 1 SLOWER, 1 SAME\n"
    given = python(runner, code, lines)
    usual = {"REF": "origin/main", "BUDGET": "60", "SWEEPS": ""}
    done = runner.run("compare", "Compare", **usual | asked)
    assert done.returncode == made and done.stdout.startswith(lines + says)
    assert (done.stdout == lines) != bool(says)
    comment = (runner.temp / "gate.md").read_text()
    assert comment == "```\nSLOWER +5.1 % b\n2 cases: 1 SLOWER, 1 SAME\n```\n"
    assert json.loads(given.read_text()) == [
        *("-m", "bench", "ab", "--ref", "origin/main", "--bench-budget", "60"),
        *words,
    ]
