"""Predictions that are learned from timings of many GPUs, on GPUs whose times follow a law made up here."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import kernels
from bench.__main__ import app
from bench.device.datasheet import Datasheet, find_datasheet
from bench.judge.read_runs import read
from bench.judge.timings import pool, read_pool, with_learned
from bench.model import pooled
from bench.model.launch_features import START_S
from bench.model.pooled import CALIBRATING, LEAST_ROWS, Pool
from bench.model.reached import LARGEST
from bench.spec import Problem, parameters_text
from bench.store.parquet import write
from bench.store.schema import Measurement
from plots.__main__ import app as plots
from studies.operator_prediction import LEAST, Scored, score_lines, scored
from tests.bench.rows import row
from tests.drawing import run_seed

GPUS = ("Tesla V100-PCIE-32GB", "NVIDIA A100 80GB PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA H200")
OWN = "NVIDIA H100 80GB HBM3"
Law = Callable[[Datasheet, int, int], float]


def said(*words: object) -> tuple[int, str]:
    """(exit code, what was printed, with single spaces) of a command."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, " ".join(done.output.split())


def sheet_of(name: str) -> Datasheet:
    found = find_datasheet(name)
    assert found is not None
    return found


def two_passes(sheet: Datasheet, rows: int, length: int) -> float:
    """Seconds: 80 % of the bandwidth, and a row that is longer than 4,096 is read twice more."""
    assert sheet.bandwidth_byte_per_s
    byte = (2 if length <= 4096 else 4) * 4 * rows * length
    return START_S + byte / (0.8 * sheet.bandwidth_byte_per_s)


def softmax(device: str, law: Law, rows: int, seconds: float = 1.0) -> Measurement:
    length = random.choice([512, 1024, 2048, 3000, 4096, 6000, 8192, 16384])
    problem = kernels.problem("softmax")(dtype="float32", direction="forward", rows=rows, length=length)
    exact = seconds * law(sheet_of(device), rows, length)
    return timed(device, problem, exact * random.uniform(0.995, 1.005))


def distinct_rows(count: int) -> list[int]:
    """Numbers of rows without repetition: a shape that is timed twice calibrates with both of its timings."""
    return random.sample(range(40_000, 200_001), count)


def timed(device: str, problem: Problem, seconds: float, implementation: str = "aten") -> Measurement:
    facts = problem.facts(implementation) | {"parameters": parameters_text(problem.parameters())}
    who = {"device": device.lower().replace(" ", "-"), "device_name": device, "device_kind": "cuda"}
    return row(
        **facts, **who, run_id="somebody", source="Somebody; a paper", clock_start_s=None, median_s=seconds
    )


def pool_of(rows: list[Measurement]) -> Pool:
    names = Measurement.__dataclass_fields__
    return pool(pd.DataFrame([{name: getattr(one, name) for name in names} for one in rows]))


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a law as plain as these a third of the trees says as much."""
    monkeypatch.setattr(pooled, "TREES", 40)


@pytest.fixture(scope="module")
def timings() -> list[Measurement]:
    random.seed(run_seed())
    return [softmax(device, two_passes, rows) for device in GPUS for rows in distinct_rows(150)]


def of_gpu(known: Pool, name: str) -> pd.DataFrame:
    rows = known.of("softmax", "aten").rows
    return rows[rows["device_name"] == name]


def error(predicted_s: np.ndarray, rows: pd.DataFrame) -> float:
    return float(np.abs(predicted_s / rows["median_s"].to_numpy() - 1).mean())


def test_what_other_gpus_have_in_common_holds_on_one_without_timings(timings: list[Measurement]) -> None:
    known = pool_of(timings)
    rows = of_gpu(known, OWN)
    learned = known.of("softmax", "aten").unseen(sheet_of(OWN), rows)
    assert learned is not None
    # The law is the same on all, in shares of the bandwidth: what is left is where trees step.
    assert error(learned.seconds, rows) < 0.08
    assert (learned.low_s < learned.seconds).all() and (learned.seconds < learned.high_s).all()


def test_a_gpu_without_timings_is_predicted_without_its_timings(timings: list[Measurement]) -> None:
    timings = [*timings, *(one for device in GPUS for one in copies(device, 0.8))]
    slower = [replace(one, median_s=9 * one.median_s) if one.device_name == OWN else one for one in timings]
    rows = of_gpu(pool_of(timings), OWN)
    first, second = (
        pool_of(some).of("softmax", "aten").unseen(sheet_of(OWN), rows) for some in (timings, slower)
    )
    assert first is not None and second is not None
    np.testing.assert_allclose(first.seconds, second.seconds)
    np.testing.assert_allclose(first.high_s, second.high_s)


def test_a_few_own_timings_tell_what_no_other_gpu_does(timings: list[Measurement]) -> None:
    factor = random.uniform(1.5, 3.0)
    slower = [
        replace(one, median_s=factor * one.median_s) if one.device_name == OWN else one for one in timings
    ]
    known = pool_of(slower).of("softmax", "aten")
    rows = known.own(sheet_of(OWN))
    designated = known.designated(sheet_of(OWN), rows)
    assert 8 <= len(designated) <= CALIBRATING and designated.is_unique
    rest = rows.drop(designated)
    unseen = known.unseen(sheet_of(OWN), rest)
    learned = known.calibrated(sheet_of(OWN), rows.loc[designated], rest)
    assert unseen is not None
    assert error(learned.seconds, rest) < 0.05 < 0.3 < error(unseen.seconds, rest)
    inside = (learned.low_s <= rest["median_s"]) & (rest["median_s"] <= learned.high_s)
    assert inside.mean() > 0.5
    assert learned.error < 0.1


def copies(device: str, share: float) -> list[Measurement]:
    """LARGEST launches at this share of the bandwidth, and smaller ones at half of it."""
    sheet = sheet_of(device)
    assert sheet.bandwidth_byte_per_s
    made = []
    for i in range(2 * LARGEST):
        n = random.randint(100, 128) if i < LARGEST else 64
        shape = {"n": n, "c": 64, "h": 224, "w": 224}
        problem = kernels.problem("activations")(
            dtype="float32", function="relu", direction="forward", **shape
        )
        reached = share if i < LARGEST else share / 2
        made.append(timed(device, problem, START_S + problem.byte / (reached * sheet.bandwidth_byte_per_s)))
    random.shuffle(made)
    return made


def test_what_memory_reaches_is_that_of_the_largest_launches_or_of_gpus_with_such_memory() -> None:
    shares = {"Tesla V100-PCIE-32GB": 0.9, "NVIDIA H200": 0.8, "Tesla T4": 0.6, "AMD Instinct MI100": 0.5}
    known = pool_of([one for device, share in shares.items() for one in copies(device, share)])
    assert known.reached.shares == pytest.approx(shares)
    assert len(known.largest) == LARGEST * len(shares)
    assert known.reached.share(sheet_of(OWN)) == pytest.approx(0.85)  # HBM: between the two
    assert known.reached.share(sheet_of("NVIDIA L4")) == pytest.approx(0.6)  # GDDR with ECC
    assert known.reached.share(sheet_of("AMD Instinct MI210")) == pytest.approx(0.5)


def product(device: str, operator: str, dtype: str) -> Measurement:
    """A product at nine tenths of the peak, or at what the power limit pays with 7 pJ an operation."""
    m, n, k = (random.choice([1024, 2048, 3072, 4096, 6144, 8192]) for _ in range(3))
    sides = {"linear": {"batch": m, "outputs": n, "inputs": k, "bias": False, "direction": "forward"}}
    sizes = sides.get(operator, {"m": m, "n": n, "k": k, "layout": "NT", "beta": 0, "pitch": "tight"})
    problem = kernels.problem(operator)(dtype=dtype, **sizes)
    sheet = sheet_of(device)
    peak = sheet.peak_flop_per_s("matrix", dtype)
    assert peak and sheet.power_w
    rate = min(0.9 * peak, sheet.power_w / 7e-12) if dtype == "float32" else 0.9 * peak
    return timed(device, problem, START_S + problem.flop / rate, "cublas")


def test_a_linear_layer_on_a_card_of_less_power_than_any_that_was_timed() -> None:
    """By linear layers of GPUs unlike it, and by products of an L40S, which its power limits as well."""
    made = [product(device, "linear", "float32") for device in GPUS[:3] for _ in range(60)]
    made += [product(device, "gemm", "float32") for device in (*GPUS[:3], "NVIDIA L40S") for _ in range(60)]
    known = pool_of(made).of("linear", "cublas")
    asked = (
        pool_of([product("NVIDIA L4", "linear", "float32") for _ in range(40)]).of("linear", "cublas").rows
    )
    learned = known.unseen(sheet_of("NVIDIA L4"), asked)
    assert learned is not None and error(learned.seconds, asked) < 0.25
    # No type but the timed ones has an interval.
    other = asked.assign(dtype="bfloat16")
    unlike = known.unseen(sheet_of("NVIDIA L4"), other)
    assert unlike is not None and np.isfinite(learned.high_s).all() and np.isnan(unlike.high_s).all()


def test_what_calibrates_is_never_scored(timings: list[Measurement]) -> None:
    """Three times slower wherever nothing calibrates: the model is off by two thirds there."""
    known = pool_of(timings)
    some = known.of("softmax", "aten")
    designated = {
        index
        for _, rows in some.rows.groupby(["device_name", "run_id"])
        for index in some.designated(known.sheets[rows["device_name"].iloc[0]], rows)
    }
    slower = [1.0 if i in designated else 3.0 for i in range(len(known.rows))]
    slow = Pool(known.rows.assign(median_s=known.rows["median_s"] * slower), known.sheets)
    # Which rows are designated does not depend on their times, only what is learned of them does.
    for one in scored(slow, ["softmax"], False, lambda _: None):
        assert len(one.measured_s) == 150 - CALIBRATING
        _, learned, known = one.errors
        assert learned.median == pytest.approx(2 / 3, abs=0.15) and known.median < 0.1


def test_a_kind_of_few_timings_on_a_gpu_is_not_scored(timings: list[Measurement]) -> None:
    """Here 63 timings of a type and 19 of another, of which some calibrate."""
    of_gpu = [one for one in timings if one.device_name == OWN]
    few = [replace(one, dtype="float16", byte_moved=one.byte_moved // 2) for one in of_gpu[: LEAST - 1]]
    found = list(scored(pool_of([*of_gpu[-63:], *few]), ["softmax"], False, lambda _: None))
    assert [one.kind for one in found] == ["aten float32 forward"] and len(found[0].measured_s) >= LEAST


def test_a_score_counts_the_gpus_whose_intervals_hold_too_many_or_too_few() -> None:
    shares = {"V100": 0.9, "A100": 1.0, "H100": 0.5, "H200": 0.8, "T4": None}
    one_s = np.ones(20)
    found = [
        Scored(
            *("softmax", "aten float32", name, "somebody", one_s, one_s, one_s),
            inside=None if share is None else np.arange(20) < 20 * share,
            twin=(float("nan"), ""),
        )
        for name, share in shares.items()
    ]
    *_, last = score_lines(found, False)
    assert "holds 80 % of" in last and last.endswith("80 to 97 % in 2 of 4, more in 1, less in 1.")


def test_the_command_predicts_any_gpu_and_says_on_what_that_rests(
    tmp_path: Path, timings: list[Measurement]
) -> None:
    for device in GPUS:
        write(tmp_path / f"{device}.parquet", [one for one in timings if one.device_name == device])
    asked = ["predict", "softmax", "rows=8192", "length=1024,8192", "dtype=float32", "direction=forward"]
    code, text = said(*asked, "--on", "h100_sxm5", "--from", tmp_path)
    assert code == 0 and "Somebody" in text
    assert "aten: calibrated by" in text and "of 150 timings of this GPU (Somebody)" in text
    assert f"{3 * 150} timings of 3 GPUs" in text
    code, text = said(*asked, "--on", "l4", "--from", tmp_path)
    assert code == 0 and "this GPU was never timed; by 600 timings of 4 GPUs" in text
    assert "no prediction: fewer than 16 timings are among the results of inductor, " in text
    assert "of them float" not in text  # all are of the type that is predicted
    asked[asked.index("dtype=float32")] = "dtype=float16"
    assert (
        "600 timings of 4 GPUs (Somebody), none of them float16"
        in said(*asked, "--on", "l4", "--from", tmp_path)[1]
    )


def test_times_near_a_launch_and_gpus_without_a_datasheet_teach_nothing(tmp_path: Path) -> None:
    sound = [softmax(OWN, two_passes, rows) for rows in distinct_rows(3)]
    near = replace(sound[0], clock_start_s=0.2 * sound[0].median_s)
    unknown = replace(sound[1], device_name="Some GPU")
    failed = replace(sound[2], status="failed", reason="it broke")
    write(tmp_path / "some.parquet", [*sound, near, failed])
    write(tmp_path / "other.parquet", [unknown])
    assert len(read_pool([tmp_path], lambda _: None).rows) == 3


def test_a_gpu_none_of_whose_timings_counts_calibrates_nothing(tmp_path: Path) -> None:
    """So it is of a public source that timed transfers alone."""
    one = softmax(OWN, two_passes, 50_000)
    write(tmp_path / "near.parquet", [replace(one, clock_start_s=0.2 * one.median_s)])
    (run,) = read([tmp_path])
    frame = with_learned(run, read_pool([tmp_path], lambda _: None))
    assert not frame["calibrating"].any() and frame["learned_s"].isna().all()


def test_scores_and_explanations_know_what_is_learned(tmp_path: Path, timings: list[Measurement]) -> None:
    for device in GPUS:
        write(tmp_path / f"{device}.parquet", [one for one in timings if one.device_name == device])
    (run,) = read([tmp_path / f"{OWN}.parquet"])
    frame = with_learned(run, read_pool([tmp_path], lambda _: None))
    assert frame["calibrating"].sum() == CALIBRATING and frame["learned_s"].notna().all()
    rest = frame[~frame["calibrating"]]
    assert error(rest["learned_s"].to_numpy(), rest) < 0.05
    assert rest["median_s"].between(rest["learned_low_s"], rest["learned_high_s"]).mean() > 0.5
    of_others = with_learned(run, read_pool([tmp_path], lambda _: None), {"layernorm"})
    assert of_others["learned_s"].isna().all() and not of_others["calibrating"].any()

    done = CliRunner().invoke(plots, ["score", str(tmp_path)])
    (line,) = (
        line
        for line in done.output.splitlines()
        if line.split()[1:3] == [OWN.lower().replace(" ", "-"), "L3"]
    )
    words = line.split()
    assert words[:4] == ["softmax", OWN.lower().replace(" ", "-"), "L3", str(len(rest))]
    assert float(words[4]) == pytest.approx(100 * error(rest["learned_s"].to_numpy(), rest), abs=0.06)


def test_a_run_with_few_timings_is_predicted_by_other_gpus(
    tmp_path: Path, timings: list[Measurement]
) -> None:
    own = [one for one in timings if one.device_name == OWN]
    write(tmp_path / "own.parquet", own[: LEAST_ROWS - 1])
    write(tmp_path / "others.parquet", [one for one in timings if one.device_name != OWN])
    (run,) = read([tmp_path / "own.parquet"])
    frame = with_learned(run, read_pool([tmp_path], lambda _: None))
    assert not frame["calibrating"].any() and frame["learned_low_s"].notna().all()
    assert error(frame["learned_s"].to_numpy(), frame) < 0.2
    alone = with_learned(run, read_pool([tmp_path / "own.parquet"], lambda _: None))
    assert alone["learned_s"].isna().all()
