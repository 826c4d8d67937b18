"""`python -m bench export openmetrics`: what Prometheus reads of it, by its own client's parser."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from bench.case_name import row_name
from bench.judge.frame import read
from tests.bench.exported import export, night, written

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(text: str) -> Series:
    """(metric, labels) -> value; each may be there once."""
    found = [
        ((sample.name, frozenset(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def of(found: Series, metric: str, **labels: str) -> dict[str, float]:
    """Case -> value of a metric, of the series with these labels."""
    return {
        dict(given).get("case", ""): value
        for (name, given), value in found.items()
        if name == f"roofbench_{metric}" and labels.items() <= dict(given).items()
    }


def test_every_time_of_the_newest_run_is_there() -> None:
    folder = REFERENCE / "fresh_nights"
    done = export("openmetrics", folder)
    found = series(done.stdout)
    run = read([folder])[-1]
    frame = run.frame[run.frame["median_s"].notna()]
    names = [row_name(row) for row in frame.itertuples()]
    assert of(found, "case_seconds") == dict(zip(names, frame["median_s"], strict=True))
    shares = dict(zip(names, frame["of_roof"], strict=True))
    assert of(found, "case_roof_ratio") == {name: share for name, share in shares.items() if share == share}
    assert of(found, "case_suspect") == dict(zip(names, frame["suspect"].astype(float), strict=True))
    ((_, ended),) = of(found, "run_timestamp_seconds").items()
    assert ended == max(datetime.fromisoformat(row.utc).timestamp() for row in run.rows if row.is_timed)
    assert f"left out: {9 * len(frame)} times of earlier runs: this format holds the newest" in done.stderr


def test_units_are_told_apart_and_whether_they_ran_together(
    tmp_path: Path, chance: np.random.Generator
) -> None:
    rows = [
        night(
            chance,
            day,
            m,
            run_id=f"2020010{9 - day}T020000Z-0-{gpus}-{unit}",
            device_id=unit,
            host=host,
            concurrent_gpus=gpus,
        )
        for day in (1, 2)
        for m in (1, 2)
        for gpus in (1, 8)
        for unit, host in (("u1", "a"), ("u2", "b"))
    ]
    found = series(export("openmetrics", written(tmp_path / "r", *rows)).stdout)
    assert len(of(found, "case_seconds", unit="u1", gpus="8", host="a")) == 2
    assert len([name for name, _ in found if name == "roofbench_case_seconds"]) == 2 * 2 * 2
    newest = [row for row in rows if row.run_id.startswith("20200108")]
    assert {value for (name, _), value in found.items() if name == "roofbench_case_seconds"} == {
        row.median_s for row in newest
    }


def test_no_label_changes_with_the_run(tmp_path: Path, chance: np.random.Generator) -> None:
    """Else every night would add series for good."""
    seen = []
    for day in (2, 1):
        changed = {"commit": f"c{day}", "driver": f"{day}", "torch": f"2.{day}", "job_id": f"J={day}"}
        rows = [night(chance, day, m, **changed, configuration=f"tile {day}") for m in (1, 2)]
        seen.append(set(series(export("openmetrics", written(tmp_path / f"{day}", *rows)).stdout)))
    assert seen[0] == seen[1]


def test_odd_names_are_escaped(tmp_path: Path, chance: np.random.Generator) -> None:
    host = 'ra"ck\\1\nnode'
    found = series(export("openmetrics", written(tmp_path / "r", night(chance, 1, 1, host=host))).stdout)
    assert of(found, "case_seconds", host=host)


def test_the_file_is_replaced_at_once(
    tmp_path: Path, chance: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, path = written(tmp_path / "r", night(chance, 1, 1)), tmp_path / "new" / "roofbench.prom"
    done = export("openmetrics", results, "-o", path)
    assert (done.exit_code, done.stdout) == (0, f"{path}\n")
    whole = path.read_text()
    assert whole == export("openmetrics", results).stdout and list(path.parent.iterdir()) == [path]

    def interrupted(registry: object, escaping: str) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(write_to_textfile.__globals__, "generate_latest", interrupted)
    done = export("openmetrics", results, "-o", path)
    assert done.exit_code == 2 and f"{path}: cannot be written: No space left on device" in done.stderr
    assert path.read_text() == whole and list(path.parent.iterdir()) == [path]


def test_the_collector_reads_prom_files_only(tmp_path: Path, chance: np.random.Generator) -> None:
    path = tmp_path / "roofbench.txt"
    done = export("openmetrics", written(tmp_path / "r", night(chance, 1, 1)), "-o", path)
    assert done.exit_code == 2 and "names end in .prom only" in done.stderr and not path.exists()
