"""`python -m bench accept`: simulated devices, each with one thing wrong."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.accept import judge
from bench.accept.expected import ExpectedRates
from bench.accept.judge import JudgedKind, verdict_of
from bench.accept.readings import read
from bench.accept.report import exit_code, lines, overall
from bench.accept.usual import usual
from bench.spec import parameters_text
from bench.store.parquet import read_rows, write
from kernels.gemm.problem import Gemm
from tests.bench.rows import row
from tests.drawing import is_deep

H100 = {"device": "nvidia-h100-80gb-hbm3", "device_name": "NVIDIA H100 80GB HBM3", "cache_byte": 52428800}
STATE: dict[str, Any] = {
    "device_id": "unit-1", "sweep": "fleet/memory", "utc": "2026-11-01T00:00:00Z",
    "device_kind": "cuda", "cache": "cold", "clock": "graph", "regime": "sustained", "protocol": "p",
    "fill": "uniform", "threads_asked": None, "foreign_processes": 0, "held_power": 0.0, "held_thermal": 0.0,
}  # fmt: skip


def product(n: int, k: int, m: int) -> dict[str, Any]:
    """A bfloat16 product by the library."""
    problem = Gemm(dtype="bfloat16", layout="TN", m=m, n=n, k=k)
    return problem.facts("cublas") | {"parameters": parameters_text(problem.parameters())}


def other(operator: str, byte: int, byte_written: int = 0, **parameters: Any) -> dict[str, Any]:
    """A case that multiplies nothing."""
    return {
        "operator": operator,
        "implementation": "aten",
        "arithmetic": "link" if operator == "transfer" else "vector",
        "dtype": "float32",
        "flop": 0,
        "byte": byte,
        "byte_written": byte_written,
        "parameters": json.dumps(parameters),
    }


CASES: list[tuple[dict[str, Any], float]] = [
    (product(8192, 8192, 8192), 720e12),
    (product(16, 16384, 16384), 2.9e12),
    (other("stream", 2**29, 2**28, kind="copy", length=2**26), 2.95e12),
    (other("launch", 0), 1 / 2e-6),
    (other("transfer", 2**26, direction="host-to-device", length=2**24, memory="pinned"), 55e9),
]
"""(facts of a case, the rate of a healthy H100: FLOP/s, bytes/s or launches/s)."""
PRODUCT, DECODE, COPY, LAUNCH, LINK = range(len(CASES))


def device(
    folder: Path, slow: dict[int, float] | None = None, run: str = "20261101T000000Z-aaa", **facts: Any
) -> Path:
    """A result file of one run; `slow`: case -> its share of a healthy device's rate."""
    made = []
    for at, (case, rate) in enumerate(CASES):
        amount = (case["flop"] if at == PRODUCT else case["byte"]) or 1
        reached = rate * (slow or {}).get(at, 1.0) * math.exp(random.gauss(0, 0.003))
        seconds = amount / reached
        times = {"median_s": seconds, "low_s": 0.996 * seconds, "high_s": 1.004 * seconds}
        told = {"run_id": run, "byte_moved": case["byte"], "noise_runs": 0.002} | times
        made.append(row(**(STATE | H100 | told | case | facts)))
    path = folder / str(facts.get("device", H100["device"])) / f"{run}.parquet"
    write(path, made)
    return path


def judged(path: Path, *baseline: Path) -> dict[str, JudgedKind]:
    """By kind of work."""
    rows = read([path], print)
    earlier = read(baseline, print) if baseline else rows.iloc[:0]
    return {each.kind: each for each in judge.judged(rows, earlier, usual())}


def verdicts(found: dict[str, JudgedKind]) -> dict[str, str]:
    return {kind: each.verdict for kind, each in found.items()}


KINDS = (
    *("matrix multiplications in bfloat16", "narrow matrix multiplication", "memory, copy", "launch"),
    "link, host to device",
)
"""The kinds of work of the cases."""
HEALTHY = dict.fromkeys(KINDS, "PASS") | dict.fromkeys(KINDS[-2:], "UNKNOWN")


def test_a_healthy_h100_passes_where_anything_is_known(tmp_path: Path) -> None:
    found = judged(device(tmp_path))
    assert verdicts(found) == HEALTHY and exit_code(list(found.values())) == 0
    expects = found["matrix multiplications in bfloat16"].expects
    assert expects and expects.by == "others"
    assert all(not each.causes for each in found.values())
    says = "as fast as expected in 3 of 3 kinds of work; nothing is known of 2 more"
    assert next(lines(list(found.values()))) == f"NVIDIA H100 80GB HBM3: PASS: {says}"


@pytest.mark.parametrize(
    ("slow", "facts", "verdict", "cause"),
    [
        ({DECODE: 0.7, COPY: 0.7}, {}, "FAIL", "no flag tells a cause"),
        ({PRODUCT: 0.6}, {"held_power": 0.9}, "FAIL", "power_capped (the power limit alone held the clock"),
    ],
)
def test_a_faulty_device_is_told_by_kind_of_work_with_its_cause(
    slow: dict[int, float], facts: dict[str, Any], verdict: str, cause: str, tmp_path: Path
) -> None:
    found = judged(device(tmp_path, slow, **facts))
    assert verdicts(found) == HEALTHY | {KINDS[at]: verdict for at in slow}
    assert exit_code(list(found.values())) == 1
    assert cause in "\n".join(lines(list(found.values())))


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"held_thermal": 0.4}, "throttled (heat or hardware held the clock"),
        ({"foreign_processes": 2}, "shared (another process had the GPU too"),
        ({"low_s": None, "high_s": None}, "no interval: too few samples"),
    ],
)
def test_rows_that_are_not_fit_are_not_judged(facts: dict[str, Any], says: str, tmp_path: Path) -> None:
    """Neither slow nor fast: what they were slowed by, or how far off they may be, nobody knows."""
    device(tmp_path / "before", run="20261001T000000Z-aaa")
    found = judged(device(tmp_path / "now", {COPY: 0.5}, **facts), tmp_path / "before")
    assert verdicts(found) == dict.fromkeys(KINDS, "UNKNOWN") and exit_code(list(found.values())) == 2
    assert says in "\n".join(lines(list(found.values())))


def test_one_kind_whose_rows_are_not_fit_is_no_pass_of_all(tmp_path: Path) -> None:
    sound = device(tmp_path / "sound")
    noisy = device(tmp_path / "noisy", foreign_processes=1)
    rows = [*read_rows(sound)[:2], *read_rows(noisy)[2:]]
    write(tmp_path / "both.parquet", rows)
    found = judged(tmp_path / "both.parquet")
    assert verdicts(found)["matrix multiplications in bfloat16"] == "PASS"
    assert exit_code(list(found.values())) == 2


def test_disturbed_earlier_runs_say_nothing(tmp_path: Path) -> None:
    device(tmp_path / "before", {COPY: 0.5}, "20261001T000000Z-aaa", foreign_processes=1)
    found = judged(device(tmp_path / "now"), tmp_path / "before")["memory, copy"]
    assert found.expects is not None and found.expects.by == "others"


def test_an_unknown_gpu_is_not_judged(tmp_path: Path) -> None:
    name = {"device": "acme-x1", "device_name": "ACME X1"}
    found = judged(device(tmp_path, **name))
    assert verdicts(found) == dict.fromkeys(HEALTHY, "UNKNOWN") and exit_code(list(found.values())) == 2


def test_earlier_runs_of_the_very_case_decide_before_others(tmp_path: Path) -> None:
    for number in range(3):
        device(tmp_path / "before", run=f"2026100{number}T000000Z-aaa", device_id=f"unit-{number}")
    found = judged(device(tmp_path / "now", {COPY: 0.93}), tmp_path / "before")
    expects = found["memory, copy"].expects
    assert expects and expects.by == "earlier runs"
    assert expects.source == "3 earlier runs on 3 units of this kind"
    assert verdicts(found) == dict.fromkeys(KINDS, "PASS") | {"memory, copy": "LOW"}
    others = [each for each in found["memory, copy"].evidence if each.by == "others"]
    assert others and others[0].low < expects.low  # by others it would have passed


@pytest.mark.parametrize(
    "fact", [{"regime": "boost"}, {"protocol": "q"}, {"clock": "stream"}, {"fill": "zeros"}]
)
def test_earlier_runs_under_another_protocol_say_nothing(fact: dict[str, str], tmp_path: Path) -> None:
    device(tmp_path / "before", run="20261001T000000Z-aaa", **fact)
    found = judged(device(tmp_path / "now"), tmp_path / "before")
    assert not any(each.expects and each.expects.by == "earlier runs" for each in found.values())


def test_the_whole_interval_is_judged_and_a_wide_range_is_not_known() -> None:
    expects = ExpectedRates("others", 100.0, 140.0, "")
    ends = {(115.0, 120.0, 125.0): "PASS", (95.0, 99.0, 99.9): "LOW", (80.0, 85.0, 89.9): "FAIL"}
    assert {rates: verdict_of(rates, expects) for rates in ends} == ends
    assert verdict_of((60.0, 100.0, 150.0), expects) == "UNKNOWN", "it may be half as fast"
    wide = replace(expects, high=151.0)
    assert {verdict_of(rates, wide) for rates in ends} == {"UNKNOWN"}


REFERENCE = Path(__file__).parents[2] / "results" / "reference"


@pytest.fixture(scope="module")
def tours() -> pd.DataFrame:
    """Thirteen committed tours of healthy machines: some in a quiet hour, others in a restless one."""
    return read([REFERENCE / name for name in ("tours", "quiet_tours", "tour")], print)


def told(tours: pd.DataFrame, speed: float, pairs: int) -> Counter[str]:
    """The verdicts on tours by others of their machine, with the rates of the judged one so changed.

    Each by `pairs` of those after it, the first of a machine after its last.
    """
    counts: Counter[str] = Counter()
    for _, of_machine in tours.groupby("driver"):
        every = [of for _, of in of_machine.groupby("run_id")]
        for place, mine in enumerate(every):
            rates = {rate: speed * mine[rate] for rate in ("rate", "rate_low", "rate_high")}
            for earlier in [*every[place + 1 :], *every[:place]][:pairs]:
                counts[overall(judge.judged(mine.assign(**rates), earlier, ()))] += 1
    return counts


def test_no_committed_tour_is_low_by_another_and_at_seven_tenths_all_are(tours: pd.DataFrame) -> None:
    healthy, slow = told(tours, 1.0, 20 if is_deep() else 3), told(tours, 0.7, 20 if is_deep() else 1)
    assert set(healthy) == {"PASS", "UNKNOWN"} and healthy["PASS"] > 0.8 * healthy.total() > 30
    assert set(slow) <= {"FAIL", "LOW", "UNKNOWN"} and slow["FAIL"] + slow["LOW"] > 0.75 * slow.total()
    quiet = tours[tours["utc"] > "2026-11-26T08"]
    assert set(told(quiet, 1.6, 1)) == {"IMPLAUSIBLE"}, "in the quiet hour"


def test_tours_of_another_machine_of_the_name_say_nothing(tours: pd.DataFrame) -> None:
    (_, restless), (_, quiet) = tours.groupby("driver")
    assert set(restless["device"]) == set(quiet["device"])
    assert overall(judge.judged(quiet[quiet["run_id"] == quiet["run_id"].max()], restless, ())) == "UNKNOWN"


def test_rows_that_say_nothing_of_the_device_are_left_out(tmp_path: Path) -> None:
    changes = {"status": "wrong", "measured_in": "another run", "threads_asked": "one", "role": "probe"}
    for column, value in changes.items():
        path = tmp_path / f"{column}.parquet"
        write(path, [row(**{**STATE, **H100, **CASES[COPY][0], "byte_moved": 2**29, column: value})])
        result = CliRunner().invoke(app, ["accept", str(path)])
        assert result.exit_code == 2 and "no row says what the device can do" in str(result.output)


def test_the_command_on_a_file_prints_the_table_and_fails(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["accept", str(device(tmp_path, {COPY: 0.7}))])
    assert result.exit_code == 1, result.output
    says = "FAIL: slower than expected in 1 of 3 kinds of work, most of all in memory, copy, at "
    assert " memory, copy " in result.output and says in result.output


def test_a_device_faster_than_its_kind_can_be_is_as_suspect(tmp_path: Path) -> None:
    found = judged(device(tmp_path, {COPY: 1.5, PRODUCT: 1.3}))
    assert verdicts(found) == HEALTHY | {"memory, copy": "IMPLAUSIBLE"}, "the product is below its peak"
    assert exit_code(list(found.values())) == 1
    assert "times what its datasheet promises" in found["memory, copy"].causes[0]


def test_milliseconds_taken_for_microseconds_are_implausible_also_without_an_interval(tmp_path: Path) -> None:
    for share, verdict in ((1000.0, "IMPLAUSIBLE"), (1.5, "UNKNOWN")):
        unknown = dict.fromkeys(("low_s", "high_s", "noise_runs"))
        found = judged(device(tmp_path / verdict, {PRODUCT: share}, **unknown))
        assert [each for kind, each in verdicts(found).items() if kind.startswith("matrix")] == [verdict]


def test_several_units_are_a_fleet(tmp_path: Path) -> None:
    paths = [str(device(tmp_path, run=f"2026110{n}T000000Z-aaa", device_id=f"unit-{n}")) for n in (1, 2)]
    result = CliRunner().invoke(app, ["accept", *paths])
    assert result.exit_code == 2 and "python -m bench fleet" in str(result.output)
