"""What is measured whole or not at all: our own sweeps as an H100 would get them, and a small one."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path

import pytest

import kernels
from bench.judge.claim_tests import both_sides, cluster_count
from bench.runner.comparisons import (
    POINTS,
    CaseGroup,
    Claims,
    cases_of_suite,
    comparisons,
    evenly,
    expected_rows,
)
from bench.runner.limits import impossible
from bench.sweep.claims import Claim
from bench.sweep.load import Case, Loaded, load
from bench.sweep.suites import CORE, LoadedSuite, load_suite
from tests.bench.several import H100, gpu


@pytest.fixture(scope="module")
def core() -> LoadedSuite:
    return load_suite(CORE, kernels.problem, H100.sm_count)


@pytest.fixture(scope="module")
def cases(core: LoadedSuite) -> list[Case]:
    chosen = cases_of_suite(core, H100)
    return [case for case in chosen if not case.missing("cuda", H100.capability)]


@pytest.fixture(scope="module")
def compared(core: LoadedSuite, cases: list[Case]) -> list[CaseGroup]:
    """Whatever the budget: it decides how much of this there is time for."""
    return comparisons(between(cases), claims_of(core.loaded), H100)


def between(cases: list[Case]) -> list[Case]:
    return [case for case in cases if case.role == "measurement"]


def claims_of(loaded: list[Loaded]) -> Claims:
    return {each.name: each.sweep.claims for each in loaded}


def undecided(loaded: list[Loaded], keys: set[str]) -> list[tuple[str, str, int]]:
    """(sweep, claim, clusters) of the claims about an H100 that these cases are too few for."""
    few = []
    for each in loaded:
        cases = [case for case in each.cases if case.key in keys and not impossible(case, H100)]
        rows = expected_rows(cases, H100) if cases and each.sweep.claims else None
        for claim in each.sweep.claims:
            if claim.device.include("cuda", H100.capability):
                count = 0 if rows is None else cluster_count(claim.test[1], *both_sides(claim, rows))
                few += [(each.name, claim.id, count)] if count < claim.least else []
    return few


def test_the_core_suite_decides_every_claim_on_an_h100(
    core: LoadedSuite, cases: list[Case], compared: list[CaseGroup]
) -> None:
    assert undecided(core.loaded, {case.key for case in cases}) == []
    # What a whole comparison decides it decides, though the sweep's other cases are not there.
    some = [each for each in compared if each.claim][::4]
    names = {each.sweep for each in some}
    loaded = [each for each in core.loaded if each.name in names]
    few = {(sweep, claim) for sweep, claim, _ in undecided(loaded, {k for each in some for k in each.keys})}
    assert few.isdisjoint((each.sweep, each.claim.id) for each in some if each.claim)


def test_every_case_stands_in_a_comparison_and_lines_begin_with_their_course(
    core: LoadedSuite, seed: int
) -> None:
    chance = random.Random(seed)
    sweeps = chance.sample([each for each in core.loaded if each.sweep.role == "measurement"], 8)
    cases = [case for each in sweeps for case in each.cases if not impossible(case, H100)]
    compared = comparisons(cases, claims_of(sweeps), H100)
    assert Counter({key for each in compared for key in each.keys}) == Counter(case.key for case in cases)
    for each in compared:
        assert len({case.sweep for case in each.cases}) == 1 and len(set(each.keys)) == len(each.keys)
    claimed = [each.claim is not None for each in compared if each.sweep == cases[0].sweep]
    assert claimed == sorted(claimed, reverse=True), "claims before lines"


SWEEP = """\
title: t
source: {document: none, range: ours}
operator: gemm
implementations: [cublas, cublaslt]
cases:
  - {k: {from: 1000, to: 1040}, m=n: 4096, dtype: float16, layout: NN}
claims:
  - id: MM-01
    rules: [3]
    says: s
    where: {implementation: cublas}
    ratio: {of: {k: "!%8"}, to: {k: "%8"}, pair: nearest k, per: flop}
    expect: above 1.03
    least: 2
"""


@pytest.fixture
def small(tmp_path: Path) -> Loaded:
    path = tmp_path / "small.yaml"
    path.write_text(SWEEP)
    return load(path, kernels.problem, 2, tmp_path)


def test_pairs_lie_next_to_each_other_and_then_come_the_lines(small: Loaded) -> None:
    first, *lines = comparisons(small.cases, claims_of([small]), gpu(0))
    assert first.claim is not None and len(first.cases) == 6  # three clusters: 1.25 times two
    ks = [case.problem.parameters()["k"] for case in first.cases]
    for above, below in zip(ks[::2], ks[1::2], strict=True):
        assert above % 8 and below % 8 == 0 and abs(above - below) <= 4
    assert [len(line.cases) for line in lines] == [POINTS, POINTS, 41, 41]
    assert {case.implementation for case in lines[0].cases} == {"cublas"}
    ends = [[line.cases[end].problem.parameters()["k"] for end in (0, -1)] for line in lines]
    assert ends == 4 * [[1000, 1040]]


def test_a_claim_that_these_cases_cannot_decide_is_no_comparison(small: Loaded) -> None:
    one_pair = [case for case in small.cases if case.problem.parameters()["k"] in (1000, 1001)]
    assert [each.claim for each in comparisons(one_pair, claims_of([small]), gpu(0))] == [None, None]


def test_a_claim_about_other_devices_compares_nothing(small: Loaded) -> None:
    claim = small.sweep.claims[0].model_dump(exclude_unset=True) | {"device": {"capability": ">=99.0"}}
    of = {small.name: [Claim.model_validate(claim)]}
    assert all(each.claim is None for each in comparisons(small.cases, of, gpu(0)))


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 41])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_points_of_a_line_are_spread_evenly_with_its_ends(length: int, count: int) -> None:
    line = list(range(length))
    points = evenly(line, count)
    assert points == sorted(set(points)) and len(points) == min(length, count)
    assert {points[0], points[-1]} == {0, length - 1}
    gaps = [b - a for a, b in itertools.pairwise(points)]
    assert not gaps or max(gaps) - min(gaps) <= 1
