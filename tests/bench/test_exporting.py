"""`python -m bench export`: what goes out, under which name; the formats that hold one time a series."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from bench.interop.export_points import Results
from bench.model.ceilings import MixedCeilings, by_run
from tests.bench.exported import export, night, written

BENCHMARK_RESULT: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["name", "value", "unit"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "value": {"type": "number"},
            "range": {"type": "string"},
            "unit": {"const": "us"},
            "extra": {"type": "string"},
        },
        "additionalProperties": False,
    },
}
"""`BenchmarkResult` in src/extract.ts of benchmark-action/github-action-benchmark; it refuses empty ones."""

TEXT, TEXTS = {"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}


def record(required: str, **properties: Any) -> dict[str, Any]:
    """A ClickHouse tuple: columns that are not in the table are lost, null is no value of any."""
    known = {"type": "object", "properties": properties, "additionalProperties": False}
    return known | {"required": required.split()}


def name_of(tmp_path: Path, chance: np.random.Generator, **facts: Any) -> str:
    """The series that one row belongs to."""
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    (point,) = Results([written(folder, night(chance, 1, 64, **facts))]).points()
    return point.name


def test_a_series_keeps_its_name_while_the_machine_changes(
    tmp_path: Path, chance: np.random.Generator
) -> None:
    facts = {"threads_asked": "all", "regime": "sustained"}
    name = name_of(tmp_path, chance, **facts)
    changed = {"driver": "999", "torch": "9.9", "triton": "9", "libraries": "z", "commit": "c", "utc": "x"}
    changed |= {"run_id": "20990101T000000Z-1", "power_limit_w": 5.0, "configuration": "128x64"}
    for fact, value in changed.items():
        assert name_of(tmp_path, chance, **facts | {fact: value}) == name, fact
    assert name_of(tmp_path, chance, **facts | {"threads_asked": None}) == name  # as in older files
    assert "," not in name and name.startswith("nvidia-h200@1f3c9a02 gemm triton gemm/square bfloat16 k=3 ")


def test_whatever_makes_another_series_makes_another_name(
    tmp_path: Path, chance: np.random.Generator
) -> None:
    names = {name_of(tmp_path, chance)}
    other: dict[str, Any] = {"sweep": "s", "operator": "o", "implementation": "i", "cache": "warm"}
    other |= {"parameters": '{"m":5}', "threads_asked": "one", "protocol": "p", "regime": "boost"}
    other |= {"clock": "c", "fill": "f", "threads": 9, "device": "d", "device_id": "1f3c9a02b4d6"}
    for fact, value in other.items():
        name = name_of(tmp_path, chance, **{fact: value})
        assert name not in names, fact
        names.add(name)
    # Of parameters that a comma tells apart the text is the same; of two hosts, which are no units, all.
    comma = [name_of(tmp_path, chance, parameters=f'{{"chain":"a{mark}b"}}') for mark in ",;"]
    assert comma[0] != comma[1] and comma[0].split("#")[0] == comma[1].split("#")[0]
    hosts = {name_of(tmp_path, chance, device_kind="cpu", device_id=host) for host in "ab"}
    assert len(hosts) == 1


def test_what_has_no_time_or_is_not_ours_stays_here(tmp_path: Path, chance: np.random.Generator) -> None:
    failed = [
        night(chance, 1, m, status=status, median_s=None, low_s=None, high_s=None, samples_s=None)
        for m, status in enumerate(("wrong", "skipped", "out_of_memory", "timeout", "error"), 200)
    ]
    failed += [night(chance, 1, 210, status="wrong")]  # its time is of a result that is no good
    failed += [night(chance, 1, 211 + i, median_s=time) for i, time in enumerate((0.0, math.inf, math.nan))]
    rows = [night(chance, 1, m) for m in range(1, 8)]
    theirs = [night(chance, 1, m, source="somebody; a table") for m in (300, 301)]
    again = night(chance, 1, 3)  # a second look in an older file: the first counts
    done = export("github-action-benchmark", written(tmp_path / "r", *rows, *failed, *theirs, again))
    assert done.exit_code == 0, done.stderr
    values = [one["value"] / 1e6 for one in json.loads(done.stdout)]
    assert values == pytest.approx([one.median_s for one in rows], rel=1e-8)
    assert done.stderr.splitlines() == [
        "left out: 2 of 19 rows: imported",
        "left out: 9 of 19 rows: without a time",
        "left out: 1 of 19 rows: a time that its run has already",
    ]


def test_two_units_of_a_run_have_each_their_own_ceilings(tmp_path: Path, chance: np.random.Generator) -> None:
    """Twins that ran under one name: what is launch-bound on one is not on the other."""
    launch = {
        "sweep": "ceilings/launch",
        "role": "roof",
        "operator": "launch",
        "parameters": '{"dtype":"bfloat16"}',
    }
    times = {"a" * 12: 1e-3, "b" * 12: 1e-6}
    rows = []
    for unit, floor_s in times.items():
        rows += [night(chance, 1, 0, **launch, device_id=unit, median_s=floor_s, regime=None)]
        rows += [night(chance, 1, 5, device_id=unit, median_s=1.05e-3, regime=None)]
    points = list(Results([written(tmp_path / "r", *rows)]).points())
    bound = {p.row.device_id: "launch_bound" in p.flags for p in points if p.row.operator == "gemm"}
    assert bound == {"a" * 12: True, "b" * 12: False}


def test_a_run_whose_driver_changed_under_way_is_exported(
    tmp_path: Path, chance: np.random.Generator
) -> None:
    rows = [
        night(chance, 1, m, sweep="ceilings/gemm", role="roof", driver=f"{m}", regime=None) for m in (1, 2)
    ]
    with pytest.raises(MixedCeilings):
        by_run(rows)
    done = export("github-action-benchmark", written(tmp_path / "r", *rows))
    assert done.exit_code == 0 and len(json.loads(done.stdout)) == 2


@pytest.mark.parametrize("new_first", [True, False])
def test_of_several_runs_the_last_counts(
    tmp_path: Path, chance: np.random.Generator, new_first: bool
) -> None:
    old, new = [night(chance, 2, m) for m in (1, 2, 3)], [night(chance, 1, m) for m in (2, 3, 4)]
    folder = written(tmp_path / "r", *(new + old if new_first else old + new))
    (tmp_path / "r" / "broken.parquet").write_bytes(b"PAR1")
    done = export("github-action-benchmark", folder)
    values = {re.findall(r"m=(\d)", one["name"])[0]: one["value"] for one in json.loads(done.stdout)}
    expected = {"1": old[0], "2": new[0], "3": new[1], "4": new[2]}
    assert values == pytest.approx({m: (one.median_s or 0) * 1e6 for m, one in expected.items()}, rel=1e-8)
    assert "left out: 2 times of earlier runs" in done.stderr and "broken.parquet" in done.stderr


def test_the_action_can_read_it(tmp_path: Path, chance: np.random.Generator) -> None:
    rows = [night(chance, 1, m) for m in range(1, 60)]
    rows += [night(chance, 1, 100, low_s=None, high_s=None), night(chance, 1, 101, pressure=0.5)]
    out = tmp_path / "out" / "benchmark.json"
    done = export("github-action-benchmark", written(tmp_path / "r", *rows), "-o", out)
    assert (done.exit_code, done.stdout) == (0, f"{out}\n")
    found = json.loads(out.read_text())
    jsonschema.validate(found, BENCHMARK_RESULT)
    assert len({one["name"] for one in found}) == len(found) == len(rows)
    for one, row in zip(found, rows, strict=True):
        assert row.median_s is not None
        assert one["value"] == pytest.approx(row.median_s * 1e6, rel=1e-8)
        assert f"device: NVIDIA H200\nrun: {row.run_id}\n" in one["extra"]
        if row.low_s is None or row.high_s is None:
            assert "range" not in one
            continue
        # How src/extractRangeInfo.ts finds the number in it.
        number = re.fullmatch(r"(\+-|±)\s*(\d.*)", one["range"])
        assert number and float(number[2]) == pytest.approx((row.high_s - row.low_s) / 2e-6, rel=0.005)
    assert "contended" in found[-1]["extra"] and "contended" not in found[0]["extra"]


def test_refusals_are_one_sentence(tmp_path: Path, chance: np.random.Generator) -> None:
    good = written(tmp_path / "good", night(chance, 1, 1))
    theirs = written(tmp_path / "theirs", night(chance, 1, 1, source="somebody"))
    failed = written(tmp_path / "failed", night(chance, 1, 1, status="error", median_s=None))
    (tmp_path / "file").write_text("in the way")
    for words, says in {
        ("openmetrics", theirs): "all rows given are imported",
        ("github-action-benchmark", failed): "none of the 1 rows given has a time",
        ("github-action-benchmark", good, "-o", tmp_path / "file" / "x.json"): "x.json: cannot be written: ",
    }.items():
        done = export(*words)
        assert (done.exit_code, done.stdout) == (2, ""), words
        *remarks, last = done.stderr.splitlines()
        assert last.startswith("error: ") and says in last, done.stderr
        assert all(one.startswith("left out: ") for one in remarks)
