"""One name for a case: unique, legal for `-k`, printed by every command and taken back by each."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kernels
from bench.__main__ import app
from bench.case_name import case_name, problem_name, row_name
from bench.device.datasheet import find_datasheet
from bench.errors import UserError
from bench.format import seconds_text
from bench.judge.read_runs import load
from bench.store import parquet
from bench.sweep import load as sweep
from bench.sweep.load import Case
from tests.bench import rows as made
from tests.bench.claims_made import timed
from tests.plots.synthetic import H100, ceilings
from tests.processes import pytested

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"
XEON = REFERENCE / "cpu-intel-xeon-2-core"
LAST = XEON / "20261122T005120Z-499eb026a141.parquet"
NIGHTS = REFERENCE / "nights" / "cpu-intel-xeon-2-core"
NAME = re.compile(r"(?<![\w/.+-])[a-z_0-9]+(?:/[a-z_0-9]+)?-[\w.+/-]+-(?:cold|warm)\b")
"""What looks like the name of a case in what a command prints."""


@pytest.fixture(scope="module")
def ours() -> dict[str, Case]:
    """Every case of our sweeps on a GPU of 132 SMs, by name."""
    loaded = sweep.load_all(sweep.SWEEPS, kernels.problem, sm_count=132)
    cases = [case for one in loaded for case in one.cases]
    by_name = {case.name: case for case in cases}
    assert len(by_name) == len(cases) > 10_000
    return by_name


def test_no_name_is_part_of_another(ours: dict[str, Case]) -> None:
    """`-k` looks for a part of a name, in capitals or not: so each must be a part of itself alone."""
    lower = {name.lower() for name in ours}
    assert len(lower) == len(ours)
    # A name ends with its cache, which stands nowhere else: it can only be the end of another.
    assert all(len(re.findall("-cold|-warm", name)) == 1 for name in lower)
    assert not [name for name in lower if any(name[at:] in lower for at in range(1, len(name)))]


def test_a_name_in_full() -> None:
    parameters = {"dtype": "float16", "m": 4096, "n": 8, "k": 64, "layout": "TN", "beta": 0, "pitch": "tight"}
    given = ("gemm/square", "gemm", "triton", json.dumps(parameters), "cold")
    assert case_name(*given) == "gemm/square-triton-float16-TN-m4096-n8-k64-cold"
    assert case_name(*given, threads="one") == "gemm/square-triton-float16-TN-m4096-n8-k64-one-thread-cold"
    padded = json.dumps(parameters | {"beta": 1, "pitch": "padded"})
    name = case_name("imported/csv", "gemm", "cublas", padded, "warm")
    assert name == "imported/csv-cublas-gemm-float16-TN-padded-m4096-n8-k64-beta1-warm"
    pooling = {"dtype": "float32", "window": 3, "stride": 2, "ceil_mode": True, "count_include_pad": False}
    assert problem_name(pooling) == "float32-window3-stride2-ceil_mode"
    rectangle = {"dtype": "float32", "window": 3, "window_w": 1, "padding": 1, "padding_w": 0}
    assert problem_name(rectangle) == "float32-window3-window_w1-padding1-padding_w0"


def test_a_row_has_the_name_of_its_case(ours: dict[str, Case]) -> None:
    """Rows of a parquet file, whose parameters are JSON with sorted keys, beside cases of the YAML files."""
    rows = [row for path in XEON.glob("*-499eb026a141.parquet") for row in parquet.read_rows(path)]
    assert len({(row.run_id, row_name(row)) for row in rows}) == len(rows)
    cases = {case.key: case for case in ours.values()}
    known = [row for row in rows if row.case in cases]
    assert len(known) > 900
    assert not [row for row in known if row_name(row) != cases[row.case].name]


def test_an_unknown_name_is_told_the_closest(ours: dict[str, Case]) -> None:
    name = "gemm/square-triton-int8-TN-m4096-n4096-k4096-cold"
    assert sweep.pick(ours.values(), [name, name]) == [ours[name]]
    with pytest.raises(UserError, match=f"did you mean {re.escape(name)}\\?\\)$"):
        sweep.pick(ours.values(), [name.replace("square", "sqare").replace("k4096", "k409")])


# --- what commands print ----------------------------------------------------------------------------


def printed(*words: str | Path) -> str:
    """Standard output of `python -m bench WORDS`."""
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code in (0, 1, 3), done.output
    return done.stdout


def test_every_name_that_a_command_prints_is_taken_back(ours: dict[str, Case]) -> None:
    """Every line on a case has a name, and every name is that of a row given or of a case of the sweep."""
    before, after = sorted(XEON.glob("*-8fb513ecc4e6.parquet"))
    text = printed("compare", before, after, "--all")
    names = NAME.findall(text)
    assert len(names) == len(set(names)) and f"\n{len(names)} cases: " in text
    assert set(names) <= {row_name(row) for path in (before, after) for row in parquet.read_rows(path)}
    squares = {name for name in ours if name.startswith("gemm/square-")}
    text = printed("list", "gemm/square", "--cases", "--bench-device", "cpu")
    assert set(NAME.findall(text)) == squares


def test_explain_takes_every_kind_of_row() -> None:
    rows = parquet.read_rows(LAST)
    by_status = {row.status: row for row in rows}
    assert len(by_status) > 1
    timed = [row for row in rows if row.status == "ok"]
    for row in (*by_status.values(), *random.Random(1).sample(timed, 1)):
        name = row_name(row)
        text = printed("explain", name, LAST)
        assert text.startswith(f"{name}\n") and f"--bench-case {name}" in text
        assert row.reason in text
        assert (f"median of {len(row.samples_s or [])} samples" in text) == (row.median_s is not None)
        assert set(NAME.findall(text)) <= {row_name(one) for one in rows}
        assert "nan" not in text and "None" not in text


def test_explain_predicts_what_figures_draw() -> None:
    (run,) = load([LAST], find_datasheet)
    rows = run.frame[run.frame["median_s"].notna() & run.frame["structured_s"].notna()]
    for row in rows.sample(1, random_state=2).itertuples(index=False):
        text = printed("explain", row_name(row), LAST)
        (first,) = re.findall(r"L1 calibrated  (.+), bound by (\w+):", text)
        assert first == (seconds_text(row.predicted_s), row.limiter)
        (second,) = re.findall(r"L2 structure   (.+), bound by (.+)", text)
        assert second == (seconds_text(row.structured_s), row.structured_limiter)
        for name in row.flags.split():
            assert f"\n  {name} " in text


def test_explain_says_whether_tensor_cores_ran(tmp_path: Path) -> None:
    kernels = "nvjet_hsh_64x8_64x16_4x1_v_bz_TNN grid 64x1x1 block 384"
    product = timed(13e-6, n=8, k=4096, kernels=kernels)
    path = parquet.write(tmp_path / "a.parquet", [*ceilings(H100), product])
    told = printed("explain", row_name(product), path)
    assert re.search(f"Tensor Cores +used, by the names of its kernels: {kernels}\n", told)


def test_explain_shows_the_newest_run_visit_by_visit(tmp_path: Path) -> None:
    parameters = '{"dtype":"float32","k":3,"layout":"NN","m":1,"n":2}'
    case = {"sweep": "my/own", "implementation": "onednn", "cache": "cold", "parameters": parameters}
    case |= {"device_kind": "cpu", "byte": 100, "byte_moved": 100, "cache_byte": 2**20, "sm_count": 2}
    samples_s = [2e-3, 1e-3, 3e-3, 5e-3, 5e-3]
    visits = {"visits": 2, "samples_s": samples_s, "visit_samples": [3, 2], "visit_at_s": [5.0, 65.0]}
    visits |= {"set_aside": ["contended"], "set_aside_s": [9e-3], "settled": False, "launches": 20}
    new = made.row(run_id="20261102T000000Z-b", median_s=3e-3, **visits, **case)
    old = made.row(run_id="20261101T000000Z-a", status="crashed", reason="it fell", median_s=None, **case)
    parquet.write(tmp_path / "1.parquet", [new])
    parquet.write(tmp_path / "2.parquet", [old])
    text = printed("explain", "my/own-onednn-gemm-float32-NN-m1-n2-k3-cold", tmp_path)
    lines = [line for line in text.splitlines() if line.startswith("  ")]
    told = {line.split("  ")[1]: " ".join(line.split()) for line in lines}
    assert told["visit 1"] == "visit 1 2 ms, median of 3 samples of 20 launches"
    assert told["visit 2"].startswith("visit 2 5 ms, median of 2 samples")
    assert told["set aside"] == "set aside 9 ms: contended"
    assert told["published"] == "published 3 ms" and "assumed" in told["in other runs"]
    assert "run 20261102T000000Z-b" in told["when"]
    assert "unsettled" in told and "--bench-sweep my/own.yaml" in text


def test_explain_refuses_a_name_that_is_not_there() -> None:
    name = row_name(parquet.read_rows(sorted(NIGHTS.glob("*.parquet"))[0])[0])
    done = CliRunner().invoke(app, ["explain", f"{name}x", str(NIGHTS)])
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr == f"error: {NIGHTS}: no row is of a case called {name}x (did you mean {name}?)\n"


# --- pytest -----------------------------------------------------------------------------------------

SWEEP = """
title: Names
source: {document: none, range: ours}
operator: gemm
implementations: [onednn]
cache: [cold, warm]
threads: [all, one]
cases:
  - {m=n: [8, 80], k: [6, 64], dtype: float32, layout: [NN, TN]}
"""


def collected(*words: str) -> tuple[int, str]:
    """Exit code and output of `pytest bench/ --benchmark --collect-only` with these words."""
    return pytested(str(ROOT / "bench"), "--benchmark", "--collect-only", "-q", *words)


def test_k_and_bench_case_select_one_case(tmp_path: Path) -> None:
    path = tmp_path / "names.yaml"
    path.write_text(SWEEP)
    one = "names-onednn-gemm-float32-NN-m8-n8-k6-cold"
    other = "names-onednn-gemm-float32-TN-m80-n80-k64-one-thread-warm"
    given = ("--bench-sweep", str(path), "--bench-device", "cpu")
    _, by_k = collected(*given, "-k", one)
    (line,) = [line for line in by_k.splitlines() if "::" in line]
    assert line == f"bench/test_benchmark.py::test_measure[{one}]"
    _, by_case = collected(*given, "--bench-case", one, "--bench-case", other)
    names = re.findall(r"test_measure\[(.+)\]", by_case)
    assert [name for name in names if not name.startswith("ceilings/")] == [one, other]
    assert any(name.startswith("ceilings/") for name in names)
    code, wrong = collected(*given, "--bench-case", one.replace("k6", "k7"))
    assert code == 2 and "Traceback" not in wrong
    assert f"this case (did you mean {one}?)" in wrong
