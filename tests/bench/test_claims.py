"""Verdicts on claims: every word for every kind of test, on rows whose effect is known."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernels
from bench.device.datasheet import find_datasheet
from bench.errors import UserError
from bench.judge.claim_rows import claim_rows
from bench.judge.claim_tests import both_sides
from bench.judge.claims import Declared, judge
from bench.judge.read_runs import runs
from bench.model.roofline import calibrated_row, row_terms
from bench.store.schema import Measurement
from bench.sweep.load import SWEEPS, load
from tests.bench.claims_made import KINDS, SWEEP, asked, claim, judged, timed, truth
from tests.bench.rows import Chance, again
from tests.drawing import drawn
from tests.plots.synthetic import CPU, H100, Machine, ceilings, row

IMPORTED = {"low_s": None, "high_s": None, "run_half": None, "source": "somebody", "settled": None}
BYTE_PER_S = 3.352e12
"""That the datasheet of an H100 states."""


@pytest.mark.parametrize("kind", KINDS)
def test_every_word_of_every_test(kind: str, chance: Chance) -> None:
    """The same rows, claims that expect something else of them."""
    rows, of = list(KINDS[kind][0](chance)), truth(kind)
    # In a few draws of a hundred the interval does not hold the truth; what the rows show it always does.
    seen = judged(claim(kind, "above 0"), rows).effect.value
    words = {
        "SUPPORTED": claim(kind, f"above {of * 0.7:.4f}"),
        "CONTRADICTED": claim(kind, f"below {of * 0.7:.4f}"),
        "UNDECIDED": claim(kind, f"above {seen:.6f}"),
        "TOO FEW": claim(kind, f"above {of * 0.7:.4f}", least=999),
        "NOT MEASURED": claim(kind, "above 1", where={"m": 77}),
        "NOT APPLICABLE": claim(kind, "above 1", device={"kind": "cpu"}),
    }
    found = dict(zip(words, judged(list(words.values()), rows), strict=True))
    assert {word: each.verdict for word, each in found.items()} == {word: word for word in words}
    for word in ("SUPPORTED", "CONTRADICTED", "UNDECIDED"):
        effect = found[word].effect
        assert effect.low < effect.value < effect.high and effect.value == pytest.approx(of, rel=0.02)
        # The middle of the lines, whose range follows from 0.2 % of noise; of a share its 95 % interval.
        assert effect.high - effect.low < (0.13 if kind == "share" else 0.03)
    lines = found["SUPPORTED"].effect.lines
    counts = {word: (each.effect.holding, each.effect.failing) for word, each in found.items() if each.effect}
    assert (counts["SUPPORTED"], counts["CONTRADICTED"]) == ((lines, 0), (0, lines))
    assert sum(counts["UNDECIDED"]) < lines / 4
    assert found["TOO FEW"].reason == f"{lines} of 999"
    assert found["NOT MEASURED"].reason == "no such rows"
    assert found["NOT APPLICABLE"].reason == "about cpu devices"


@pytest.mark.parametrize(
    ("expect", "answer"),
    [
        *(("between 1 and 2", True), ("outside 1 and 2", False), ("outside 0.5 and 1", True)),
        *(("between 1.5 and 2", False), ("between 1.25 and 2", None), ("outside 1.25 and 2", None)),
    ],
)
def test_ranges_are_judged_at_both_ends(expect: str, answer: bool | None) -> None:
    """Of an effect whose interval is 1.2 to 1.3."""
    assert claim("ratio", expect).expected.answer(1.2, 1.3) is answer


def test_rows_in_doubt_are_left_out_and_counted(chance: Chance) -> None:
    rows = list(KINDS["ratio"][0](chance))
    spoilt = again(rows[:30], median_s=9.0, low_s=9.0, high_s=9.0, settled=False)
    found = judged(claim("ratio", "above 1.1"), [*spoilt, *rows[30:]])
    assert (found.verdict, found.suspect) == ("SUPPORTED", 30) and found.effect.high < 1.3
    none = judged(claim("ratio", "above 1.1"), again(rows, settled=False))
    assert (none.verdict, none.reason, none.suspect) == ("TOO FEW", "0 of 3", len(rows))


def test_pairs_that_share_a_row_and_runs_that_repeat_a_case_are_one_line() -> None:
    def twice(rows: list[Measurement]) -> list[Measurement]:
        return [*rows, *again((*ceilings(H100), *rows), run_id="later")]

    rows = [timed(1.0 + 0.1 * (k != 4096), k=k) for k in range(4090, 4101)]
    for made in (rows, twice(rows)):
        few = judged(claim("ratio", "above 1"), made)
        assert (few.verdict, few.reason) == ("TOO FEW", "1 of 3")
    rows += [timed(1.0 + 0.1 * (k != 4104), k=k) for k in range(4101, 4108)]
    of = [judged(claim("ratio", "above 1", least=2), made).effect for made in (rows, twice(rows))]
    assert [each.lines for each in of] == [2, 2]
    lines = [timed(1e-3 * m * n, m=m, n=n) for m in (1024, 2048) for n in (1024, 2048)]
    slope = judged(claim("slope", "above 0.9", least=2), twice(lines))
    assert (slope.verdict, str(slope.effect)) == ("SUPPORTED", "2 of 2 lines: time ~ n^1.00")


def test_rows_of_two_runs_are_no_pair() -> None:
    rows = [timed(1.0, k=k, run_id="a" if k % 8 else "b") for k in range(4000, 4100)]
    probes = [each for name in "ab" for each in again(ceilings(H100), run_id=name)]
    assert judged(claim("ratio", "above 1"), [*probes, *rows]).verdict == "NOT MEASURED"


def products(slower: float, half: float, **facts: Any) -> list[Measurement]:
    """Four lines of products of which those of an odd K are slower; each row is known to `half`."""
    odd = [(m, k) for m in (512, 1024, 2048, 4096) for k in (4095, 4096)]
    return [timed(1e-6 * k * (slower if k % 8 else 1), m=m, k=k, half=half, **facts) for m, k in odd]


@pytest.mark.parametrize(("half", "verdict"), [(0.005, "SUPPORTED"), (0.3, "UNDECIDED")])
def test_a_line_is_as_well_known_as_its_rows_within_the_run(half: float, verdict: str) -> None:
    """However well lines agree; what moves the whole run is in none of them."""
    found = judged(claim("ratio", "above 1.03"), products(1.1, half, noise_visits=0.3, noise_runs=0.3))
    assert (found.verdict, found.effect.lines) == (verdict, 4)


@pytest.mark.parametrize(("expect", "verdict"), [("above 1.3", "CONTRADICTED"), ("above 1.05", "UNDECIDED")])
def test_half_of_the_lines_refute_a_claim_about_all_and_do_not_support_it(expect: str, verdict: str) -> None:
    """Two lines of four are sure, by rows that are well known; of the others anything may be."""
    known, vague = products(1.15, 0.002), products(1.15, 0.5)
    found = judged(claim("ratio", expect), [*known[:4], *vague[4:]])
    assert (found.verdict, found.effect.lines, found.effect.decided) == (verdict, 4, 2)


def test_a_claim_that_holds_in_some_lines_says_where_not() -> None:
    """Of lines along K, those of large products take time in proportion to it."""
    sizes = list(itertools.product((512, 1024, 2048, 4096), (512, 1024, 2048)))
    rows = [timed(1e-6 * k ** (1.0 if m >= 2048 else 0.7), m=m, n=m, k=k) for m, k in sizes]
    asked_of = [asked(expect, slope={"x": "k"}) for expect in ("below 0.9", "above 0.65", "above 1.2")]
    some, every, none = judged(asked_of, rows)
    assert [each.verdict for each in (some, every, none)] == ["PARTLY", "SUPPORTED", "CONTRADICTED"]
    assert str(some.effect) == "2 of 4 lines: time ~ k^0.70 to ^1.00; not at m = n of 2048 and more"
    assert (str(every.effect), str(none.effect)) == (
        "4 of 4 lines: time ~ k^0.70 to ^1.00", "0 of 4 lines: time ~ k^0.70 to ^1.00"
    )  # fmt: skip
    most = judged(asked("above 0.9", slope={"x": "k"}, where={"m": [512, 1024, 4096]}), rows)
    assert most.verdict == "CONTRADICTED" and str(most.effect).endswith("; only at m = n of 4096 and more")


def test_a_line_that_is_off_by_chance_does_not_undo_a_rule() -> None:
    """One of forty is 3.5 of its standard errors on the wrong side; one that is 20 off is told."""
    for off, verdict in ((3.5, "SUPPORTED"), (20.0, "PARTLY")):
        rows = []
        for m in range(256, 256 * 41, 256):
            slower = math.exp(-off * 0.02 / 2.78) if m == 512 else 1.2
            rows += [timed(1e-6, m=m, k=4096, half=0.0), timed(1e-6 * slower, m=m, k=4095, half=0.02)]
        found = judged(asked("above 1", ratio={"of": {"k": 4095}, "to": {"k": 4096}}), rows)
        assert found.verdict == verdict and found.effect.holding == 39
        assert found.effect.exceptions == ("not at m 512" if verdict == "PARTLY" else "")


def test_many_lines_of_which_none_is_sure_are_counted_together() -> None:
    def found(lines: int) -> Any:
        sizes = itertools.product(range(512, 512 + 8 * lines, 8), (4095, 4096))
        rows = [timed(1e-6 * (1.06 if k % 8 else 1.0), m=m, k=k, half=0.04) for m, k in sizes]
        return judged(claim("ratio", "above 1.03"), rows)

    few, many = found(3), found(24)
    assert (few.verdict, few.effect.holding) == ("UNDECIDED", 0)
    assert many.verdict == "SUPPORTED" and 8 < many.effect.holding < 24


def test_a_row_above_a_roof_is_in_doubt_only_where_rows_are_held_against_it() -> None:
    """A large cache holds data that were to come from memory: the time is right all the same."""
    (roofs,) = runs(ceilings(H100))
    made = [timed(1.0, m=m, n=n) for m in (4096, 8192, 16384) for n in (8, 16)]
    memory_s = [row_terms(each, roofs.roof_of(each))[1] for each in made]
    quick = [each for row, s in zip(made, memory_s, strict=True) for each in again([row], median_s=0.5 * s)]
    assert all("above_roof" in roofs.flags_of(each) for each in quick)
    claims = [asked("above 0.5", slope={"x": "m"}, least=2), asked("below 1", bound={"by": "memory"})]
    slope, bound = judged(claims, quick)
    assert (slope.verdict, slope.suspect) == ("SUPPORTED", 0)
    assert (bound.suspect, bound.reason) == (6, "0 of 3")


def test_imported_rows_have_the_usual_spread_or_that_of_their_lines_and_the_roof_of_the_datasheet() -> None:
    def foreign(*slower: float) -> list[Measurement]:
        sizes = [(512 * (place + 1), k) for place in range(len(slower)) for k in (4095, 4096)]
        made = [timed(1e-6 * k * (slower[m // 512 - 1] if k % 8 else 1.0), m=m, k=k) for m, k in sizes]
        return again(made, **IMPORTED)

    theirs = again(ceilings(H100), source="somebody")
    asked_of = [claim("ratio", "above 1.1"), claim("bound", "above 0")]
    rows = foreign(1.3, 1.5, 1.9)
    found, over = judged(asked_of, rows, roofs=theirs)
    assert found.imported and (found.verdict, found.effect.lines) == ("SUPPORTED", 3)
    assert str(found.effect) == "3 of 3 pairs: 1.3 to 1.9 times (±2.8 % assumed)", "2 % of each of two rows"
    alike = judged(claim("ratio", "above 1.1"), foreign(1.12, 1.121, 1.122), roofs=theirs)
    assert (alike.verdict, alike.effect.assumed) == ("SUPPORTED", 0.0), "they differ by less than is usual"
    logs = [math.log((each.median_s or 0) / each.byte * BYTE_PER_S) for each in rows]
    assert over.effect.value == pytest.approx(math.exp(float(np.median(logs))))


def test_how_rows_are_paired() -> None:
    sizes = itertools.product((512, 1024, 2048), (512, 1024, 1056))
    rows = [timed(1e-6 * n * (2 if m == n else 1), m=m, n=n) for m, n in sizes]
    ask = {
        "one dimension doubled": {"pair": "x2 n"},
        "two dimensions doubled together": {"pair": "x2 m=n"},
        "two dimensions, by flop": {"pair": "x2 m=n", "per": "flop"},
        "nearest": {"of": {"n": 1056}, "to": {"n": [512, 1024]}, "pair": "nearest n"},
        "equal but for the columns named": {"of": {"n": 1056}, "to": {"n": [512, 1024]}},
        "of the SMs": {"of": {"n": {"per_sm": 8}}, "to": {"n": {"per_sm": 7, "plus": 100}}},
        "times another column": {"of": {"n": "x2 m"}, "to": {"n": "x1 m"}},
        "bytes": {"of": {"n": "%64B >1024"}, "to": {"n": 1024}},
    }
    claims = [asked("above 0.5", ratio=how, least=2) for how in ask.values()]
    found = dict(zip(ask, judged(claims, rows), strict=True))
    assert {name: each.effect.lines if each.effect else each.reason for name, each in found.items()} == {
        "one dimension doubled": 3,
        "two dimensions doubled together": 2,
        "two dimensions, by flop": 2,
        "nearest": 3,
        "equal but for the columns named": 6,
        "of the SMs": 3,
        "times another column": "1 of 2",
        "bytes": 3,
    }
    # 2 x the size takes 2, 1 and 4 times as long: into the diagonal, out of it, past it.
    doubled = found["one dimension doubled"].effect
    assert (doubled.low, doubled.value, doubled.high) == pytest.approx((1, 2, 4))


def test_what_is_nearest_has_two_sides() -> None:
    rows = [timed(1e-6 * n, n=n) for n in (512, 1024, 2048)]
    with pytest.raises(UserError, match="`of` and `to` that no row is in both of"):
        judged(asked("above 0", ratio={"of": {"n": "%512"}, "to": {"n": "%1024"}, "pair": "nearest n"}), rows)


def test_an_only_neighbour_is_one_pair_and_two_that_are_as_near_are_two() -> None:
    found = claim_rows(runs([timed(1e-6 * n, n=n) for n in (512, 1024, 2048)]))
    for of, to, pairs in ((512, 1024, [0, 1]), (2048, 1024, [2, 1]), (1024, [512, 2048], [1, 0, 1, 2])):
        ratio = {"of": {"n": of}, "to": {"n": to}, "pair": "nearest n"}
        seen, _ = both_sides(asked("above 0", ratio=ratio), found)
        assert seen.rows.tolist() == pairs


def test_rows_of_no_common_size_are_paired_within_a_bound_of_every_dimension() -> None:
    """Time is 1 us for each of m, times 1.2 where 8 does not divide k; each k has its own m and n."""

    def found(reach: str, rows: list[Measurement], of: Any, to: Any, **more: Any) -> Any:
        how = {"of": {"k": of}, "to": {"k": to}, "pair": reach} | more
        return judged(asked("above 0", ratio=how), rows).effect

    rows = []
    for step in range(12):
        k = 1024 + 80 * step
        m, n = 512 + 16 * step, 2048 - 32 * step
        rows.append(timed(1e-6 * m, m=m, n=n, k=k))
        rows.append(timed(1.2e-6 * (m + 4), m=m + 4, n=n + 4, k=k + 1))  # near in every dimension
        rows.append(timed(9e-6 * m, m=m, n=64, k=k + 1))  # the same m, and n far away
    for reach in ("within 5% m=n=k", "within 99% m=n=k"):
        near = found(reach, rows, "!%8", "%8", per="m")
        assert near.lines == 12 and near.value == pytest.approx(1.2), reach
    assert found("within 99% m=k", rows, "!%8", "%8", per="m") is None
    # Every dimension a quarter larger; what is 0 is no dimension that rows could be alike in.
    apart = [
        timed(1e-3, m=m * by // 4, n=n * by // 4, k=16 * by, beta=beta)
        for m, n in ((64, 64), (128, 96), (256, 160))
        for by in (4, 5)
        for beta in (0, 1)
    ]
    assert found("within 24% beta=m=n=k", apart, 80, 64) is None
    assert found("within 25% beta=m=n=k", apart, 80, 64).lines == 3


def test_a_pair_of_exchanged_dimensions_counts_once() -> None:
    sizes = itertools.product((256, 512, 1024), repeat=2)
    rows = [timed(1e-3 * (1.5 if m > n else 1.0), m=m, n=n) for m, n in sizes]
    found = judged(asked("between 0.9 and 1.1", ratio={"pair": "swap m=n"}), rows)
    assert found.verdict == "CONTRADICTED" and found.effect.value == pytest.approx(1.5)
    assert found.effect.lines == 3


def test_a_claim_may_compare_two_operators() -> None:
    rows = [
        timed(1e-6 * m * slower, m=m, operator=operator)
        for m in (512, 1024, 2048)
        for operator, slower in (("gemm", 1.0), ("other", 1.3))
    ]
    ratio = {"of": {"operator": "other"}, "to": {"operator": "gemm"}}
    assert judged(asked("above 1.2", ratio=ratio), rows).verdict == "SUPPORTED"


def test_imported_rows_without_a_launch_floor_are_near_memory_or_arithmetic() -> None:
    rows = []
    for number, m in enumerate(range(4096, 8192, 128)):
        product = timed(1.0, m=m, n=8, k=8192)
        seconds = product.byte / BYTE_PER_S * (3 if number % 4 == 0 else 1.1)
        rows += again([product], median_s=seconds, **IMPORTED)
    found = judged(asked("above 0.5", share={"of": {"measured_bound_by": "memory"}}), rows, roofs=())
    assert found.verdict == "SUPPORTED", (found.reason, found.suspect)
    assert found.effect.value == 0.75


@pytest.mark.parametrize(
    ("power_w", "quickest", "verdict"),
    [(700, 1.2, "CONTRADICTED"), (700, 1.6, "NOT MEASURED"), (72, 1.2, "NOT MEASURED")],
)
def test_a_peak_that_a_card_does_not_reach_contradicts_nothing(
    power_w: float, quickest: float, verdict: str
) -> None:
    """Products take 2.5 times the datasheet's time; one that is near it shows that a card can have it."""
    products = [timed(1.0, m=m, n=4096, k=4096) for m in range(4096, 8192, 512)]
    slower = [quickest, *[2.5] * (len(products) - 1)]
    sheet = find_datasheet(products[0].device_name)
    assert sheet is not None
    peak = sheet.peak_flop_per_s("matrix", "float16") or 0.0
    rows = [
        each
        for product, by in zip(products, slower, strict=True)
        for each in again([product], median_s=by * product.flop / peak, **IMPORTED)
    ]
    (run,) = runs(rows)
    run = dataclasses.replace(run, datasheet=dataclasses.replace(sheet, power_w=power_w))
    (found,) = judge([run], [Declared(SWEEP, (SWEEP,), [asked("below 1.5", bound={"by": "compute"})])])
    assert found.verdict == verdict, (found.reason, found.effect)


def test_less_divides_one_ratio_by_another() -> None:
    gain = {4096: 1.2, 8192: 1.05}
    rows = [
        timed(1e-6 * k * (by if k % 8 else 1.0), m=m, k=k)
        for around, by in gain.items()
        for m in (256, 512, 1024, 2048)
        for k in (around, around + 1)
    ]
    small, large = (
        {"of": {"k": f"!%8 {size}"}, "to": {"k": f"%8 {size}"}, "pair": "nearest k", "per": "k"}
        for size in ("<6000", ">6000")
    )
    less = asked("above 1.01", ratio=small | {"less": large})
    found = judged(less, rows)
    assert found.verdict == "SUPPORTED" and found.effect.value == pytest.approx(1.2 / 1.05)
    assert found.effect.lines == 4
    half = judged(less, rows[:-4])
    assert (half.verdict, half.reason) == ("TOO FEW", "2 of 3")


def test_a_claim_asks_which_term_of_the_roofline_the_time_is_near() -> None:
    """A quarter of the rows take three times what memory takes, which is what the roofline names for all."""
    (roofs,) = runs(ceilings(H100))
    rows = []
    for number, m in enumerate(range(4096, 14336, 128)):
        product = timed(1.0, m=m, n=8)
        memory_s = row_terms(product, roofs.roof_of(product))[1]
        rows.append(timed(memory_s * (3 if number % 4 == 0 else 1.1), m=m, n=8))
    selections = {
        "predicted": {"bound_by": "memory"},
        "near": {"measured_bound_by": "memory"},
        "near none": {"measured_bound_by": "none"},
        "as predicted": {"as_predicted": True},
    }
    claims = [asked("above 0.5", share={"of": select}) for select in selections.values()]
    found = dict(zip(selections, judged(claims, rows), strict=True))
    assert {name: each.effect.value for name, each in found.items()} == {
        "predicted": 1.0, "near": 0.75, "near none": 0.25, "as predicted": 0.75
    }  # fmt: skip
    # No ceiling of its type was measured, or a cache served it: of that the terms say nothing.
    small = timed(1e-6, m=512, n=512, k=512, cache="warm", ring_byte=10**6)
    known = asked("above 0.5", where={"as_predicted": [True, False]}, share={"of": {"as_predicted": True}})
    assert judged(known, [*again(rows[:1], dtype="float8_e4m3"), small]).verdict == "NOT MEASURED"


def test_a_claim_holds_products_against_the_formula_at_the_clock_that_they_ran_at() -> None:
    """H100, float16: 2048 FMA per clock and SM. Half of the SMs, as of a MIG slice, are half the rate."""
    formula = asked("above 1", bound={"by": "formula"})
    flop_per_clock = 132 * 2048 * 2
    rows = [
        timed(2 * m * 4096 * 4096 / (flop_per_clock * hertz) * 1.25, m=m, sm_clock_hz=hertz)
        for m, hertz in ((2048, 1.2e9), (4096, 1.35e9), (8192, 1.5e9))
    ]
    whole = judged(formula, rows)
    assert (whole.verdict, whole.effect.lines) == ("SUPPORTED", 3)
    assert whole.effect.value == pytest.approx(1.25)
    assert judged(formula, again(rows, sm_count=66)).verdict == "CONTRADICTED"
    assert judged(formula, again(rows, sm_clock_hz=None)).verdict == "NOT MEASURED"


def test_a_column_of_tiles_is_flat_where_it_is_and_waves_are_counted_by_tiles() -> None:
    waves = [
        timed(1e-4 * -(-2 * -(-n // 128) // 132), "triton-256x128", m=512, n=n)
        for n in range(7936, 25000, 128)
    ]
    claims = [
        asked("above 1.1", jumps={"x": "n", "every": "wave", "of": of}, least=2)
        for of in ("across", "within")
    ]
    across, within = judged(claims, waves)
    assert across.effect.value == pytest.approx(math.sqrt(2 * 1.5)) and across.effect.lines == 2
    assert within.effect.value == pytest.approx(1.0) and within.verdict == "CONTRADICTED"
    free = judged(claim("jumps", "above 1"), again(waves, implementation="cublas"))
    assert free.verdict == "NOT MEASURED", "nobody knows the tile of a library that chooses it"


TEXT = """title: A sweep
source: {document: A guide}
operator: gemm
implementations: [cublas, onednn]
cases:
  - {m: 64, n: 64, k: [1, 2, 8, 16], dtype: float32}
claims:
  - id: MM-01
    says: x
    where: {implementation: cublas}
    ratio: {of: {k: "!%8"}, to: {k: "%8"}}
    expect: above 1
  - id: MM-02
    says: x
    where: {implementation: onednn}
    ratio: {of: {k: 1}, to: {k: 2}}
    expect: above 1
  - {id: MM-03, says: x, device: {capability: ">=10.0"}, slope: {x: k}, expect: above 1}
"""


def test_what_was_not_measured_is_named_and_what_cannot_run_does_not_apply(tmp_path: Path) -> None:
    path = tmp_path / "gemm" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(TEXT)
    sweep, cases = load(path, kernels.problem, 132, root=tmp_path)
    found = judged(list(sweep.claims), [], cases)
    assert [(each.verdict, each.reason) for each in found] == [
        ("NOT MEASURED", f"4 of 4 cases have no time, such as {cases[0].name}"),
        ("NOT APPLICABLE", "onednn runs on cpu, not on cuda"),
        ("NOT APPLICABLE", "about compute capability >=10.0; this device has 9.0"),
    ]
    some = [row(H100, SWEEP, case.problem, "cublas") for case in cases[:6] if case.implementation == "cublas"]
    few = judged(sweep.claims[0], some, cases)
    assert few.verdict == "TOO FEW"
    assert few.reason == f"1 of 3; 1 of 4 cases have no time, such as {cases[6].name}"


NVJET = "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT grid 132x1x1 block 384"
PARTS = ("contraction_s", "normalization_s", "elementwise_s")
PERSISTENT = "RNN_blockPersist_fp_LSTM grid 64x1x1 block 256"
WITH_CLAIMS = [path for path in sorted(SWEEPS.rglob("*.yaml")) if "\nclaims:" in path.read_text()]


@pytest.mark.parametrize("machine", [H100, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("path", drawn(WITH_CLAIMS, 8, "claims of our sweeps"), ids=lambda path: path.stem)
def test_a_sweep_that_is_measured_whole_decides_its_claims(path: Path, machine: Machine) -> None:
    """None is TOO FEW or NOT MEASURED where each of its cases takes what the roofline says."""
    name = path.relative_to(SWEEPS).with_suffix("").as_posix()
    sweep, cases = load(path, kernels.problem, machine.facts["sm_count"])
    kind = machine.facts["device_kind"]
    clock_hz = 1.7e9 if kind == "cuda" else None
    ours = load(SWEEPS / "ceilings" / "fma.yaml", kernels.problem, machine.facts["sm_count"]).cases
    made = [row(machine, each.sweep, each.problem, each.implementation) for each in ours if kind == "cuda"]
    known = [*ceilings(machine), *made]
    (roofs,) = runs(known)

    def as_predicted(made: Measurement) -> Measurement:
        predicted = calibrated_row(made, roofs.roof_of(made))
        seconds = 1.02 * (predicted.seconds if predicted else made.median_s or 1.0)
        parts = dict.fromkeys(PARTS if made.operator == "layer" else (), seconds / len(PARTS))
        peak_byte = 2**20 if made.operator == "training" else None
        times = {"median_s": seconds, "low_s": seconds * 0.995, "high_s": seconds * 1.005}
        return dataclasses.replace(made, peak_byte=peak_byte, sm_clock_hz=clock_hz, **times, **parts)

    kernels_of = {("recurrent", "cudnn"): PERSISTENT}
    rows = []
    for case in cases:
        if not case.missing(kind, (9, 0)):
            names = kernels_of.get((sweep.operator, case.implementation), NVJET)
            facts = {"cache": case.cache, "kernels": names}
            rows.append(as_predicted(row(machine, name, case.problem, case.implementation, **facts)))
    if not rows:
        assert kind == "cpu"
        return
    (run,) = runs([*known, *rows])
    run = dataclasses.replace(run, datasheet=find_datasheet(run.device_name))
    for each in judge([run], [Declared(name, (name,), sweep.claims, cases)]):
        assert each.verdict not in ("TOO FEW", "NOT MEASURED"), (each.claim.id, each.reason)
        elsewhere = kind == "cpu" or not each.claim.device.include(kind, (9, 0))
        assert each.verdict != "NOT APPLICABLE" or elsewhere, (each.claim.id, each.reason)


def test_memory_is_judged_whatever_made_times_doubtful() -> None:
    """The exponent and the ratio of peak_byte, of rows whose times are noise and flagged; none without it."""
    made = [
        timed(10.0**place, m=m, k=k, n=64, peak_byte=m * per_m, settled=False)
        for k, per_m in ((64, 1000), (128, 2000))
        for place, m in enumerate((64, 256, 1024))
    ]
    of_k = {"of": {"k": 128}, "to": {"k": 64}, "y": "peak_byte"}
    for about in (
        asked("between 0.9 and 1.1", slope={"x": "m", "of": "peak_byte"}, least=2),
        asked("between 1.9 and 2.1", ratio=of_k, least=2),
    ):
        found = judged(about, made)
        assert (found.verdict, found.suspect) == ("SUPPORTED", 0)
        assert judged(about, again(made, peak_byte=None)).verdict != "SUPPORTED"
