"""Where rows meet roofs: runs, what each row is held against, and the columns that verdicts rest on."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest

import kernels
from bench.device.datasheet import find_datasheet
from bench.judge.claim_rows import claim_rows
from bench.judge.read_runs import load, of_one_unit, read, runs
from bench.judge.score import scorecard
from bench.model.ceilings import Ceilings, MixedCeilings
from bench.store.parquet import tables, write
from bench.store.schema import FIELDS, Measurement
from kernels.gemm.problem import Gemm
from tests.bench.comparable import timed
from tests.bench.rows import again, lasting, with_interval
from tests.plots.synthetic import H100, NO_TIME, ceilings, row

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
OF_BEFORE = {"beta": 0, "pitch": "tight"}
"""What GEMM gained before there was `added`: the two oldest files lack it."""


def products(count: int) -> list[Measurement]:
    """Products of a made-up GPU, each with an interval and at about its roof."""
    sizes = range(1024, 1024 + 256 * count, 256)
    found = [row(H100, "gemm/mine", Gemm(m=s, n=s, k=s, dtype="float16"), "cublas") for s in sizes]
    return [dataclasses.replace(one, low_s=one.median_s, high_s=one.median_s) for one in found]


def test_a_run_for_each_device_and_name_in_order(tmp_path: Path) -> None:
    here, there, later = products(2), again(products(1), device="b200"), again(products(1), run_id="z")
    files = [write(tmp_path / "a.parquet", [*later, *here]), write(tmp_path / "b.parquet", there)]
    found = read(files)
    assert [(run.device, run.run_id) for run in found] == [
        ("b200", there[0].run_id), (here[0].device, here[0].run_id), (later[0].device, "z"),
    ]  # fmt: skip
    assert [list(run.rows) for run in found] == [there, here, later]


def test_a_row_of_others_has_its_own_interval_however_often_it_is_made(tmp_path: Path) -> None:
    """Rows of others stay in their table, and are made anew each time that they are asked for."""
    own = [timed(np.random.default_rng(case), case=case) for case in range(5)]
    (measured,) = runs(own)
    (others,) = read([write(tmp_path / "a.parquet", again(own, source="someone"))])
    found = [others.run_ends_s(others.rows[place]) for place in range(len(own))]
    assert None not in dict(found) and found == [measured.run_ends_s(each) for each in measured.rows]
    assert len(set(found)) == len(own)


def test_of_a_kind_of_gpu_one_unit_is_kept_and_of_others_all() -> None:
    first, second = (dataclasses.replace(products(1)[0], device_id=unit, utc=unit) for unit in ("1", "2"))
    said: list[str] = []
    assert of_one_unit([second, first], said.append) == [second] and len(said) == 1
    for kind in ({"device_kind": "cpu"}, {"source": "someone"}):
        units = again([first, second], **kind)
        assert of_one_unit(units, said.append) == units and len(said) == 1


def test_a_row_is_held_against_the_ceilings_of_its_own_run_and_condition() -> None:
    rows = products(1)
    measured, without = runs([*ceilings(H100), *rows, *again(rows, run_id="z")])
    assert measured.roof_of(rows[0]).launch_s is not None
    warm = dataclasses.replace(rows[0], cache="warm")
    assert measured.roof_of(warm) == measured.roof("cold"), "a run that measured no warm ceilings"
    assert measured.roof("cold, one thread") == Ceilings() == without.roof_of(rows[0])


def test_a_run_of_mixed_ceilings_is_refused_or_has_none() -> None:
    probes = list(ceilings(H100))
    probes[0] = dataclasses.replace(probes[0], driver="another")
    with pytest.raises(MixedCeilings, match="measured with driver"):
        runs(probes)
    (run,) = runs(probes, without_mixed=True)
    assert not run.ceilings and run.flags_of(probes[1]) is not None


def test_a_time_above_the_roof_is_suspect_and_scored_all_the_same(tmp_path: Path) -> None:
    """To leave out what is quicker than predicted would score a prediction by those that it gets right."""
    rows = products(8)
    rows[5] = lasting(rows[5], 0.5)
    rows[6] = dataclasses.replace(lasting(rows[6], 0.5), settled=False)
    rows[7] = dataclasses.replace(rows[7], pressure=0.5)
    (run,) = load([write(tmp_path / "run.parquet", [*ceilings(H100), *rows])], find_datasheet)
    frame = run.frame[run.frame["sweep"] == "gemm/mine"].reset_index(drop=True)
    assert frame["flags"][5:].tolist() == ["above_roof", "unsettled above_roof", "contended"]
    assert frame["suspect"].tolist() == [False] * 5 + [True] * 3
    card = scorecard(run.frame)
    assert {score.n for score in card.scores if score.operator == "gemm"} == {6}


@pytest.mark.parametrize(
    ("visits", "roof", "surely"),
    [((0.7, 0.7, 0.7), 0.01, True), ((0.3, 0.7, 1.6), 0.01, False), ((0.7, 0.7, 0.7), 0.5, False)],
)
def test_visits_far_apart_leave_open_whether_a_time_is_above_the_roof(
    visits: tuple[float, ...], roof: float, surely: bool
) -> None:
    """The flag is raised at the median; a gate fails where the noise of the run explains nothing of it.

    `roof`: half of the roofs' intervals, as a share.
    """
    rows = products(8)
    for place, one in enumerate(rows):
        assert one.median_s
        times = visits if place == 5 else (1.0, 1.001, 0.999)
        seconds = [one.median_s * share for share in times]
        rows[place] = dataclasses.replace(
            lasting(one, times[1]), samples_s=[s for s in seconds for _ in range(20)], visits=3,
            visit_samples=[20] * 3, visit_at_s=[0.0, 50.0, 100.0], step_s=0.0,
        )  # fmt: skip
    (run,) = runs([*(with_interval(one, roof) for one in ceilings(H100)), *rows])
    assert "above_roof" in run.flags_of(rows[5])
    assert [run.surely_above_roof(one) for one in rows] == [surely and one is rows[5] for one in rows]


def test_a_row_without_a_good_result_has_no_time_in_any_column(tmp_path: Path) -> None:
    rows = products(3)
    rows[1] = dataclasses.replace(rows[1], status="wrong")
    rows[2] = dataclasses.replace(rows[2], **NO_TIME)
    (run,) = load([write(tmp_path / "run.parquet", rows)], find_datasheet)
    assert run.measured == 1
    times = ["median_s", "low_s", "high_s", "rate_per_s", "flop_per_s", "of_roof"]
    assert run.frame[times][1:].isna().all(axis=None)
    assert set(FIELDS) < set(run.frame.columns), "a column is declared once, in bench/store/schema.py"
    assert run.frame["flags"].tolist()[1] == "wrong" and not run.frame["suspect"].any()


def test_the_slow_end_of_a_time_is_the_low_end_of_its_rate() -> None:
    (product,) = products(1)
    (run,) = runs([dataclasses.replace(product, flop=60, median_s=3.0, low_s=2.0, high_s=4.0)])
    (row,) = run.frame.to_dict("records")
    for name in ("rate", "flop"):
        assert (row[f"{name}_low_per_s"], row[f"{name}_per_s"], row[f"{name}_high_per_s"]) == (15, 20, 30)


def test_an_interval_that_is_not_known_stays_unknown() -> None:
    """As a width of zero it would be shown as a time that is known exactly."""
    (run,) = runs(again(products(2), low_s=None, high_s=None))
    ends = [f"{name}_{end}" for name in ("rate", "flop") for end in ("low_per_s", "high_per_s")]
    assert run.frame[["low_s", "high_s", *ends]].isna().all(axis=None)
    assert run.frame[["rate_per_s", "flop_per_s"]].notna().all(axis=None)


def test_a_time_that_may_be_zero_has_no_highest_rate() -> None:
    """As of a clock with coarse steps: the rate is no smaller than its lower end, and that is all."""
    (run,) = runs([dataclasses.replace(one, low_s=random.choice([0.0, -1e-6])) for one in products(2)])
    assert run.frame[["rate_high_per_s", "flop_high_per_s"]].isna().all(axis=None)
    assert (run.frame["rate_low_per_s"] <= run.frame["rate_per_s"]).all()


def test_a_row_of_before_threads_were_asked_for_meets_those_of_all_threads() -> None:
    (run,) = runs(again(products(1), threads_asked=None))
    assert run.columns["threads_asked"].tolist() == run.frame["threads_asked"].tolist() == ["all"]


@pytest.mark.parametrize("operator", kernels.names())
def test_no_parameter_has_the_name_of_a_column_of_every_row(operator: str) -> None:
    """A table of rows has one column of a name: the parameter's values would be lost."""
    assert set(kernels.problem(operator).model_fields) & set(FIELDS) <= {"dtype"}


GONE: dict[str, dict[str, tuple[str, ...]]] = {
    "gemm": {"data": ("normal",)},
    "fusion": {"chain": ("residual-layernorm", "bias-residual-layernorm")},
    "layer": {"kind": ("mlp", "transformer-modern")},
}
"""What was measured once and is no more (CHANGELOG.md): operator -> parameter -> values."""


def test_published_cases_keep_their_names() -> None:
    """What an operator gains is in its `added`, or its cases of before meet none of today's."""
    published = set()
    for _, table in tables(REFERENCE.rglob("cpu-*/*.parquet"), columns=["operator", "parameters"]):
        published |= set(zip(table["operator"].to_pylist(), table["parameters"].to_pylist(), strict=True))
    assert "gemm" in {operator for operator, _ in published}
    for operator, text in published:
        given = json.loads(text)
        if any(given.get(name) in values for name, values in GONE.get(operator, {}).items()):
            continue
        now = kernels.problem(operator)(**given).parameters()
        assert now in (given, given | OF_BEFORE), f"{operator}: `added` lacks what it has gained"


def test_a_parameter_that_a_row_leaves_out_has_its_default() -> None:
    single, several = (Gemm(m=8, n=8, k=8, dtype="float16", batch=batch) for batch in (1, 4))
    rows = [row(H100, "gemm/mine", problem, "cublas") for problem in (single, several)]
    assert "batch" not in rows[0].parameters
    (run,) = runs(rows)
    assert run.columns["batch"].tolist() == [1, 4]
    of_two = runs([rows[0], dataclasses.replace(rows[1], run_id="z")])
    assert claim_rows(of_two)["batch"].tolist() == [1, 4], "a run in which every row leaves it out"


def test_skipping_zeros_is_held_against_no_dense_peak() -> None:
    """At 1.8 times the peak of dense products a dense product is impossible, one that skips zeros is not."""
    problem = Gemm(m=4096, n=4096, k=4096, layout="TN", dtype="float16", sparsity="2of4")
    seconds = problem.flop / (1.8 * H100.flop_per_s["float16"])
    times = {"median_s": seconds, "low_s": seconds, "high_s": seconds}
    rows = [
        row(H100, "gemm/mine", problem, name, **times, arithmetic=problem.facts(name)["arithmetic"])
        for name in ("cublas", "cusparselt")
    ]
    (run,) = runs([*ceilings(H100), *rows])
    assert ["above_roof" in flags for flags in run.flags[-2:]] == [True, False]
