"""`python -m bench accept`: simulated devices, each with one thing wrong."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.accept import judge
from bench.accept.expected import ExpectedRates
from bench.accept.judge import JudgedKind, verdict_of
from bench.accept.readings import read
from bench.accept.report import exit_code, headline, lines
from bench.accept.usual import usual
from bench.device.datasheet import datasheets, find_datasheet
from bench.spec import parameters_text
from bench.store.parquet import write
from kernels.gemm.problem import Gemm
from tests.bench.rows import row

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
        columns = STATE | H100 | {"run_id": run, "byte_moved": case["byte"]} | times | case | facts
        made.append(row(**columns))
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
    says = "NVIDIA H100 80GB HBM3: PASS: as fast as expected in 3 of 3 kinds"
    assert headline(list(found.values())).startswith(says)


@pytest.mark.parametrize(
    ("slow", "facts", "verdict", "cause"),
    [
        ({DECODE: 0.7, COPY: 0.7}, {}, "FAIL", "no flag tells a cause"),
        (
            {PRODUCT: 0.6},
            {"held_power": 0.9},
            "FAIL",
            "power_capped (the power limit alone held the clock",
        ),
        ({PRODUCT: 0.88}, {"held_thermal": 0.4}, "LOW", "throttled (heat or hardware held the clock"),
        ({COPY: 0.75}, {"foreign_processes": 2}, "FAIL", "shared (another process had the GPU too"),
    ],
)
def test_a_faulty_device_is_told_by_kind_of_work_with_its_cause(
    slow: dict[int, float], facts: dict[str, Any], verdict: str, cause: str, tmp_path: Path
) -> None:
    found = judged(device(tmp_path, slow, **facts))
    assert verdicts(found) == HEALTHY | {KINDS[at]: verdict for at in slow}
    assert exit_code(list(found.values())) == 1
    assert cause in "\n".join(lines(list(found.values())))


def test_an_unknown_gpu_is_not_judged(tmp_path: Path) -> None:
    name = {"device": "acme-x1", "device_name": "ACME X1"}
    found = judged(device(tmp_path, **name))
    assert verdicts(found) == dict.fromkeys(HEALTHY, "UNKNOWN") and exit_code(list(found.values())) == 2
    assert "UNKNOWN: no earlier run" in headline(list(found.values()))


def test_a_gpu_that_nobody_timed_is_judged_roughly_by_its_datasheet(tmp_path: Path) -> None:
    """By what other kinds reach of theirs: far below that is LOW, and never FAIL."""
    known = {sheet.match[0] for sheet in datasheets()} - {each.device_name for each in usual()}
    name = sorted(name for name in known if (sheet := find_datasheet(name)) and sheet.memory_type == "HBM")[0]
    found = judged(device(tmp_path, {COPY: 0.01}, device="other", device_name=name))["memory, copy"]
    assert found.expects and found.expects.by == "datasheet" and found.verdict == "LOW"


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


def test_the_high_end_of_the_interval_is_judged() -> None:
    expects = ExpectedRates("others", 100.0, 200.0, "")
    ends = {100.0: "PASS", 99.9: "LOW", 90.0: "LOW", 89.9: "FAIL"}
    assert {rate: verdict_of(rate, expects) for rate in ends} == ends
    rough = replace(expects, by="datasheet")
    assert {rate: verdict_of(rate, rough) for rate in ends} == {**ends, 89.9: "LOW"}


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
    assert " memory, copy " in result.output and "FAIL: slower than expected in 1 of 3" in result.output


def test_a_device_faster_than_its_kind_can_be_is_as_suspect(tmp_path: Path) -> None:
    found = judged(device(tmp_path, {COPY: 1.5, PRODUCT: 1.3}))
    assert verdicts(found) == HEALTHY | {"memory, copy": "FAIL"}, "the product is below its peak"
    assert "times what its kind promises" in found["memory, copy"].causes[0]
    says = "NVIDIA H100 80GB HBM3: FAIL: faster than its kind can be in 1 of 3 kinds"
    assert headline(list(found.values())).startswith(says)


def test_several_units_are_a_fleet(tmp_path: Path) -> None:
    paths = [str(device(tmp_path, run=f"2026110{n}T000000Z-aaa", device_id=f"unit-{n}")) for n in (1, 2)]
    result = CliRunner().invoke(app, ["accept", *paths])
    assert result.exit_code == 2 and "python -m bench fleet" in str(result.output)
