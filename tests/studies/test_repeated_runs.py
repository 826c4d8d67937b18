"""`python -m studies coverage RESULT...`: runs of one machine and one commit, held against each other."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.store import parquet
from bench.store.schema import Measurement
from studies.__main__ import app
from tests.bench.comparable import quiet, run, timed
from tests.bench.rows import lasting, with_interval

NIGHTS = sorted(
    (Path(__file__).parents[2] / "results/reference/nights/cpu-intel-xeon-2-core").glob("*.parquet")
)
COMMIT = [path for path in NIGHTS if "3cd8fe102c4a" in path.name]
"""The ten nights of one commit."""


def coverage(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["coverage", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def line(text: str, *beginning: str) -> list[str]:
    """The words behind the beginning of the one line that begins so."""
    count = len(beginning)
    (words,) = (
        each.split()
        for each in text.splitlines()
        if each.split()[:count] == list(beginning) and each.split()[count:]
    )
    return words[count:]


def covered(text: str, *kind: str) -> tuple[int, int, float, float]:
    """(rows, rows without interval, covered %, median half-width %) of a kind of row."""
    words = line(text, *kind)
    assert words[3] == words[5] == "%"
    return int(words[0]), int(words[1]), float(words[2]), float(words[4])


def share(text: str, *beginning: str) -> float:
    """The first percentage of a line."""
    words = [word.rstrip(";") for word in line(text, *beginning)]
    return float(words[words.index("%") - 1])


def found_at_twice(text: str) -> float:
    return share(text, "x", "2,", "of", "the", "cases")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def write(folder: Path, runs: Sequence[Sequence[Measurement]]) -> Path:
    """A result file for each run."""
    for number, rows in enumerate(runs):
        utc = f"2026-11-2{number}T10:00:00.000+00:00"
        named = [replace(one, run_id=f"run{number}", utc=utc) for one in rows]
        parquet.write(folder / f"{number}.parquet", named)
    return folder


def at_levels(chance: np.random.Generator, levels: Sequence[float], half: float) -> list[list[Measurement]]:
    """Runs of six cases, all at the level of their run, with an interval of this half as a share."""
    rows = [timed(chance, case=case) for case in range(6)]
    return [[with_interval(lasting(one, level), half) for one in rows] for level in levels]


def test_intervals_that_are_too_narrow_are_found_out(chance: np.random.Generator, written: Path) -> None:
    """Three runs 5 % apart whose rows claim half a percent: only the middle one holds the others' median."""
    code, out, err = coverage(write(written, at_levels(chance, (1 / 1.05, 1.0, 1.05), 0.005)))
    assert (code, err) == (0, "")
    assert covered(out, "gemm") == covered(out, "all", "operators") == (18, 0, 33.3, 0.5)
    assert "3 pairs, nothing changed:" in out
    assert share(out, "false", "verdicts", "on", "cases") == 100.0
    assert share(out, "false", "verdicts", "on", "operators") == 100.0
    assert found_at_twice(out) == 100.0


def test_wide_intervals_cover_and_may_hide_a_factor_of_two(
    chance: np.random.Generator, written: Path
) -> None:
    levels = (1 / 1.05, 1.0, 1.05)
    for half, found, name in ((0.2, 100.0, "enough"), (0.5, 0.0, "too much")):
        _, out, _ = coverage(write(written / name, at_levels(chance, levels, half)))
        assert covered(out, "gemm") == (18, 0, 100.0, pytest.approx(100 * math.atanh(half), abs=0.06))
        assert share(out, "false", "verdicts", "on", "cases") == 0.0
        assert found_at_twice(out) == found


def test_rows_without_interval_are_counted(chance: np.random.Generator, written: Path) -> None:
    runs = at_levels(chance, (1.0, 1.0, 1.0), 0.02)
    runs[0][0] = replace(runs[0][0], low_s=None, high_s=None)
    del runs[1][5]
    _, out, _ = coverage(write(written, runs))
    assert covered(out, "all", "operators") == (15, 1, 100.0, 2.0)


def test_ceilings_are_told_by_what_they_are_for(chance: np.random.Generator, written: Path) -> None:
    _, out, _ = coverage(write(written, [run(chance, quiet, 4, 3) for _ in range(3)]))
    assert covered(out, "all", "ceilings")[:3] == (48, 0, 100.0)
    kinds = [words[:2] for words in map(str.split, out.splitlines()) if words and words[0].endswith(":")]
    assert kinds and all(kind[0] in ("roof:", "probe:") for kind in kinds)
    assert sum(covered(out, *kind)[0] for kind in kinds) == 48
    assert covered(out, "all", "operators")[0] == 12


def test_which_flags_foretell_a_difference(chance: np.random.Generator, written: Path) -> None:
    """Of nine runs the last finds half of its cases unsettled, and 8 % off; others differ by up to 2 %."""
    levels = [1.0, 1.01, 1.02, 1.0, 1.01, 1.02, 1.0, 1.01, 1.01]
    runs = at_levels(chance, levels, 0.01)
    runs[8][:3] = [replace(lasting(one, 1.08), settled=False) for one in runs[8][:3]]
    _, out, _ = coverage(write(written, runs))
    assert line(out, "unsettled")[:3] == ["yes", "6", "%"]
    pairs, median, most, without, median_without, most_without = line(out, "unsettled")[3:]
    assert (pairs, without) == ("24", str(6 * 36 - 24))
    assert float(median) > 7 > 2.5 > float(median_without) and float(most) > 7 > float(most_without)
    assert not [each for each in out.splitlines() if each.split()[:1] == ["contended"]], "no row has it"


def test_what_are_no_repeated_runs_is_refused_in_a_sentence() -> None:
    other = next(path for path in NIGHTS if path not in COMMIT)
    for paths, sentence in (
        (COMMIT[:2], "2 runs; give 3 runs or more of one device and one commit"),
        ([*COMMIT[:2], other], "3 runs of several devices or commits; "),
    ):
        code, out, err = coverage(*paths)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert sentence in err and "give 3 runs or more of one device and one commit" in err


@pytest.mark.parametrize(
    "paths", [pytest.param(COMMIT[::4], id="three"), pytest.param(COMMIT, id="ten", marks=pytest.mark.deep)]
)
def test_the_committed_nights(paths: Sequence[Path]) -> None:
    """Between them nothing changed."""
    assert len(paths) in (3, 10)
    code, out, _ = coverage(*paths)
    assert code == 0
    for kind in ("operators", "ceilings"):
        rows, without, share_covered, half = covered(out, "all", kind)
        assert rows > 20 * len(paths) / 3 and without < 0.1 * rows
        # Three runs have 24 rows of operators, of which one case alone may miss in each.
        assert share_covered >= (93.0 if len(paths) == 10 else 87.0)
        assert half < 20.0, "whoever says nothing is never wrong"
    assert f"{len(paths) * (len(paths) - 1) // 2} pairs, nothing changed:" in out
    assert share(out, "false", "verdicts", "on", "cases") <= 0.5
    assert share(out, "false", "verdicts", "on", "operators") <= 0.5
    assert found_at_twice(out) >= 95.0
    (everywhere,) = (each for each in out.splitlines() if "+10 % everywhere" in each)
    pairs = len(paths) * (len(paths) - 1)
    seen = re.search(rf"exit code 1 in (\d+) of {pairs} = ", everywhere)
    assert seen and int(seen[1]) >= pairs - 1, "of the ten nights' ninety pairs one hides it"
