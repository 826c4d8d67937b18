"""`table --by implementation`: which rows meet, ratios and intervals by hand."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.cli.closing import answer_lines
from bench.cli.findings import own_sentences
from bench.judge.implementations import Side, side_by_side
from bench.judge.read_runs import runs
from bench.spec import Problem
from bench.store import parquet
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from kernels.softmax.problem import Softmax
from tests.plots.synthetic import H100, row

SQUARE = Gemm(m=4096, n=4096, k=4096, dtype="float16")
SOFTMAX = Softmax(dtype="float16", direction="forward", rows=4096, length=8192)


def measured(
    problem: Problem, implementation: str, median_s: float, half: float = 0.01, **changes: Any
) -> Measurement:
    """A row whose interval has all its noise."""
    facts = {"median_s": median_s, "low_s": median_s / (1 + half), "high_s": median_s * (1 + half)}
    facts |= {"run_half": math.log1p(half), "run_low_s": 0.0, "run_high_s": median_s * (1 + half)}
    return row(H100, f"{problem.operator}/mine", problem, implementation, **(facts | changes))


def sides(*rows: Measurement) -> list[dict[str, Side]]:
    (run,) = runs(rows)
    return [dict(sides) for _, sides in side_by_side(run)]


def test_each_is_held_against_the_fastest_library_beside_it() -> None:
    """Ours and a user's kernel are nobody's library."""
    seconds = {"triton": 1e-3, "mine:f": 0.5e-3, "aten": 2e-3, "inductor": 1.5e-3, "quack": 1.2e-3}
    (found,) = sides(*(measured(SOFTMAX, name, median_s) for name, median_s in seconds.items()))
    ratios = {name: round(side.ratio, 9) for name, side in found.items()}
    assert ratios == {
        "triton": round(1 / 1.2, 9),
        "mine:f": round(0.5 / 1.2, 9),
        "aten": round(2 / 1.2, 9),
        "inductor": 1.25,
        "quack": 0.8,
    }
    (alone,) = sides(measured(SOFTMAX, "triton", 1e-3), measured(SOFTMAX, "mine:f", 1e-3))
    assert all(math.isnan(side.ratio) for side in alone.values())


def test_the_latest_sound_row_of_the_same_problem_counts() -> None:
    """Cache and threads are the problem's; a row that a flag makes suspect has no say."""
    cublas = measured(SQUARE, "cublas", 1e-3)
    rows = [measured(SQUARE, "triton", 4e-3), measured(SQUARE, "triton", 2e-3, sweep="gemm/again")]
    rows += [measured(SQUARE, "triton", 1e-4, sweep="gemm/doubtful", settled=False)]
    (found,) = sides(cublas, *rows)
    assert found["triton"].ratio == pytest.approx(2.0)
    assert not sides(cublas, measured(SQUARE, "triton", 1e-3, cache="warm"))
    assert not sides(cublas, measured(SQUARE, "triton", 1e-3, threads_asked="one"))


def test_few_cases_say_how_kernels_stand_beside_the_library() -> None:
    rows = {"aten": 1e-3, "mine:f": 4e-3, "inductor": 2e-3}
    made = [measured(SOFTMAX, name, seconds) for name, seconds in rows.items()]
    times = r"4\.00 times the time of aten \((.+) to (.+)\) at float16-forward-rows4096-length8192"
    found = re.fullmatch(rf"mine:f is right; it takes {times}\.", told(*made)[0])
    assert found is not None and float(found[1]) < 4 < float(found[2])
    smaller = SOFTMAX.model_copy(update={"rows": 64})
    made += [measured(smaller, name, 1e-4) for name in rows]
    assert " and 1.00 times the time of aten (" in told(*made)[0], "and where it is closest"
    alone = told(measured(SOFTMAX, "mine:f", 1e-3), measured(SOFTMAX, "triton", 1e-3))
    assert alone == [
        f"{name} is right; no sound time of it stands beside a library's." for name in ("mine:f", "triton")
    ]
    (run,) = runs([replace(measured(SOFTMAX, "mine:f", 1e-3), status="wrong", median_s=None, reason="why")])
    assert not list(own_sentences(run))
    assert next(answer_lines(run, [])) == "mine:f: wrong at float16-forward-rows4096-length8192: why"


def told(*rows: Measurement) -> list[str]:
    (run,) = runs(rows)
    return list(own_sentences(run))


def printed(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*words])
    return done.exit_code, done.output


def test_the_table_has_a_line_a_size_and_a_column_an_implementation(tmp_path: Path) -> None:
    larger = SQUARE.model_copy(update={"m": 8192})
    rows = [measured(SQUARE, "cublas", 1e-3), measured(SQUARE, "triton", 1.5e-3)]
    rows += [measured(larger, "cublas", 2e-3), measured(SOFTMAX, "aten", 1e-3)]
    parquet.write(tmp_path / "a.parquet", [*rows, measured(larger, "triton", 2e-3)])
    code, text = printed("table", str(tmp_path), "--by", "implementation")
    assert code == 0
    lines = [
        re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if "m4096" in line or "m8192" in line
    ]
    assert [line[0] for line in lines] == ["m4096-n4096-k4096", "m8192-n4096-k4096"]
    assert "gemm float16-NN, cold cache" in text, "what all sizes share"
    assert lines[0][2] == "1.5 ms (x 1.50, 1.48 to 1.52)" and lines[1][2].startswith("2 ms (x 1.00")
    assert "softmax" not in text  # one implementation alone
    code, text = printed("table", str(tmp_path), "--by", "size")
    assert (
        code == 2
        and text == "error: --by size: the table is --by implementation, or of every case without it\n"
    )
