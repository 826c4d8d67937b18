"""Accuracy on the committed sample of public timings, and one device told from another's calibration."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest

from bench.device.datasheet import Datasheet, datasheets, find_datasheet
from bench.errors import UserError
from bench.judge import frame as judged
from bench.judge.frame import known_runs, read
from bench.model import tile_wave
from bench.model.calibrated_runs import MOST, Errors, Known, nearest, transfers
from bench.model.calibration import Calibration
from bench.model.ceilings import Ceiling, Ceilings
from bench.model.predict import products
from bench.model.roofline import calibrated_columns, datasheet_s, traffic
from bench.model.scale_to_device import dtype_on, transferred, transferred_ceilings
from bench.runner.session import RESULTS
from kernels.gemm.problem import Gemm
from tests.bench.machines import bfloat16, framed, machine, sizes, timed
from tests.bench.rows import Chance

PUBLIC = RESULTS / "reference" / "public"

MOST_OFF = {
    **{"a100_sxm4_80gb": 0.115, "b200": 0.083, "b300": 0.089, "gb200": 0.125, "gb300": 0.083},
    **{"h100_sxm5": 0.060, "h200": 0.064, "l40s": 0.140, "rtx_pro_6000_server": 0.129},
}
"""Device -> mean error of L2 on its 300 shapes that no fit saw, a tenth above what it was at first:
0.104, 0.075, 0.080, 0.113, 0.075, 0.055, 0.058, 0.128, 0.117."""


@pytest.fixture(scope="module")
def runs() -> dict[str, Known]:
    """The devices of the sample by the names of their datasheets' files."""
    return {one.sheet.slug: one for one in known_runs(read([PUBLIC]), find_datasheet)}


def by_slug(slug: str) -> Datasheet:
    (found,) = (sheet for sheet in datasheets() if sheet.slug == slug)
    return found


# ---- how far off the levels are


def test_every_device_of_the_sample_is_known(runs: dict[str, Known]) -> None:
    assert set(runs) == set(MOST_OFF)
    for one in runs.values():
        assert one.imported.startswith("aiconfigurator-core") and one.device_name in one.sheet.match
        plain, fitted = one.calibrations
        assert (plain.fitted, fitted.fitted, fitted.shapes) == (False, True, 64)
        assert one.unfitted == plain and one.device_name in fitted.said and one.run_id in fitted.said


@pytest.mark.parametrize("slug", MOST_OFF)
def test_each_level_is_nearer_than_the_one_before(slug: str, runs: dict[str, Known]) -> None:
    one = runs[slug]
    rows = one.rows[one.rows["role"] == "measurement"]
    measured_s = rows["median_s"].to_numpy()
    units = rows["arithmetic"], rows["dtype"]
    counts = zip(rows["flop"], rows["byte"], *units, strict=True)
    stated = np.array([datasheet_s(*some, one.sheet) for some in counts], dtype=float)
    columns = (rows[name] for name in ("byte_moved", "byte_again", "moved_written", "cache_byte"))
    roofline, _ = calibrated_columns(rows["flop"], *traffic(*columns), *units, one.ceilings)
    first, second = (Errors.of(predicted_s, measured_s).mape for predicted_s in (stated, roofline))
    plain, fitted = (one.errors(by) for by in one.calibrations)
    assert plain and fitted and plain.n == fitted.n == len(rows) == 300
    assert fitted.mape < plain.mape < second < first
    assert fitted.mape <= MOST_OFF[slug]
    if slug in ("h100_sxm5", "h200"):
        assert fitted.mape <= 0.09 and plain.mape < 0.12
    assert 0.9 < fitted.ratio < 1.1


def test_hopper_to_hopper(runs: dict[str, Known]) -> None:
    """6.2 % and 5.6 % when this was written."""
    for there, back in itertools.permutations(("h100_sxm5", "h200")):
        found = transfers([runs[back]], runs[there])
        assert found[runs[back].device_name].mape < 0.10


# ---- scaling


def own(sheet: Datasheet, of: tile_wave.Machine, dtype: str = "float16") -> Calibration:
    """A calibration as if from this device; its peaks a tenth below those stated."""
    peaks = {kind: sheet.peak_flop_per_s("matrix", kind) for unit, kind in sheet.rates if unit == "matrix"}
    kept = {kind: 0.9 * per_s for kind, per_s in peaks.items() if per_s}
    here = dataclasses.replace(of, sm_count=sheet.sm_count, cache_byte=sheet.l2_byte)
    return Calibration(here, dtype, kept, fitted=True, shapes=64, said="there")


def cuda() -> list[Datasheet]:
    """Those whose file states what scaling needs; that of a new GPU may not yet."""
    stated = [sheet for sheet in datasheets() if sheet.capability and sheet.bandwidth_byte_per_s]
    return [sheet for sheet in stated if sheet.peak_flop_per_s("matrix", "float16")]


def test_to_itself_it_is_as_it_was(chance: Chance) -> None:
    for sheet in cuda():
        before = own(sheet, machine(chance))
        after = transferred(before, sheet, sheet)
        assert after.peaks == pytest.approx(before.peaks)
        assert dataclasses.asdict(after.machine) == pytest.approx(dataclasses.asdict(before.machine))
        assert after.dtype == before.dtype


def test_there_and_back_again(chance: Chance) -> None:
    for _ in range(30):
        a, b = chance.choice(np.array(cuda(), dtype=object), 2, replace=False)
        before = own(a, machine(chance))
        after = transferred(transferred(before, a, b), b, a)
        for field in dataclasses.fields(tile_wave.Machine):
            name = field.name
            assert getattr(after.machine, name) == pytest.approx(getattr(before.machine, name)), name
        shared = {kind for kind in before.peaks if b.peak_flop_per_s("matrix", kind)}
        assert after.peaks == pytest.approx({kind: before.peaks[kind] for kind in shared})


def test_a_device_twice_as_large_in_everything_by_hand(chance: Chance) -> None:
    sheet = by_slug("h100_sxm5")
    rates = {
        key: rate.model_copy(update={"flop_per_s": 6 * rate.flop_per_s if rate.flop_per_s else None})
        for key, rate in sheet.rates.items()
    }
    sizes_of = {"sm_count": 2 * sheet.sm_count, "l2_byte": 7 * sheet.l2_byte}
    bandwidth = 5 * (sheet.bandwidth_byte_per_s or 0)
    wanted = dataclasses.replace(sheet, name="X", rates=rates, bandwidth_byte_per_s=bandwidth, **sizes_of)
    before = own(sheet, machine(chance))
    after = transferred(before, sheet, wanted)
    of, to = before.machine, after.machine
    assert dataclasses.asdict(to) == pytest.approx(
        {
            "sm_count": 264,
            "cache_byte": 7 * sheet.l2_byte,
            "flop_per_s": 6 * of.flop_per_s,
            "byte_per_s": 5 * of.byte_per_s,
            "cached_byte_per_s": 5 * of.cached_byte_per_s,
            "sm_byte_per_s": 2.5 * of.sm_byte_per_s,  # five times as much for twice as many
            "step_s": of.step_s / 3,  # an SM multiplies three times as fast
            **{name: getattr(of, name) for name in ("launch_s", "tile_s", "split_s", "tail", "beside")},
        }
    )
    assert (after.fitted, after.shapes, after.said) == (True, 64, "there")
    tensor = {kind for (unit, kind), rate in sheet.rates.items() if unit == "matrix" and rate.flop_per_s}
    times = {kind: 6 if kind in tensor or kind == "float32" else 1 for kind in before.peaks}
    assert after.peaks == pytest.approx({kind: s * times[kind] for kind, s in before.peaks.items()})


def test_more_of_everything_is_quicker(chance: Chance) -> None:
    """An H200 is an H100 with quicker memory and more cache; a B200 is beyond both."""
    h100, h200, b200 = (by_slug(slug) for slug in ("h100_sxm5", "h200", "b200"))
    of = own(h100, machine(chance))
    some = bfloat16(sizes(chance, 200))
    times = [tile_wave.predict(transferred(of, h100, one).machine, some).seconds for one in (h100, h200)]
    assert (times[1] <= times[0] * (1 + 1e-12)).all() and (times[1] < times[0]).any()
    large = bfloat16(np.array([2**14, 2**14, 2**13]))
    before, after = (tile_wave.predict(transferred(of, h100, one).machine, large) for one in (h100, b200))
    assert after.seconds[0] < before.seconds[0]


def test_a_device_without_the_type_goes_by_float16(chance: Chance) -> None:
    h100, v100, a100 = (by_slug(slug) for slug in ("h100_sxm5", "v100_sxm2_16gb", "a100_sxm4_80gb"))
    assert [dtype_on("bfloat16", one) for one in (h100, v100, a100)] == ["bfloat16", "float16", "bfloat16"]
    of = machine(chance)
    after = transferred(own(h100, of, "bfloat16"), h100, v100)
    assert after.dtype == "float16" and "bfloat16" not in after.peaks
    # As if it had been calibrated by float16, whose rate is that of bfloat16.
    ratio = v100.peak_flop_per_s("matrix", "float16") / 989.4e12  # type: ignore[operator]
    assert after.machine.flop_per_s == pytest.approx(of.flop_per_s * ratio, rel=1e-3)
    assert after.of("float16") is after
    says = "H100 SXM5 80 GB: its calibration is of float8_e4m3, which NVIDIA A100"
    with pytest.raises(UserError, match=says):
        transferred(own(h100, of, "float8_e4m3"), h100, a100)


@pytest.mark.parametrize("lacking", ["peak", "bandwidth"])
def test_what_a_datasheet_does_not_state_is_named(lacking: str, chance: Chance) -> None:
    sheet = by_slug("h100_sxm5")
    lacks: dict[str, Any] = {"peak": {"rates": {}}, "bandwidth": {"bandwidth_byte_per_s": None}}[lacking]
    poor = dataclasses.replace(sheet, name="Poor", **lacks)
    before = own(sheet, machine(chance))
    for measured, wanted in ((sheet, poor), (poor, sheet)):
        with pytest.raises(UserError, match=f"^Poor: its datasheet states no {lacking}"):
            transferred(before, measured, wanted)


def test_ceilings_scale_alike() -> None:
    def of(per_s: float) -> Ceiling:
        return Ceiling(per_s, 0.9 * per_s, 1.1 * per_s, "a row")

    h100, v100 = by_slug("h100_sxm5"), by_slug("v100_sxm2_16gb")
    kinds = (("matrix", "float16"), ("matrix", "bfloat16"), ("vector", "float32"), ("vector", "int8"))
    before = Ceilings(
        launch_s=2e-6,
        peak_flop_per_s={kind: of(1e14) for kind in kinds},
        bandwidth_byte_per_s={0.0: of(3e12), 0.5: of(2.9e12)},
        cached={2**20: of(5e12), 2**25: of(7e12)},
    )
    after = transferred_ceilings(before, h100, v100)
    memory = 0.9 / 3.352
    assert after.launch_s == 2e-6
    assert set(after.peak_flop_per_s) == {("matrix", "float16"), ("vector", "float32")}
    assert after.peak("matrix", "float16") == pytest.approx(1e14 * 125 / 989.4)
    assert after.peak("vector", "float32") == pytest.approx(1e14 * 15.7 / 66.9)
    assert {s: c.per_s for s, c in after.bandwidth_byte_per_s.items()} == pytest.approx(
        {0.0: 3e12 * memory, 0.5: 2.9e12 * memory}
    )
    # Working sets move with the cache: 6 of 50 MiB.
    assert {held: c.per_s for held, c in after.cached.items()} == pytest.approx(
        {round(2**20 * 0.12): 5e12 * memory, round(2**25 * 0.12): 7e12 * memory}
    )
    one = after.bandwidth_byte_per_s[0.0]
    assert (one.low_per_s, one.high_per_s) == pytest.approx((0.9 * one.per_s, 1.1 * one.per_s))


# ---- which run


def test_its_own_run_comes_first_and_ours_before_others(runs: dict[str, Known]) -> None:
    for slug, one in runs.items():
        others = [other for name, other in runs.items() if name != slug]
        ours = dataclasses.replace(one, imported="", run_id="ours")
        for given in ([*others, one, ours], [ours, one, *others]):
            found = nearest(given, one.sheet)
            assert found and found.run_id == "ours"
        # An imported run of the device itself comes before our own of any other.
        measured = [dataclasses.replace(other, imported="") for other in others]
        assert nearest([*measured, one], one.sheet) is one
        assert nearest(others, one.sheet) is not one


def test_that_we_measured_another_device_makes_it_no_more_like_this_one(runs: dict[str, Known]) -> None:
    of = {"h100_sxm5", "h200"}
    theirs = [one if slug in of else dataclasses.replace(one, imported="") for slug, one in runs.items()]
    for given in ([*runs.values()], theirs):
        likest = nearest(given, by_slug("h100_pcie"))
        assert likest and likest.sheet.slug in of


def test_likest_is_what_an_sm_multiplies_and_draws(chance: Chance, runs: dict[str, Known]) -> None:
    """Of the same generation if any is; by float16 where a device has no bfloat16."""
    rates = chance.uniform(1e12, 3e13, 100)
    odd = [dataclasses.replace(one, slug="", name="X") for one in chance.choice(np.array(cuda()), 100)]
    made = [dataclasses.replace(one, bandwidth_byte_per_s=r) for one, r in zip(odd, rates, strict=True)]
    for sheet in (*cuda(), *made):
        dtype = "bfloat16" if ("matrix", "bfloat16") in sheet.rates else "float16"

        def unlike(one: Known, sheet: Datasheet = sheet, dtype: str = dtype) -> tuple[bool, float]:
            pairs = []
            for each in (one.sheet, sheet):
                peak, bandwidth = each.peak_flop_per_s("matrix", dtype), each.bandwidth_byte_per_s
                assert peak and bandwidth
                pairs.append(np.log([peak / each.sm_count, bandwidth / each.sm_count]))
            assert one.sheet.capability and sheet.capability
            return one.sheet.capability[0] != sheet.capability[0], math.dist(*pairs)

        order = sorted((one for slug, one in runs.items() if slug != sheet.slug), key=unlike)
        for given in (order, order[::-1]):
            found = nearest(given, sheet)
            assert found and unlike(found) == pytest.approx(unlike(order[0])), sheet.slug
    assert not by_slug("t4").peak_flop_per_s("matrix", "bfloat16")


def test_of_two_alike_ours_counts(runs: dict[str, Known]) -> None:
    one = runs["l40s"]
    ours = dataclasses.replace(one, imported="", run_id="ours")
    for given in ([one, ours], [ours, one]):
        found = nearest(given, by_slug("l4"))
        assert found and found.run_id == "ours"
    assert nearest([], by_slug("l4")) is None


def test_transfers_leave_out_what_cannot_be_scaled(runs: dict[str, Known]) -> None:
    h100, h200 = runs["h100_sxm5"], runs["h200"]
    poor = dataclasses.replace(h200, sheet=dataclasses.replace(h200.sheet, bandwidth_byte_per_s=None))
    found = transfers([h100, poor], h100)
    assert list(found) == [h100.device_name]
    assert found[h100.device_name] == h100.errors(h100.calibrations[-1])


# ---- errors


def test_errors_by_hand() -> None:
    found = Errors.of(np.array([1.0, 2.0, 4.0, 0.5]), np.array([1.0, 1.0, 2.0, 1.0]))
    assert (found.n, found.mape, found.median) == (4, pytest.approx(0.625), pytest.approx(0.75))
    assert found.p90 == pytest.approx(1.0) and found.ratio == pytest.approx(2**0.25)
    spread = Errors.of(1 + np.arange(101) / 100, np.ones(101))
    assert (spread.median, spread.p90) == pytest.approx((0.5, 0.9))
    with pytest.raises(ValueError, match="no launch"):
        Errors.of(np.array([]), np.array([]))


def test_errors_are_of_scored_rows_of_the_type(chance: Chance) -> None:
    sheet = by_slug("h100_sxm5")
    by = own(sheet, machine(chance), "float16")
    shapes = [Gemm(m=int(m), n=int(n), k=int(k), dtype="float16") for m, n, k in sizes(chance, 40)]
    unknown = products(framed([timed(one, "cublas", None) for one in shapes]))
    exact = tile_wave.predict(by.machine, unknown).seconds
    rows = [timed(one, "cublas", float(t) / 1.25) for one, t in zip(shapes, exact, strict=True)]
    changes: list[dict[str, Any]] = [
        {"sweep": "ceilings/gemm_shapes", "role": "calibration"},
        *({"status": "wrong"}, {"median_s": None}, {"dtype": "bfloat16"}, {"product_m": None}),
        *({"implementation": "cublaslt-256x128"}, {"configuration": "pointer 64x64x32 w4 s3"}),
    ]
    other = [dataclasses.replace(rows[0], **{"median_s": 1.0} | changed) for changed in changes]
    one = Known("x", "r", "", framed([*rows, *other]), Ceilings(), sheet)
    found = one.errors(by)
    assert found and found.n == 40
    assert [found.mape, found.median, found.p90, found.ratio] == pytest.approx([0.25, 0.25, 0.25, 1.25])
    assert dataclasses.replace(one, rows=framed(other)).errors(by) is None
    many = dataclasses.replace(one, rows=framed(rows * (MOST // 40 + 10)))
    told = many.errors(by)
    assert told and told.n == MOST and told.mape == pytest.approx(0.25)


def test_a_calibration_holds_the_rows_of_its_own_condition_alone() -> None:
    """Of a run with a warm and a cold cache, times of the one say nothing of the other's predictions."""
    (warm,) = read([PUBLIC / "nvidia-h200"])
    changes: dict[str, Any] = {"cache": "cold", "sweep": "gemm/cold", "role": "measurement"}
    others = [
        dataclasses.replace(row, median_s=100 * row.median_s, **changes) for row in warm.rows if row.median_s
    ]
    (alone,) = known_runs([warm], find_datasheet)
    (mixed,) = known_runs(judged.runs([*warm.rows, *others]), find_datasheet)
    assert set(mixed.rows["cache"]) == {"warm"} and len(mixed.rows) == len(warm.rows)
    assert mixed.errors(mixed.calibrations[-1]) == alone.errors(alone.calibrations[-1])


def test_only_gpus_with_a_datasheet_and_ceilings_are_known(runs: dict[str, Known]) -> None:
    (h200,) = read([PUBLIC / "nvidia-h200"])
    (one,) = known_runs([h200], find_datasheet)
    assert (one.sheet.slug, len(one.rows), one.ceilings.launch) == ("h200", 364, None)
    assert not list(known_runs([h200], lambda name: None))
    for changed in ({"device_kind": "cpu"}, {"sm_count": 0}, {"role": "measurement"}):
        of_changed = judged.runs(dataclasses.replace(row, **changed) for row in h200.rows)
        assert not list(known_runs(of_changed, find_datasheet))
    assert not list(known_runs([], find_datasheet))
    both = read([PUBLIC / "nvidia-h200", PUBLIC / "nvidia-b200"])
    assert [known_one.sheet.slug for known_one in known_runs(both, find_datasheet)] == ["b200", "h200"]
    assert all(known_one.rows["device"].nunique() == 1 for known_one in runs.values())
