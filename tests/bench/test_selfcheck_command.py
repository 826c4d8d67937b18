"""`python -m bench doctor` as a person types it, and the fault that it provokes in a worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.worker.__main__ import answer, make_bench
from bench.worker.fault import Fault

ROOT = Path(__file__).parents[2]


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "bench", "doctor", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


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
    problem = Fault(dtype="float32", length=1000)
    request: dict[str, Any] = {
        "do": "check",
        "quick": True,
        "operator": "fault",
        "parameters": problem.parameters(),
    }
    assert answer(bench, request | {"implementation": "good"})["status"] == "ok"
    declared = {one.name for one in Fault.implementations}
    assert {"illegal", "hang", "kill", "uncapturable"} < declared
    assert answer(bench, request | {"implementation": "nothing"})["status"] == "error"
