"""`python -m bench run`: from words to a sweep, and one run of it without a worker that computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from typer.testing import CliRunner

import kernels
from bench.__main__ import app
from bench.cli.run_command import sweep_of
from bench.errors import UserError
from bench.runner.run import Run
from bench.store.journal import claimed
from bench.store.parquet import read_frame
from bench.sweep.load import Case, load
from tests.bench import several


def loaded(folder: Path, implementation: str, operator: str, *given: str) -> list[Case]:
    path = folder / f"{operator}.yaml"
    path.write_text(yaml.safe_dump(sweep_of(operator, list(given), implementation, "cold"), sort_keys=False))
    return load(path, kernels.problem, 2, folder).cases


def cases(folder: Path, operator: str, *given: str) -> list[Any]:
    return [case.problem.parameters() for case in loaded(folder, "", operator, *given)]


def test_words_are_ranges_lists_and_what_moves_together(tmp_path: Path) -> None:
    squares = cases(tmp_path, "gemm", "m=n=k=64..512", "dtype=float32", "layout=NN,TN")
    assert {case["m"] for case in squares} == {64, 128, 256, 512}
    assert all(case["m"] == case["n"] == case["k"] for case in squares)
    assert {case["layout"] for case in squares} == {"NN", "TN"}
    steps = cases(tmp_path, "gemm", "m=n=8", "k=8..32:8", "dtype=float32", "layout=NN")
    assert sorted({case["k"] for case in steps}) == [8, 16, 24, 32]


def test_implementations_on_request_run_only_where_they_are_named(tmp_path: Path) -> None:
    size = ("gemm", "m=n=k=64", "dtype=float16", "layout=TN")
    usual = {case.implementation for case in loaded(tmp_path, "", *size)}
    every = {each.name for each in kernels.problem("gemm").implementations}
    assert {"triton", "cublaslt", "triton-split-k"} < usual and len(every - usual) == 6
    named = [case.implementation for case in loaded(tmp_path, "triton-64x64,cublaslt-128x128", *size)]
    assert named == ["triton-64x64", "cublaslt-128x128"] and not usual & set(named)


def test_the_figure_runs_along_what_has_several_values() -> None:
    assert sweep_of("gemm", ["m=8", "k=8,16", "layout=NN,TN"], "cublas,triton", "warm")["plot"]["x"] == "k"
    assert sweep_of("gemm", ["m=n=8..64"], "", "cold")["plot"]["x"] == "m"
    assert "plot" not in sweep_of("gemm", ["m=8"], "", "cold")
    assert sweep_of("gemm", ["m=8"], "cublas,triton", "warm")["implementations"] == ["cublas", "triton"]


SIZE, HUGE = "m=n=k=8", "m=n=k=1000000"


@pytest.mark.parametrize("word", ["n", "n=", "=3", "n=3..", "n=..4", "n=4..1:x"])
def test_a_word_that_is_none_is_refused_by_an_example(word: str) -> None:
    with pytest.raises(UserError, match=rf"^{word}: .*64\.\.4096"):
        sweep_of("gemm", [word], "", "cold")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["gem", "m=1"], "run gem: "),
        (["softmax", "rows=1", "length=-5"], "length must be at least 1, not -5"),
        (["softmax", "rows=1", "length=4", "rows=2"], "rows=2: rows is given twice; give rows=FIRST,SECOND"),
        (["gemm", "o=1"], "gemm has no parameter 'o'"),
        (["gemm", SIZE, "dtype=float33", "layout=NN"], "dtype cannot be 'float33' (did you mean float32?)"),
        (["gemm", "m=8..4", "n=k=8"], "empty range: from 8 is above to 4"),
        (["gemm", HUGE, "--implementation", "onednn"], "can run on cpu: needs 12000 GB; cpu has"),
        (["softmax", "rows=1", "length=4", "--data", "ones"], "--data has no inputs 'ones'; it has uniform,"),
        (["softmax", "rows=1", "length=4", "--data", "zeros", "--once"], "launches with uniform inputs"),
    ],
)
def test_bad_input_is_one_sentence_without_the_file(given: list[str], says: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", *given, "--bench-device", "cpu", "--bench-results", str(tmp_path)])
    said = " ".join(done.output.split())
    assert done.exit_code == 2 and says in said, said
    assert ".yaml" not in said and "ceiling" not in said and not list(tmp_path.rglob("*.parquet"))


SHAPES = "m,n,k\n16,512,256\n\n48,128,512\n"


def test_sizes_may_be_a_list_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = several.stand_in(tmp_path, monkeypatch)
    (folder / "shapes.csv").write_text(SHAPES)
    given = ["gemm", "dtype=float32", "layout=NN,TN", "--shapes", str(folder / "shapes.csv")]
    given += ["--implementation", "onednn", "--bench-budget", "inf", "--bench-results", str(folder / "r")]
    done = CliRunner().invoke(app, ["run", *given, "--bench-device", "cpu"])
    assert done.exit_code == 0, done.output
    frame = read_frame([*(folder / "r").rglob("*.parquet")])
    rows = frame[frame["role"] == "measurement"]
    sizes = [f"{row.layout}-{row.m:.0f}-{row.n:.0f}-{row.k:.0f}" for row in rows.itertuples()]
    assert sorted(sizes) == ["NN-16-512-256", "NN-48-128-512", "TN-16-512-256", "TN-48-128-512"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SHAPES.replace("48", "0"), "shapes.csv:4, with dtype=float32: m must be at least 1, not 0"),
        (SHAPES.replace("48", "x"), "shapes.csv:4, with dtype=float32: m must be a whole number, not 'x'"),
        (SHAPES.replace("48,", ""), "shapes.csv:4: has 2 cells; the first line names 3"),
        (SHAPES.replace("m,", "mm,"), "shapes.csv:1: gemm has no parameter 'mm'"),
        (SHAPES.replace("m,", "dtype,"), "shapes.csv:1: dtype is given as dtype=float32, too"),
        (SHAPES + "16,512,256\n", "shapes.csv:5: the same size as in a line above"),
        ("m,n,k\n", "shapes.csv: has no line below its first"),
    ],
)
def test_a_mistake_in_a_list_of_sizes_has_its_line(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "shapes.csv").write_text(text)
    words = ["run", "gemm", "dtype=float32", "--shapes", str(tmp_path / "shapes.csv")]
    done = CliRunner().invoke(app, [*words, "--bench-device", "cpu"])
    assert done.exit_code == 2 and f"error: {tmp_path}/{says}" in done.output, done.output


def test_ctrl_c_while_planning_closes_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = several.stand_in(tmp_path, monkeypatch)
    monkeypatch.setattr(Run, "plan", Mock(side_effect=KeyboardInterrupt))
    given = ["gemm", "m=n=k=8", "--implementation", "onednn", "--bench-device", "cpu"]
    CliRunner().invoke(app, ["run", *given, "--bench-results", str(folder / "r")])
    (journal,) = (folder / "r").rglob("*.journal")
    with claimed(journal) as is_free:
        assert is_free
