"""`python -m bench compare`: what it prints, and its exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.cli.compare import MOST_LISTED, comparison_lines
from bench.store import parquet
from tests.bench.comparable import clean, compared, run, timed
from tests.bench.rows import Chance, again, without_time

REFERENCE = Path(__file__).parents[2] / "results" / "reference"

# --- the command ------------------------------------------------------------------------------------


def said(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def written(chance: Chance, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder and a file: of nine cases one of each class, and two that are UNDECIDED for one reason."""
    a, b = ([timed(chance, case=case) for case in range(9)] for _ in "ab")
    b[0], b[1] = timed(chance, 1.3, case=0), timed(chance, 0.25, case=1)
    b[2], b[3] = (replace(b[case], foreign_processes=1) for case in (2, 3))
    b[4] = without_time(b[4], "crashed", "illegal [address]")
    b[5] = replace(b[5], driver="560.2")
    b[6] = without_time(b[6], "skipped", "left out")
    a[7] = without_time(a[7], "unsupported", "not here")
    parquet.write(tmp_path / "before" / "a.parquet", a)
    parquet.write(tmp_path / "b.parquet", again(b, run_id="b"))
    yield tmp_path / "before", tmp_path / "b.parquet"


def line(text: str, *parts: str) -> str:
    """The one line with all these parts."""
    (found,) = (one for one in text.splitlines() if all(part in one for part in parts))
    return found


def test_the_command(written: tuple[Path, Path]) -> None:
    code, out, _ = said(*written)
    assert code == 1
    assert out.startswith("B is SLOWER than A: 1 case.\n")
    assert line(out, "A: run a, measured 20") and line(out, "driver: 550.1 in A, 550.1, 560.2 in B")
    slower = line(out, " SLOWER ", "gemm/square-triton-float32-cold").split()
    assert slower[2:6] in (["1", "ms", "1.3", "ms"], ["1000", "us", "1.3", "ms"])
    assert float(slower[6]) == pytest.approx(30, abs=0.2)
    assert "x 0.25" in line(out, " FASTER ", "-m1-")
    assert "crashed in B: illegal [address]" in line(out, " INVALID ", "-m4-")
    assert line(out, "2 UNDECIDED: the interval includes no change (shared), such as gemm/square-")
    assert "driver 550.1 -> 560.2" in line(out, "1 NOT COMPARABLE: ", "-m5-")
    assert "gemm/square: skipped in B" in line(out, "1 GONE: ", "left out")
    assert "gemm/square: unsupported in A" in line(out, "1 NEW: ", "not here")
    assert "-m8-" not in out
    assert line(out, "9 cases:") == (
        "9 cases: 1 SLOWER, 1 FASTER, 1 SAME, 2 UNDECIDED, 1 INVALID, 1 NOT COMPARABLE, 1 NEW, 1 GONE"
    )


def test_all_and_across(written: tuple[Path, Path]) -> None:
    code, out, _ = said(*written, "--all", "--across", "driver", "--across", "ecc")
    assert code == 1
    told = "SLOWER FASTER UNDECIDED UNDECIDED INVALID SAME GONE NEW SAME"
    for case, verdict in enumerate(told.split()):
        assert f" {verdict} " in line(out, f"-m{case}-" if case else "float32-cold")
    assert " to +" in line(out, "float32-cold")


def test_what_disturbed_a_row_that_is_slower_is_named(chance: Chance, tmp_path: Path) -> None:
    """A thread that had half of its processor, and five times as slow: that is true, and no code did it."""
    for name, scale, busy in (("a", 1.0, 0.0), ("b", 5.0, 0.5)):
        row = timed(chance, scale, device_kind="cpu", threads=1, pressure=busy, on_processor=1 - busy)
        parquet.write(tmp_path / f"{name}.parquet", again([replace(row, visits=3)], run_id=name))
    code, out, _ = said(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert code == 1 and "1 SLOWER" in out
    assert "of what is SLOWER or FASTER some was disturbed: contended" in out.splitlines()


def test_what_chose_other_code_is_named_first_as_a_cause(written: tuple[Path, Path], tmp_path: Path) -> None:
    for path, more in ((written[0] / "a.parquet", ""), (written[1], "MKL_CBWR=COMPATIBLE ")):
        rows = again(parquet.read_rows(path), environment=f"{more}OMP_DYNAMIC=1 cpu_capability=AVX2")
        parquet.write(tmp_path / "told" / path.name, rows)
    code, out, _ = said(tmp_path / "told" / "a.parquet", tmp_path / "told" / "b.parquet")
    cause = line(out, "the environment differs", "cause")
    assert code == 1 and cause.endswith(": MKL_CBWR not set -> COMPATIBLE")
    assert out.index(cause) < out.index("SLOWER")


def test_the_same_work_in_a_sweep_of_another_name_is_found(chance: Chance, tmp_path: Path) -> None:
    a, b = ([timed(chance, times, case=case) for case in range(3)] for times in (1.0, 1.3))
    parquet.write(tmp_path / "a.parquet", a)
    parquet.write(tmp_path / "b.parquet", again(b, run_id="b", sweep="gemm/renamed"))
    code, out, _ = said(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert code == 3 and "3 cases: 3 NOT COMPARABLE" in out and "gemm/square -> gemm/renamed" in out
    assert "the same work in sweeps of other names: 3 cases, which --across sweep compares" in out
    code, out, _ = said(tmp_path / "a.parquet", tmp_path / "b.parquet", "--across", "sweep")
    assert code == 1 and "3 cases: 3 SLOWER" in out


def test_bad_input_is_one_sentence(written: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, sentence in (
        ((tmp_path / "none.parquet", written[1]), "none.parquet: no such file"),
        ((written[0], tmp_path / "empty"), "no .parquet file in this folder"),
        ((*written, "--across", "weather"), "--across weather: no condition that must agree; there is"),
    ):
        code, out, err = said(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1) and sentence in err


def test_what_the_reader_must_know_is_said(chance: Chance) -> None:
    a, b = (run(chance, clean, 4, 3, run_id=name) for name in "ab")
    found = compared(a, [replace(one, regime=None) for one in b])
    told = list(comparison_lines(found))
    assert "regime: sustained in A, not known in B" in told
    (shift,) = found.shifts.values()
    (moved,) = (one for one in told if one.startswith("the machine as a whole from A to B"))
    assert moved.endswith(f"(±{100 * shift.error:.1f} %), by 16 ceilings of the same libraries")
    ceilings, gemm = found.means
    for words, mean in ((["ceilings:", "gemm"], ceilings), (["gemm"], gemm)):
        (shown,) = (one.split() for one in told if one.split()[: len(words)] == words)
        assert shown[len(words)] == str(mean.cases) and shown[-1] == mean.verdict


def test_a_long_list_is_cut_and_says_so(chance: Chance) -> None:
    count = MOST_LISTED["SLOWER"] + 7
    a = [timed(chance, case=case) for case in range(count)]
    b = [timed(chance, 1.2 + case / 100, case=case) for case in range(count)]
    found = compared(a, b)
    listed = list(comparison_lines(found))
    slower = [one for one in listed if " SLOWER " in one and "float32-" in one]
    assert len(slower) == MOST_LISTED["SLOWER"] and f"-m{count - 1}-" in slower[0]
    assert "... and 7 more SLOWER: --all lists them" in listed
    assert sum(" SLOWER " in one and "float32-" in one for one in comparison_lines(found, True)) == count


def test_runs_without_a_case_in_common_are_said_to_have_none(chance: Chance, tmp_path: Path) -> None:
    a, other = (timed(chance, case=case) for case in range(2))
    sweeps = [replace(other, sweep=f"s/{letter}") for letter in "bcdefg"]
    parquet.write(tmp_path / "a.parquet", [a])
    parquet.write(tmp_path / "b.parquet", again(sweeps, run_id="b"))
    code, out, _ = said(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert code == 3 and out.startswith("A and B have no case in common.\n")
    assert "1 GONE: gemm/square: no row in B, such as " in out and out.count("\n") < 15
    _, listed, _ = said(tmp_path / "a.parquet", tmp_path / "b.parquet", "--all")
    assert listed.count(" NEW ") + listed.count(" GONE ") == 7


def test_what_is_no_result_or_too_many_is_refused(written: tuple[Path, Path]) -> None:
    readme = written[1].with_name("README.md")
    readme.write_text("# Results\n")
    code, out, err = said(readme, readme)
    assert (code, out) == (2, "") and err.startswith(f"error: {readme}: ")
    code, _, err = said(*written, written[1])
    assert code == 2 and "give two results, A and B, not 3; `python -m plots report RESULT...`" in err


@pytest.mark.parametrize("seed", ["1", "2"])
def test_kinds_of_work_come_in_one_order(seed: str) -> None:
    """Python's order of sets follows its seed; nights in which products and memory moved apart."""
    nights = sorted((REFERENCE / "fresh_nights").glob("*/*.parquet"))[4:10:5]
    command = [sys.executable, "-m", "bench", "compare", *map(str, nights)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed})
    moved = [one.split(",")[0] for one in done.stdout.splitlines() if "ER: the machine's " in one]
    assert moved == ["FASTER: the machine's matrix multiplications", "SLOWER: the machine's memory"]
