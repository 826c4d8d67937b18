"""`compare A B --again`: what two results leave UNDECIDED is measured with both commits in turns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.device.detect import detect
from bench.spec import parameters_text
from bench.store import parquet
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from tests.bench.comparable import timed
from tests.bench.rows import again, with_interval
from tests.bench.two_versions import Machine, committed, measured_by, repository

SURE, VAGUE = 0.001, 0.05
"""Half of a row's interval, as a share of its time: 3 % are seen by two rows of the first kind only."""


class Results:
    """A and B, of two commits of a repository: one case SAME, one UNDECIDED."""

    def __init__(self, folder: Path, chance: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.chance, self._monkeypatch = folder, chance, monkeypatch
        self.root = repository(folder / "checkout", monkeypatch)
        self.old = committed_with(self.root, 1)
        self.new = committed_with(self.root, 2)
        self.before = [self.row(64, SURE), self.row(128, VAGUE)]
        self.after = [self.row(64, SURE), self.row(128, VAGUE, 1.03)]

    def measured_by(self, machine: Machine) -> list[tuple[str, str, Path]]:
        return measured_by(machine, self._monkeypatch)

    def row(self, size: int, half: float, scale: float = 1.0) -> Measurement:
        problem = Gemm(m=size, n=size, k=size, layout="NN", dtype="float32")
        facts: dict[str, Any] = {"device_kind": "cpu", "device": detect("cpu").slug, "commit": self.old}
        made = timed(self.chance, scale, case=size, implementation="onednn", **facts)
        return with_interval(replace(made, parameters=parameters_text(problem.parameters())), half)

    def compare(self, *given: str, **changes: Any) -> tuple[int, str]:
        """Exit code and output; `changes` are columns of B."""
        a, b = self.folder / "a.parquet", self.folder / "b.parquet"
        for path in (a, b):
            path.unlink(missing_ok=True)
        parquet.write(a, self.before)
        columns = {"commit": self.new} | changes
        parquet.write(b, again(self.after, **{"run_id": "b"} | columns))
        done = CliRunner().invoke(app, ["compare", str(a), str(b), "--again", *given])
        return done.exit_code, done.output


def committed_with(root: Path, number: int) -> str:
    (root / "kernels" / "a.py").write_text(f"x = {number * 10}\n")
    return committed(root)


@pytest.fixture
def results(tmp_path: Path, chance: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> Results:
    return Results(tmp_path, chance, monkeypatch)


@pytest.mark.parametrize(("slowdown", "code", "word"), [(1.1, 1, "SLOWER"), (1.0, 0, "SAME within 2 %")])
def test_both_commits_measure_what_is_unsure(slowdown: float, code: int, word: str, results: Results) -> None:
    compared = results.measured_by(Machine(3, slowdown, 0.003))
    made, text = results.compare()
    assert "1 SAME, 1 UNDECIDED" in text and made == code
    assert [code[:2] for code in compared] == [("x = 10\n", "x = 20\n")]
    assert f"again, in turns, {results.new} against {results.old}: 1 case on {detect('cpu')}" in text
    assert f"1 case: 1 {word}" in text and "m128" in text.splitlines()[-2]


def test_where_nothing_is_decided_the_first_report_counts(results: Results) -> None:
    results.measured_by(Machine(3, 1.1))
    code, text = results.compare("--bench-budget", "1")
    assert code == 0 and "1 case: 1 UNDECIDED" in text  # one case was SAME
    results.before, results.after = results.before[1:], results.after[1:]
    assert results.compare("--bench-budget", "1")[0] == 3
    results.after = [results.row(128, VAGUE, 1.5)]
    code, text = results.compare()
    assert code == 1 and "no case is UNDECIDED (ceilings apart), so nothing is measured again" in text


def test_a_comparison_ends_with_the_command_that_decides_more(results: Results) -> None:
    results.measured_by(Machine(3))
    results.compare()  # writes A and B
    paths = [str(results.folder / name) for name in ("a.parquet", "b.parquet")]
    last = CliRunner().invoke(app, ["compare", *paths]).stdout.splitlines()[-1]
    assert last.startswith(
        f"next: python -m bench compare {' '.join(paths)} --again   (on that device, about 55 s"
    )
    results.compare(commit=results.old)
    last = CliRunner().invoke(app, ["compare", *paths]).stdout.splitlines()[-1]
    assert last.startswith("next: python -m bench ab gemm/square-onednn-float32-NN-m128-n128-k128-cold   (")


def test_uncommitted_changes_are_those_of_this_checkout(results: Results) -> None:
    compared = results.measured_by(Machine(3))
    (results.root / "kernels" / "a.py").write_text("x = 30\n")
    code, text = results.compare(commit=f"{results.new}+")
    assert code == 0 and "its uncommitted changes are taken to be those of this checkout" in text
    assert [code[:2] for code in compared] == [("x = 10\n", "x = 30\n")]
    code, text = results.compare(commit=f"{results.old}+")
    assert code == 2 and "its uncommitted changes are not here" in text


def test_other_software_is_said(results: Results) -> None:
    results.measured_by(Machine(3))
    _, text = results.compare(torch="2.14.0")
    assert "A and B differ in torch, too; now both run with what is installed here" in text


def test_what_cannot_be_measured_in_turns_is_refused(results: Results) -> None:
    slug = detect("cpu").slug
    for changes, says in (
        ({"commit": results.old}, f"A and B are both of commit {results.old}; give results of two commits"),
        ({"commit": ""}, "the rows of B must be of one commit, but are of no commit that is known"),
        ({"commit": "0123456789ab"}, "B is of commit 0123456789ab: this checkout has no such commit"),
        ({"device": "other"}, f"A is of {slug} and B of other; two devices cannot be measured in turns"),
        ({"source": "somebody"}, "B holds imported rows, which cannot be measured here"),
    ):
        across = [word for fact in changes if fact == "source" for word in ("--across", fact)]
        code, text = results.compare(*across, **changes)
        assert code == 2 and says in text.splitlines()[-1], text
    results.before, results.after = (
        [replace(row, device="other") for row in rows] for rows in (results.before, results.after)
    )
    code, text = results.compare()
    assert code == 2 and f"A and B are of other, but the device of this machine is {slug}" in text


def test_a_case_that_this_checkout_does_not_have_is_refused(results: Results) -> None:
    for changes in ({"implementation": "gone"}, {"parameters": '{"dtype":"float32","gone":1}'}):
        results.before = [replace(results.row(8, VAGUE), **changes)]
        results.after = [replace(results.row(8, VAGUE, 1.03), **changes)]
        code, text = results.compare()
        assert code == 2 and "this checkout cannot make gemm/square-" in text
