"""Two versions in turns: simulated visits with known differences, and the command on two real commits."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from scipy import stats
from typer.testing import CliRunner

from bench.__main__ import app
from bench.cli import ab as command
from bench.cli import ab_cases
from bench.device.detect import detect
from bench.device.health import Unfit
from bench.runner.ab import FALSE, FIRST_SHARE, Contest, Side, Visiting, contests, versions
from bench.runner.limits import FEW_CASES
from bench.sweep.load import Case
from bench.worker.visit import VisitResult
from tests.bench.several import gpu, small, stand_in
from tests.bench.two_versions import START_S, VISIT_S, Machine, committed, git, measured_by, repository

TRIES = 40


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    return [case for case in small(tmp_path, list(range(1, 11))) if case.role == "measurement"]


def words(of: list[Contest]) -> Counter[str]:
    return Counter(contest.verdict for contest in of)


@pytest.mark.parametrize(("slowdown", "word"), [(1.05, "SLOWER"), (1 / 1.05, "FASTER")])
def test_five_percent_are_found_in_a_minute(slowdown: float, word: str, cases: list[Case], seed: int) -> None:
    assert len(cases) == 10
    found = 0
    for number in range(TRIES):
        machine = Machine(seed + number, slowdown)
        found += words(machine.contests(cases))[word]
        # A round may begin at the last moment: it starts processes, or ends the pair of visits it is at.
        assert machine.at_s <= 60.0 + max(START_S, 2 * VISIT_S)
    assert found >= stats.binom.ppf(1e-6, TRIES * 10, 0.95)


def test_equal_versions_are_hardly_ever_called_different(cases: list[Case], seed: int) -> None:
    made = Counter[str]()
    for number in range(TRIES):
        made += words(Machine(seed + number).contests(cases, 600.0))
    assert made["SLOWER"] + made["FASTER"] <= stats.binom.ppf(1 - 1e-6, TRIES * 10, FALSE)
    assert made["SAME"] > made["UNDECIDED"]


def test_versions_take_turns_and_drift_cancels(cases: list[Case]) -> None:
    asked: list[str] = []
    factors = {"old": 1.0, "new": 3.0}

    def visit(case: Case, side: Side) -> VisitResult:
        asked.append(side)
        return VisitResult(median_s=factors[side] * 1.1 ** len(asked))

    (contest,) = contests(cases[:1], visit, lambda: asked.append("|"), 600.0, 0.02)
    assert asked[:9] == ["|", "old", "new", "|", "new", "old", "|", "old", "new"]
    assert contest.verdict == "SLOWER" and contest.effect
    assert contest.effect.ratio == pytest.approx(3.0, rel=0.1)


def failing(side: Side, status: str, reason: str) -> Visiting:
    """Visits of which this version's all end so."""
    failed = VisitResult(status, reason)
    return lambda case, of: failed if of == side else Machine(0).visit(case, of)


def test_a_version_that_cannot_run_a_case_is_named(cases: list[Case]) -> None:
    visit = failing("new", "wrong", "off by 3")
    (contest,) = contests(cases[:1], visit, lambda: None, 60.0, 0.02)
    assert contest.verdict == "FAILED" and contest.failure == "new: wrong: off by 3"
    assert "new: wrong: off by 3" in command.line(contest)


def test_a_case_that_the_other_version_does_not_know_is_new_and_no_failure(cases: list[Case]) -> None:
    visit = failing("old", "error", "no such | thing")
    (contest,) = contests(cases[:1], visit, lambda: None, 60.0, 0.02)
    assert contest.verdict == "NEW" and command.exit_code({"NEW": 1, "SAME": 1}) == 0
    assert command.exit_code({"NEW": 1}) == 3


@pytest.mark.parametrize("budget_s", [13.5, 35.0, 2700.0])
def test_as_many_cases_are_taken_as_a_first_round_has_time_for(budget_s: float, cases: list[Case]) -> None:
    machine = Machine(5, 1.1, 0.003)
    given = (cases, machine.visit, machine.renew, budget_s, 0.02, machine.now)
    taken = list(contests(*given, as_time_allows=True))
    fit = math.ceil((FIRST_SHARE["cpu"] * budget_s - START_S) / (2 * VISIT_S))
    assert len(taken) == min(max(fit, FEW_CASES), 10) and words(taken) == {"SLOWER": len(taken)}
    assert {contest.case.key for contest in taken} == {case.key for case in cases[: len(taken)]}


@pytest.mark.parametrize(("kind", "processes"), [("cpu", 6), ("cuda", 2)])
def test_each_version_runs_its_own_code_and_a_round_on_a_cpu_has_new_processes(
    kind: Literal["cpu", "cuda"],
    processes: int,
    cases: list[Case],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, median_s in (("old", "1e-3"), ("new", "2e-3")):
        worker = stand_in(tmp_path / name, monkeypatch) / "bench" / "worker" / "__main__.py"
        text = worker.read_text().replace('"configuration": mine', '"configuration": str(os.getpid())')
        worker.write_text(text.replace('"median_s": 1e-3', f'"median_s": {median_s}'))
    facts = []
    with versions(replace(gpu(0), kind=kind), tmp_path / "old", tmp_path / "new") as (visit, renew):
        for _ in range(3):
            renew()
            facts += [(visit(cases[0], "old"), visit(cases[0], "new"))]
    assert {(old.median_s, new.median_s) for old, new in facts} == {(1e-3, 2e-3)}
    assert len({each.configuration for pair in facts for each in pair}) == processes


# ---- the command


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return repository(tmp_path / "checkout", monkeypatch)


Measure = Callable[..., list[tuple[str, str, Path]]]


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Lets the command measure on a machine that is made up: see `measured_by`."""
    return partial(measured_by, monkeypatch=monkeypatch)


@pytest.fixture
def changed(checkout: Path) -> Path:
    """A checkout whose kernels differ from its commit's."""
    (checkout / "kernels" / "a.py").write_text("x = 2\n")
    return checkout


def ab(*given: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["ab", "--bench-device", "cpu", *given])
    return done.exit_code, done.output


CASE = "gemm/square-onednn-float32-NN-m64-n64-k64-cold"


@pytest.mark.usefixtures("changed")
def test_the_other_version_is_laid_out_beside_and_taken_away(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = measure(Machine(3))
    monkeypatch.setattr("bench.device.health.fitness", lambda device: [Unfit("load", "busy (4711)")])
    _, text = ab(CASE)
    assert "cpu: busy (4711)" in text
    ((old, new, folder),) = compared
    assert (old, new) == ("x = 1\n", "x = 2\n") and not folder.exists()
    assert f"this checkout against HEAD: 1 case on {detect('cpu')}, at most 55 s" in text


def test_the_versions_share_tuned_choices_of_today(changed: Path, measure: Measure) -> None:
    (changed / ".gitignore").write_text("/kernels/tuned/\n")
    store = changed / "kernels" / "tuned"
    store.mkdir()
    (store / "gpu.json").write_text("of another day")
    known, learnt = [], []

    def look(old: Path, new: Path) -> None:
        stores = [version / "kernels" / "tuned" for version in (old, new)]
        known.extend(path.name for store in stores for path in store.glob("*"))
        for mine, other in (stores, stores[::-1]):
            mine.mkdir(exist_ok=True)
            (mine / "gpu.json").write_text(f"of {mine.parents[1].name}")
            learnt.append((other / "gpu.json").read_text() == f"of {mine.parents[1].name}")

    measure(Machine(3), look=look)
    code, text = ab(CASE)
    assert known == [] and learnt == [True, True]
    assert code == 0, text
    assert (store / "gpu.json").read_text() == "of another day"


def test_the_checkout_is_measured_as_it_was(checkout: Path, measure: Measure) -> None:
    (checkout / "kernels" / "gone.py").write_text("")
    committed(checkout)
    (checkout / "kernels" / "gone.py").unlink()
    (checkout / "kernels" / "new.py").write_text("")
    found: list[list[str]] = []

    def look(*versions: Path) -> None:
        found.extend(sorted(path.name for path in side.glob("kernels/*.py")) for side in versions)

    measure(Machine(3), look=look)
    ab("--bench-budget", "1", CASE)
    assert found == [["a.py", "gone.py"], ["a.py", "new.py"]]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--ref", "nonesuch", CASE], "--ref nonesuch: this checkout has no such commit"),
        ([], "ab: give sweeps or cases, or --changed: one of the two"),
        (["--changed", CASE], "ab: give sweeps or cases, or --changed"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(checkout: Path, given: list[str], says: str) -> None:
    code, text = ab(*given)
    assert code == 2 and says in text and "Traceback" not in text


def test_of_a_checkout_of_another_user_git_s_own_remedy_is_said(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    code, text = ab("--ref", "HEAD", CASE)
    assert code == 2 and "detected dubious ownership" in text and "--add safe.directory" in text


def test_of_the_same_code_a_false_alarm_is_no_failure(checkout: Path, measure: Measure) -> None:
    for budget, code, says in (("60", 0, "1 case: 1 SLOWER"), ("1", 3, "1 UNDECIDED")):
        measure(Machine(3, 1.5))
        made, text = ab(CASE, "--bench-budget", budget)
        assert made == code and "equal code: bench/ and kernels/ are those of HEAD" in text and says in text


@pytest.mark.usefixtures("changed")
def test_of_a_sweep_there_are_lines_for_what_there_was_time_for_and_one_for_the_rest(
    measure: Measure,
) -> None:
    measure(Machine(3, 1.1, 0.003))
    code, text = ab("softmax/rows", "--bench-budget", "60")
    cases = int(re.search(r": (\d+) cases on", text)[1])  # type: ignore[index]
    taken = math.ceil((FIRST_SHARE["cpu"] * 60 - START_S) / (2 * VISIT_S))
    assert code == 1 and f"{taken} cases: {taken} SLOWER" in text and "after 0 rounds" not in text
    assert f"there was no time for {cases - taken} cases more" in text
    assert "inductor" not in text, "what each round compiles comes last"


@pytest.mark.usefixtures("changed")
def test_cases_that_do_not_exist_or_cannot_run_here_are_refused_or_counted(measure: Measure) -> None:
    measure(Machine(3))
    refused = {"nonesuch": "ab nonesuch: no requested sweep", "gemm/bulk_copies": "can run on cpu"}
    for given, says in refused.items():
        code, text = ab(given)
        assert code == 2 and says in text
    code, text = ab("gemm/bulk_copies", CASE)
    assert code == 0 and "cases cannot run here" in text and "1 case: 1 SAME within 2 %" in text


@pytest.mark.parametrize(
    ("slowdown", "given", "code", "word"),
    [
        (1.1, (), 1, "1 SLOWER"),
        (0.9, (), 0, "1 FASTER"),
        (1.0, (), 0, "1 SAME within 2 %"),
        (1.1, ("--same", "20"), 0, "1 SAME within 20 %"),
        (1.1, ("--bench-budget", "1"), 3, "1 UNDECIDED"),
    ],
)
@pytest.mark.usefixtures("changed")
def test_the_exit_code_says_whether_something_got_slower(
    slowdown: float, given: tuple[str, ...], code: int, word: str, measure: Measure
) -> None:
    measure(Machine(3, slowdown, 0.003))
    made, text = ab(CASE, *given)
    assert made == code and f"1 case: {word}" in text and CASE in text


def test_another_way_of_measuring_is_said(checkout: Path, measure: Measure) -> None:
    measure(Machine(3))
    (checkout / "bench" / "worker").mkdir()
    (checkout / "bench" / "worker" / "clock.py").write_text("x = 2\n")
    text = ab(CASE)[1]
    assert "the two versions may take times differently" in text and "equal code" not in text


# ---- what a change touches


@pytest.mark.parametrize(
    ("files", "operators", "sweeps", "tour"),
    [
        (["kernels/pooling/operator.py"], {"pooling"}, set(), False),
        (["kernels/gemm/operator.py"], {"gemm", "linear"}, set(), False),  # linear imports it
        (["kernels/pooling/problem.py", "bench/worker/clock.py"], {"pooling"}, set(), True),
        (["kernels/softmax/anything.json"], {"softmax"}, set(), False),
        (["sweeps/softmax/rows.yaml", "sweeps/softmax/gone.yaml"], set(), {"softmax/rows"}, False),
        (["docs/comparing.md", "sweeps/suites.yaml"], set(), set(), False),
        (["tests/softmax/rows.yaml", "plots/a.py"], set(), set(), False),
    ],
)
def test_what_files_touch(files: list[str], operators: set[str], sweeps: set[str], tour: bool) -> None:
    change = ab_cases.touched(files, Path(__file__).parents[2])
    assert change == (operators, sweeps, tour) and bool(str(change)) == bool(operators or sweeps or tour)


def test_cases_of_a_change_are_spread_over_sweeps_and_lines() -> None:
    device = detect("cpu")
    change = ab_cases.Touched(frozenset({"softmax"}), frozenset({"pooling/window"}), False)
    taken, whole = ab_cases.chosen(change, device, 24)
    assert len(taken) == 24 < whole and ab_cases.chosen(change, device, 24)[0] == taken
    per_sweep = Counter(case.sweep for case in taken)
    assert per_sweep == {"softmax/rows": 12, "pooling/window": 12}  # softmax/length is large only
    lines = {(case.sweep, case.series) for case in taken}
    assert len(lines) > 12 and not any(case.missing("cpu", None) for case in taken)
    tour, _ = ab_cases.chosen(ab_cases.Touched(frozenset(), frozenset(), True), device, 1000)
    assert {case.role for case in tour} == {"measurement"} and "gemm/square" in {case.sweep for case in tour}


def test_a_change_is_compared_with_where_it_began(checkout: Path, measure: Measure) -> None:
    compared = measure(Machine(3, 1.1, 0.003))
    began = git(checkout, "rev-parse --short=12 HEAD")
    git(checkout, "checkout -q -b other")
    (checkout / "kernels" / "a.py").write_text("x = 3\n")
    committed(checkout)
    git(checkout, "checkout -q -b change HEAD~1")
    (checkout / "kernels" / "softmax").mkdir()
    (checkout / "kernels" / "softmax" / "operator.py").write_text("x = 2\n")
    committed(checkout)
    (checkout / "kernels" / "a.py").write_text("x = 2\n")
    code, text = ab("--ref", "other", "--changed", "--bench-budget", "60")
    assert code == 1 and "of the 468 cases of softmax" in text, text
    assert f"this checkout against {began} (where it left other): " in text
    assert compared[0][:2] == ("x = 1\n", "x = 2\n")


def test_where_nothing_timed_differs_nothing_is_compared(checkout: Path) -> None:
    (checkout / "README.md").write_text("x\n")
    code, text = ab("--changed")
    assert code == 0 and text == "nothing to compare: no time depends on what differs from HEAD\n"
    (checkout / "kernels" / "fma").mkdir()
    (checkout / "kernels" / "fma" / "operator.py").write_text("x = 1\n")
    code, text = ab("--changed")
    assert code == 3 and re.search(r"none of the \d+ cases of fma can run on cpu", text)
