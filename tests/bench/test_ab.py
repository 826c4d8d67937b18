"""Two versions in turns: simulated visits with known differences, and the command on two real commits."""

from __future__ import annotations

import math
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from bench.__main__ import app
from bench.cli import ab as command
from bench.errors import UserError
from bench.runner.ab import FALSE, FIRST_LOOK, LOOKS, Contest, Visit, contests
from bench.sweep.load import Case
from tests.bench.several import small

VISIT_S = 0.3
TRIES = 40


class Machine:
    """Visits of two versions on a machine that drifts, jumps and is noisy; a clock that they move."""

    def __init__(self, seed: int, slowdown: float = 1.0, noise: float = 0.01) -> None:
        self.chance, self.noise, self.slowdown = np.random.default_rng(seed), noise, slowdown
        self.at_s = 0.0
        self.phase = self.chance.uniform(0, 2 * math.pi)

    def now(self) -> float:
        return self.at_s

    def visit(self, factor: float) -> Visit:
        def visit(case: Case, is_first: bool) -> Mapping[str, Any]:
            self.at_s += VISIT_S
            drift = 1 + 0.03 * math.sin(self.phase + self.at_s / 20)  # 3 % up and down within a minute
            median_s = 1e-3 * factor * drift * math.exp(self.chance.normal(0, self.noise))
            half = 1 + 0.5 * self.noise
            return {"status": "ok", "median_s": median_s, "low_s": median_s / half, "high_s": median_s * half}

        return visit

    def contests(self, cases: list[Case], budget_s: float = 60.0) -> list[Contest]:
        old, new = self.visit(1.0), self.visit(self.slowdown)
        return list(contests(cases, old, new, budget_s, 0.02, self.now))


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    return [case for case in small(tmp_path, list(range(1, 11))) if case.role == "measurement"]


def words(of: list[Contest]) -> Counter[str]:
    return Counter(contest.verdict for contest in of)


@pytest.mark.parametrize(("slowdown", "word"), [(1.05, "slower"), (1 / 1.05, "faster")])
def test_five_percent_are_found_in_ten_cases_within_a_minute(
    slowdown: float, word: str, cases: list[Case], seed: int
) -> None:
    assert len(cases) == 10
    found = 0
    for number in range(TRIES):
        machine = Machine(seed + number, slowdown)
        found += words(machine.contests(cases))[word]
        assert machine.at_s <= 60.0 + 2 * VISIT_S
    assert found >= stats.binom.ppf(1e-6, TRIES * 10, 0.95)


def test_equal_versions_are_hardly_ever_called_different(cases: list[Case], seed: int) -> None:
    made = Counter[str]()
    for number in range(TRIES):
        made += words(Machine(seed + number).contests(cases, 600.0))
    assert made["slower"] + made["faster"] <= stats.binom.ppf(1 - 1e-6, TRIES * 10, FALSE)
    assert made["same"] > made["undecided"]


def test_what_is_not_decided_in_time_is_said_and_rounds_end(cases: list[Case]) -> None:
    noisy = Machine(1, 1.01, 0.2).contests(cases[:2], 600.0)
    assert words(noisy) == {"undecided": 2}
    assert {len(contest.logs) for contest in noisy} == {FIRST_LOOK + LOOKS - 1}
    short = Machine(1, 1.5).contests(cases, 1.0)
    assert len(short) == 10 and words(short) == {"undecided": 10}
    assert all(math.isnan(contest.effect[0]) for contest in short)


def test_versions_take_turns_and_drift_cancels(cases: list[Case]) -> None:
    asked: list[str] = []

    def side(name: str, factor: float) -> Visit:
        def visit(case: Case, is_first: bool) -> Mapping[str, Any]:
            asked.append(f"{name}{'!' * is_first}")
            median_s = factor * 1.1 ** len(asked)
            return {"status": "ok", "median_s": median_s, "low_s": median_s, "high_s": median_s}

        return visit

    (contest,) = contests(cases[:1], side("old", 1.0), side("new", 3.0), 600.0, 0.02)
    assert asked[:6] == ["old!", "new!", "new", "old", "old", "new"]
    assert contest.verdict == "slower" and contest.effect[0] == pytest.approx(3.0, rel=0.1)


def test_a_version_that_cannot_run_a_case_is_named(cases: list[Case]) -> None:
    def broken(case: Case, is_first: bool) -> Mapping[str, Any]:
        return {"status": "wrong", "reason": "off by 3"}

    (contest,) = contests(cases[:1], Machine(0).visit(1.0), broken, 60.0, 0.02)
    assert contest.verdict == "failed" and contest.failure == "new: wrong: off by 3"
    assert "new: wrong: off by 3" in command.line(contest)


# ---- the command


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one commit with a bench/ and kernels/ of its own, as the command sees its checkout."""
    root = tmp_path / "checkout"
    for folder in ("bench", "kernels"):
        (root / folder).mkdir(parents=True)
        (root / folder / "a.py").write_text("x = 1\n")
    for line in ("init -q", "add .", "-c user.name=n -c user.email=e@e commit -q -m first"):
        subprocess.run(["git", *line.split(" ", 7 if "commit" in line else 2)], cwd=root, check=True)
    monkeypatch.setattr(command, "ROOT", root)
    return root


def test_the_other_version_is_checked_out_beside_and_taken_away(checkout: Path) -> None:
    (checkout / "kernels" / "a.py").write_text("x = 2\n")
    with command.checked_out("HEAD") as folder:
        assert (folder / "kernels" / "a.py").read_text() == "x = 1\n"
        kept = folder
    assert not kept.exists()
    listed = subprocess.run(["git", "worktree", "list"], cwd=checkout, capture_output=True, text=True)
    assert len(listed.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("ref", "says"),
    [("nonesuch", "--ref nonesuch: this checkout has no such commit"), ("HEAD", "are as they were then")],
)
def test_a_version_that_is_none_is_refused(checkout: Path, ref: str, says: str) -> None:
    with pytest.raises(UserError, match=says), command.checked_out(ref):
        pass


def verdict(monkeypatch: pytest.MonkeyPatch, slowdown: float, *given: str) -> tuple[int, str]:
    """Exit code and output of the command, of which the visits are made up."""
    machine = Machine(3, slowdown)
    versions: list[Path] = []

    class Side:
        def __init__(self, device: Any, root: Path) -> None:
            versions.append(root)

        def __enter__(self) -> Visit:
            return machine.visit(1.0 if len(versions) == 1 else slowdown)

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("bench.runner.ab.version", Side)
    done = CliRunner().invoke(app, ["ab", "--bench-device", "cpu", *given])
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("slowdown", "code", "word"), [(1.1, 1, "slower"), (0.9, 0, "faster"), (1.0, 0, "same")]
)
def test_the_exit_code_says_whether_something_got_slower(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, slowdown: float, code: int, word: str
) -> None:
    (checkout / "kernels" / "a.py").write_text("x = 2\n")
    name = "gemm/square-onednn-float32-NN-m64-n64-k64-cold"
    found, text = verdict(monkeypatch, slowdown, name, "--same", "4")
    assert found == code and f"1 {word}" in text and name in text


def test_nothing_decided_is_exit_code_3_and_bad_input_2(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "bench" / "a.py").write_text("x = 2\n")
    monkeypatch.setattr("bench.runner.ab.FIRST_LOOK", 10**9)
    monkeypatch.setattr("bench.runner.ab.LOOKS", 10**9)
    code, text = verdict(monkeypatch, 1.0, "activations/relu", "--bench-budget", "1")
    assert code == 3 and "undecided" in text
    for given, says in ((["nonesuch"], "ab nonesuch: no sweep"), (["gemm/bulk_copies"], "can run on")):
        code, text = verdict(monkeypatch, 1.0, *given)
        assert code == 2 and says in text, text
