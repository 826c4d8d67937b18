"""Exports for Apache Otava: held against the rules of its CSV importer, and against the importer itself.

Otava asks for another numpy than we do, so it lives in an environment of its own:

    python -m venv ENV && ENV/bin/pip install apache-otava==0.8.0
    ROOFBENCH_OTAVA=ENV/bin/python pytest tests/bench/test_exporting_otava.py
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bench.store.schema import Measurement
from tests.bench.exported import NOON, export, night, written

NIGHTS, SERIES = 30, 12

READ_BY_OTAVA = """
import json, sys
from otava.config import load_config_from_file
from otava.importer import CsvImporter
config = load_config_from_file(sys.argv[1])
found = {}
for name, test in config.tests.items():
    series = CsvImporter().fetch_data(test)
    signs = [metric.direction for metric in series.metrics.values()]
    changed = [
        [series.time[p.index], name]
        for name, points in series.analyze().change_points.items() for p in points
    ]
    found[name] = [series.time, series.data, series.attributes, signs, changed]
groups = {name: [test.name for test in tests] for name, tests in config.test_groups.items()}
print(json.dumps([found, groups]))
"""
"""Otava's own reading of a configuration and of all that it names, as JSON."""


def some_nights(chance: np.random.Generator) -> list[Measurement]:
    """Series of two implementations; some miss nights, some nights are in doubt, one series was seen once."""
    rows = []
    for m in range(1, SERIES + 1):
        level = float(10 ** chance.uniform(-6, -1))
        for day in range(NIGHTS):
            absent = m % 4 == 0 and chance.random() < 0.3
            if absent or (m == SERIES - 1 and day):
                continue
            doubt = {"pressure": 0.5} if m % 3 == 0 and chance.random() < 0.2 else {}
            facts = {"median_s": level * float(np.exp(0.004 * chance.standard_normal())), **doubt}
            facts |= {"implementation": "triton" if m % 2 else "cublas", "driver": f"{day // 10}"}
            rows.append(night(chance, day + 1, m, **facts))
    return rows


def expected(rows: list[Measurement]) -> dict[tuple[str, str], float]:
    """(run, m) -> microseconds of every time that has to go out."""
    sure = [row for row in rows if not row.pressure]
    often = [row.parameters for row in sure]
    return {
        (row.run_id, str(json.loads(row.parameters)["m"])): (row.median_s or 0) * 1e6
        for row in sure
        if often.count(row.parameters) > 1
    }


def tables(folder: Path) -> dict[str, list[list[str]]]:
    """Test -> the lines of its file."""
    config = yaml.safe_load((folder / "otava.yaml").read_text())
    return {
        name: list(csv.reader(Path(test["file"]).open(newline=""))) for name, test in config["tests"].items()
    }


def number(column: str) -> str:
    """m of the series of a column."""
    return next(word[2:] for word in column.split() if word.startswith("m="))


def test_every_time_goes_out_once_and_nothing_else(tmp_path: Path, chance: np.random.Generator) -> None:
    rows = some_nights(chance)
    done = export("otava", written(tmp_path / "r", *rows), "-o", tmp_path / "o")
    assert done.exit_code == 0, done.stderr
    wrote = {path.name for path in (tmp_path / "o").iterdir()}
    assert sorted(done.stdout.splitlines()) == sorted(str(tmp_path / "o" / name) for name in wrote)
    config = yaml.safe_load((tmp_path / "o" / "otava.yaml").read_text())
    assert wrote == {"otava.yaml", *(f"{name}.csv" for name in config["tests"])}
    found: dict[tuple[str, str], float] = {}
    for name, (head, *lines) in tables(tmp_path / "o").items():
        test = config["tests"][name]
        facts = ["time", *test["attributes"]]
        assert head[: len(facts)] == facts and len(set(head)) == len(head) and "branch" not in head
        assert (test["type"], test["time_column"]) == ("csv", "time")
        assert test["metrics"] == {column: {"direction": -1, "scale": 1.0} for column in head[len(facts) :]}
        assert not any("," in column for column in head)
        when = [datetime.fromisoformat(line[0]) for line in lines]
        assert when == sorted(when) and all(one.tzinfo for one in when) and len(lines) >= 2
        for line in lines:
            assert len(line) == len(head)
            for column, cell in zip(head[len(facts) :], line[len(facts) :], strict=True):
                key = (line[1], number(column))
                assert key not in found
                found[key] = float(cell)
    assert found == pytest.approx(expected(rows), rel=1e-8)
    doubted = sum(row.pressure is not None for row in rows)
    assert f"left out: {doubted} of {len(rows)} times: suspect for the state of the machine" in done.stderr
    assert f"left out: 1 of {len(rows)} times: alone in their series" in done.stderr


def test_a_night_has_one_time_and_the_longest_series_the_plain_name(
    tmp_path: Path, chance: np.random.Generator
) -> None:
    rows = some_nights(chance)
    rows = [rows[at] for at in chance.permutation(len(rows))]
    export("otava", written(tmp_path / "r", *rows), "-o", tmp_path / "o")
    read = tables(tmp_path / "o")
    when: dict[str, set[str]] = {}
    for _, *lines in read.values():
        for line in lines:
            when.setdefault(line[1], set()).add(line[0])
    begun: dict[str, list[datetime]] = {}
    for row in rows:
        begun.setdefault(row.run_id, []).append(datetime.fromisoformat(row.utc))
    assert when == {run: {min(times).isoformat(timespec="seconds")} for run, times in begun.items()}
    for name in ("nvidia-h200@1f3c9a02.gemm.triton", "nvidia-h200@1f3c9a02.gemm.cublas"):
        own = {test: len(lines) for test, lines in read.items() if test.startswith(name)}
        assert own[name] == max(own.values()) == NIGHTS + 1
    config = yaml.safe_load((tmp_path / "o" / "otava.yaml").read_text())
    assert config["test_groups"] == {"nvidia-h200@1f3c9a02": list(read)}


def test_names_of_others_make_no_paths(tmp_path: Path, chance: np.random.Generator) -> None:
    rows = [night(chance, day, 1, implementation="../../x y/z") for day in (1, 2)]
    done = export("otava", written(tmp_path / "r", *rows), "-o", tmp_path / "o")
    assert {path.name for path in tmp_path.rglob("*.csv")} == {"nvidia-h200@1f3c9a02.gemm.x.y.z.csv"}
    assert done.exit_code == 0 and len(list((tmp_path / "o").iterdir())) == 2


@pytest.fixture
def by_otava() -> Callable[[Path], Any]:
    """What Otava reads of a configuration."""
    python = os.environ.get("ROOFBENCH_OTAVA")
    if python is None:
        pytest.skip("ROOFBENCH_OTAVA names no python that has apache-otava 0.8")

    def read(configuration: Path) -> Any:
        command = [python, "-c", READ_BY_OTAVA, str(configuration)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return read


def test_otava_reads_what_was_written(
    tmp_path: Path, chance: np.random.Generator, by_otava: Callable[[Path], Any]
) -> None:
    rows = some_nights(chance)
    export("otava", written(tmp_path / "r", *rows), "-o", tmp_path / "o")
    read, groups = by_otava(tmp_path / "o" / "otava.yaml")
    found = {}
    for times, data, attributes, signs, _ in read.values():
        assert times == sorted(times) and set(signs) == {-1}
        assert set(attributes) == {"run_id", "commit", "driver", "torch", "triton"}
        for column, values in data.items():
            found |= {(run, number(column)): v for run, v in zip(attributes["run_id"], values, strict=True)}
    assert found == pytest.approx(expected(rows), rel=1e-8)
    assert groups == {"nvidia-h200@1f3c9a02": list(read)}


def test_otava_finds_the_step_where_it_is(
    tmp_path: Path, chance: np.random.Generator, by_otava: Callable[[Path], Any]
) -> None:
    rows = [
        night(chance, 40 - day, m, median_s=(1.2 if m == 2 and day >= 25 else 1.0) * 1e-4 * level)
        for m in (1, 2, 3)
        for day, level in enumerate(np.exp(0.002 * chance.standard_normal(40)).tolist())
    ]
    export("otava", written(tmp_path / "r", *rows), "-o", tmp_path / "o")
    (found,) = by_otava(tmp_path / "o" / "otava.yaml")[0].values()
    # Its other finds are its own affair; the first night of the step is among those of that series.
    first = (NOON - timedelta(days=40 - 25)).date()
    assert first in [datetime.fromtimestamp(when, UTC).date() for when, name in found[4] if "m=2 " in name]
